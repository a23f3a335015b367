"""Cortex-M55 microcontrollers with Helium: vectors of 16 bytes, one RAM, code and constants in flash.

Addresses are those of QEMU's board MPS3 with AN547, in its secure memories. The processor reads its vector table from tightly coupled
memory.
"""

from dataclasses import replace

from deeploy.target import load

from .kernels import KERNELS

M4 = load("cortex_m4")
KIB = 1024
PLACES = ((4096 * KIB, 0x3100_0000), (2048 * KIB, 0x1100_0000))  # capacity and first address of RAM and flash

TARGET = replace(
    M4,
    name="cortex_m55",
    summary="an Arm Cortex-M55 with Helium: its kernels, one RAM, constants read in place from flash",
    serves=("cortex_m85", "stm32n6", "corstone300", "alif_ensemble", "ra8", "wiseeye2"),
    memories=tuple(replace(m, capacity=size, base=base) for m, (size, base) in zip(M4.memories, PLACES, strict=True)),
    kernels=KERNELS,
    timing=None,  # of vectors
    options={"flags": "-mcpu=cortex-m55", "board": "mps3-an547", "vectors": "0x10000000"},
)
