"""An RV32IMC microcontroller: one core without floating point, code and constants in flash, one RAM.

It runs the portable kernels of the generic target. Addresses are those of QEMU's board ``virt``, whose memory begins at 0x80000000;
another part needs other bases and capacities here, and the flags of its compiler in the template of the Makefile.
"""

from pathlib import Path

from deeploy.target import Memory, Target, load, passes, resource

HERE = Path(__file__).parent
KIB = 1024

GENERIC = load("generic")
RAM = Memory("RAM", 1024 * KIB, alignment=16, reserved=32 * KIB, base=0x8100_0000)  # stack, variables and the caller's arrays
FLASH = Memory("FLASH", 4096 * KIB, alignment=16, is_far=True, base=0x8000_0000)

TARGET = Target(
    name="rv32imc",
    summary="an RV32IMC microcontroller: 4 MiB flash, 1 MiB RAM, portable kernels",
    memories=(RAM, FLASH),
    kernels=GENERIC.kernels,
    passes=passes(),
    kernel_folders=GENERIC.kernel_folders,
    template_folders=(HERE / "templates", resource("templates")),
    runtime=(*GENERIC.runtime, resource("kernels") / "semihosting"),
    build="rv32imc.Makefile.mako",
)
