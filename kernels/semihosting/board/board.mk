# make board BOARD=NAME|FOLDER: a program for a board, in BOARD_BUILD; make load-board: load it. BOARD names a folder of
# runtime/board/boards, or is another folder, with a board.mk that sets
#   BOARD_TARGETS   the targets of deeploy whose programs run there
#   BOARD_SOURCES   C files with what board.h asks for
#   BOARD_LAYOUT    -D options of link.ld, as in QEMU_LAYOUT
#   BOARD_RUNTIME   files of the runtime that it needs besides, if any
# and how programs are loaded: BOARD_OPENOCD, BOARD_PYOCD, BOARD_ESPTOOL, BOARD_WEST, the options for these tools, of which the
# first that is installed is taken; or BOARD_LOAD, a command of its own. It may set BOARD_BAUD and BOARD_DEFINES (-D options).
# BOARD_PROGRAM is the main file: link (for `deeploy run --on board`), test (with DEFINES=-DSELF_TEST=NAME_test) or mlperf. DEFINES are macros for all files.
BOARD_BAUD ?= 115200
BOARD_PROGRAM ?= link
BOARD_BUILD ?= build/board/$(BOARD_PROGRAM)
ifneq ($(BOARD),)
BOARD_FOLDER := $(patsubst %/board.mk,%,$(firstword $(wildcard runtime/board/boards/$(BOARD)/board.mk $(BOARD)/board.mk)))
ifeq ($(BOARD_FOLDER),)
$(error there is no board.mk in $(BOARD), and no such folder in runtime/board/boards)
endif
BOARD_ELF := $(BOARD_BUILD)/application.elf
found = $(if $(1),$(shell command -v $(2) 2>/dev/null))
include $(BOARD_FOLDER)/board.mk

ifdef BOARD_LOAD
else ifneq ($(call found,$(BOARD_OPENOCD),openocd),)
BOARD_LOAD = openocd $(BOARD_OPENOCD) -c "program $(BOARD_ELF) verify reset exit"
else ifneq ($(call found,$(BOARD_PYOCD),pyocd),)
BOARD_LOAD = pyocd flash $(BOARD_PYOCD) $(BOARD_ELF)
else ifneq ($(call found,$(BOARD_ESPTOOL),esptool.py),)
BOARD_LOAD = esptool.py $(BOARD_ESPTOOL) $(BOARD_ELF)
else ifneq ($(call found,$(BOARD_WEST),west),)
BOARD_LOAD = west flash $(BOARD_WEST) --elf-file $(BOARD_ELF)
endif

BOARD_FILES := $(wildcard src/*.c) $(wildcard src/kernels/*.c) $(addprefix runtime/qemu/,program.c start.c constants.S) $(QEMU_SOURCES) \
	$(addprefix runtime/board/,$(BOARD_PROGRAM).c clock.c) $(BOARD_RUNTIME)
BOARD_OBJECTS := $(addprefix $(BOARD_BUILD)/,$(addsuffix .o,$(basename $(BOARD_FILES)))) $(BOARD_SOURCES:%.c=$(BOARD_BUILD)/of_board/%.o)
BOARD_CFLAGS = $(QEMU_FLAGS) -Iruntime/board -Iruntime/board/boards -DBOARD_BAUD=$(BOARD_BAUD) $(BOARD_DEFINES) $(if $(filter link,$(BOARD_PROGRAM)),-DDEEPLOY_PROFILE)

board: $(BOARD_ELF)
	@echo 'built $(BOARD_ELF)'

$(BOARD_ELF): $(BOARD_OBJECTS) $(BOARD_BUILD)/link.ld
	$(QEMU_LINK) -nostartfiles -Wl,--no-warn-rwx-segments -Wl,--gc-sections -Wl,-Map=$(@:.elf=.map) -T $(BOARD_BUILD)/link.ld $(BOARD_OBJECTS) -lm -o $@

$(BOARD_BUILD)/link.ld: runtime/qemu/link.ld $(BOARD_FOLDER)/board.mk
	@mkdir -p $(@D)
	$(QEMU_CC) -E -P -x c $(BOARD_LAYOUT) $< -o $@

$(BOARD_BUILD)/of_board/%.o: $(BOARD_FOLDER)/%.c
	@mkdir -p $(@D)
	$(QEMU_CC) $(BOARD_CFLAGS) -MMD -c $< -o $@

$(BOARD_BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(QEMU_CC) $(BOARD_CFLAGS) -MMD -c $< -o $@

$(BOARD_BUILD)/%.o: %.S $(wildcard *.bin)
	@mkdir -p $(@D)
	$(QEMU_CC) $(BOARD_CFLAGS) -c $< -o $@

load-board: $(BOARD_ELF)
	$(if $(BOARD_LOAD),$(BOARD_LOAD),$(error no command loads programs onto this board: load $(BOARD_ELF) with a tool of its maker))

-include $(BOARD_OBJECTS:.o=.d)
endif
.PHONY: board load-board
