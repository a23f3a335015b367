# QEMU in place of a board: `virt` with an RV32IMC core, whose serial line is a terminal that BOARD_PORT names.
BOARD_TARGETS := rv32imc
BOARD_SOURCES := uart.c
BOARD_LAYOUT := $(QEMU_LAYOUT)
BOARD_RUNTIME := runtime/qemu/semihost.c
BOARD_LOAD = sh $(dir $(BOARD_FOLDER))emulate.sh $(BOARD_PORT) $(BOARD_ELF) $(QEMU_RUN)
