<%inherit file="generic.Makefile.mako"/>\
<%def name="others()">\
<%
ram, flash = target.memory("RAM"), target.memory("FLASH")
end = ram.base + ram.capacity
%>\

# make qemu run-qemu: for the microcontroller, with Debian's gcc-riscv64-unknown-elf and picolibc, and under its qemu-system-riscv32.
# The C library is of an architecture that gcc has one for, and that runs there as well.
QEMU_CC := ${target.options["compiler"]}
QEMU_LINK := riscv64-unknown-elf-gcc ${target.options["library"]} --specs=picolibc.specs
QEMU_RUN := qemu-system-riscv32 -machine virt -bios none -cpu ${target.options["processor"]}
QEMU_INCLUDES := ${" ".join(folders)}
QEMU_LAYOUT := -DFLASH_BASE=${hex(flash.base)} -DFLASH_BYTES=${flash.capacity} -DRAM_BASE=${hex(ram.base)} -DRAM_BYTES=${ram.capacity} \
	-DSTACK_TOP=${hex(end)} "-DHEAP_END_LESS=- 16384" -DENTRY_POINT=_start
include runtime/qemu/qemu.mk
</%def>\
