"""The sweeps of portable kernels that read constants of few bits packed: see families.py."""

from __future__ import annotations

from benchmarks.gvsoc.families import BLOCKS, CONVOLUTIONS, DEEP, FEW, GROUPED, MATMULS, POSITIONS, Family, _conv, _grouped, _matmul, few

EVEN = [shape for shape in (*MATMULS, *FEW) if shape[1] % 2 == 0]  # two numbers of four bits in a byte
WINDOWS = [shape for shape in (*CONVOLUTIONS, *DEEP) if shape[2] % 2 == 0]
GROUPS = [shape for shape in GROUPED if shape[2] // shape[4] % 2 == 0]

PACKED = (
    Family(
        "matmul_packed", {form: [few(_matmul)(s, kind) for s in EVEN] for form, kind in (("requantise", "narrow"), ("", "plain"))}, BLOCKS
    ),
    Family(
        "conv2d_packed",
        {"requantise": [few(_conv)(s, "narrow") for s in WINDOWS], "": [few(_conv)(s, "plain") for s in WINDOWS]},
        POSITIONS,
    ),
    Family(
        "conv2d_packed_grouped",
        {"requantise": [few(_grouped)(s, "narrow") for s in GROUPS], "": [few(_grouped)(s, "plain") for s in GROUPS]},
        POSITIONS,
    ),
)
