<%inherit file="generic.Makefile.mako"/>\
<%def name="others()">\
<%
ram, flash = target.memory("RAM"), target.memory("FLASH")
%>\

# make qemu run-qemu: for the microcontroller, with Debian's gcc-arm-none-eabi and newlib, and under its qemu-system-arm.
QEMU_CC := arm-none-eabi-gcc -mthumb -mfloat-abi=hard ${target.options["flags"]} --specs=nano.specs
QEMU_LINK = $(QEMU_CC) --specs=nosys.specs
QEMU_RUN := qemu-system-arm -machine ${target.options["board"]}
QEMU_INCLUDES := ${" ".join(folders)}
QEMU_LAYOUT := -DFLASH_BASE=${hex(flash.base)} -DFLASH_BYTES=${flash.capacity} -DRAM_BASE=${hex(ram.base)} -DRAM_BYTES=${ram.capacity} \
	-DSTACK_TOP=${hex(ram.base + ram.capacity)} "-DHEAP_END_LESS=- ${ram.reserved}" -DENTRY_POINT=reset${" -DVECTORS_BASE=" + target.options["vectors"] if "vectors" in target.options else ""}
include runtime/qemu/qemu.mk
</%def>\
