"""Candidates against a recount: every tile walked through, window by window, by the definition of bytes, transfers and cycles."""

from __future__ import annotations

import functools
import itertools
import math
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import deeploy
from deeploy.ir.expr import evaluate_value
from deeploy.ir.nest import Part
from deeploy.ir.target import Target
from deeploy.options import Options
from deeploy.planning import cost
from deeploy.planning.candidates.candidate import Candidate
from deeploy.planning.candidates.tiler import Tiler
from deeploy.planning.program import Call
from deeploy.planning.tiling.loops import Footprints, Stream
from deeploy.target import load, passes
from tests.execution.simulation import nets
from tests.models import save_graph
from tests.planning.tiling.tiles import spans

TARGET: Target = load("siracusa")
CORES = 8
BUILDERS = {"convolutions": nets.convolutions, "perceptron": nets.perceptron, "transposed": nets.transposed}
MOST_TILES = 400  # of candidates that are walked through


@functools.cache
def compile_network(name: str) -> deeploy.Compiled:
    with tempfile.TemporaryDirectory() as folder:
        return BUILDERS[name](Path(folder), Options())


def tilers(name: str, l1: int) -> Iterator[Tiler]:
    program = compile_network(name).network.program
    for call in program.calls:
        yield Tiler(call, program.buffers, TARGET, {"L1": l1, "L2": 10**6, "L3": 10**7}, CORES)


def residences(call: Call, most: int) -> list[dict[str, int]]:
    """Every combination of distances up to ``most``; constants are never resident where kernels work."""
    return [dict(zip(call.operands, distances, strict=True)) for distances in itertools.product(range(most + 1), repeat=len(call.operands))]


@dataclass
class Moved:
    """What a stream moves: windows, bytes, rows and transfers; and the widest window."""

    moves: int = 0
    bytes: int = 0
    rows: int = 0
    commands: int = 0
    widest: int = 0


def walk(tiler: Tiler, candidate: Candidate, stream: Stream) -> Moved:
    """Go through the tiles and count every window that differs from the one before it."""
    tiling, extents = candidate.tiling, tiler.call.geometry.extents
    windows = tiler.windows[stream.operand]
    unit = tiler.buffers[tiler.call.operands[stream.operand].buffer].dtype.bytes
    moved = Moved()
    axes = range(len(windows.shape))
    cut = {loop.dim for loop in tiling.loops[: stream.loops]}
    for t in range(0, tiling.tiles, stream.period):
        found = spans(tiling, extents, t, stream.loops)
        parts: dict[str, Part] = {dim: (first, last - first + 1) for dim, (first, last) in found.items() if dim in windows.dims}
        shape = []
        for axis in axes:
            shape.append(evaluate_value(windows.window(axis, parts).count, {}))
        elements = math.prod(shape)
        moved.moves += 1
        moved.bytes += elements * unit
        moved.widest = max(moved.widest, elements * unit)
        rows = _rows(windows, shape, cut)
        moved.rows += math.prod(rows)
        moved.commands += math.prod(rows[1:])
    return moved


def _rows(windows: Footprints, shape: list[int], cut: set[str]) -> list[int]:
    """Counts of the axes that are not merged into one run of bytes, innermost first."""
    rows: list[int] = []
    expected, is_run = 1, True
    for axis in reversed(windows.order):
        size, stride, dim = windows.shape[axis], windows.strides[axis], windows.dims[axis]
        is_run = is_run and (size == 1 or stride == expected)
        if not is_run:
            rows.append(shape[axis])
        is_run = is_run and dim not in cut
        expected = stride * size if size > 1 else expected
    return rows


def _steps(sizes: dict[str, int], name: str, step: int) -> int:
    return int(cost.whole_steps(sizes[name], step)) if step else 1


def compute(tiler: Tiler, candidate: Candidate) -> float:
    """Cycles in kernels and around them: every tile takes as long as the core with the largest share of it."""
    tiling, extents = candidate.tiling, tiler.call.geometry.extents
    division = tiling.division or ()
    total = tiler.once
    for t in range(tiling.tiles):
        sizes = extents | {name: last - first + 1 for name, (first, last) in spans(tiling, extents, t).items()}
        active = math.prod(len(range(0, sizes[dim], -(-sizes[dim] // parts))) for dim, parts in division)
        sizes |= {dim: -(-sizes[dim] // parts) for dim, parts in division}
        work = tiler.work.cycles(functools.partial(_steps, sizes)) * (1 + tiler.work.shared * (active - 1))
        total += work + tiler.overhead + (tiler.barrier if division else 0.0)
    return total


@dataclass
class Way:
    """What moves on one path in one direction."""

    path: str
    is_output: bool
    data: float = 0.0
    first: float = 0.0
    issue: float = 0.0
    commands: int = 0
    before: float = 0.0  # what is under way of a tile when the next operand's transfer is started
    behind: float = 0.0  # of all starts, what the path works meanwhile
    waits: set[int] = field(default_factory=set)  # tiles that something moves for: all of it is waited for at once

    def add(self, moved: Moved, tiles: range) -> None:
        assert TARGET.timing is not None
        timing, loops = TARGET.timing.paths[self.path], TARGET.timing.loops
        data = moved.rows * timing.row + moved.bytes * timing.byte[self.is_output]
        self.data, self.first, self.commands = self.data + data, self.first + data / moved.moves, self.commands + moved.commands
        own = moved.commands * timing.issue + loops.first_window + (moved.moves - 1) * loops.window
        start, each, commands = own / moved.commands, data / moved.commands, moved.commands / moved.moves
        self.behind += moved.moves * min(self.before, start) + moved.moves * (commands - 1) * min(start, each)
        self.before = max(0.0, self.before - start) + data / moved.moves
        self.issue += own
        self.waits |= set(tiles)

    def cycles(self) -> tuple[float, float]:
        """Until all has moved, and until what moves for one tile has."""
        assert TARGET.timing is not None
        if not self.waits:
            return 0.0, 0.0
        timing, loops = TARGET.timing.paths[self.path], TARGET.timing.loops
        latency, waits = timing.latency[self.is_output], len(self.waits)
        # The path is idle until the first transfer of those that are waited for together is started, and still works on the last.
        hidden = max(
            0.0, min(self.behind, self.issue - waits * (loops.window + timing.issue), self.data - self.data / self.commands * waits)
        )
        return self.data + waits * latency - hidden, self.first + latency - hidden / waits


def besides(inside: float, tiles: int, cycles_of: dict[str, list[tuple[float, float]]]) -> float:
    """With two slots per window: of every tile what takes longest of computing it, fetching the next one and storing the one before."""
    total = 0.0
    for tile in range(tiles):
        busy = [inside / tiles]
        for (fetched, first), (stored, last) in cycles_of.values():
            fetch = (fetched - first) / (tiles - 1) if tile < tiles - 1 else 0.0
            busy.append(fetch + ((stored - last) / (tiles - 1) if tile else 0.0))
        total += max(busy)
    return total


def check(tiler: Tiler, candidate: Candidate) -> None:
    levels, depth = tiler.levels, 2 if candidate.is_double else 1
    used = [0] * len(levels)
    tile = {**tiler.call.geometry.extents, **candidate.tiling.sizes}
    used[0] = sum(-(-found.total(tiler.call.node, tile) // 8) * 8 for found in tiler.call.kernel.scratch.values())
    ways = {path.name: (Way(path.name, False), Way(path.name, True)) for path in tiler.paths}
    late = {path.name: Way(path.name, False) for path in tiler.paths}  # what still comes in when constants are there early
    prefetchable_bytes = 0
    for stream in candidate.tiling.streams:
        moved = walk(tiler, candidate, stream)
        distance = [path.name for path in tiler.paths].index(stream.path)
        unit = TARGET.memory(levels[distance]).alignment
        slot = -(-moved.widest // unit) * unit
        assert (stream.moves, stream.bytes, stream.depth) == (moved.moves, slot, depth if moved.moves > 1 else 1)
        used[distance] += slot * stream.depth
        assert stream.is_prefetchable == (tiler.is_constant(stream.operand) and not distance and not stream.inner)
        period = range(0, candidate.tiling.tiles, stream.period)
        ways[stream.path][stream.is_output].add(moved, period)
        if stream.is_prefetchable:
            prefetchable_bytes += slot * stream.depth
        elif not stream.is_output:
            late[stream.path].add(moved, period)
    assert candidate.bytes == tuple(used)
    inside, issue = compute(tiler, candidate), sum(way.issue for pair in ways.values() for way in pair)
    cycles_of = {path: [way.cycles() for way in pair] for path, pair in ways.items()}
    early = sum(max(0.0, pair[0][1] - late[path].cycles()[1]) for path, pair in cycles_of.items())
    ends = sum(first for pair in cycles_of.values() for _, first in pair)
    data = {path: sum(whole for whole, _ in pair) for path, pair in cycles_of.items()}
    far = sum(n for path, n in data.items() if path != tiler.paths[0].name)
    cold = cost.kernel_rate(tiler.call, TARGET).cold
    whole, cached = (issue + sum(data.values()) + n for n in (inside, inside - cold))
    if depth == 2:
        whole, cached = (issue + ends + besides(n, candidate.tiling.tiles, cycles_of) for n in (inside, inside - cold))
    assert candidate.cycles == pytest.approx(whole, abs=1.01)
    assert candidate.cache_saving == pytest.approx(whole - cached, abs=1.01)
    assert candidate.last_tile_cache_saving == pytest.approx(cold / candidate.tiling.tiles, abs=1.01)
    assert (candidate.prefetchable_cycles, candidate.prefetchable_bytes) == (pytest.approx(early, abs=1.01), prefetchable_bytes)
    assert (candidate.last_tile_cycles, candidate.far) == (
        pytest.approx(inside / candidate.tiling.tiles, abs=1.01),
        pytest.approx(far, abs=1.01),
    )


@pytest.mark.parametrize("l1", [2500, 20_000])
@pytest.mark.parametrize("name", BUILDERS)
def test_bytes_and_cycles_are_what_the_tiles_add_up_to(name: str, l1: int) -> None:
    checked = 0
    for tiler in tilers(name, l1):
        for distances in residences(tiler.call, 1):
            for candidate in tiler.candidates(distances, (1, 2)):
                if candidate.tiling.tiles <= MOST_TILES:
                    check(tiler, candidate)
                    checked += 1
    assert checked > 40


@pytest.mark.parametrize("name", BUILDERS)
def test_and_with_windows_in_two_memories(name: str) -> None:
    checked = 0
    for tiler in tilers(name, 2500):
        for distances in residences(tiler.call, 2):
            if max(distances.values()) == 2:
                for candidate in tiler.candidates(distances, (1, 2))[:3]:
                    if candidate.tiling.tiles <= MOST_TILES:
                        check(tiler, candidate)
                        checked += 1
    assert checked > 40


def test_what_is_used_in_place_is_packed_as_the_kernel_wants(tmp_path: Path) -> None:
    """Filters of a convolution have their outputs last: parts of them are rows with gaps, which not every kernel takes."""
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])],
        "filters",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8, 9, 9])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 32, 9, 9])],
        [numpy_helper.from_array(np.ones((32, 8, 3, 3), np.float32), "w")],
    )
    save_graph(graph, tmp_path / "filters.onnx")
    siracusa = load("siracusa")
    packed = (replace(kernel, strided={"x": 1, "y": 1}) for kernel in siracusa.kernels if kernel.name == "conv2d")
    portable = (*packed, *(kernel for kernel in siracusa.kernels if kernel.op != "Conv"))
    cutting = replace(siracusa, kernels=portable, passes=passes(has_near_memory=True))
    plan = deeploy.compile(tmp_path / "filters.onnx", cutting).plan
    (call,) = (call for call in plan.program.calls if call.node.op == "Conv")
    assert plan.machine is not None
    tiler = Tiler(call, plan.program.buffers, plan.target, {**plan.machine.capacities, "L1": 13_000}, 8)
    found = {distance: tiler.candidates({**dict.fromkeys(call.operands, 1), "w": distance}, (1, 2)) for distance in (0, 1)}
    cuts = {distance: {loop.dim for candidate in rows for loop in candidate.tiling.loops} for distance, rows in found.items()}
    assert cuts == {0: {"oh", "ow"}, 1: {"oh", "ow", "k"}}
