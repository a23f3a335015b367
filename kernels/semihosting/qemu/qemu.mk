# make qemu: the program that runs test vectors under QEMU; make run-qemu: run it in QEMU_BUILD. Whoever includes this sets
#   QEMU_CC, QEMU_LINK  the compiler with its flags, and how it links
#   QEMU_RUN            the emulator with its board, to which the program is added
#   QEMU_LAYOUT         -D options of link.ld: FLASH_BASE, FLASH_BYTES, RAM_BASE, RAM_BYTES, STACK_TOP, HEAP_END_LESS, ENTRY_POINT
#   QEMU_SOURCES        further C files, QEMU_INCLUDES folders of headers, QEMU_DEFINES macros
# and may set QEMU_BUILD, QEMU_CFLAGS, DEFINES.
QEMU_BUILD ?= build/qemu
QEMU_CFLAGS ?= -O2
QEMU_FILES := $(wildcard src/*.c) $(wildcard src/kernels/*.c) $(addprefix runtime/qemu/,main.c program.c semihost.c start.c constants.S) $(QEMU_SOURCES)
QEMU_OBJECTS := $(addprefix $(QEMU_BUILD)/,$(addsuffix .o,$(basename $(QEMU_FILES))))
QEMU_FLAGS := -std=c11 -ffp-contract=off $(WARNINGS) $(QEMU_CFLAGS) -ffunction-sections -fdata-sections $(QEMU_DEFINES) $(DEFINES) \
	-Iinclude -Iruntime -Iruntime/qemu $(addprefix -I,$(QEMU_INCLUDES))

qemu: $(QEMU_BUILD)/application.elf

$(QEMU_BUILD)/application.elf: $(QEMU_OBJECTS) $(QEMU_BUILD)/link.ld
	$(QEMU_LINK) -nostartfiles -Wl,--no-warn-rwx-segments -Wl,--gc-sections -Wl,-Map=$(@:.elf=.map) -T $(QEMU_BUILD)/link.ld $(QEMU_OBJECTS) -lm -o $@

$(QEMU_BUILD)/link.ld: runtime/qemu/link.ld Makefile
	@mkdir -p $(@D)
	$(QEMU_CC) -E -P -x c $(QEMU_LAYOUT) $< -o $@

$(QEMU_BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(QEMU_CC) $(QEMU_FLAGS) -MMD -c $< -o $@

$(QEMU_BUILD)/%.o: %.S $(wildcard *.bin)
	@mkdir -p $(@D)
	$(QEMU_CC) $(QEMU_FLAGS) -c $< -o $@

run-qemu: $(QEMU_BUILD)/application.elf
	cd $(QEMU_BUILD) && $(QEMU_RUN) -display none -monitor none -serial none -semihosting-config enable=on,target=native -kernel application.elf

-include $(QEMU_OBJECTS:.o=.d)
.PHONY: qemu run-qemu
include runtime/board/board.mk
