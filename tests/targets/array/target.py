"""A target with two engines: cores that work in L1, and an array of multipliers that works in a scratchpad of its own beside it.

The array runs convolutions and products alone, with weights stored as the graph has them; a job takes long to begin and is then fast.
"""

from dataclasses import replace

from deeploy.target import DmaPath, Engine, Kernel, Memory, PathTiming, Rate, Timing, load, passes

CORES, ARRAY = "cores", "array"
_SIRACUSA = load("siracusa")
_GENERIC = load("generic").kernels
_TO_L1 = DmaPath("L2_L1", "L1", "L2", max_bytes=65535, max_rows=4096, max_total=131071, max_pitch=65535)
_TO_PAD = DmaPath("L2_PAD", "PAD", "L2", max_bytes=4096, max_rows=64, max_total=65536, max_pitch=65535, tickets=4, max_outstanding=4)
_TO_L2 = DmaPath("L3_L2", "L2", "L3", max_bytes=32768, max_rows=512, max_total=65536, max_pitch=65535, tickets=8, max_outstanding=8)
_NEAR = PathTiming(issue=20, latency=(30, 30), row=2, byte=(0.25, 0.25), pj_per_byte=1)
_FAR = PathTiming(issue=100, latency=(1000, 1000), row=50, byte=(1, 1), pj_per_byte=10)


def _on_array(name: str) -> list[Kernel]:
    return [replace(kernel, name=f"array_{name}", engine=ARRAY, cores=()) for kernel in _GENERIC if kernel.name == name]


TARGET = replace(
    _SIRACUSA,
    name="array",
    memories=(
        Memory("L1", 32 * 1024, alignment=8),
        Memory("PAD", 16 * 1024, alignment=32),
        Memory("L2", 512 * 1024, alignment=8),
        Memory("L3", 4096 * 1024, alignment=16, is_far=True),
    ),
    paths=(_TO_L1, _TO_PAD, _TO_L2),
    engines=(Engine(CORES, "L1", cores=4), Engine(ARRAY, "PAD")),
    timing=Timing(
        mhz=100,
        fork={CORES: 200, ARRAY: 0},
        tile=50,
        core_mw={CORES: 10, ARRAY: 20},
        paths={"L2_L1": _NEAR, "L2_PAD": _NEAR, "L3_L2": _FAR},
        kernels={"default": Rate(100, 4, 8), "array": Rate(12_000, 0.1, 0.1)},
    ),
    passes=passes(has_near_memory=True),
    kernels=(*(replace(kernel, engine=CORES) for kernel in _GENERIC), *_on_array("conv2d_any"), *_on_array("matmul_any")),
)
