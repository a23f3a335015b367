# STM32F4 with 512 KB of flash and 128 KB of RAM or more: Nucleo-F446RE, F405 boards. The serial line is USART2 on PA2 and PA3.
BOARD_TARGETS := cortex_m4
BOARD_SOURCES := usart2.c
BOARD_LAYOUT := -DFLASH_BASE=0x08000000 -DFLASH_BYTES=0x80000 -DRAM_BASE=0x20000000 -DRAM_BYTES=0x20000 -DSTACK_TOP=0x20020000 \
	"-DHEAP_END_LESS=- 8192" -DENTRY_POINT=reset
BOARD_OPENOCD := -f interface/stlink.cfg -f target/stm32f4x.cfg
BOARD_PYOCD := -t stm32f446re
