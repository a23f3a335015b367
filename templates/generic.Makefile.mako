# make: the application that runs test vectors; make lib: the networks as a static library; make clean.
# SANITIZE=1 adds the address and undefined-behaviour sanitizers. Everything is built in BUILD.
CC ?= gcc
AR ?= ar
BUILD ?= build
CFLAGS ?= -O3
WARNINGS ?= -Wall -Wextra -Wpedantic -Wmissing-prototypes -Wconversion -Wsign-conversion -Wshadow -Wdouble-promotion -Werror
ALL_CFLAGS := -std=c11 -ffp-contract=off $(WARNINGS) $(CFLAGS) -Iinclude ${" ".join(f"-I{folder}" for folder in folders)}
ifeq ($(SANITIZE),1)
ALL_CFLAGS += -g -fsanitize=address,undefined -fno-sanitize-recover=all
endif

SOURCES := $(wildcard src/*.c) $(wildcard src/kernels/*.c)
OBJECTS := $(SOURCES:%.c=$(BUILD)/%.o)
# Further flags of all that is no kernel.
$(BUILD)/runtime/main.o $(patsubst %.c,$(BUILD)/%.o,$(wildcard src/*.c)): ALL_CFLAGS += $(NETWORK_CFLAGS)

all: $(BUILD)/application
lib: $(BUILD)/libnetwork.a

$(BUILD)/application: $(BUILD)/runtime/main.o $(BUILD)/libnetwork.a
	$(CC) $(ALL_CFLAGS) $^ -o $@ -lm $(LDFLAGS)

$(BUILD)/libnetwork.a: $(OBJECTS)
	$(RM) $@
	$(AR) rcs $@ $^

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -MMD -c $< -o $@

clean:
	$(RM) -r $(BUILD)

-include $(OBJECTS:.o=.d)
.PHONY: all lib clean
${self.others()}\
<%def name="others()"></%def>\
