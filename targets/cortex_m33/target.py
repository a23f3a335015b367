"""Cortex-M33 microcontrollers with the DSP extension: as ``cortex_m4``, on QEMU's board MPS2 with AN505, in its secure memories."""

from dataclasses import replace

from deeploy.target import load

M4 = load("cortex_m4")
KIB = 1024
PLACES = ((2048 * KIB, 0x3800_0000), (4096 * KIB, 0x1000_0000))  # capacity and first address of RAM and flash

TARGET = replace(
    M4,
    name="cortex_m33",
    summary="an Arm Cortex-M33 with DSP extension: its kernels, one RAM, constants read in place from flash",
    serves=(
        *("stm32h5", "stm32l5", "stm32u3", "stm32u5", "stm32wba", "nrf53", "nrf54l", "nrf91"),
        *("rp2350", "raspberrypi_pico2", "pico2", "lpc55", "efr32mg24", "ra4m2", "ra6m4", "mcxn"),
    ),
    memories=tuple(replace(m, capacity=size, base=base) for m, (size, base) in zip(M4.memories, PLACES, strict=True)),
    timing=None,
    options={"flags": "-mcpu=cortex-m33 -mfpu=fpv5-sp-d16", "board": "mps2-an505"},
)
