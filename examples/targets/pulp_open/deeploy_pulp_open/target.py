"""pulp-open, as the GVSoC simulator models it: Siracusa's cores with less memory, and no N-EUREKA.

Eight RISC-V cores with SIMD extensions, 64 KiB of L1, 1.5 MiB of L2, HyperRAM as L3. The kernels are those of Siracusa's cores, and so is
the runtime without an SDK; of its own the chip has sizes, addresses (``runtime/bare/soc.h``) and what was measured (``timing.toml``).
"""

from pathlib import Path

from deeploy.target import Engine, Memory, Target, load, load_timing, load_topology, origin, passes, resource

KIB = 1024
HERE = Path(__file__).parent
SIRACUSA = load("siracusa")
CLUSTER = next(engine for engine in SIRACUSA.engines if engine.name == "cluster")
STACK = 1152  # bytes of L1 for each core: what products of floats need at several positions at once, and what cores share

L1 = Memory("L1", 64 * KIB, alignment=8, reserved=CLUSTER.cores * STACK)
L2 = Memory("L2", 1600 * KIB, alignment=8, reserved=192 * KIB)

TARGET = Target(
    name="pulp_open",
    summary="8 RISC-V cores with SIMD extensions, 64 KiB L1, 1.5 MiB L2, HyperRAM",
    memories=(L1, L2, SIRACUSA.memory("L3")),
    paths=SIRACUSA.paths,
    engines=(CLUSTER, Engine("link", "L2")),
    # The cores are the same.
    timing=load_timing(HERE / "timing.toml", *(origin("siracusa") / f"{part}timing.toml" for part in ("", "link_"))),
    topology=load_topology(HERE / "topology.toml"),
    default_memory="L2",
    kernels=tuple(kernel for kernel in SIRACUSA.kernels if kernel.engine in (CLUSTER.name, "link")),
    passes=passes(),
    kernel_folders=SIRACUSA.kernel_folders,
    template_folders=(resource("templates"),),
    runtime=(*(resource("kernels") / part for part in ("hal", "gvsoc_runtime", "pulp_runtime")), HERE / "runtime"),
    build="gvsoc.Makefile.mako",
)
