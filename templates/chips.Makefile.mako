# make: the application that runs all chips, a thread each; make mpi: the one that is a chip as an MPI rank (MPICC=mpicc); make clean.
# SANITIZE=1 adds the address and undefined-behaviour sanitizers, SANITIZE=thread the thread sanitizer. Everything is built in BUILD.
ifneq ($(PLATFORM),)
$(error PLATFORM=$(PLATFORM): this Makefile builds all chips for this host; ${"make -f chips/K/chip.mk builds chip K for the chip itself" if alone else "there is no other platform"})
endif
CC ?= gcc
MPICC ?= mpicc
BUILD ?= build
CFLAGS ?= -O2
WARNINGS ?= -Wall -Wextra -Wpedantic -Wmissing-prototypes -Wconversion -Wsign-conversion -Wshadow -Wdouble-promotion -Werror
INCLUDES := -Iinclude -Iruntime -Iruntime/chips ${" ".join(f"-I{folder}" for folder in folders)}
CHIP_CFLAGS := -std=c11 -ffp-contract=off $(WARNINGS) $(CFLAGS) $(INCLUDES) -fPIC -Dmain=chip_main${" -DRT_CHECKED" if checked else ""}
RUN_CFLAGS := -std=c11 -ffp-contract=off $(WARNINGS) $(CFLAGS) -Iruntime/chips -DCHIPS=${len(leads)} -DCHIP_QUEUE=${queue}
ifeq ($(SANITIZE),1)
CHIP_CFLAGS += -g -fsanitize=address,undefined -fno-sanitize-recover=all
RUN_CFLAGS += -g -fsanitize=address,undefined -fno-sanitize-recover=all
endif
ifeq ($(SANITIZE),thread)
CHIP_CFLAGS += -g -fsanitize=thread -DRT_THREADS
RUN_CFLAGS += -g -fsanitize=thread
endif

# What all chips have in common, and what runs them.
SHARED := $(patsubst %.c,$(BUILD)/%.o,$(wildcard src/kernels/*.c runtime/*.c runtime/host/*.c) runtime/chips/${"checked" if checked else "plain"}.c)
LIBRARIES := ${" ".join(f"$(BUILD)/chips/{chip}.so" for chip in range(len(leads)))}

all: $(BUILD)/application $(LIBRARIES)
mpi: $(BUILD)/application-mpi $(LIBRARIES)

$(BUILD)/application: runtime/chips/threads.c runtime/chips/arguments.c
	@mkdir -p $(@D)
	$(CC) $(RUN_CFLAGS) $^ -o $@ -ldl -lpthread -lm $(LDFLAGS)

$(BUILD)/application-mpi: runtime/chips/mpi.c runtime/chips/arguments.c
	@mkdir -p $(@D)
	$(MPICC) $(RUN_CFLAGS) $^ -o $@ -ldl -lpthread -lm $(LDFLAGS)

# A chip's own sources; code that differs in nothing is compiled for the first chip that has it.
% for chip, lead in enumerate(leads):
CHIP_${chip} := $(patsubst %.c,$(BUILD)/%.o,$(wildcard chips/${chip}/src/*.c${f" chips/{lead}/src/network.c chips/{lead}/src/networks.c" if lead != chip else ""}))
$(BUILD)/chips/${chip}.so: $(CHIP_${chip}) $(SHARED)
$(BUILD)/chips/${chip}/%.o: CHIP_CFLAGS += -Ichips/${lead}/include -Ichips/${lead}/src $(NETWORK_CFLAGS)
% endfor

$(BUILD)/chips/%.so:
	@mkdir -p $(@D)
	$(CC) $(CHIP_CFLAGS) -shared -Wl,-Bsymbolic $^ -o $@ -lm -lpthread $(LDFLAGS)

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CHIP_CFLAGS) -MMD -c $< -o $@

clean:
	$(RM) -r $(BUILD)

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
.PHONY: all mpi clean
