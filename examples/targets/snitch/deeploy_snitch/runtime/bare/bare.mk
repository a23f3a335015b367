# A program for the Snitch cluster: program.mk builds it and says what is to be set, and beside that
#   L2_ARENA_BYTES     what the plan uses of the arena in L2: it is checked that this, code, data, inputs and outputs fit
#   L1_RESERVED_BYTES  what the plan leaves of L1, for stacks
SOC ?= $(BARE)
SIMULATED ?= $(BARE)
include $(SOC)/soc.mk

# gcc has no library for rv32imafd without compressed instructions: that of rv32imfd has no atomic ones, and needs none.
# The cache of instructions does not hold portable kernels unrolled.
BARE_FLAGS := -march=rv32imafd -mabi=ilp32d -ffixed-ft0 -ffixed-ft1 -ffixed-ft2 -DKERNELS_ROLLED
BARE_LINK := -march=rv32imfd -mabi=ilp32d -T$(BARE)/link.ld -Wl,--defsym=l2_arena_bytes=$(or $(L2_ARENA_BYTES),0) \
	-Wl,--defsym=l1_reserved_bytes=$(L1_RESERVED_BYTES)
BARE_SOURCES := $(addprefix $(BARE)/,start.S board.c cluster.c rt.c) $(addprefix $(SIMULATED)/,console.c memory.c stacks.c)

STACKS := --core "core 0=controller_main:__core_0_stack_top-__core_0_stack_bottom" --core "a core=cluster_worker:__core_stack_bytes" \
	--core "the core that moves data=cluster_mover:__core_stack_bytes" \
	--pointers cluster_worker=rt_fork --pointers rt_enter=rt_enter --callers controller_main=rt_enter

include $(SIMULATED)/program.mk
