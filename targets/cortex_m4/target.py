"""Cortex-M4 microcontrollers: kernels of the DSP extension, one RAM, code and constants in flash, where these are read in place.

Capacities are those of the largest parts: ``--memory RAM=BYTES`` says what another one has. Addresses are those of QEMU's board
MPS2 with AN386. ``cortex_m7`` and ``cortex_m33`` differ in the flags of the compiler, the board and their capacities.
"""

from dataclasses import replace
from pathlib import Path

from deeploy.target import Memory, load, load_timing, resource

from .kernels import KERNELS

KIB = 1024
GENERIC = load("generic")
RAM = Memory("RAM", 640 * KIB, alignment=16, reserved=16 * KIB, base=0x2000_0000)  # stack, variables and the caller's arrays
FLASH = Memory("FLASH", 2048 * KIB, alignment=16, is_far=True, base=0x0000_0000)

TARGET = replace(
    GENERIC,
    name="cortex_m4",
    summary="an Arm Cortex-M4: kernels of its DSP extension, one RAM, constants read in place from flash",
    serves=(
        *("stm32f3", "stm32f4", "stm32g4", "stm32l4", "stm32wb", "stm32wl"),
        *(
            "nrf52",
            "nano33ble",
            "arduino_nano33ble",
            "samd51",
            "same51",
            "same54",
            "apollo3",
            "apollo4",
            "k64f",
            "msp432",
            "max78000",
            "teensy3",
            "tm4c",
        ),
    ),
    memories=(RAM, FLASH),
    kernels=KERNELS,
    template_folders=(Path(__file__).parent / "templates", *GENERIC.template_folders),
    runtime=(*GENERIC.runtime, resource("kernels") / "semihosting"),
    build="cortex_m.Makefile.mako",
    topology=None,
    timing=load_timing(Path(__file__).parent / "timing.toml"),
    options={"flags": "-mcpu=cortex-m4 -mfpu=fpv4-sp-d16", "board": "mps2-an386"},
)
