<%inherit file="gvsoc.Makefile.mako"/>\
<%def name="platforms()">\
${parent.platforms()}\
# make PLATFORM=pulp-sdk all run: for the chip, with the PULP SDK and its toolchain in the environment, and run on GVSoC.
</%def>\
<%def name="others()">\
${parent.others()}\

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
