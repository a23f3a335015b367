# Builds an application for Siracusa with the PULP SDK and its toolchain, and runs it on GVSoC. Whoever includes this sets
#   PMSIS     this folder
#   SOURCES   C files of the application, the network's and main.c among them
#   INCLUDES  folders of their headers
#   L1_RESERVED_BYTES  what the target reserves of L1, for stacks
# and may set BUILD, CFLAGS, DEFINES, CONSTANTS (the file with the constants of HyperRAM), GVSOC, and anything that the
# SDK's own rules know (CONFIG_..., runner_args, ...). The environment is the one of the SDK's documentation.
BUILD ?= build
CFLAGS ?= -O3
GVSOC ?= gvsoc

# Everything that the SDK's rules do not tell by themselves.
PMSIS_GCC := $(firstword $(PULP_RISCV_GCC_TOOLCHAIN_CI) $(PULP_RUNTIME_GCC_TOOLCHAIN) $(PULP_RISCV_GCC_TOOLCHAIN))
PMSIS_SOURCE := run 'source configs/siracusa.sh' in a clone of github.com/pulp-platform/pulp-sdk (revision 7f4f2251 is known to work)
ifeq ($(and $(PULP_SDK_HOME),$(RULES_DIR)),)
$(error PLATFORM=pulp-sdk: PULP_SDK_HOME and RULES_DIR are not set, so there is no PULP SDK: set PULP_RISCV_GCC_TOOLCHAIN, then $(PMSIS_SOURCE))
endif
ifeq ($(wildcard $(RULES_DIR)/pmsis_rules.mk),)
$(error PLATFORM=pulp-sdk: RULES_DIR is $(RULES_DIR), where there is no pmsis_rules.mk: $(PMSIS_SOURCE))
endif
ifneq ($(PULPOS_TARGET),siracusa)
$(error PLATFORM=pulp-sdk: the PULP SDK is set up for '$(PULPOS_TARGET)', not for siracusa: $(PMSIS_SOURCE))
endif
ifeq ($(PMSIS_GCC),)
$(error PLATFORM=pulp-sdk: PULP_RISCV_GCC_TOOLCHAIN is not set: install the toolchain from github.com/pulp-platform/pulp-riscv-gnu-toolchain and set it to the folder above its bin)
endif
ifeq ($(wildcard $(PMSIS_GCC)/bin/riscv32-unknown-elf-gcc),)
$(error PLATFORM=pulp-sdk: there is no $(PMSIS_GCC)/bin/riscv32-unknown-elf-gcc: set PULP_RISCV_GCC_TOOLCHAIN to the folder above bin of the PULP toolchain)
endif
# The SDK asks the launcher for flash images even where none is needed, so 'all' wants it, too.
PMSIS_GOALS := $(filter-out build clean dis size,$(or $(MAKECMDGOALS),all))
ifneq ($(PMSIS_GOALS),)
ifeq ($(shell command -v $(GVSOC)),)
$(error PLATFORM=pulp-sdk: the launcher $(GVSOC) cannot be run: build github.com/gvsoc/gvsoc for target siracusa and set GVSOC to its install/bin/gvsoc, or make the target 'build' only)
endif
endif

APP := network
APP_SRCS := $(SOURCES) $(filter-out $(PMSIS)/main.c,$(wildcard $(PMSIS)/*.c))
APP_CFLAGS := $(CFLAGS) $(DEFINES) -DL1_RESERVED_BYTES=$(or $(L1_RESERVED_BYTES),16384) $(addprefix -I,$(PMSIS) $(INCLUDES))
# What the SDK's small C library has comes from there: its objects are linked first.
APP_LDFLAGS := -lm -lc
CONFIG_HYPERRAM := 1
CONFIG_HOSTFS := 1

# Where the SDK's rules build, and the simulator reads and writes files.
override TARGET_BUILD_DIR := $(abspath $(BUILD))

.DEFAULT_GOAL := all
include $(RULES_DIR)/pmsis_rules.mk
GAPY_CMD := $(patsubst gvsoc,$(GVSOC),$(GAPY_CMD))

ifneq ($(CONSTANTS),)
$(TARGET_BUILD_DIR)/weights.bin: $(CONSTANTS)
	@mkdir -p $(@D)
	cp $< $@
run: $(TARGET_BUILD_DIR)/weights.bin
endif
