<%inherit file="managed.Makefile.mako"/>\
<%def name="platforms()">\
# make PLATFORM=bare all run: for the chip, with a stock RISC-V gcc or clang (COMPILER=clang), and run on GVSoC (GVSOC=...).
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
</%def>\
