"""Cortex-M7 microcontrollers: as ``cortex_m4``, on QEMU's board MPS2 with AN500."""

from dataclasses import replace

from deeploy.target import load

M4 = load("cortex_m4")
KIB = 1024

TARGET = replace(
    M4,
    name="cortex_m7",
    summary="an Arm Cortex-M7: kernels of its DSP extension, one RAM, constants read in place from flash",
    serves=("stm32f7", "stm32h7", "imxrt10", "teensy4", "portenta_h7", "arduino_portenta", "same70", "sams70", "samv71"),
    memories=tuple(replace(m, capacity=size) for m, size in zip(M4.memories, (1024 * KIB, 2048 * KIB), strict=True)),
    timing=None,  # it begins two instructions at once
    options={"flags": "-mcpu=cortex-m7 -mfpu=fpv5-sp-d16", "board": "mps2-an500"},
)
