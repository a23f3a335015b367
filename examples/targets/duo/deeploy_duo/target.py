"""A machine of three engines in two memories: cores and a small array of multipliers in L1, a large array in a scratchpad beside it.

The large array (16 output by 16 input channels a cycle) begins slowly and works in PAD, which is filled from L2 by a path of its own; the
small one (3 by 3 taps of 4 channels) works in L1 beside the cores. Which engine runs a layer, and so which memory its operands go
to, is the planner's choice. The machine exists on the host model only: the arrays' kernels are the portable ones in C, their figures
are made up.

    L3 --- L2 --+-- L1   cores, taps
                +-- PAD  channels
"""

from deeploy.target import Array, DmaPath, Engine, Loops, Memory, PathTiming, Rate, Target, Timing, load, passes, resource

KIB = 1024
GENERIC = load("generic").computing

ONE = {"G": 1, "K": 1, "C": 1, "OY": 1, "OX": 1, "FY": 1, "FX": 1}
LARGE = Array("channels", 256, {"k16_c16": {**ONE, "K": 16, "C": 16}})
SMALL = Array("taps", 36, {"g4_f3x3": {**ONE, "G": 4, "FY": 3, "FX": 3}})

L1 = Memory("L1", 64 * KIB, alignment=8, reserved=4 * KIB)
PAD = Memory("PAD", 32 * KIB, alignment=32)
L2 = Memory("L2", 512 * KIB, alignment=8, reserved=32 * KIB)
L3 = Memory("L3", 4096 * KIB, alignment=16, is_far=True)
TO_L1 = DmaPath("L2_L1", "L1", "L2", max_bytes=65535, max_rows=4096, max_total=131071, max_pitch=65535)
TO_PAD = DmaPath("L2_PAD", "PAD", "L2", max_bytes=4096, max_rows=64, max_total=65536, max_pitch=65535, tickets=4, max_outstanding=4)
TO_L2 = DmaPath("L3_L2", "L2", "L3", max_bytes=32768, max_rows=512, max_total=65536, max_pitch=65535, max_outstanding=8)
NEAR = PathTiming(issue=20, latency=(30, 30), row=2, byte=(0.25, 0.25), pj_per_byte=1)
FAR = PathTiming(issue=100, latency=(1000, 1000), row=50, byte=(1, 1), pj_per_byte=10)

CORES = Engine("cores", "L1", cores=4)
ENGINES = (CORES, *SMALL.engines("L1"), *LARGE.engines("PAD"))
CONVOLUTIONS = tuple(kernel for kernel in GENERIC if kernel.name in ("depthwise2d", "conv2d_any"))
PRODUCTS = tuple(kernel for kernel in GENERIC if kernel.name in ("conv2d_any", "matmul_any"))

TARGET = Target(
    name="duo",
    summary="cores, a small array in L1, a large one in a scratchpad of its own; figures made up",
    memories=(L1, PAD, L2, L3),
    paths=(TO_L1, TO_PAD, TO_L2),
    engines=ENGINES,
    timing=Timing(
        mhz=100,
        fork={"cores": 200},
        tile=50,
        core_mw={engine.name: 10 if engine is CORES else 25 for engine in ENGINES},
        paths={"L2_L1": NEAR, "L2_PAD": NEAR, "L3_L2": FAR},
        kernels={"default": Rate(100, 4, 8), **SMALL.rates(call=400, output=0.25), **LARGE.rates(call=4000, output=0.25)},
        loops=Loops(layer=100),
    ),
    default_memory="L2",
    kernels=(
        *GENERIC,
        *SMALL.kernels(CONVOLUTIONS),
        *LARGE.kernels(PRODUCTS),
    ),
    passes=passes(),
    kernel_folders=(resource("kernels"),),
    template_folders=(resource("templates"),),
    runtime=(resource("kernels") / "hal",),
    build="managed.Makefile.mako",
)
