"""A target with an array of multipliers that can be configured in two ways, as ``deeploy explore --write-engine`` found them.

``array.toml`` was written for a network with a pointwise and a depthwise layer; cores run what is no convolution or product.
"""

from dataclasses import replace
from pathlib import Path

from deeploy.target import DmaPath, Engine, Memory, PathTiming, Rate, Timing, load, load_array

HERE = Path(__file__).parent
ARRAY = load_array(HERE / "array.toml")
_SIRACUSA = load("siracusa")
_GENERIC = load("generic").kernels
_PATH = DmaPath("L2_L1", "L1", "L2", max_bytes=65535, max_rows=4096, max_total=131071, max_pitch=65535)
_TIMING = PathTiming(issue=20, latency=(30, 30), row=2, byte=(0.125, 0.125), pj_per_byte=1)
_ON_ARRAY = ("conv2d_any", "matmul_any")

TARGET = replace(
    _SIRACUSA,
    name="unrolled",
    memories=(Memory("L1", 64 * 1024, alignment=8), Memory("L2", 1024 * 1024, alignment=8)),
    paths=(_PATH,),
    engines=(Engine("cores", "L1", cores=4), *ARRAY.engines("L1")),
    timing=Timing(
        mhz=100,
        fork={"cores": 200},
        tile=50,
        core_mw={"cores": 10, **{engine.name: 20 for engine in ARRAY.engines("L1")}},
        paths={"L2_L1": _TIMING},
        kernels={"default": Rate(100, 4, 8), **ARRAY.rates(call=100)},
    ),
    kernels=(*(replace(k, engine="cores") for k in _GENERIC), *ARRAY.kernels(k for k in _GENERIC if k.name in _ON_ARRAY)),
)
