"""Cortex-M4 and Cortex-M7 microcontrollers: SIMD kernels in tightly coupled memory, a larger RAM, constants in flash.

The core works in TCM; what it needs is copied there from SRAM, and constants come from flash through SRAM. Addresses are those of
QEMU's boards MPS2 (AN386 with a Cortex-M4, AN500 with a Cortex-M7), sizes those of common parts. Three kernels use the processor's
products of pairs of 16-bit values; the portable ones run everything else.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from deeploy.target import DmaPath, Engine, Kernel, Memory, Node, Target, Tiling, load, load_timing, passes, resource, types
from deeploy.target.operators import conv

HERE = Path(__file__).parent
KIB = 1024
CORE = "core"
BYTES, RESULTS = types("s8", "u8"), types("s8", "u8", "s32")
GENERIC = tuple(replace(kernel, engine=CORE, cores=()) for kernel in load("generic").kernels if not kernel.link)


def _generic(name: str) -> Kernel:
    """The declaration that a kernel here is a faster form of."""
    return next(kernel for kernel in GENERIC if kernel.name == name)


def _also(kernel: Kernel, holds: Callable[[Node], bool], need: str) -> Callable[[Node], str | None]:
    """The condition of a declaration and a further one."""

    def check(node: Node) -> str | None:
        reason = kernel.accepts(node) if kernel.accepts is not None else None
        return reason if reason is not None or holds(node) else need

    return check


def _has_plain_rows(node: Node) -> bool:
    return not (int(node.attrs["a_zero_point"]) or int(node.attrs["b_zero_point"]) or node.attrs["trans_a"])


OPERANDS = {"w": BYTES, "y": RESULTS, "bias": types("s32")}
CONV = replace(
    _generic("conv2d_dot_grouped"),
    name="arm_conv2d_grouped",
    types={"x": BYTES, **OPERANDS},
    accepts=_generic("conv2d_grouped").accepts,
    source="arm/arm_conv2d.c",
    struct="conv2d_dot",
)
DENSE = replace(CONV, name="arm_conv2d", accepts=_also(CONV, conv.is_dense, "one group"), tiling=Tiling(whole=("c", "fh", "fw")))
DEPTHWISE = replace(
    _generic("depthwise2d"), name="arm_depthwise", types={"x": BYTES, **OPERANDS}, source="arm/arm_depthwise.c", struct="depthwise2d"
)
MATMUL = replace(
    _generic("matmul_dot"),
    name="arm_matmul",
    types={"a": BYTES, "b": BYTES, "y": RESULTS, "bias": types("s32")},
    accepts=_also(_generic("matmul_dot"), _has_plain_rows, "rows of a, and zero points that are constants of the epilogue"),
    strided={"a": 1, "b": 1, "y": 1},
    source="arm/arm_matmul.c",
    struct="matmul_dot",
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
        kernels=(DEPTHWISE, DENSE, CONV, MATMUL, *GENERIC),
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
