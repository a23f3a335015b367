"""A Snitch cluster, as the simulator GVSoC models it: eight cores with streaming registers and 64-bit floating point, a ninth that
moves data by a DMA engine of its own, 128 KiB of L1, and memory behind it.
"""

from pathlib import Path

from deeploy.target import DmaPath, Engine, Memory, Target, load_timing, load_topology, passes, resource
from deeploy.target.operators import link

from .streamed import KERNELS

KIB = 1024
HERE = Path(__file__).parent
CORES, STACK = 8, 1536  # bytes of L1 for each core

L1 = Memory("L1", 128 * KIB, alignment=8, reserved=(CORES + 1) * STACK)
L2 = Memory("L2", 16 * 1024 * KIB, alignment=8, reserved=1024 * KIB)
# The ninth core tells the engine addresses, lengths and pitches of 32 bits; both sides may have gaps between rows.
MOST = 2**31 - 1
DMA = DmaPath("L2_L1", "L1", "L2", max_bytes=MOST, max_rows=MOST, max_total=MOST, max_pitch=MOST, near_pitch=True)

TARGET = Target(
    name="snitch",
    summary="8 RISC-V cores with streaming registers, a ninth that moves data, 128 KiB L1",
    memories=(L1, L2),
    paths=(DMA,),
    engines=(Engine("cluster", "L1", cores=CORES), Engine("link", "L2")),
    timing=load_timing(HERE / "timing.toml", HERE / "link_timing.toml"),
    topology=load_topology(HERE / "topology.toml"),
    default_memory="L2",
    kernels=(*KERNELS, *link.kernels("link")),
    passes=passes(),
    kernel_folders=(HERE / "kernels", resource("kernels")),
    template_folders=(HERE / "templates", resource("templates")),
    runtime=(resource("kernels") / "hal", resource("kernels") / "gvsoc_runtime", HERE / "runtime"),
    build="gvsoc.Makefile.mako",
)
