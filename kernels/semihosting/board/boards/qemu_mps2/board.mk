# QEMU in place of a board: MPS2 with a Cortex-M4 or M7, whose serial line is a terminal that BOARD_PORT names.
BOARD_TARGETS := cortex_m4 cortex_m7
BOARD_SOURCES := uart.c
BOARD_LAYOUT := $(QEMU_LAYOUT)
BOARD_RUNTIME := runtime/qemu/semihost.c
BOARD_DEFINES := -DUART_BASE=0x40004000
BOARD_LOAD = sh $(dir $(BOARD_FOLDER))emulate.sh $(BOARD_PORT) $(BOARD_ELF) $(QEMU_RUN)
