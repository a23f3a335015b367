"""The sweeps that kernels are calibrated with: per family of kernels, operators of many shapes, and what cycles are counted by.

Shapes are chosen for what they vary: depth, rows, widths, remainders of the steps that a kernel takes. No network's layers as such.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.gvsoc import cases, lines
from benchmarks.gvsoc.forms import Forms
from benchmarks.gvsoc.layer import Case
from deeploy.ir.types import DType, pack_elements, unpack_elements

RNG = np.random.default_rng(17)


@dataclass(frozen=True)
class Family:
    """A kernel whose entries of ``timing.toml`` are fitted together.

    Attributes:
        kernel: its name, and words that all entries share.
        variants: cases by the further words of the entry. Entries differ only in cycles per output.
        terms: what cycles are counted by beside calls, multiply-accumulates and outputs (``Rate.per``).
        results: a term to count outputs by, where some are computed twice: those of the last of several groups, which begins earlier.
        divided: dimensions that a team divides in turn; none: the one that a plan chooses.
        is_usual: whether what is measured of such extents counts: where a kernel works in another way, no term fits both.
    """

    kernel: str
    variants: Mapping[str, Sequence[Case]]
    terms: tuple[str, ...] = ()
    results: str = ""
    divided: tuple[str, ...] = ()
    is_usual: Callable[[Mapping[str, int]], bool] = lambda sizes: True


def draw(dtype: str, *shape: int) -> np.ndarray:
    """Uniform values over the whole type, normal ones of floats."""
    if dtype == "f32":
        return RNG.normal(scale=3, size=shape).astype(np.float32)
    kind = np.dtype({"s8": "i1", "u8": "u1", "s16": "i2", "s32": "i4", "s64": "i8"}[dtype])
    info = np.iinfo(kind)
    return RNG.integers(max(info.min, -(2**15)), min(info.max, 2**15), shape, endpoint=True).astype(kind)


def stage(channels: int = 1, shift: int = 16) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """A requantisation to int8 whose products fit into 32 bits."""
    operands = {"mul": np.full(channels, 37, np.int32), "add": np.full(channels, 1 << (shift - 1), np.int32)}
    return operands, {"epilogue": ("requantise",), "shift": shift, "low": -128, "high": 127}


# ---- products

MATMULS = (
    *((1, 64, 12), (1, 64, 64), (1, 64, 256), (1, 256, 64), (1, 128, 128), (1, 640, 64)),
    *(
        (2, 64, 64),
        (4, 64, 64),
        (16, 64, 64),
        (32, 64, 32),
        (32, 256, 32),
        (13, 60, 20),
        (16, 64, 3),
        (24, 32, 40),
        (40, 128, 32),
        (64, 16, 64),
    ),
)
FEW = ((1, 128, 48), (1, 64, 56), (2, 200, 40), (3, 48, 28), (1, 256, 24), (1, 8, 128))  # columns for each core of a team
POINTWISE = (
    *((16, 16, 16, 32), (8, 8, 32, 64), (12, 12, 64, 64), (6, 6, 128, 128), (24, 24, 16, 32), (3, 3, 256, 64), (24, 5, 64, 64)),
    *((10, 7, 32, 32), (9, 9, 24, 40), (4, 4, 32, 64)),
)
CONVOLUTIONS = (
    *((32, 32, 8, 16, 3, 1), (16, 16, 16, 16, 3, 1), (16, 16, 32, 32, 3, 1), (8, 8, 64, 32, 3, 1), (16, 16, 16, 32, 3, 2)),
    *((24, 10, 4, 64, 5, 1), (12, 12, 48, 24, 3, 1), (9, 9, 32, 40, 3, 1), (32, 8, 16, 32, 3, 1)),
)
RAGGED = (
    *(
        (32, 32, 3, 16, 3, 1),
        (24, 24, 3, 8, 3, 2),
        (16, 12, 5, 24, 3, 1),
        (16, 16, 1, 32, 5, 1),
        (40, 9, 1, 64, 7, 2),
        (17, 13, 7, 12, 3, 1),
    ),
    *((8, 8, 4, 8, 3, 1), (1, 40, 16, 16, (1, 3), 1), (1, 64, 8, 8, (1, 4), 1), (10, 8, 12, 4, 3, 1), (9, 16, 5, 8, (1, 6), 1)),
    (16, 9, 20, 3, 3, 1),
    *((30, 20, 1, 16, (6, 4), 2), (16, 24, 2, 32, (4, 2), 1), (36, 12, 1, 48, (8, 4), 2), (20, 40, 4, 16, (1, 4), 1)),
)
# Windows of every length, as most layers of networks have them: read in runs of whole words, or gathered.
WINDOWS = (
    *(
        (16, 16, 16, 16, 3, 1),
        (8, 8, 32, 32, 3, 1),
        (12, 20, 24, 16, 3, 1),
        (32, 32, 8, 8, 3, 1),
        (16, 16, 32, 64, 3, 2),
        (24, 9, 12, 40, 3, 1),
    ),
    *((16, 16, 8, 24, 1, 1), (14, 14, 48, 12, (1, 3), 1), (20, 11, 4, 32, 5, 1), (10, 10, 64, 8, 3, 1)),
)
WINDOWS_GATHERED = (
    *(
        (32, 32, 3, 16, 3, 1),
        (24, 24, 1, 32, 3, 2),
        (16, 16, 5, 24, 3, 1),
        (12, 12, 7, 20, 5, 1),
        (20, 20, 1, 64, (5, 3), 2),
        (9, 17, 10, 12, 3, 1),
        (16, 24, 2, 32, (4, 2), 1),
        (40, 12, 1, 48, (8, 4), 2),
        (4, 4, 3, 32, 3, 1),
    ),
    *((16, 16, 6, 16, 1, 1), (8, 8, 27, 32, 3, 1), (14, 14, 13, 8, (1, 3), 1), (28, 28, 3, 8, 5, 2)),
)
SMALL = (
    *((4, 4, 32, 64, 3, 1), (4, 4, 64, 64, 3, 1), (3, 3, 16, 64, 3, 1), (2, 2, 64, 128, 3, 1), (5, 5, 16, 32, 3, 1), (8, 8, 4, 32, 3, 2)),
    *((3, 3, 208, 64, 3, 1), (3, 3, 180, 40, 3, 1), (3, 3, 224, 16, 3, 1), (2, 2, 320, 32, 3, 1), (2, 2, 128, 24, 3, 1)),
    *((4, 4, 48, 8, 3, 1), (4, 4, 168, 32, 3, 1), (6, 6, 24, 16, 3, 1), (3, 3, 96, 12, 3, 1)),
)


def _whole(shapes: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Those whose rows of taps are whole words."""
    return [shape for shape in shapes if shape[2] % 4 == 0]


def _gathered(shapes: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [shape for shape in shapes if shape[2] % 4]


PAIRS = (
    *((7, 7, 192, 32, 3, 1), (4, 4, 320, 32, 3, 1), (5, 5, 256, 16, 3, 1), (10, 6, 176, 16, 3, 1), (8, 8, 80, 24, 5, 1)),
    *((9, 9, 240, 8, 3, 2), (6, 6, 192, 12, 3, 1), (7, 7, 200, 24, 3, 2)),
)
SINGLE = (
    *((7, 7, 400, 16, 3, 1), (4, 4, 512, 32, 3, 1), (5, 5, 360, 24, 3, 1), (12, 4, 384, 16, 3, 1), (8, 8, 160, 12, 5, 1)),
    *((8, 8, 640, 8, 3, 2), (6, 6, 352, 20, 3, 1), (3, 3, 600, 32, 3, 1)),
)
DEPTHWISE = (
    *((24, 24, 16, 1), (12, 12, 64, 1), (6, 6, 128, 1), (16, 5, 64, 1), (25, 5, 64, 1), (32, 32, 8, 1), (3, 3, 256, 1), (9, 11, 40, 1)),
    *((40, 40, 8, 1), (4, 4, 64, 1), (20, 20, 3, 1)),
)
STRIDED = (
    (24, 24, 16, 2),
    (12, 12, 64, 2),
    (6, 6, 128, 2),
    (48, 48, 8, 2),
    (25, 11, 32, 2),
    (4, 4, 64, 2),
    (16, 16, 32, 2),
    (21, 21, 3, 2),
)


def few(make: Callable[..., Case], bits: int = 4) -> Callable[..., Case]:
    """The same with weights of so many bits."""

    def narrow(shape: Any, form: cases.Form) -> Case:
        case = make(shape, form)
        dtype = DType(f"s{bits}")
        given = {name: a for name, a in case.operands.items() if name not in case.variables and a.dtype == np.int8}
        weights = {n: unpack_elements(pack_elements(a >> (8 - bits), dtype), dtype, a.shape[-1]) for n, a in given.items()}
        narrow = dict.fromkeys(weights, dtype)
        return replace(case, name=f"{case.name} of {bits} bits", operands={**case.operands, **weights}, narrow=narrow)

    return narrow


def _matmul(shape: tuple[int, int, int], form: cases.Form) -> Case:
    return cases.matmul(*shape, form)


def _blocks(shape: tuple[int, int, int], form: cases.Form = "plain", a: str = "s8") -> Case:
    """A product with a scale for every 32 elements."""
    m, k, n = shape
    operands = {"a": draw(a, m, k), "b": draw("s8", n, k), "scales": RNG.uniform(0.01, 0.1, (n, -(-k // 32))).astype(np.float32)}
    return Case(f"blocks {m}x{k}x{n} {a}", "BlockMatMul", ("a",), operands, "f32", {"size": 32})


def _float_blocks(shape: tuple[int, int, int], form: cases.Form = "plain") -> Case:
    return _blocks(shape, form, "f32")


def _conv(shape: tuple[Any, ...], form: cases.Form, x: str = "u8") -> Case:
    height, width, channels, filters, taps, stride = shape
    window = taps if isinstance(taps, tuple) else (taps, taps)
    return cases.conv((height, width, channels), filters, window, stride, window[0] // 2, form, x)


def _pointwise(shape: tuple[int, ...], form: cases.Form) -> Case:
    return cases.pointwise((shape[0], shape[1], shape[2]), shape[3], form)


def _depthwise(shape: tuple[int, ...], form: cases.Form, x: str = "u8") -> Case:
    return cases.depthwise((shape[0], shape[1], shape[2]), shape[3], form, x)


# Products of two variables: batches, rows, depth, columns.
VARYING = (
    *((1, 16, 4, 4), (16, 1, 4, 2), (16, 1, 4, 65), (16, 1, 65, 4), (16, 1, 4, 9), (4, 8, 8, 8), (2, 16, 16, 16), (8, 1, 32, 24)),
    *((1, 24, 32, 24), (1, 64, 64, 64), (4, 17, 32, 17), (3, 13, 20, 11), (8, 40, 16, 40), (1, 8, 256, 8)),
    *((4, 32, 32, 32), (4, 16, 64, 24), (1, 32, 96, 64)),
)
GROUPED = (
    *((12, 12, 16, 16, 2), (8, 8, 32, 32, 4), (9, 7, 24, 36, 3), (16, 16, 8, 8, 2), (6, 6, 64, 32, 8)),
    *((10, 10, 12, 16, 4), (6, 6, 64, 16, 2), (4, 4, 96, 24, 2), (5, 4, 128, 6, 2)),
)
# Down to one channel and one filter a group.
SMALL_GROUPS = ((12, 12, 16, 16, 4), (8, 8, 32, 32, 16), (6, 6, 64, 64, 64), (3, 3, 96, 96, 96), (10, 10, 24, 24, 24), (6, 6, 32, 64, 32))
THIN = ((16, 16, 3, 16, 3, 1), (12, 12, 16, 24, 1, 1), (20, 9, 1, 8, 5, 2), (9, 9, 4, 12, 3, 1), (6, 6, 32, 8, 1, 1), (10, 10, 2, 33, 3, 1))
DEEP = ((8, 8, 16, 16, 3, 1), (12, 12, 64, 16, 1, 1), (6, 6, 24, 40, 3, 2), (5, 5, 8, 12, 5, 1), (9, 7, 48, 9, 1, 1), (10, 10, 7, 65, 3, 1))
LONG_GROUPS = ((12, 12, 16, 16, 2), (8, 8, 32, 32, 4), (9, 7, 24, 36, 3), (10, 10, 64, 16, 2), (6, 6, 64, 32, 8))
SPREAD = ((12, 12, 16, 2), (6, 6, 32, 4), (9, 9, 5, 3), (16, 5, 16, 2), (20, 20, 3, 8))
TRANSPOSED = ((8, 8, 16, 16, 3, 2), (6, 6, 32, 16, 3, 1), (10, 5, 8, 24, 2, 2), (12, 12, 4, 9, 5, 1), (5, 7, 24, 8, 3, 2))
LARGE_POINTWISE = ((16, 16, 16, 32, 1, 1), (8, 8, 64, 64, 1, 1), (25, 5, 64, 64, 1, 1), (6, 6, 128, 64, 1, 1), (20, 12, 32, 16, 1, 1))
# Images whose borders are a small part of them: taps outside of an image cost nothing.
IMAGES = (
    *((32, 32, 3, 16, 3, 1), (16, 16, 16, 16, 3, 1), (12, 12, 32, 24, 3, 1), (24, 24, 8, 40, 3, 2), (20, 20, 12, 12, 3, 1)),
    *((40, 20, 1, 32, (9, 3), 2), (12, 16, 6, 33, 5, 1)),
)
THIN_IMAGES = ((16, 16, 16, 7, 3, 1), (4, 1, 256, 7, 1, 1), (20, 20, 24, 5, 3, 1), (12, 12, 64, 3, 3, 1), (12, 12, 32, 2, 1, 1))
LARGE_DEPTHWISE = ((12, 12, 16, 1), (16, 10, 64, 1), (20, 20, 3, 1), (10, 10, 40, 1), (24, 24, 32, 2), (15, 15, 7, 1), (12, 8, 96, 1))
FEW_COLUMNS = ((12, 12, 16, 1), (6, 6, 64, 2), (9, 9, 3, 1), (8, 8, 40, 1), (16, 5, 32, 2), (5, 5, 7, 1))


def _varying(transposed: bool, zeros: tuple[int, int] = (0, 0)) -> Callable[[Sequence[int], cases.Form], Case]:
    def make(shape: Sequence[int], form: cases.Form) -> Case:
        batch, m, k, n = shape
        return cases.attention(batch, m, k, n, transposed, form=form, zeros=zeros)

    return make


def _grouped(shape: tuple[int, ...], form: cases.Form, x: str = "u8") -> Case:
    height, width, channels, filters, group = shape
    return cases.conv((height, width, channels), filters, form=form, x=x, group=group)


def _spread(shape: tuple[int, ...], form: cases.Form, x: str = "u8") -> Case:
    """Several outputs for each channel, each of which sees that channel alone."""
    height, width, channels, times = shape
    return cases.conv((height, width, channels), channels * times, form=form, x=x, group=channels)


def _bordered(make: Callable[..., Case], shapes: Sequence[Any]) -> dict[str, list[Case]]:
    """The shapes with and without a requantisation, and with a zero point that taps outside of the image read: those cost as others do."""
    return {word: [make(shape, form, "s8") for shape in shapes] for word, form in PLAINLY.items()}


def _computed(shape: tuple[Any, ...], form: cases.Form) -> Case:
    """A convolution whose weights are an input of the network."""
    case = _conv(shape, form)
    return Case(f"{case.name} of computed weights", case.op, ("x", "w"), case.operands, case.y, case.attrs)


def _transposed(shape: tuple[Any, ...], form: cases.Form) -> Case:
    height, width, channels, filters, taps, stride = shape
    case = _conv((height, width, channels, filters, taps, 1), form)
    w = np.ascontiguousarray(case.operands["w"].swapaxes(0, 1))
    return Case(
        f"{case.name} transposed",
        "ConvTranspose",
        ("x",),
        {**case.operands, "w": w},
        case.y,
        {**case.attrs, "strides": (stride, stride), "output_padding": (0, 0)},
    )


def floats(shape: Sequence[Any], make: Callable[[Any, cases.Form], Case]) -> list[Case]:
    """The shapes in float32, without an epilogue."""
    result = []
    for each in shape:
        case = make(each, "plain")
        operands = {name: array.astype(np.float32) for name, array in case.operands.items()}
        result.append(Case(f"{case.name} of floats", case.op, case.variables, operands, "f32", {**case.attrs, **_no_zeros(case)}))
    return result


def float_forms(shapes: Sequence[Any], make: Callable[[Any, cases.Form], Case]) -> dict[str, list[Case]]:
    """The shapes in float32, with what networks have behind their products: nothing, a bias, or a bias and a rectification."""
    plain = floats(shapes, make)
    biased = [_biased(case) for case in plain]
    rectified = [
        replace(case, name=f"{case.name} rectified", attrs={**case.attrs, "epilogue": ("bias", "clamp"), "low": 0.0, "high": None})
        for case in biased
    ]
    return {"": plain, "bias": biased, "bias clamp": rectified}


# Products of floats as training steps have them: batches, rows, depth, columns, and which operands are transposed.
TRAINED = (
    *((1, 64, 64, 32, ""), (1, 48, 48, 40, "a"), (1, 40, 32, 64, "b"), (4, 17, 32, 17, "b"), (2, 16, 48, 24, ""), (1, 32, 1, 64, "a")),
    *((1, 1, 128, 48, ""), (1, 1, 64, 10, "b"), (1, 2, 96, 56, ""), (1, 3, 48, 28, "b"), (1, 128, 10, 1, "a"), (1, 64, 33, 3, "")),
    (1, 1, 320, 12, ""),
    *((1, 9, 21, 40, ""), (3, 13, 20, 11, "a"), (16, 4, 65, 4, "b"), (1, 8, 256, 8, ""), (8, 24, 8, 24, "a"), (1, 5, 40, 70, "b")),
)


def _trained(shape: tuple[int, int, int, int, str], form: cases.Form) -> Case:
    case = _varying("b" in shape[4])(shape[:4], form)
    turned = case.operands["a"].swapaxes(-1, -2) if "a" in shape[4] else case.operands["a"]
    operands = {**case.operands, "a": np.ascontiguousarray(turned)}
    return replace(case, operands=operands, attrs={**case.attrs, "trans_a": "a" in shape[4], "multiply_add": True})


def _fused_conv(shape: tuple[Any, ...], form: cases.Form) -> Case:
    case = _conv(shape, form)
    return replace(case, attrs={**case.attrs, "multiply_add": True})


def halves(forms: Mapping[str, Sequence[Case]], dtype: DType = DType.FLOAT16) -> dict[str, list[Case]]:
    """The same with weights, the second operand, in 16 bits."""

    def narrow(case: Case) -> Case:
        name = list(case.operands)[1]
        weights = unpack_elements(pack_elements(case.operands[name], dtype), dtype)
        operands = {**case.operands, name: weights}
        return replace(case, name=f"{case.name} in {dtype.value}", operands=operands, narrow={name: dtype})

    return {form: [narrow(case) for case in found] for form, found in forms.items()}


def _biased(case: Case) -> Case:
    """The case with a bias for each channel of its output."""
    w = list(case.operands.values())[1]
    channels = w.shape[-2 if case.attrs.get("trans_b") else -1]
    if case.op in ("Conv", "ConvTranspose"):
        channels = w.shape[0] if case.op == "Conv" else w.shape[1] * case.attrs["group"]
    operands = {**case.operands, "bias": draw("f32", channels)}
    return replace(case, name=f"{case.name} with bias", operands=operands, attrs={**case.attrs, "epilogue": ("bias",)})


def _no_zeros(case: Case) -> dict[str, int]:
    return {name: 0 for name in case.attrs if name.endswith("zero_point")}


def widened(shapes: Sequence[Any], make: Callable[[Any, cases.Form], Case], dtype: str, form: cases.Form = "plain") -> list[Case]:
    """The shapes with a wider first operand of the same values, results as they are."""
    result = []
    for shape in shapes:
        case = make(shape, form)
        operands = dict(case.operands)
        first = next(iter(operands))
        operands[first] = operands[first].astype(dtype)
        result.append(Case(f"{case.name} of {dtype}", case.op, case.variables, operands, case.y, case.attrs))
    return result


PRODUCT = ("m/4 n/4 k", "m/2 n/4 k", "m/2 n/4", "n/4", "m n<4 k", "m n<4")
# Windows that are gathered follow each other over rows of the output; runs are of one row.
GATHERING = ("oh ow k/4 c fh fw", "oh ow fh fw c", "oh ow fh", "oh ow", "oh", "k fh fw c", "oh ow/2 k<4 fh fw c")
RUNNING = (
    *("oh ow/4 k/4 c fh fw", "oh ow k/4 c fh fw", "oh ow/4 k/4 fh", "oh ow/4 k/4"),
    *("oh ow fh c", "oh ow", "oh", "oh k/4", "oh ow/2 k<4 fh fw c"),
)
BY_TWO = ("oh ow/2 k/4 fh fw c", "oh ow fh fw c", "oh ow fh", "oh ow", "oh", "oh ow/2 k/4", "oh ow/2 k<4 fh fw c")
BY_ONE = ("oh ow k/4 fh fw c", "oh ow fh fw c", "oh ow fh", "oh ow", "oh", "oh ow k<4 fh fw c")
FLAT = ("oh ow k/4 c", "k/4 c", "k/4", "oh ow k<4 c")
COLUMNS = ("oh/2 k/4", "oh/2 k", "k/4", "oh ow k<4")
ALL = "b0 b1 b2"  # batches
BATCHED = tuple(f"{ALL} {term}".strip() for term in ("", "n/4", "m/4 n/4 k", "m/2 n/4 k", "m/2 n/4", "n/4 k", "n<4 k", "m n<4 k", "m n<4"))
SUMMED = (f"{ALL} m", f"{ALL} m k/4", f"{ALL} n")
IN_SQUARES = tuple(f"{ALL} {term}".strip() for term in ("", "m/4 n/4 k", "m/4 n/4", "m<4 n/4 k", "m n<4 k"))
SQUARE_WINDOWS = ("oh ow k/4 fh fw c", "oh ow/4 k/4 fh", "oh ow k/4", "oh fh fw c k/4", "oh", "oh ow k<4 fh fw c")
IN_PLACE = (f"{ALL} m<3 n/4 k", f"{ALL} m<3 n/4")  # few rows, for which columns are not turned


def _packed(bits: int) -> tuple[Family, ...]:
    """Products and convolutions with weights of so many bits, in words of 32."""
    suffix, elements = "_packed" if bits == 4 else f"_packed_{bits}", 4 * math.lcm(8, bits) // bits
    products = [shape for shape in (*MATMULS, *FEW) if shape[1] % elements == 0]
    deep = [shape for shape in (*PAIRS, *CONVOLUTIONS) if shape[2] % elements == 0]
    flat = [shape for shape in POINTWISE if shape[2] % elements == 0]
    pointwise = ("oh ow/2 k/4 c", "k/4 c", "k/4", "oh ow k<4 c")
    return (
        Family(f"pulp_matmul{suffix}", Forms(few(_matmul, bits), products), PRODUCT, "m n/4"),
        Family(
            f"pulp_block_matmul{suffix}", {"": [few(_blocks, bits)(shape, "plain") for shape in IN_BLOCKS]}, ("m/2 n/4 k", "m/2 n/4", "n/4")
        ),
        Family(f"pulp_conv2d_pointwise{suffix}", Forms(few(_pointwise, bits), flat), pointwise, "oh ow/2 k/4"),
        Family(f"pulp_conv2d{suffix}", Forms(few(_conv, bits), deep), BY_TWO, "oh ow/2 k/4"),
    )


IN_BLOCKS = tuple(shape for shape in (*MATMULS, *FEW, (3, 64, 28), (1, 32, 40), (5, 96, 9)) if shape[1] % 32 == 0)
PULP = (
    Family("pulp_matmul", Forms(_matmul, [*MATMULS, *FEW]), PRODUCT, "m n/4"),
    Family("pulp_matmul rest", Forms(_matmul, [(m, k + 1 + m % 3, n) for m, k, n in MATMULS]), PRODUCT, "m n/4"),
    Family("pulp_matmul_rows", Forms(_varying(True), VARYING), BATCHED, f"{ALL} m n/4"),
    Family("pulp_matmul_columns", Forms(_varying(False), VARYING), (*BATCHED, *IN_PLACE), f"{ALL} m n/4", ("m", "n")),
    Family("pulp_matmul_rows_zeros", Forms(_varying(True, (3, -7)), VARYING), (*BATCHED, *SUMMED), f"{ALL} m n/4", ("m", "n")),
    Family(
        "pulp_matmul_columns_zeros", Forms(_varying(False, (3, -7)), VARYING), (*BATCHED, *IN_PLACE, *SUMMED), f"{ALL} m n/4", ("m", "n")
    ),
    Family("pulp_matmul_floats", float_forms(TRAINED, _trained), IN_SQUARES),
    Family("pulp_matmul_sums", Forms(_matmul, [*MATMULS, *FEW]), PRODUCT),
    Family("pulp_conv2d_pointwise", Forms(_pointwise, POINTWISE), FLAT, "oh ow k/4"),
    Family("pulp_conv2d_pointwise_sums", Forms(_pointwise, POINTWISE), FLAT),
    Family("pulp_conv2d_sums", Forms(_conv, [*CONVOLUTIONS, *(shape for shape in WINDOWS if shape[4] != 1)]), RUNNING),
    Family("pulp_conv2d runs", Forms(_conv, [*CONVOLUTIONS, *_whole(RAGGED)]), RUNNING, "oh ow k/4"),
    Family("pulp_conv2d gathered", Forms(_conv, _gathered(RAGGED)), GATHERING, "oh ow k/4"),
    Family("pulp_conv2d_small runs", Forms(_conv, [*SMALL, *WINDOWS]), RUNNING, "oh ow k/4"),
    Family("pulp_conv2d_small gathered", Forms(_conv, WINDOWS_GATHERED), GATHERING, "oh ow k/4"),
    Family("pulp_conv2d_pairs runs", Forms(_conv, [*PAIRS, *WINDOWS]), BY_TWO, "oh ow k/4"),
    Family("pulp_conv2d_pairs gathered", Forms(_conv, WINDOWS_GATHERED), BY_TWO, "oh ow k/4"),
    Family("pulp_conv2d_single runs", Forms(_conv, [*SINGLE, *WINDOWS]), BY_ONE, "oh ow k/4"),
    Family("pulp_conv2d_single gathered", Forms(_conv, WINDOWS_GATHERED), BY_ONE, "oh ow k/4"),
    Family("pulp_conv2d_line", Forms(lines.make_dense, lines.DENSE), lines.RUNS, "ow k/4"),
    Family("pulp_conv2d_grouped", Forms(_grouped, GROUPED), ("oh ow fh fw c", "oh ow fh", "oh ow", "oh ow/4 k/4"), "oh ow k/4"),
    *(family for bits in range(1, 8) for family in _packed(bits)),
    Family("pulp_depthwise", Forms(_depthwise, DEPTHWISE), COLUMNS, "oh/2 ow k/4"),
    Family("pulp_depthwise 2", Forms(_depthwise, STRIDED), COLUMNS, "oh/2 ow k/4"),
    Family("pulp_depthwise_rows", Forms(lines.make(False), lines.SHAPES), lines.ROWS, divided=lines.DIVIDED, is_usual=lines.in_rows),
    Family(
        "pulp_depthwise_columns", Forms(lines.make(True), lines.SHAPES), lines.COLUMNS, divided=lines.DIVIDED, is_usual=lines.in_columns
    ),
    Family("pulp_depthwise_line", Forms(lines.make_line, lines.LINES), lines.TURNED),
)

BLOCKS = (ALL, "rows", "rows k", f"{ALL} m n<8 k", f"{ALL} m n<8", f"{ALL} m n/8 k", f"{ALL} m n/8")
POSITIONS = ("oh ow", "oh ow fh", "oh ow fh fw c", "oh ow fh fw", "oh ow fh fw c k/8", "oh ow k<8")
BY_BLOCK = ("oh ow k/8", "oh ow fh k/8", "oh ow fh fw c k/8", "oh ow k<8", "oh ow fh fw c k<8")  # of filters
FILTERED = (*IMAGES, *LARGE_POINTWISE, *THIN_IMAGES)
DEPTHWISE_BLOCKS = ("oh ow k/8", "oh ow fh k/8", "oh ow fh fw k/8", "oh ow k<8")
BY_TAP = ("oh ow fh fw", "oh ow fh fw k/8", "oh ow k<8")  # all windows that are measured are 3x3
WHOLE = ("oh ow", "oh ow th", "oh ow th tw c", "oh ow th tw", "oh ow k")
BY_TILE = ("m/4 n k", "m n/4 k", "m/4 n/4", "m<2 n/4 k", "m<2 n/4")
PLAINLY: dict[str, cases.Form] = {"requantise": "narrow", "": "plain"}
PORTABLE = (
    Family("matmul_dot", {"requantise": [_matmul(s, "narrow") for s in MATMULS], "": [_matmul(s, "plain") for s in MATMULS]}, BLOCKS),
    *(
        Family(name, {word: [_varying(rows)(s, form) for s in VARYING] for word, form in PLAINLY.items()}, BLOCKS)
        for name, rows in (("matmul_any", False), ("matmul_any s8 transposed", True))
    ),
    Family("matmul_any f32", float_forms([*VARYING, *((1, *shape) for shape in FEW)], _varying(False)), BLOCKS),
    Family("matmul_any_wide", {"": [cases.in_words(_varying(False)(shape, "plain")) for shape in VARYING]}, BLOCKS),
    Family("matmul", {"": widened(MATMULS, _matmul, "int16")}, BLOCKS),
    Family("matmul s32 requantise", {"": widened(MATMULS, _matmul, "int32", "narrow")}, BLOCKS),
    Family("matmul f32", float_forms([*MATMULS, *FEW], _matmul), BLOCKS),
    Family("block_matmul", {"": [_blocks(shape) for shape in IN_BLOCKS]}, BY_TILE),
    Family("block_matmul float", {"": [_float_blocks(shape) for shape in IN_BLOCKS]}, BY_TILE),
    Family("block_matmul_packed", {"": [few(_blocks)(shape, "plain") for shape in IN_BLOCKS]}, BY_TILE),
    Family("block_matmul_packed float", {"": [few(_float_blocks)(shape, "plain") for shape in IN_BLOCKS]}, BY_TILE),
    Family("conv2d_dot", _bordered(_conv, DEEP), POSITIONS),
    Family("conv2d", _bordered(_conv, [*THIN, *DEEP[:3:2]]), BY_BLOCK),
    Family("conv2d f32", float_forms(FILTERED, _conv), BY_BLOCK),
    Family("pulp_conv2d_floats", float_forms(FILTERED, _fused_conv), SQUARE_WINDOWS),
    Family("conv2d_dot_grouped", _bordered(_grouped, LONG_GROUPS), POSITIONS),
    Family("conv2d_grouped", _bordered(_conv, [*THIN, *DEEP[:3:2]]), BY_BLOCK),
    Family("conv2d_grouped grouped", _bordered(_grouped, GROUPED), POSITIONS),
    Family("conv2d_grouped f32", float_forms(FILTERED, _conv), BY_BLOCK),
    Family("conv2d_grouped f32 grouped", float_forms(SMALL_GROUPS, _grouped), ("oh ow fh fw k",)),  # all are 3x3
    Family("conv2d_any", {"requantise": [_computed(s, "narrow") for s in THIN], "": [_computed(s, "plain") for s in THIN]}, POSITIONS),
    Family("conv2d_any f32", float_forms(THIN, _computed), POSITIONS),
    Family(
        "conv2d_transpose",
        {"requantise": [_transposed(s, "narrow") for s in TRANSPOSED], "": [_transposed(s, "plain") for s in TRANSPOSED]},
        WHOLE,
    ),
    Family("conv2d_transpose f32", float_forms(TRANSPOSED, _transposed), WHOLE),
    Family("depthwise2d_multiplied", _bordered(_spread, SPREAD), POSITIONS),
    Family("depthwise2d_multiplied f32", float_forms(SPREAD, _spread), POSITIONS),
    Family(
        "depthwise2d",
        _bordered(_depthwise, FEW_COLUMNS),
        ("oh ow", "oh ow fh", "oh ow fh fw", "oh ow k<8", "oh ow fh fw k<8"),
    ),
    Family("depthwise2d f32", float_forms(LARGE_DEPTHWISE, _depthwise), DEPTHWISE_BLOCKS),
)

# Weights in 16 bits: every second shape.
HALVES = tuple(
    Family(f"{name} f32 {dtype.value}", halves(float_forms(shapes[::2], make), dtype), terms)
    for dtype in (DType.FLOAT16, DType.BFLOAT16)
    for name, shapes, make, terms in (
        ("matmul", [*MATMULS, *FEW], _matmul, BLOCKS),
        ("conv2d", FILTERED, _conv, BY_BLOCK),
        ("conv2d_grouped", FILTERED, _conv, BY_BLOCK),
        ("conv2d_transpose", TRANSPOSED, _transposed, WHOLE),
        ("depthwise2d_multiplied", SPREAD, _spread, BY_TAP),
        ("depthwise2d", LARGE_DEPTHWISE, _depthwise, BY_TAP),
    )
)
