"""Cortex-M4 and Cortex-M7 microcontrollers: SIMD kernels in tightly coupled memory, a larger RAM, constants in flash.

The core works in TCM; what it needs is copied there from SRAM, and constants come from flash through SRAM. Addresses are those of
QEMU's boards MPS2 (AN386 with a Cortex-M4, AN500 with a Cortex-M7), sizes those of common parts. Three kernels use the processor's
products of pairs of 16-bit values; the portable ones run everything else.
"""

from dataclasses import replace
from pathlib import Path

from deeploy.target import BYTES, DmaPath, Engine, Memory, Node, Target, Tiling, load, load_timing, passes, resource, types
from deeploy.target.operators import conv

HERE = Path(__file__).parent
KIB = 1024
CORE = "core"
RESULTS = types("s8", "u8", "s32")
PORTABLE = load("generic")
GENERIC = tuple(replace(kernel, cores=()) for kernel in PORTABLE.computing)
PACKED = tuple(kernel for kernel in GENERIC if kernel.packs)  # weights of few bits stay so in flash


def _has_plain_rows(node: Node) -> bool:
    return not (int(node.attrs["a_zero_point"]) or int(node.attrs["b_zero_point"]) or node.attrs["trans_a"])


CONV = PORTABLE.kernel("conv2d_dot_grouped").variant(
    "arm_conv2d_grouped",
    accepts=PORTABLE.kernel("conv2d_grouped").accepts,
    source="arm/arm_conv2d.c",
    struct="conv2d_dot",
    types={"x": BYTES, "w": BYTES, "y": RESULTS},
    cores=(),
)
DENSE = CONV.variant("arm_conv2d", (conv.is_dense, "one group"), tiling=Tiling(whole=("c", "fh", "fw")))
DEPTHWISE = PORTABLE.kernel("depthwise2d").variant(
    "arm_depthwise",
    source="arm/arm_depthwise.c",
    struct="depthwise2d",
    types={"x": BYTES, "w": BYTES, "y": RESULTS},
    cores=(),
)
MATMUL = PORTABLE.kernel("matmul_dot").variant(
    "arm_matmul",
    (_has_plain_rows, "rows of a, and zero points that are constants of the epilogue"),
    source="arm/arm_matmul.c",
    struct="matmul_dot",
    types={"a": BYTES, "b": BYTES, "y": RESULTS},
    strided={"a": 1, "b": 1, "y": 1},
    cores=(),
)

TCM = Memory("TCM", 128 * KIB, alignment=8, reserved=16 * KIB, base=0x2000_0000)  # the stack is there
SRAM = Memory("SRAM", 512 * KIB, alignment=8, reserved=32 * KIB, base=0x2010_0000)  # variables and the caller's arrays are there
FLASH = Memory("FLASH", 2048 * KIB, alignment=16, reserved=256 * KIB, is_far=True, base=0x0000_0000)  # code is there
TO_TCM = DmaPath("SRAM_TCM", "TCM", "SRAM", max_bytes=65535, max_rows=65535, max_total=2**24, max_pitch=2**24)
TO_SRAM = DmaPath("FLASH_SRAM", "SRAM", "FLASH", max_bytes=65535, max_rows=65535, max_total=2**24, max_pitch=2**24)


def target(name: str, part: str, options: dict[str, str]) -> Target:
    """One of the processors; ``options`` are flags of its compiler and QEMU's board, for the template of the Makefile."""
    return Target(
        name=name,
        summary=f"an Arm {part} with SIMD kernels, 128 KiB TCM, 512 KiB SRAM, 2 MiB flash",
        memories=(TCM, SRAM, FLASH),
        paths=(TO_TCM, TO_SRAM),
        engines=(Engine(CORE, "TCM"),),
        timing=load_timing(HERE / "timing.toml"),
        default_memory="FLASH",
        kernels=(*PACKED, DEPTHWISE, DENSE, CONV, MATMUL, *(kernel for kernel in GENERIC if kernel not in PACKED)),
        passes=passes(),
        kernel_folders=(HERE / "kernels", resource("kernels")),
        template_folders=(HERE / "templates", resource("templates")),
        runtime=(resource("kernels") / "hal", resource("kernels") / "semihosting"),
        build="cortex_m.Makefile.mako",
        options=options,
    )


M4 = target("cortex_m4", "Cortex-M4", {"flags": "-mcpu=cortex-m4 -mfpu=fpv4-sp-d16", "board": "mps2-an386"})
M7 = target("cortex_m7", "Cortex-M7", {"flags": "-mcpu=cortex-m7 -mfpu=fpv5-sp-d16", "board": "mps2-an500"})
TARGET = M4
