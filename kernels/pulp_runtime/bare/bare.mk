# Builds $(BUILD)/application.elf for a chip of the PULP family with a stock RISC-V gcc (Debian: gcc-riscv64-unknown-elf and
# picolibc-riscv64-unknown-elf), or, with COMPILER=clang, with a stock clang and gcc's linker. Whoever includes this sets
#   BARE      this folder
#   SOURCES   C files of the application, the HAL's and the network's among them
#   INCLUDES  folders of their headers
#   L2_ARENA_BYTES     what the plan uses of the arena in L2: it is checked that this, code, data, inputs and outputs fit
#   L1_RESERVED_BYTES  what the plan leaves of L1, for stacks: what the target reserves (the default), or more
#   CHIP      of a system of several chips: which one this is
# and may set BUILD, CFLAGS, DEFINES, LIBRARIES, GVSOC, PYTHON, and CHECK_STACKS=0 for code whose depth cannot be told: the
# linked program is followed to find how deep its stacks can become, and has to have as much ($(BUILD)/application.stacks).
BUILD ?= build
# The folder of soc.mk and soc.h, which are the chip's own. soc.mk sets GVSOC_TARGET, its name in the simulator; SOC_L1_BYTES and
# SOC_L2_BYTES; SOC_SOURCES, C files of that folder.
SOC ?= $(BARE)
# The folder of what runtimes on this simulator have in common.
SIMULATED ?= $(BARE)
include $(SOC)/soc.mk
# What this runtime was written for; `deeploy run` refuses a simulator that it knows to be another.
GVSOC_REVISION := edfcd839
CFLAGS ?= -O3
WARNINGS ?= -Wall -Wextra -Werror
GVSOC ?= gvsoc
PYTHON ?= python3
CHECK_STACKS ?= 1
CROSS ?= riscv64-unknown-elf-
COMPILER ?= gcc
PICOLIBC ?= /usr/lib/picolibc/riscv64-unknown-elf

# The controller has no F: its code uses no floating point. gcc has no library for rv32imfc, the next best is linked: the
# atomic instructions of rv32imafc occur nowhere in it.
BARE_FLAGS := -march=rv32imfc -mabi=ilp32f
ifeq ($(COMPILER),clang)
BARE_COMPILE = clang --target=riscv32-unknown-elf $(BARE_FLAGS) -isystem $(PICOLIBC)/include
else
# Loops over a few words stay loops: a call of memset or memcpy takes longer, and theirs would call themselves.
BARE_COMPILE = $(CROSS)gcc $(BARE_FLAGS) --specs=picolibc.specs -fno-tree-loop-distribute-patterns
endif
BARE_LINK := -march=rv32imafc -mabi=ilp32f --specs=picolibc.specs -nostartfiles -Wl,--no-warn-rwx-segments -T$(BARE)/link.ld \
	-Wl,--defsym=l1_bytes=$(SOC_L1_BYTES) -Wl,--defsym=l2_bytes=$(SOC_L2_BYTES) \
	-Wl,--defsym=l2_arena_bytes=$(or $(L2_ARENA_BYTES),0) $(if $(L1_RESERVED_BYTES),-Xlinker --defsym=l1_reserved_bytes=$(L1_RESERVED_BYTES))
BARE_SOURCES := $(addprefix $(BARE)/,start.S board.c cluster.c mchan.c hyperram.c rt.c $(if $(CHIP),link.c)) $(addprefix $(SIMULATED)/,console.c memory.c) $(addprefix $(SOC)/,$(SOC_SOURCES))

# No tables of jumps: whether a jump through a register is one or a call is not told by code, and the depth of stacks hangs on it.
BARE_CFLAGS = -std=c11 $(WARNINGS) $(CFLAGS) -fno-jump-tables -ffunction-sections -fdata-sections \
	$(DEFINES) '-DRT_HEADER="inline.h"' $(if $(CHIP),-DCHIP=$(CHIP)) -I$(BARE) -I$(SOC) -I$(SIMULATED) $(addprefix -I,$(INCLUDES))

# An object for each source, wherever it lies.
object = $(BUILD)/objects/$(patsubst /%,%,$(subst ..,up,$(basename $1))).o
BARE_OBJECTS := $(foreach source,$(BARE_SOURCES) $(SOURCES),$(call object,$(source)))

.DEFAULT_GOAL := all
all: $(BUILD)/application.elf

define compile
$(call object,$1): $1 $(BARE)/bare.mk
	@mkdir -p $$(@D)
	$$(BARE_COMPILE) $$(BARE_CFLAGS) -MMD -c $$< -o $$@
endef
$(foreach source,$(BARE_SOURCES) $(SOURCES),$(eval $(call compile,$(source))))

# Who begins on which stack, how many bytes it has, and where calls through pointers lead.
STACK_CHECK = $(PYTHON) $(SIMULATED)/../stack.py $@ --objdump $(CROSS)objdump --arena __l1_arena_end-__l1_arena \
	--core "core 0=cluster_master:__core_0_stack_top-__core_0_stack_bottom" --core "a core=cluster_worker:__core_stack_bytes" \
	--stack "the controller=controller_main:controller_stack_bytes" \
	--pointers cluster_master=rt_enter --pointers cluster_worker=rt_fork --callers controller_main=rt_enter

$(BUILD)/application.elf: $(BARE_OBJECTS) $(BARE)/link.ld $(SIMULATED)/../stack.py
	$(CROSS)gcc $(BARE_LINK) -Wl,--gc-sections -Wl,-Map=$(@:.elf=.map) $(BARE_OBJECTS) $(LIBRARIES) -lm -o $@
ifneq ($(CHECK_STACKS),0)
	@$(STACK_CHECK) > $(@:.elf=.stacks) || { $(RM) $@; exit 1; }
endif

# The simulator reads and writes files where it is started.
run: $(BUILD)/application.elf
	cd $(BUILD) && $(GVSOC) --target=$(GVSOC_TARGET) --work-dir=$(abspath $(BUILD)) --binary=$(abspath $<) image flash run

clean:
	$(RM) -r $(BUILD)

-include $(BARE_OBJECTS:.o=.d)
.PHONY: all run clean
