"""A Cortex-M7 whose kernels work in tightly coupled memory, beside a larger RAM and flash.

The core copies what it needs from SRAM to TCM; constants come from flash through SRAM. Kernels are those of ``cortex_m7``, whose
memory is one RAM. Addresses are those of QEMU's board MPS2 with AN500, sizes those of common parts.
"""

from dataclasses import replace
from pathlib import Path

from deeploy.target import DmaPath, Engine, Memory, load, load_timing, resource

HERE = Path(__file__).parent
KIB = 1024
M7 = load("cortex_m7")

TCM = Memory("TCM", 128 * KIB, alignment=8, reserved=16 * KIB, base=0x2000_0000)  # the stack is there
SRAM = Memory("SRAM", 512 * KIB, alignment=8, reserved=32 * KIB, base=0x2010_0000)  # variables and the caller's arrays are there
FLASH = Memory("FLASH", 2048 * KIB, alignment=16, reserved=256 * KIB, is_far=True, base=0x0000_0000)  # code is there
TO_TCM = DmaPath("SRAM_TCM", "TCM", "SRAM", max_bytes=65535, max_rows=65535, max_total=2**24, max_pitch=2**24)
TO_SRAM = DmaPath("FLASH_SRAM", "SRAM", "FLASH", max_bytes=65535, max_rows=65535, max_total=2**24, max_pitch=2**24)

TARGET = replace(
    M7,
    name="cortex_m7_tcm",
    summary="an Arm Cortex-M7 with 128 KiB TCM, 512 KiB SRAM, 2 MiB flash",
    memories=(TCM, SRAM, FLASH),
    paths=(TO_TCM, TO_SRAM),
    engines=(Engine("core", "TCM"),),
    timing=load_timing(HERE / "timing.toml"),
    default_memory="FLASH",
    template_folders=(HERE / "templates", *M7.template_folders),
    runtime=(resource("kernels") / "hal", resource("kernels") / "semihosting"),
    build="tcm.Makefile.mako",
)
