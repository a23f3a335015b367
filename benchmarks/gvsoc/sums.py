"""Cycles of second parts: what cores make of the sums that N-EUREKA leaves, tile by tile, alone and beside the job of the next tile.

    make bench NAME=gvsoc/sums

prints the rates that are found beside those of npu_timing.toml; ``calibrate.py --npu`` and ``--sums`` write them there. Layers are cut
into several tiles. The first core notes when it passes a barrier, and there is one before and one behind every second part, so that no
model of transfers and windows takes part. Exit status 1 when a program fails.
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.common import Table
from benchmarks.gvsoc import cases
from benchmarks.gvsoc.layer import Case, SimulationError, build, simulate
from benchmarks.gvsoc.sweep import compiled, sample_of
from deeploy.bringup.fit import fit_coefficients
from deeploy.execution.simulation.walk import walk_plan
from deeploy.ir.target import Rate
from deeploy.planning import cost
from deeploy.planning.plan import Plan
from deeploy.planning.tiling.loops import TileLoop
from deeploy.target import Target, load

NAME = "pulp_requantise_sums"
CORES = 8
L1 = 64_000  # bytes, which cut most layers into several tiles


@dataclass(frozen=True)
class Tile:
    """A second part: outputs and channels of a core, cycles of the job that runs beside it, whether it is the first one of its layer."""

    outputs: int
    channels: int
    job: float
    is_first: bool
    cycles: int


@dataclass(frozen=True)
class Fitted:
    """A rate, of how many tiles, and relative errors: median and largest."""

    rate: Rate
    tiles: int
    median: float
    largest: float


def _shallow(case: Case, operand: str, bits: int = 4) -> Case:
    """The case with smaller weights, so that sums of deep products fit 32-bit forms, and multipliers of 30 bits."""
    size = float(60 * 2.0 ** (case.attrs["shift"] - bits) / (case.operands["mul"].max()))
    operands, attrs = cases.requantised(np.random.default_rng(1), "high", len(case.operands["mul"]), size, case.y)
    found = {**case.operands, operand: case.operands[operand] >> bits, **operands}
    return replace(case, name=f"{case.name} high", operands=found, attrs={**case.attrs, **attrs})


def _within(case: Case) -> Case:
    """The case whose outputs do not take the whole range of their type."""
    return replace(case, attrs={**case.attrs, "low": case.attrs["low"] + 3, "high": case.attrs["high"] - 3})


PRODUCTS = tuple(
    _shallow(cases.matmul(*shape), "b")
    for shape in ((96, 64, 96), (120, 192, 96), (144, 384, 32), (192, 64, 40), (1, 128, 640), (4, 64, 256))
)
POINTWISE = tuple(
    _shallow(cases.pointwise(shape[:3], shape[3]), "w")
    for shape in ((24, 20, 32, 8), (12, 12, 256, 64), (25, 5, 64, 64), (3, 3, 256, 256), (6, 6, 128, 128))
)
DENSE = tuple(_shallow(cases.conv((24, 24, channels), filters), "w") for channels, filters in ((32, 64), (64, 32)))
DEPTHWISE = (_shallow(cases.depthwise((24, 24, 64)), "w", 1),)
LIMITED = tuple(
    _shallow(cases.matmul(*shape), "b", 1)
    for shape in ((96, 256, 64), (48, 256, 96), (6, 256, 256), (192, 256, 40), (2, 256, 512), (24, 256, 24))
)
LONG = tuple(_shallow(cases.matmul(*shape), "b", 0) for shape in ((96, 512, 96), (48, 768, 64), (96, 640, 32)))
DEEP = tuple(_shallow(cases.pointwise((12, 12, depth), filters), "w", 0) for depth, filters in ((512, 32), (256, 64)))
Layers = Sequence[tuple[str, Case]]  # with the kernels that compute them
LAYERS: Mapping[str, Layers] = {  # by how most of their channels are requantised
    words: [(f"neureka_{name}_sums", case) for name, some in every for case in some]
    for words, every in {
        "": (("product", PRODUCTS), ("pointwise", POINTWISE), ("dense", DENSE), ("depthwise", DEPTHWISE)),
        "limited": (("product", LIMITED),),
        "long": (("product", LONG), ("pointwise", DEEP)),
    }.items()
}
FORMS: Mapping[str, Callable[[Case], Case]] = {
    "": _within,
    "whole": lambda case: case,
    "lookup": lambda case: cases.by_table(_within(case)),
    "lookup whole": cases.by_table,
}


def rates(target: Target) -> dict[str, Fitted]:
    """Rates of the second part by the words of their entries.

    Raises:
        SimulationError: no simulator, or a program fails on it.
    """
    found = {}
    for most, layers in LAYERS.items():
        every = {words: _tiles([(kernel, form(case)) for kernel, case in layers], most, target) for words, form in FORMS.items()}
        found |= {f"{most} {words}".strip(): fitted for words, fitted in _fit(every, target).items()}
    return found


def _tiles(some: Layers, most: str, target: Target) -> list[list[Tile]]:
    """What is measured of layers, most of whose channels are requantised in one form."""
    kernels, every = zip(*some, strict=True)
    machine = replace(target, kernels=tuple(each for each in target.kernels if each.name in kernels))
    project = compiled(every, machine, CORES, L1, None, kernels, "double")
    plan = project.networks["network"].plan
    forms = [(call.name, cost.instance_words(call.parts[-1]) & set(LAYERS)) for call in plan.program.calls]
    others = [name for name, words in forms if words != {most} - {""}]
    if others:
        raise SimulationError(f"channels of {', '.join(others)} are requantised in another form than {most or 'the usual one'}")
    with tempfile.TemporaryDirectory(prefix="deeploy-gvsoc-") as scratch:
        folder = Path(scratch)
        project.write(folder / "project")
        flags = "-DDEEPLOY_PROFILE -DONE_TEAM -DBARRIERS"
        l2 = plan.memory["L2"].peak
        program = build(folder / "project", folder / "work", target, flags, l2_bytes=l2, main="probe.c", wrapped=("rt_barrier",))
        (folder / "work" / "inputs.bin").write_bytes(sample_of(every))
        (folder / "work" / "weights.bin").write_bytes((folder / "project" / "network_weights.bin").read_bytes())
        lines = [line.split() for line in simulate(program, folder / "work", target)]
    cycles = [int(words[2]) for words in lines if words[:1] == ["barrier"]][::2]
    if len(cycles) != sum(plan.tiling(step).tiles for step in range(len(plan.program.calls))):
        raise SimulationError(f"{len(cycles)} second parts")
    jobs = [(one.step, one.end - one.start) for one in walk_plan(plan).intervals if one.kind == "compute" and one.lane == "npu"]
    result = []
    for step in range(len(plan.program.calls)):
        own, cycles = cycles[: plan.tiling(step).tiles], cycles[plan.tiling(step).tiles :]
        result.append(_of_layer(plan, step, own, [length for owner, length in jobs if owner == step]))
    return result


def _of_layer(plan: Plan, step: int, cycles: Sequence[int], jobs: Sequence[float]) -> list[Tile]:
    """The tiles of a layer, of whose second parts and jobs the cycles are known."""
    geometry, loops = plan.program.calls[step].geometry, plan.tiling(step).loops
    written = geometry.nest.writes["y"]
    last, outputs = next(iter(written.axes[-1].dims())).name, {dim.name for dim in written.dims()}
    result = []
    for number, (spent, following) in enumerate(zip(cycles, [*jobs[1:], 0.0], strict=True)):
        size = _sizes(geometry.extents, loops, number)
        channels = -(-size[last] // CORES)
        pixels = math.prod(size[dim] for dim in outputs - {last})
        result.append(Tile(pixels * channels, channels, min(following, spent), number == 0, spent))
    return result


def _sizes(extents: Mapping[str, int], loops: Sequence[TileLoop], tile: int) -> dict[str, int]:
    """Extents of one of the tiles that loops, the outermost first, cut."""
    sizes = dict(extents)
    for loop in reversed(loops):
        tile, at = divmod(tile, loop.trips)
        sizes[loop.dim] = min(loop.tile, extents[loop.dim] - at * loop.tile)
    return sizes


def _fit(every: Mapping[str, Sequence[Sequence[Tile]]], target: Target) -> dict[str, Fitted]:
    """The rates of variants that differ in what an output takes."""
    assert target.timing is not None
    tiles = [(words, tile) for words, layers in every.items() for layer in layers for tile in layer]
    columns = [[1.0, float(t.is_first), t.channels, t.job, *(t.outputs * (words == each) for each in every)] for words, t in tiles]
    features, measured = np.array(columns, float), np.array([tile.cycles for _, tile in tiles], float)
    x = fit_coefficients(features, measured)
    errors = np.abs(features @ x / measured - 1)
    call, cold, channel, job = (float(each) for each in x[:4])
    call -= target.timing.barrier["cluster"] / 2  # that behind the part; what is before it is over
    found = {}
    for number, words in enumerate(every):
        own = errors[[each == words for each, _ in tiles]]
        rate = Rate(round(call), 0, round(float(x[4 + number]), 3), round(cold), per={"channels": round(channel, 2)})
        rate = replace(rate, contention=round(job / (1 - job), 3))
        found[words] = Fitted(rate, len(own), float(np.median(own)), float(own.max()))
    return found


def main(arguments: Sequence[str]) -> int:
    target = load("siracusa")
    assert target.timing is not None
    try:
        found = rates(target)
    except SimulationError as error:
        print(error, file=sys.stderr)
        return 1
    layout = "{:<20}{:>10}{:>8}{:>10}{:>8}{:>10}{:>8}{:>8}{:>10}{:>10}"
    columns = Table(layout, "second parts", "rate", "call", "output", "cold", "channels", "contention", "tiles", "median", "largest")
    for words, one in found.items():
        for name, rate in (("found", one.rate), ("declared", target.timing.kernel(NAME, words.split()))):
            figures = rate.call, rate.output, rate.cold, rate.per["channels"], rate.contention
            errors = (one.tiles, f"{one.median:.1%}", f"{one.largest:.1%}") if name == "found" else ("", "", "")
            columns.add(words or "others", name, *figures, *errors)
    return 0
