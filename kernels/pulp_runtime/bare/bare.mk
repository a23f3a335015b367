# A program for a chip of the PULP family: program.mk builds it and says what is to be set, and beside that
#   L2_ARENA_BYTES     what the plan uses of the arena in L2: it is checked that this, code, data, inputs and outputs fit
#   L1_RESERVED_BYTES  what the plan leaves of L1, for stacks: what the target reserves (the default), or more
#   CHIP      of a system of several chips: which one this is
# The folder of soc.mk and soc.h, which are the chip's own. soc.mk sets GVSOC_TARGET, its name in the simulator; SOC_L1_BYTES and
# SOC_L2_BYTES; SOC_SOURCES, C files of that folder.
SOC ?= $(BARE)
# The folder of what runtimes on this simulator have in common.
SIMULATED ?= $(BARE)
include $(SOC)/soc.mk

# The controller has no F: its code uses no floating point. gcc has no library for rv32imfc, the next best is linked: the
# atomic instructions of rv32imafc occur nowhere in it.
BARE_FLAGS := -march=rv32imfc -mabi=ilp32f
BARE_LINK := -march=rv32imafc -mabi=ilp32f -T$(BARE)/link.ld \
	-Wl,--defsym=l1_bytes=$(SOC_L1_BYTES) -Wl,--defsym=l2_bytes=$(SOC_L2_BYTES) \
	-Wl,--defsym=l2_arena_bytes=$(or $(L2_ARENA_BYTES),0) $(if $(L1_RESERVED_BYTES),-Xlinker --defsym=l1_reserved_bytes=$(L1_RESERVED_BYTES))
BARE_SOURCES := $(addprefix $(BARE)/,start.S board.c cluster.c mchan.c hyperram.c rt.c $(if $(CHIP),link.c)) $(addprefix $(SIMULATED)/,console.c memory.c stacks.c) $(addprefix $(SOC)/,$(SOC_SOURCES))

# Who begins on which stack, how many bytes it has, and where calls through pointers lead.
STACKS := --core "core 0=cluster_master:__core_0_stack_top-__core_0_stack_bottom" --core "a core=cluster_worker:__core_stack_bytes" \
	--stack "the controller=controller_main:controller_stack_bytes" \
	--pointers cluster_master=rt_enter --pointers cluster_worker=rt_fork --callers controller_main=rt_enter

include $(SIMULATED)/program.mk
