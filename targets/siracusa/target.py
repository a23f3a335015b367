"""Siracusa: a controller, a cluster of eight RISC-V cores with SIMD extensions, 256 KiB of L1, 2 MiB of L2, HyperRAM as L3."""

from pathlib import Path

from deeploy.frontend.lower import passes
from deeploy.operators import link
from deeploy.target import (
    FLOAT,
    FLOAT_OR_HALF,
    DmaPath,
    Engine,
    Kernel,
    Memory,
    Node,
    Requantiser,
    Target,
    load_timing,
    load_topology,
    resource,
)

from .depthwise_kernels import CORES, GENERIC
from .element_kernels import KERNELS as ELEMENTS
from .float_kernels import KERNELS as FLOATS
from .kernels import PRODUCTS
from .npu_kernels import KERNELS as NPU
from .npu_runs import KERNELS as RUNS
from .recurrent_kernels import KERNELS as RECURRENT
from .recurrent_kernels import REPLACED

KIB = 1024
STACK = 1024  # bytes of L1 for each core: its stack, and its part of what the runtime shares there; checked when a program is linked
HERE = Path(__file__).parent

# Multipliers and biases of 64 bits want their own alignment.
L1 = Memory("L1", 256 * KIB, alignment=8, reserved=CORES * STACK)
L2 = Memory("L2", 2048 * KIB, alignment=8, reserved=192 * KIB)
# N-EUREKA reads weights there; nothing else lies in it, and no transfers lead there. The SRAM of the neural memory subsystem: its MRAM
# is as large, and is modelled as the same.
WM = Memory("WM", 4096 * KIB, alignment=16, is_far=True)
L3 = Memory("L3", 8192 * KIB, alignment=16, is_far=True)

# MCHAN: 17-bit lengths, rows apart on the L2 side only. HyperRAM: through the controller's uDMA, byte-addressed.
CLUSTER_DMA = DmaPath(
    "L2_L1", "L1", "L2", max_bytes=65535, max_rows=65535, max_total=131071, max_pitch=65535, tickets=8, max_outstanding=16
)
HYPERRAM = DmaPath("L3_L2", "L2", "L3", max_bytes=32768, max_rows=512, max_total=65536, max_pitch=65535, tickets=8, max_outstanding=8)

# Scales may have 32 bits, which take longer to load than 16 and come hardly nearer.
NPU_REQUANTISER = Requantiser(word=32, mul=16, add=32, shift=31, has_shifts=True)

# Products and convolutions of packed weights are SIMD ones, or are computed with bytes.
MULTIPLIED = {kernel.op for kernel in PRODUCTS if not kernel.packs}
ALWAYS_REPLACED = {*REPLACED, "scaled_sum"}  # by kernels that take all that these take
PORTABLE = tuple(k for k in GENERIC.computing if k.name not in ALWAYS_REPLACED and not (k.packs and k.op in MULTIPLIED))


def _is_narrow(node: Node) -> bool:
    return any(tensor is not None and tensor.narrow for tensor in node.inputs)


def _in_floats(kernel: Kernel) -> Kernel:
    """A kernel of weights in 16 bits with those in 32, which take less to compute and more to move."""
    wide = {name: FLOAT for name, accepted in kernel.types.items() if accepted == FLOAT_OR_HALF}
    return kernel.variant(kernel.name, (_is_narrow, "weights in 16 bits"), types=wide)


IN_FLOATS = tuple(_in_floats(kernel) for kernel in (*RECURRENT, *PORTABLE) if any(t == FLOAT_OR_HALF for t in kernel.types.values()))

TARGET = Target(
    name="siracusa",
    summary="8 RISC-V cores with SIMD extensions, 256 KiB L1, 2 MiB L2, HyperRAM",
    memories=(L1, L2, L3, WM),
    paths=(CLUSTER_DMA, HYPERRAM),
    engines=(
        Engine("cluster", "L1", cores=CORES),
        Engine("npu", "L1", accelerator="neureka", jobs=2, weights="WM", requantiser=NPU_REQUANTISER),
        Engine("link", "L2"),
    ),
    timing=load_timing(*(HERE / f"{part}timing.toml" for part in ("", "npu_", "gathered_", "link_"))),
    default_memory="L2",
    kernels=(*PRODUCTS, *FLOATS, *ELEMENTS, *RECURRENT, *PORTABLE, *IN_FLOATS, *NPU, *RUNS, *link.kernels("link")),
    passes=passes(has_near_memory=True, has_multiply_add=True),
    kernel_folders=(resource("kernels"),),
    template_folders=(HERE / "templates", resource("templates")),
    runtime=(resource("kernels") / "hal", resource("kernels") / "gvsoc_runtime", resource("kernels") / "pulp_runtime", HERE / "runtime"),
    build="siracusa.Makefile.mako",
    topology=load_topology(HERE / "topology.toml"),
    legend={
        "nms": "N-EUREKA reads its weights in place, in the weight memory",
        "sums": "N-EUREKA leaves 32-bit sums, which the cores requantise",
        "windows": "the cores gather windows that N-EUREKA does not read by itself",
        "patches": "the cores gather patches of windows that N-EUREKA does not read by itself",
        "runs": "N-EUREKA adds up the taps of a window, one run of neighbours after the other",
        "dilated": "N-EUREKA computes every so-manieth row and column by itself",
        "subsampled": "N-EUREKA computes outputs of stride 1, of which the cores keep some",
        "packed": "weights of fewer than 8 bits stay packed in memory",
    },
)
