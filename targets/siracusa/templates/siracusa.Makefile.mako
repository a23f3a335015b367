<%inherit file="managed.Makefile.mako"/>\
<%def name="platforms()">\
# make PLATFORM=bare all run: for the chip, with a stock RISC-V gcc or clang (COMPILER=clang), and run on GVSoC (GVSOC=...).
# make PLATFORM=pulp-sdk all run: for the chip, with the PULP SDK and its toolchain in the environment, and run on GVSoC.
</%def>\
<%def name="others()">\

ifeq ($(PLATFORM),bare)
BARE := runtime/bare
SOURCES := $(wildcard src/*.c) $(wildcard src/kernels/*.c) $(wildcard runtime/*.c) $(BARE)/main.c
INCLUDES := include runtime ${" ".join(folders)}
L1_RESERVED_BYTES := ${target.memory("L1").capacity - arenas["L1"]}
L2_ARENA_BYTES := ${arenas["L2"]}
DEFINES ?= -DDEEPLOY_PROFILE
include $(BARE)/bare.mk
endif

ifeq ($(PLATFORM),pulp-sdk)
PMSIS := runtime/pmsis
SOURCES := $(wildcard src/*.c) $(wildcard src/kernels/*.c) $(wildcard runtime/*.c) $(PMSIS)/main.c
INCLUDES := include runtime ${" ".join(folders)}
CONSTANTS := ${f"{prefixes[0]}_" if len(prefixes) == 1 else ""}weights.bin
L1_RESERVED_BYTES := ${target.memory("L1").capacity - arenas["L1"]}
DEFINES ?= -DDEEPLOY_PROFILE
include $(PMSIS)/pmsis.mk
endif
</%def>\
