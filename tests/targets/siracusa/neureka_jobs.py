"""Jobs of N-EUREKA for tests and benchmarks: random operands, the reference in NumPy, and the input of npu/network.c."""

from __future__ import annotations

import functools
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from targets.siracusa import npu
from targets.siracusa.npu import EngineLayer, Mode
from tests.targets.siracusa.neureka_model import Tile

Array = np.ndarray[Any, np.dtype[Any]]

ROOT = Path(__file__).resolve().parents[3]
NETWORK = ROOT / "tests" / "targets" / "siracusa" / "npu" / "network.c"
SOURCES = [NETWORK]
HAL = ROOT / "kernels" / "hal"
BYTES, ROOM = 48 * 1024, 24 * 1024  # of an input and of an output
GAP = 0x5A  # what lies between pixels of y
_scratch = tempfile.TemporaryDirectory(prefix="deeploy-neureka-")

SCALES: dict[int, Any] = {8: np.uint8, 16: np.uint16, 32: np.uint32}
TYPES: dict[str, Any] = {"u8": np.uint8, "s8": np.int8, "s32": np.int32}


@dataclass(frozen=True)
class Case:
    """A job: what it is, and its operands. ``x`` [H, W, C] without borders, ``weights`` [K, C, FH, FW], ``y`` the bytes before."""

    layer: EngineLayer
    tile: Tile
    x: Array
    weights: Array
    scale: Array
    bias: Array
    shifts: Array
    y: Array
    stride: int = 1
    channels: int = 0  # those that the job reads; x may have more

    def blob(self, repeats: int = 1, size: int = BYTES, parts: int = 1) -> bytes:
        """The input of the network, ``size`` bytes: the job, done ``repeats`` times, in ``parts`` of some rows (1x1 only)."""
        t, layer = self.tile, self.layer
        scale = self.scale.astype(SCALES[layer.scale_bits])
        operands = [
            self.x,
            npu.encode_weights(self.weights, layer),
            scale,
            self.bias.astype(np.int32),
            self.shifts.astype(np.uint8),
            self.y,
        ]
        data = [np.ascontiguousarray(operand).tobytes() for operand in operands]
        if layer.y_type == "s32":
            data[2:5] = [b"", b"", b""]
        numbers = [*map(len, data), repeats, parts, layer.config, layer.weight_offset, layer.padding_value, t.height, t.width]
        numbers += [t.channels_in, t.channels_out, t.x_pixel, t.x_row, t.y_pixel, t.y_row, t.top, t.left, t.bottom, t.right]
        result = np.array(numbers, np.int64).astype(np.uint32).tobytes()
        for part in data:
            result += bytes(-len(result) % 8) + part
        return result.ljust(size, b"\0")

    def expected(self) -> bytes:
        """What y holds afterwards."""
        t, layer = self.tile, self.layer
        border = ((t.top, t.bottom), (t.left, t.right), (0, 0))
        x = np.pad(self.x[:, :, : self.channels].astype(np.int64), border, constant_values=layer.padding_value)
        x = x[:: self.stride, :: self.stride]
        taps = layer.mode.taps
        acc = np.zeros((t.height, t.width, t.channels_out), np.int64)
        for i in range(taps):
            for j in range(taps):
                window = x[i : i + t.height, j : j + t.width]
                w = self.weights[:, :, i, j].astype(np.int64)
                acc += window * w[:, 0] if layer.mode is Mode.DEPTHWISE else window @ w.T
        size = np.dtype(TYPES[layer.y_type]).itemsize
        out = self.y.copy()
        view = np.lib.stride_tricks.as_strided(out, (t.height, t.width, t.channels_out * size), (t.y_row, t.y_pixel, 1))
        if layer.accumulate:
            acc += np.ascontiguousarray(view).view(np.int32)
        if layer.y_type != "s32":
            shift = self.shifts.astype(np.int64) if layer.shift is None else layer.shift
            info = np.iinfo(TYPES[layer.y_type])
            acc = np.clip((acc * self.scale.astype(np.int64) + self.bias) >> shift, info.min, info.max)
        view[:] = acc.astype(TYPES[layer.y_type]).view(np.uint8).reshape(view.shape)
        return out.tobytes()


def case(
    layer: EngineLayer,
    height: int,
    width: int,
    channels: int,
    filters: int,
    padding: tuple[int, int, int, int] = (0, 0, 0, 0),
    stride: int = 1,
    gap: int = 0,
    seed: int = 0,
) -> Case:
    """A random job with outputs of ``height`` x ``width``; ``gap`` bytes follow every pixel of x and y, 3 more every row of y.

    Weights are ``filters`` x ``channels`` of all of the layer's bits. Scales and biases are such that outputs spread, and all
    products stay within 32 bits.
    """
    random = np.random.default_rng([height, width, channels, filters, seed, layer.config])
    taps, top, left, bottom, right = layer.mode.taps, *padding
    h, w = (height - 1) * stride + taps - top - bottom, (width - 1) * stride + taps - left - right
    is_depthwise = layer.mode is Mode.DEPTHWISE
    info = np.iinfo(TYPES[layer.x_type])
    x = random.integers(info.min, info.max + 1, (h, w, channels + gap)).astype(TYPES[layer.x_type])
    weights = random.integers(0, 1 << layer.bits, (filters, 1 if is_depthwise else channels, taps, taps)) + layer.weight_offset
    size = np.dtype(TYPES[layer.y_type]).itemsize
    y_pixel = (filters + gap) * size
    y_row = width * y_pixel + (3 * size if gap else 0)
    tile = Tile(height, width, channels, filters, (channels + gap) * stride, w * (channels + gap) * stride, y_pixel, y_row, *padding)
    scale, bias, shifts = _normalisation(layer, weights, taps * taps * weights.shape[1], random)
    y = np.full(y_row * height, GAP, np.uint8)
    if layer.accumulate:
        y = random.integers(-(1 << 20), 1 << 20, y.size // 4).astype(np.int32).view(np.uint8)
    return Case(layer, tile, x, weights, scale, bias, shifts, y, stride, channels)


def _normalisation(layer: EngineLayer, weights: Array, products: int, random: np.random.Generator) -> tuple[Array, Array, Array]:
    """Scale, bias and shift per channel: outputs spread over some 100 values."""
    size = np.abs(weights.reshape(weights.shape[0], -1)).astype(np.int64)
    most = size.sum(axis=1) * 255 + 1
    spread = np.sqrt(products) * 75 * np.maximum(size.max(axis=1), 1) / 2  # about the standard deviation of a sum
    limit = np.minimum((1 << layer.scale_bits) - 1, ((1 << 31) - 1) // most - 1)
    if layer.shift is None:
        scale = random.integers(limit // 2 + 1, limit + 1)
        shifts = np.clip(np.log2(np.maximum(spread * scale / 50, 1)).astype(np.int64), 0, 31)
    else:
        scale = np.clip((50 * (1 << layer.shift) / spread).astype(np.int64), 1, limit)
        shifts = np.full(most.size, layer.shift)
    room = (1 << 31) - 1 - most * scale
    bias = np.clip(random.integers(-(1 << 6), 1 << 7, most.size) << shifts, -room, room)
    return scale, bias, shifts


def split(outputs: bytes, cases: Sequence[Case], room: int = ROOM) -> tuple[list[bytes], list[int]]:
    """What every case's y holds, and its cycles, from the file of outputs."""
    records = [outputs[i * (room + 4) :][: room + 4] for i in range(len(cases))]
    ys = [record[: case.y.size] for record, case in zip(records, cases, strict=True)]
    return ys, [int.from_bytes(record[room:], "little") for record in records]


def headers(folder: Path) -> Path:
    """A folder with the header that is the same in every project."""
    (folder / "include").mkdir(exist_ok=True)
    (folder / "include" / "deeploy_network.h").write_text((ROOT / "templates" / "deeploy_network.h.mako").read_text())
    return folder / "include"


@functools.cache
def _host_objects(flags: tuple[str, ...]) -> tuple[Path, ...]:
    """The objects of the host machine model."""
    folder = Path(_scratch.name) / "-".join(["host", *flags]).replace("=", "-").replace(",", "-")
    folder.mkdir()
    sources = sorted((HAL / "host").glob("*.c"))
    for source in sources:
        _compile([*flags, "-c", str(source), "-o", str(folder / f"{source.stem}.o")])
    return tuple(folder / f"{source.stem}.o" for source in sources)


def _compile(arguments: Sequence[str]) -> None:
    command = ["gcc", "-std=c11", "-O2", "-g", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-DRT_CHECKED"]
    command += [f"-I{headers(Path(_scratch.name))}", f"-I{HAL}", f"-I{ROOT / 'kernels' / 'neureka'}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def build_host(folder: Path, flags: tuple[str, ...] = (), changes: Sequence[tuple[str, str]] = ()) -> Path:
    """The network on the host machine model, with pieces of its text exchanged."""
    text = NETWORK.read_text()
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (folder / "network.c").write_text(text)
    objects = map(str, _host_objects(flags))
    _compile([*flags, str(folder / "network.c"), *objects, "-lm", "-o", str(folder / "application")])
    return folder / "application"


def run_host(application: Path, cases: Sequence[Case], *options: str, parts: int = 1) -> tuple[int, str, list[bytes]]:
    """Exit status, messages, and what every y holds."""
    folder = application.parent
    (folder / "inputs.bin").write_bytes(b"".join(made.blob(parts=parts) for made in cases))
    command = [str(application), "job", "inputs.bin", "outputs.bin", str(len(cases)), *options]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    return done.returncode, done.stderr, split((folder / "outputs.bin").read_bytes(), cases)[0]


def sweep() -> list[Case]:
    """Jobs of every mode: sizes around those of the engine's tiles, all bits of weights, borders, strides, types and gaps."""
    cases = []
    sizes = [(1, 1), (6, 6), (7, 5), (12, 13), (3, 20)]
    channels = [(1, 1), (28, 32), (32, 28), (29, 33), (64, 40), (57, 33)]
    for mode in Mode:
        border = (0, 0, 0, 0) if mode is Mode.POINTWISE else (1, 1, 1, 1)
        for i, (c, k) in enumerate(channels):
            k = c if mode is Mode.DEPTHWISE else k
            for j, (h, w) in enumerate(sizes):
                if (i + j) % 2 and (h, w) != (7, 5):
                    continue
                layer = EngineLayer(mode, "us"[i % 2] + "8", "us"[j % 2] + "8", shift=14, in_weight_memory=(i + j) % 3 == 0)
                cases.append(case(layer, h, w, c, k, border))
        for bits in range(2, 9):
            offset = (-(1 << (bits - 1)), 0, -1, -(1 << bits) + 1)[bits % 4]
            layer = EngineLayer(mode, "s8", "s8", bits, offset, (8, 16, 32)[bits % 3], None, 3)
            cases.append(case(layer, 8, 7, 31, 31, border))
            cases.append(case(EngineLayer(mode, "u8", "s32", bits, offset, in_weight_memory=bits % 2 > 0), 5, 8, 35, 35, border))
        for gap in (1, 4, 12):
            for y_type in TYPES:
                cases.append(case(EngineLayer(mode, "s8", y_type, 8, -100, 16, 9), 7, 8, 30, 30, border, gap=gap))
    for i in range(16):
        padding = (i & 1, i >> 1 & 1, i >> 2 & 1, i >> 3)
        for mode, size in ((Mode.DENSE, (6, 8)), (Mode.DEPTHWISE, (13, 5))):
            layer = EngineLayer(mode, "us"[i % 2] + "8", "u8", 5, -16, 16, 12, padding_value=100 - 150 * (i % 2))
            cases.append(case(layer, *size, 20, 20, padding))
    for size in ((2, 2), (7, 12), (8, 8)):
        cases.append(
            case(
                EngineLayer(Mode.DENSE, "s8", "s8", shift=12, padding_value=-7),
                *size,
                9,
                9,
                (2, 2, min(2, size[0] % 6 or 6), 2 - size[1] % 2),
            )
        )
    for stride in (2, 3):
        for size in ((5, 7), (1, 1), (12, 6)):
            cases.append(case(EngineLayer(Mode.POINTWISE, "s8", "u8", shift=12), *size, 33, 20, stride=stride, gap=stride - 2))
    for mode in (Mode.DENSE, Mode.POINTWISE):
        for size in ((6, 6), (7, 3)):
            cases.append(case(EngineLayer(mode, "s8", "s32", 4, -8, accumulate=True), *size, 30, 34))
    return cases
