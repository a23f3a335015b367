# make: the application that runs test vectors on the machine model of this host; make clean. Everything is built in BUILD.
${self.platforms()}\
# SANITIZE=1 adds the address and undefined-behaviour sanitizers, SANITIZE=thread the thread sanitizer on real threads.
BUILD ?= build
PLATFORM ?= host

ifeq ($(PLATFORM),host)
CC ?= gcc
CFLAGS ?= -O2
WARNINGS ?= -Wall -Wextra -Wpedantic -Wmissing-prototypes -Wconversion -Wsign-conversion -Wshadow -Wdouble-promotion -Werror
INCLUDES := -Iinclude -Iruntime ${" ".join(f"-I{folder}" for folder in folders)}
ALL_CFLAGS := -std=c11 -ffp-contract=off $(WARNINGS) $(CFLAGS) $(INCLUDES)

HOST_CFLAGS := $(ALL_CFLAGS) -DRT_CHECKED
HOST_LIBS := -lm -lpthread
ifeq ($(SANITIZE),1)
HOST_CFLAGS += -g -fsanitize=address,undefined -fno-sanitize-recover=all
endif
ifeq ($(SANITIZE),thread)
HOST_CFLAGS += -g -fsanitize=thread -DRT_THREADS
endif

NETWORK := $(wildcard src/*.c) $(wildcard src/kernels/*.c) $(wildcard runtime/*.c)
HOST_OBJECTS := $(patsubst %.c,$(BUILD)/%.o,$(NETWORK) $(wildcard runtime/host/*.c))
# Further flags of the network's own C, which moves tiles and calls kernels.
$(patsubst %.c,$(BUILD)/%.o,$(wildcard src/*.c)): HOST_CFLAGS += $(NETWORK_CFLAGS)

all: $(BUILD)/application

$(BUILD)/application: $(HOST_OBJECTS)
	$(CC) $(HOST_CFLAGS) $^ -o $@ $(HOST_LIBS) $(LDFLAGS)

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(HOST_CFLAGS) -MMD -c $< -o $@

clean:
	$(RM) -r $(BUILD)

-include $(HOST_OBJECTS:.o=.d)
.PHONY: all clean
endif
${self.others()}\
<%def name="platforms()"></%def>\
<%def name="others()"></%def>\
