# make -f chips/${chip}/chip.mk all: chip ${chip} for the chip itself, with a stock RISC-V gcc or clang (COMPILER=clang).
# deeploy run --on gvsoc builds all chips, and runs a simulator for each, with pipes between them.
BARE := runtime/bare
CHIP := ${chip}
SOURCES := $(wildcard chips/${chip}/src/*.c${f" chips/{lead}/src/network.c chips/{lead}/src/networks.c" if lead != chip else ""}) $(wildcard src/kernels/*.c runtime/*.c) $(BARE)/main.c
INCLUDES := include runtime runtime/chips chips/${lead}/include chips/${lead}/src ${" ".join(folders)}
L1_RESERVED_BYTES := ${target.memory("L1").capacity - arenas["L1"]}
L2_ARENA_BYTES := ${arenas["L2"]}
DEFINES ?= -DDEEPLOY_PROFILE
include $(BARE)/bare.mk
