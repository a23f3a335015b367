# Builds $(BUILD)/application.elf with a stock RISC-V gcc (Debian: gcc-riscv64-unknown-elf and picolibc-riscv64-unknown-elf), or, with
# COMPILER=clang, with a stock clang and gcc's linker. Whoever includes this sets
#   SOURCES      C files of the application, the HAL's and the network's among them
#   INCLUDES     folders of their headers
#   BARE         the folder of the family's runtime, with its link.ld; SOC and SIMULATED as its bare.mk says
#   BARE_FLAGS, BARE_LINK, BARE_SOURCES  options for the compiler and for the linker, sources of the runtime
#   STACKS       who begins on which stack, how many bytes it has, and where calls through pointers lead: options of stack.py
#   GVSOC_TARGET the chip's name in the simulator
# and may set BUILD, CFLAGS, DEFINES, LIBRARIES, GVSOC, PYTHON, and CHECK_STACKS=0 for code whose depth cannot be told: the
# linked program is followed to find how deep its stacks can become, and has to have as much ($(BUILD)/application.stacks).
BUILD ?= build
# What this runtime was written for; `deeploy run` refuses a simulator that it knows to be another.
GVSOC_REVISION := edfcd839
CFLAGS ?= -O3
WARNINGS ?= -Wall -Wextra -Wpedantic -Wmissing-prototypes -Wconversion -Wsign-conversion -Wshadow -Wdouble-promotion -Werror
GVSOC ?= gvsoc
PYTHON ?= python3
CHECK_STACKS ?= 1
CROSS ?= riscv64-unknown-elf-
COMPILER ?= gcc
PICOLIBC ?= /usr/lib/picolibc/riscv64-unknown-elf
ifeq ($(COMPILER),clang)
BARE_COMPILE = clang --target=riscv32-unknown-elf $(BARE_FLAGS) -isystem $(PICOLIBC)/include
else
# Loops over a few words stay loops: a call of memset or memcpy takes longer, and theirs would call themselves.
BARE_COMPILE = $(CROSS)gcc $(BARE_FLAGS) --specs=picolibc.specs -fno-tree-loop-distribute-patterns
endif

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

STACK_CHECK = $(PYTHON) $(SIMULATED)/../stack.py $@ --objdump $(CROSS)objdump --arena __l1_arena_end-__l1_arena

$(BUILD)/application.elf: $(BARE_OBJECTS) $(BARE)/link.ld $(SIMULATED)/../stack.py
	$(CROSS)gcc $(BARE_LINK) --specs=picolibc.specs -nostartfiles -Wl,--no-warn-rwx-segments -Wl,--gc-sections -Wl,-Map=$(@:.elf=.map) $(BARE_OBJECTS) $(LIBRARIES) -lm -o $@
ifneq ($(CHECK_STACKS),0)
	@$(STACK_CHECK) $(STACKS) > $(@:.elf=.stacks) || { $(RM) $@; exit 1; }
endif

# The simulator reads and writes files where it is started.
run: $(BUILD)/application.elf
	cd $(BUILD) && $(GVSOC) --target=$(GVSOC_TARGET) --work-dir=$(abspath $(BUILD)) --binary=$(abspath $<) image flash run

clean:
	$(RM) -r $(BUILD)

-include $(BARE_OBJECTS:.o=.d)
.PHONY: all run clean
