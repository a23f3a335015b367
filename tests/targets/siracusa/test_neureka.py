"""N-EUREKA: its registers, its weights and its normalisation, and all of it on the simulator."""

from __future__ import annotations

import ctypes
import subprocess
from dataclasses import astuple, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from targets.siracusa import npu
from targets.siracusa.npu import EngineLayer, Mode
from tests.targets.siracusa import neureka_model as model
from tests.targets.siracusa.neureka_model import Tile

from .conftest import SIMULATED, Simulate, build
from .neureka_jobs import HAL, ROOT, SOURCES, case, headers, split, sweep

REGISTERS = """
#include "neureka.h"
void rt_job(int a, const uint32_t *r, int n) { (void)a, (void)r, (void)n; }
void fill(const struct neureka_layer *l, const struct neureka_tile *t, uint32_t *r) { neureka_registers(l, t, r); }
"""
CLIP = {"u8": (0, 255), "s8": (-128, 127)}


class CLayer(ctypes.Structure):
    _fields_ = (("config", ctypes.c_uint32), ("weight_offset", ctypes.c_int32), ("padding_value", ctypes.c_int32))


ADDRESSES = ("x", "y", "weights", "scale", "bias", "shifts")
NUMBERS = tuple(field.name for field in fields(Tile) if field.name not in ADDRESSES)


class CTile(ctypes.Structure):
    _fields_ = (*((name, ctypes.c_size_t) for name in ADDRESSES), *((name, ctypes.c_int32) for name in NUMBERS))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """What neureka.h computes, and an rt_job that is never called."""
    folder = tmp_path_factory.mktemp("library")
    (folder / "registers.c").write_text(REGISTERS)
    includes = [f"-I{HAL}", f"-I{ROOT / 'kernels' / 'neureka'}"]
    command = ["gcc", "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-shared", "-fPIC", *includes]
    subprocess.run([*command, folder / "registers.c", "-o", folder / "lib.so"], check=True)
    return ctypes.CDLL(str(folder / "lib.so"))


def test_registers_are_the_same_in_c(library: ctypes.CDLL) -> None:
    random = np.random.default_rng(0)
    cases = [(made.layer, made.tile) for made in sweep()]
    for layer, tile in cases:
        addresses = {name: int(address) for name, address in zip(ADDRESSES, random.integers(0x10000000, 0x10800000, 6), strict=True)}
        tile = replace(tile, **addresses)
        registers = (ctypes.c_uint32 * model.REGISTERS)()
        c_layer = CLayer(layer.config, layer.weight_offset, layer.padding_value)
        c_tile = CTile(**{field.name: getattr(tile, field.name) for field in fields(Tile)})
        library.fill(ctypes.byref(c_layer), ctypes.byref(c_tile), registers)
        np.testing.assert_array_equal(list(registers), model.job(layer, tile), err_msg=f"{layer} {tile}")
    assert len({astuple(tile)[:4] for _, tile in cases}) > 40


def test_registers_of_a_known_job() -> None:
    layer = EngineLayer(Mode.DENSE, "s8", "u8", 4, -8, 16, 12, padding_value=-3, in_weight_memory=True)
    tile = Tile(13, 6, 57, 32, 57, 400, 32, 192, 1, 1, 1, 0, x=0x10001000, y=0x10002000, weights=0x10400000, scale=8, bias=16)
    got = model.job(layer, tile)
    assert got[:6].tolist() == [0x10400000, 0x10001000 - 400 - 57, 0x10002000, 8, 0, 16]
    assert got[6:15].tolist() == [57, 400, 0, 32, 32, 192, 32, 32 * 4 * 3, 0]
    assert got[15:20].tolist() == [32 << 16 | 1, 1 << 16 | 0, 3 << 16 | 0, 1 << 16 | 3, 3 << 16 | 1]
    assert got[20:].tolist() == [1 << 28 | 0 << 24 | 6 << 20 | 1 << 16 | 0xFD, 0xFFFFFFF8, 0, 0x060C1613]


@pytest.mark.parametrize("wrong", [{"bits": 1}, {"bits": 9}, {"x_type": "s16"}, {"shift": 32}, {"scale_bits": 4}, {"accumulate": True}])
def test_layers_that_do_not_exist(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="no such layer"):
        replace(EngineLayer(Mode.DENSE), **wrong)


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("bits", range(2, 9))
def test_every_bit_of_a_weight_is_where_the_engine_reads_it(mode: Mode, bits: int) -> None:
    layer = EngineLayer(mode, bits=bits, weight_offset=-3)
    k, c, taps = 35, 1 if mode is Mode.DEPTHWISE else 37, mode.taps
    weights = np.random.default_rng(bits).integers(0, 1 << bits, (k, c, taps, taps)) - 3
    encoded = npu.encode_weights(weights, layer)
    passes = {Mode.DENSE: k * 2 * bits, Mode.DEPTHWISE: 2 * bits, Mode.POINTWISE: k * 2}[mode]
    assert encoded.dtype == np.uint8 and encoded.size == passes * npu.GROUP
    ones = 0
    for index in np.ndindex(*weights.shape):
        value = int(weights[index]) + 3
        channel = index[0] if mode is Mode.DEPTHWISE else index[1]
        group, inside = divmod(channel, mode.inputs)
        row = encoded[group] if mode is Mode.DEPTHWISE else encoded[index[0], group]
        for bit in range(bits):
            at = inside // 4 * 32 + bit * 4 + inside % 4 if mode is Mode.POINTWISE else (index[2] * 3 + index[3]) * 28 + inside
            stored = row if mode is Mode.POINTWISE else row[bit]
            assert stored[at // 8] >> at % 8 & 1 == value >> bit & 1
            ones += value >> bit & 1
    assert np.unpackbits(encoded).sum() == ones, "what fills up channels is zero"


def test_weights_that_do_not_fit() -> None:
    assert npu.weight_range(np.array([-128, 127])) == (8, -128)
    assert npu.weight_range(np.array([3, 3])) == (2, 3)
    assert npu.weight_range(np.array([-5, 10])) == (4, -5)
    assert npu.weight_range(np.array([-128, 128])) is None
    with pytest.raises(ValueError, match="weights 0 to 16 are not of 4 bits above 0"):
        npu.encode_weights(np.array([0, 16]).reshape(2, 1, 1, 1), EngineLayer(Mode.POINTWISE, bits=4, weight_offset=0))


def test_sums_are_bounds_that_are_reached() -> None:
    weights = np.random.default_rng(3).integers(-128, 128, (5, 7, 3, 3))
    least, most = npu.bound_sums(weights, "s8")
    extreme = np.where(weights > 0, -128, 127)
    np.testing.assert_array_equal(least, (weights * extreme).sum(axis=(1, 2, 3)))
    np.testing.assert_array_equal(npu.bound_sums(-weights, "u8")[0], -npu.bound_sums(weights, "u8")[1])
    assert (most > least).all()


def test_a_normalisation_gives_every_sum_the_same_output() -> None:
    """Held against each sum in turn; a few are refused, and a few need shifts of their own per channel."""
    random = np.random.default_rng(1)
    kinds = {"common": 0, "per channel": 0, "none": 0}
    for _ in range(300):
        channels, y_type = int(random.integers(1, 5)), ("u8", "s8")[random.integers(2)]
        size = int(2 ** random.uniform(4, 17))
        least, most = -random.integers(0, size, channels), random.integers(0, size, channels)
        shift = int(random.integers(0, 54))
        limit = min((1 << 31) - 1, int(2**shift * random.choice([300 / size, 30 / size, 1e-3, 0.05])) + 1)
        mul, noise = random.integers(0, limit + 1, channels), 1 << min(shift + 6, 50)
        add = random.integers(-noise, noise + 1, channels)
        low, high = CLIP[y_type]
        limits = (low, high) if random.random() < 0.7 else (low + int(random.integers(50)), high - int(random.integers(50)))
        found = npu.find_normalisation(mul, add, shift, limits, least, most, y_type)
        kinds["none" if found is None else "per channel" if found.shift is None else "common"] += 1
        if found is None:
            continue
        for k, step in enumerate(np.full(channels, found.shift) if found.shifts is None else found.shifts):
            acc = np.arange(least[k], most[k] + 1)
            scaled = acc * int(found.scale[k])
            total = scaled + int(found.bias[k])
            assert np.abs(scaled).max() < 1 << 31 and total.min() >= -(1 << 31) and total.max() < 1 << 31
            got = np.clip(total >> int(step), low, high)
            np.testing.assert_array_equal(got, np.clip((acc * mul[k] + add[k]) >> shift, *limits))
    assert kinds["common"] > 200 and kinds["per channel"] > 2 and kinds["none"] > 20, kinds


def _is_exact(*requantisation: Any) -> bool:
    return npu.find_normalisation(*requantisation) is not None


def test_normalisations_that_are_known() -> None:
    one, zero, least, most = np.array([514]), np.array([0]), np.array([-1_000_000]), np.array([1_000_000])
    exact = npu.find_normalisation(one, zero, 16, (-128, 127), least, most, "s8")
    assert exact is not None and (str(exact.scale.dtype), exact.scale[0], exact.bias[0] >> 8, exact.shift) == ("uint16", 257, 0, 15)
    assert _is_exact(one, zero, 16, (0, 255), least, most, "u8")
    assert not _is_exact(-one, zero, 16, (-128, 127), least, most, "s8"), "scales are not negative"
    assert not _is_exact(one, zero, 16, (0, 127), least, most, "s8"), "the clip at 0 is not that of the type"
    assert _is_exact(one, zero, 16, (0, 127), np.array([0]), most, "s8"), "but here it is not reached"
    assert not _is_exact(np.array([0x7654321F]), np.array([1 << 40]), 41, (-128, 127), least, most, "s8"), "31 bits are needed"
    assert not _is_exact(np.array([1]), zero, 0, (-128, 127), least, np.array([1 << 31]), "s8"), "33 bits are needed"


@pytest.fixture(scope="module")
def application(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("neureka")
    includes = f"{headers(folder)} {ROOT / 'kernels' / 'neureka'}"
    return build(folder, [*SOURCES, SIMULATED / "main.c"], INCLUDES=includes)


@pytest.mark.gvsoc
@pytest.mark.parametrize("third", range(3))
def test_the_simulator_computes_what_numpy_does(application: Path, simulate: Simulate, tmp_path: Path, third: int) -> None:
    cases = sweep()[third::3]
    (tmp_path / "inputs.bin").write_bytes(b"".join(made.blob() for made in cases))
    run = simulate(application, tmp_path)
    assert run.is_success, run.lines
    ys, cycles = split((tmp_path / "outputs.bin").read_bytes(), cases)
    wrong = [f"{made.layer} {made.tile}" for made, y in zip(cases, ys, strict=True) if y != made.expected()]
    assert wrong == []
    assert min(cycles) > 300 and max(cycles) < 30000


@pytest.mark.gvsoc
def test_jobs_queue_up_on_the_simulator(application: Path, simulate: Simulate, tmp_path: Path) -> None:
    """Five jobs are begun before the first wait, and the engine has registers for two."""
    made = case(EngineLayer(Mode.POINTWISE, "s8", "s8", shift=12), 11, 9, 40, 40)
    (tmp_path / "inputs.bin").write_bytes(made.blob(parts=5) + made.blob(repeats=3, parts=2) + made.blob(parts=0))
    run = simulate(application, tmp_path)
    assert run.is_success, run.lines
    ys, _ = split((tmp_path / "outputs.bin").read_bytes(), [made] * 3)
    assert ys == [made.expected()] * 3


@pytest.mark.gvsoc
def test_cycles_are_those_that_the_planner_expects(application: Path, simulate: Simulate, tmp_path: Path) -> None:
    """The third of three equal jobs, from warm caches: within 3 % and 120 cycles of the closed form."""
    jobs = (((13, 11), 40, "u8", 8, False), ((9, 12), 33, "u8", 4, True), ((7, 8), 40, "s32", 8, True))
    cases = [
        case(EngineLayer(mode, "u8", y_type, bits, 0, 16, 12, in_weight_memory=apart), *size, channels, channels, border)
        for mode, border in ((Mode.POINTWISE, (0, 0, 0, 0)), (Mode.DENSE, (1, 1, 1, 1)), (Mode.DEPTHWISE, (1, 1, 1, 1)))
        for size, channels, y_type, bits, apart in jobs
    ]
    (tmp_path / "inputs.bin").write_bytes(b"".join(made.blob(repeats=3) for made in cases))
    run = simulate(application, tmp_path)
    assert run.is_success, run.lines
    ys, cycles = split((tmp_path / "outputs.bin").read_bytes(), cases)
    assert ys == [made.expected() for made in cases]
    for made, measured in zip(cases, cycles, strict=True):
        tile = made.tile
        expected = model.cycles(made.layer, tile.height, tile.width, tile.channels_in, tile.channels_out)
        assert abs(measured - expected) < 120 + 0.03 * measured, (made.layer, measured, expected)


def test_cycles_of_known_jobs() -> None:
    """Counted by hand: subtiles, groups of channels and their passes."""
    near = EngineLayer(Mode.POINTWISE, scale_bits=8)
    assert model.busy(near, 12, 12, 64, 64) == 2 * 4 * (2 * (6 + 42 + 10 + 32) + 8 + 9 + 4 + 8 + 36 + 3)
    assert model.busy(replace(near, in_weight_memory=True), 12, 12, 64, 64) == 2 * (4 * (2 * (6 + 42 + 7) + 68) + 32)
    dense = EngineLayer(Mode.DENSE, bits=4, y_type="s32")
    assert model.busy(dense, 6, 7, 28, 32) == (6 + 64 + 6 + 4 * 32 + 8 + 36 * 4) + (6 + 24 + 6 + 4 * 32 + 8 + 31 * 4)
    assert model.linear_cycles(near, 64, 64, 64) > model.linear_cycles(near, 60, 64, 64) > model.DRIVER
