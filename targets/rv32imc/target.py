"""RV32IMC microcontrollers, like the ESP32-C3: one core without floating point, code and constants in flash, one RAM.

They run the portable kernels of the generic target. Capacities are those of large parts: ``--memory RAM=BYTES`` says what another one
has. Addresses are those of QEMU's board ``virt``, whose memory begins at 0x80000000.
"""

from dataclasses import replace
from pathlib import Path

from deeploy.target import Memory, load, load_timing, resource

KIB = 1024
GENERIC = load("generic")
RAM = Memory("RAM", 1024 * KIB, alignment=16, reserved=32 * KIB, base=0x8100_0000)  # stack, variables and the caller's arrays
FLASH = Memory("FLASH", 4096 * KIB, alignment=16, is_far=True, base=0x8000_0000)

TARGET = replace(
    GENERIC,
    name="rv32imc",
    summary="an RV32IMC microcontroller: portable kernels, one RAM, constants read in place from flash",
    serves=(
        *("esp32c2", "esp32c3", "esp32c5", "esp32c6", "esp32h2"),
        *("riscv32", "rv32imac", "gd32vf103", "ch32v2", "ch32v3", "fe310"),
    ),
    memories=(RAM, FLASH),
    template_folders=(Path(__file__).parent / "templates", *GENERIC.template_folders),
    runtime=(*GENERIC.runtime, resource("kernels") / "semihosting"),
    build="rv32imc.Makefile.mako",
    timing=load_timing(Path(__file__).parent / "timing.toml"),
    topology=None,
    options={
        "compiler": "riscv64-unknown-elf-gcc -march=rv32imc_zicsr -mabi=ilp32 --specs=picolibc.specs",
        "library": "-march=rv32im -mabi=ilp32",
        "processor": "rv32,f=false,d=false,a=false",
    },
)
