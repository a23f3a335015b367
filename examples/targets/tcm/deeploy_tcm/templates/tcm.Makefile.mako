<%inherit file="managed.Makefile.mako"/>\
<%def name="platforms()">\
# make qemu run-qemu: for the microcontroller, with Debian's gcc-arm-none-eabi, and under its qemu-system-arm.
</%def>\
<%def name="others()">\
<%
tcm, sram, flash = (target.memory(name) for name in ("TCM", "SRAM", "FLASH"))
used = -(-arenas["SRAM"] // 64) * 64
%>\

# The arenas lie where their memories begin; the stack is what is reserved of TCM, variables and arrays follow the arena in SRAM.
QEMU_CC := arm-none-eabi-gcc -mthumb -mfloat-abi=hard ${target.options["flags"]} --specs=nano.specs
QEMU_LINK = $(QEMU_CC) --specs=nosys.specs
QEMU_RUN := qemu-system-arm -machine ${target.options["board"]}
QEMU_SOURCES := $(wildcard runtime/*.c) runtime/qemu/rt.c
QEMU_INCLUDES := ${" ".join(folders)}
QEMU_DEFINES := -DARENAS=${hex(tcm.base)},${hex(sram.base)},0 -DCONSTANTS='"${f"{prefixes[0]}_" if len(prefixes) == 1 else ""}weights.bin"'
QEMU_LAYOUT := -DFLASH_BASE=${hex(flash.base)} -DFLASH_BYTES=${flash.capacity} -DRAM_BASE=${hex(sram.base + used)} \
	-DRAM_BYTES=${sram.capacity - used} -DSTACK_TOP=${hex(tcm.base + tcm.capacity)} -DHEAP_END_LESS= -DENTRY_POINT=reset
include runtime/qemu/qemu.mk
</%def>\
