"""Cycles of N-EUREKA's layers, swept over shapes: kernels in which cores gather windows, or thin outputs out, while the engine works;
and what starting a job takes in those where it works alone.

Measured are whole layers; what the walk expects of transfers and windows is taken off. Every layer is measured twice, once behind
one of the same kernel and once behind another, which tells what cold instruction caches cost.
"""

from __future__ import annotations

import itertools
import math
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.gvsoc import cases
from benchmarks.gvsoc.layer import Case, SimulationError, build, simulate
from benchmarks.gvsoc.sweep import compiled, sample_of
from deeploy.bringup.fit import fit_coefficients
from deeploy.execution.simulation.walk import walk_plan
from deeploy.ir.target import Rate
from deeploy.options import Buffering
from deeploy.planning import cost
from deeploy.planning.candidates.instruction_cache import code_of, is_cached
from deeploy.planning.plan import Plan
from deeploy.planning.program import Call
from deeploy.target import Target

CORES = 8
CUT = (None, 48_000)  # bytes of L1: many layers in one tile (None: all there is), and most in several
MOST_BYTES = 600_000  # of the inputs and outputs of one program

WINDOWS = ("n oh ow", "n oh ow fh", "n oh ow fh fw c", "n oh ow k/32 group", "n oh ow k group", "n oh ow k/32", "n oh ow k")
PATCHES = (
    *("n oh", "n oh fh", "n oh ow fh", "n oh ow fh c", "n oh/6 ow/6 k/32 group", "n oh/6 ow/6 k group", "n oh/6 ow/6 k/32"),
    *("n oh/6 ow/6 k", "n oh ow k/32"),
)
SUBSAMPLED = (
    *("n oh/3", "n oh ow", "n oh ow k", "n oh/3 ow/3 k/28", "n oh/3 ow/3 k/28 bit", "n oh/3 ow k/28", "n oh ow k/28", "n oh/3 ow/3 k"),
    "k bit",
)
DENSE = ("n oh/3", "n oh ow", "n oh ow k", "n oh/3 ow/3 k/32 c/28", "n oh/3 ow/3 k c/28 bit", "n oh/3 ow/3 k/32", "n oh/3 ow/3 k")


@dataclass(frozen=True)
class Gathered:
    """A kernel, the layers that it is measured on, and what their cycles are counted by."""

    kernel: str  # and the words of its entry
    cases: tuple[Case, ...]
    terms: tuple[str, ...]


def _convs(*shapes: tuple[int, int, int, int, int | tuple[int, int], int]) -> tuple[Case, ...]:
    result = []
    for height, width, channels, filters, taps, stride in shapes:
        window = taps if isinstance(taps, tuple) else (taps, taps)
        result.append(_with_small_weights(cases.conv((height, width, channels), filters, window, stride, window[0] // 2)))
    return tuple(result)


def _dilated(dilation: int, is_depthwise: bool) -> tuple[Case, ...]:
    """Convolutions of 3x3 whose border is their dilation."""
    result = []
    for height, width, channels, filters in ((16, 16, 32, 32), (12, 20, 28, 40), (9, 9, 56, 56), (24, 12, 20, 20)):
        case = cases.conv(
            (height, width, channels), channels if is_depthwise else filters, pad=dilation, group=channels if is_depthwise else 1
        )
        result.append(_with_small_weights(replace(case, attrs={**case.attrs, "dilations": (dilation, dilation)})))
    return tuple(result)


def _sums(*shapes: tuple[int, int, int, int, tuple[int, int], int, int], groups: int = 1) -> tuple[Case, ...]:
    """Convolutions that keep their size but for the stride, without a requantisation; the last number is the dilation along rows.

    No groups (0): as many as there are channels.
    """
    result = []
    for height, width, channels, filters, taps, stride, dilation in shapes:
        case = cases.conv((height, width, channels), filters, taps, stride, 0, "plain", group=groups or channels)
        pads = ((taps[0] - 1) // 2, (taps[1] - 1) * dilation // 2) * 2
        result.append(replace(case, attrs={**case.attrs, "dilations": (1, dilation), "pads": pads}))
    return tuple(result)


def _requantised(case: Case) -> Case:
    """A convolution without a requantisation with one by factors of 30 bits, as the scales of QDQ networks give, and weights of 4 bits."""
    weights = case.operands["w"] >> 4
    size = 2 * 74 * 74 / 16 * math.prod(weights.shape[1:]) ** 0.5
    operands, attrs = cases.requantised(np.random.default_rng(1), "high", len(weights), size, "u8")
    return replace(case, operands={**case.operands, "w": weights, **operands}, y="u8", attrs={**case.attrs, **attrs})


def _with_small_weights(case: Case) -> Case:
    """The case with weights of 5 bits and sign, so that the engine's 32 bits hold what a deep window adds up to."""
    operands = {**case.operands, "w": case.operands["w"] >> 2, "add": case.operands["add"] >> 2}
    return Case(case.name, case.op, case.variables, operands, case.y, {**case.attrs, "shift": case.attrs["shift"] - 2})


def _pointwise(*shapes: tuple[int, int, int, int]) -> tuple[Case, ...]:
    return tuple(cases.pointwise(shape[:3], shape[3]) for shape in shapes)


def _depthwise(*shapes: tuple[int, int, int]) -> tuple[Case, ...]:
    return tuple(cases.depthwise(shape, 2) for shape in shapes)


FIRST = (
    Gathered(
        "neureka_depthwise_subsampled",
        _depthwise(
            (24, 24, 16), (12, 12, 56), (6, 6, 128), (40, 40, 8), (25, 11, 32), (4, 4, 64), (16, 16, 28), (21, 21, 20), (48, 20, 24)
        ),
        SUBSAMPLED,
    ),
    Gathered(
        "neureka_patches",
        _convs(
            *((32, 32, 3, 16, 3, 1), (40, 40, 3, 8, 3, 2), (16, 12, 5, 24, 3, 1), (16, 16, 1, 32, 5, 1), (40, 9, 1, 64, 7, 2)),
            *(
                (30, 20, 1, 16, (6, 4), 2),
                (36, 12, 1, 48, (8, 4), 2),
                (20, 40, 4, 16, (2, 4), 1),
                (24, 24, 8, 32, 3, 1),
                (64, 10, 2, 40, 5, 2),
                (1, 71, 4, 16, (1, 8), 1),
                (1, 120, 6, 32, (1, 5), 1),
            ),
        ),
        PATCHES,
    ),
    Gathered(
        "neureka_windows",
        _convs(
            *((16, 16, 16, 32, 3, 1), (12, 12, 36, 24, 3, 1), (9, 9, 32, 40, 3, 1), (8, 8, 24, 32, 3, 1), (20, 20, 12, 64, 5, 2)),
            *(
                (17, 13, 12, 24, 3, 1),
                (32, 8, 16, 32, (5, 3), 1),
                (6, 6, 32, 96, 3, 1),
                (24, 24, 10, 16, (2, 4), 2),
                (10, 30, 20, 32, (1, 5), 1),
                (1, 24, 16, 32, (1, 4), 1),
            ),
        ),
        WINDOWS,
    ),
)
SECOND = (
    FIRST[0],
    Gathered(
        "neureka_dense_subsampled",
        _convs(
            *((32, 32, 3, 16, 3, 2), (16, 16, 16, 32, 3, 2), (24, 24, 8, 24, 3, 2), (12, 12, 56, 32, 3, 2), (9, 17, 30, 40, 3, 2)),
            *((20, 20, 28, 64, 3, 2), (48, 20, 3, 8, 3, 2), (6, 6, 84, 32, 3, 2)),
        ),
        DENSE,
    ),
)


BY_RUNS = ("n run", "n oh/6 ow/6 k/32 run group", "n oh/6 ow/6 k/32 run", "n oh ow k/8 run", "n oh ow c", "k run group")
BY_BLOCKS = ("n run k/32", "n oh/6 ow/6 k/32 run group", "n oh/6 ow/6 k/32 run", "n oh ow k/8 run", "n oh ow k", "k run group")
RUNS = (
    Gathered(
        "neureka_runs",
        _sums(
            *((12, 12, 64, 64, (5, 5), 1, 1), (16, 16, 32, 32, (1, 7), 1, 1), (16, 16, 64, 32, (3, 5), 1, 1), (8, 8, 64, 96, (3, 3), 2, 1)),
            *((9, 9, 24, 64, (4, 4), 1, 1), (6, 6, 96, 128, (1, 3), 1, 1), (12, 12, 40, 32, (7, 7), 1, 1), (20, 9, 20, 40, (2, 3), 1, 1)),
            *((14, 10, 16, 24, (4, 4), 2, 1), (16, 8, 48, 32, (2, 2), 1, 1)),
        ),
        BY_RUNS,
    ),
    Gathered(
        "neureka_runs upright",
        _sums(
            *((16, 16, 32, 32, (7, 1), 1, 1), (12, 12, 64, 64, (5, 1), 1, 1), (20, 9, 20, 40, (5, 3), 1, 1), (9, 9, 32, 64, (3, 3), 1, 2)),
            *((16, 12, 16, 64, (9, 2), 2, 1), (8, 8, 96, 64, (3, 1), 1, 1)),
        ),
        BY_RUNS,
    ),
    Gathered(
        "neureka_runs linear",
        _sums(
            *((1, 36, 96, 96, (1, 7), 1, 1), (1, 64, 24, 64, (1, 9), 1, 1), (1, 50, 16, 24, (1, 5), 2, 1), (1, 72, 32, 32, (1, 3), 1, 2)),
            *((1, 40, 64, 32, (1, 3), 1, 8), (1, 48, 32, 64, (1, 5), 1, 4), (1, 30, 48, 48, (1, 5), 1, 1), (1, 66, 32, 16, (1, 3), 2, 3)),
        ),
        ("n run", "n ow/36 k/32 run group", "n ow/36 k/32 run", "n ow c", "k run group"),
    ),
    Gathered(
        "neureka_depthwise_runs",
        _sums(
            *((16, 16, 32, 32, (5, 5), 1, 1), (8, 8, 96, 96, (5, 5), 1, 1), (4, 4, 128, 128, (5, 5), 1, 1), (12, 12, 64, 64, (7, 7), 1, 1)),
            *((12, 20, 24, 24, (3, 9), 1, 1), (14, 14, 40, 40, (5, 5), 2, 1), (20, 8, 64, 64, (3, 3), 1, 2), (9, 9, 32, 32, (9, 9), 1, 1)),
            groups=0,
        ),
        BY_BLOCKS,
    ),
    Gathered(
        "neureka_depthwise_runs linear",
        _sums(
            *(
                (1, 128, 32, 32, (1, 11), 1, 1),
                (1, 56, 64, 64, (1, 7), 1, 1),
                (1, 40, 96, 96, (1, 5), 1, 1),
                (1, 100, 48, 48, (1, 17), 1, 1),
            ),
            *((1, 72, 32, 32, (1, 9), 2, 1), (1, 64, 64, 64, (1, 3), 1, 4), (1, 20, 64, 64, (1, 15), 1, 1)),
            groups=0,
        ),
        ("n run k/32", "n ow/36 k/32 run group", "n ow/36 k/32 run", "n ow k", "k run group"),
    ),
    Gathered(
        "neureka_grouped_runs",
        _sums(
            *(
                (16, 16, 64, 64, (3, 3), 1, 1),
                (12, 12, 32, 64, (3, 3), 1, 1),
                (8, 8, 96, 96, (5, 5), 1, 1),
                (10, 10, 64, 128, (1, 1), 1, 1),
            ),
            *((7, 9, 32, 32, (3, 5), 1, 1), (14, 14, 128, 128, (3, 3), 2, 1)),
            groups=4,
        ),
        BY_BLOCKS,
    ),
)


@dataclass(frozen=True)
class Measured:
    """Cycles of a kernel in one layer, and whether its instructions were not cached."""

    call: Call
    is_cold: bool
    cycles: float


@dataclass(frozen=True)
class Fitted:
    """A kernel's rate, how many layers it was fitted to, and relative errors: median and largest."""

    rate: Rate
    layers: int
    median: float
    largest: float
    work: str = ""  # the entry whose work is taken over, where that is not fitted to these layers


JOBS = (
    Gathered("neureka_pointwise", _pointwise((12, 12, 64, 64), (24, 24, 32, 48), (6, 6, 64, 128), (3, 3, 128, 128), (25, 5, 64, 64)), ()),
    Gathered(
        "neureka_product",
        tuple(cases.matmul(*s) for s in ((1, 128, 128), (16, 32, 96), (64, 64, 64), (16, 48, 32), (1, 64, 12), (100, 64, 32))),
        (),
    ),
    Gathered(
        "neureka_depthwise", tuple(cases.depthwise(s) for s in ((12, 12, 32), (24, 24, 16), (6, 6, 64), (3, 3, 128), (25, 5, 64))), ()
    ),
    Gathered("neureka_dense", _convs((12, 12, 28, 32, 3, 1), (9, 9, 56, 32, 3, 1), (6, 6, 32, 64, 3, 1), (16, 7, 30, 40, 3, 1)), ()),
    *(
        Gathered(f"neureka_{kind}_dilated{word}", _dilated(by, kind == "depthwise"), ())
        for kind in ("dense", "depthwise")
        for by, word in ((2, ""), (3, " 3"), (4, " 4"))
    ),
)
BETWEEN = Gathered("pulp_requant_add", tuple(cases.requant_add(rows, 64) for rows in (8, 16, 24, 8, 16, 24)), ())


def entries(target: Target) -> dict[str, Fitted]:
    """Rates of the kernels in which the engine works alone: cycles per subtile as they are known, those of a call anew.

    Raises:
        SimulationError: no simulator, or a program fails on it.
    """
    assert target.timing is not None
    found = dict[str, Fitted]()
    for suffix in ("", "_nms"):
        for family in JOBS:
            stem, *words = family.kernel.split()
            kernel, name = stem + suffix, " ".join([stem + suffix, *words])
            known = replace(target.timing.kernels[name], call=0, cold=0)
            some = _measure(kernel, family.cases, BETWEEN.kernel, BETWEEN.cases, target)
            work = np.array([_cycles(one.call, known) for one in some])
            measured, cold = np.array([one.cycles for one in some]), np.array([one.is_cold for one in some])
            call = float(np.median((measured - work)[~cold]))
            more = max(float(np.median((measured - work)[cold])) - call, 0.0)
            errors = np.abs((work + call + more * cold) / measured - 1)
            rate = replace(known, call=round(call), cold=round(more))
            found[name] = Fitted(rate, len(some), float(np.median(errors)), float(errors.max()))
    for name, known in target.timing.kernels.items():
        alone = name.replace("_sums", "").replace("_parts", "").replace("_all", "")
        job = found.get(alone) if alone != name else None
        if job is not None:  # not measured: taken to be the same, whatever leaves the job
            found[name] = replace(job, rate=replace(known, call=job.rate.call, cold=job.rate.cold))
    return found


def rates(target: Target) -> dict[str, Fitted]:
    """Rates of all kernels in which cores work as well, weights in L1 and in their own memory.

    Raises:
        SimulationError: no simulator, or a program fails on it.
    """
    found: dict[str, Fitted] = {}
    for families in (FIRST, SECOND):
        for suffix in ("", "_nms"):
            for family in families:
                name = family.kernel + suffix
                if name not in found:
                    other = next(each for each in families if each is not family)
                    found[name] = _fit(family, _measure(name, family.cases, other.kernel + suffix, other.cases, target))
    for name in ("neureka_patches", "neureka_windows", "neureka_patches_nms", "neureka_windows_nms"):
        rate = found[name].rate
        # That eight sums of a pixel leave the engine in a cycle is not measured.
        found[f"{name}_sums"] = replace(found[name], rate=replace(rate, per={**rate.per, "n oh ow k/8": 1}))
    return found | run_rates(target)


def run_rates(target: Target) -> dict[str, Fitted]:
    """Rates of convolutions by runs of taps, measured with weights in their own memory.

    Weights in L1 are taken to pass again for every subtile, an output in a cycle; that is not measured, as their transfers would hide
    behind other layers. Where cores requantise the sums, jobs are taken to be as long as where they do not, and what a call takes is
    measured anew.
    """
    found: dict[str, Fitted] = {}
    for family in RUNS:
        stem, *words = family.kernel.split()
        known = _fit(family, _measure(f"{stem}_nms", family.cases, BETWEEN.kernel, BETWEEN.cases, target))
        requantised = _fit_calls(" ".join([f"{stem}_nms_sums", *words]), family.cases, known.rate, target)
        passes = {"n ow/36 k run group" if "linear" in words else "n oh/6 ow/6 k run group": 1.0}
        for end, fitted in (("", known), ("_sums", replace(requantised, work=" ".join([f"{stem}_nms", *words])))):
            found[" ".join([f"{stem}_nms{end}", *words])] = fitted
            found[" ".join([f"{stem}{end}", *words])] = replace(fitted, rate=replace(fitted.rate, per={**fitted.rate.per, **passes}))
    return found


def _fit_calls(entry: str, sums: Sequence[Case], known: Rate, target: Target) -> Fitted:
    """What a call takes (``call`` in every tile, ``cold`` once) where cores requantise the sums of its jobs.

    It is what is left of layers, in one tile and in several, of which all else is taken off that the walk expects: transfers, jobs at the
    known rate, and the requantisation beside them.
    """
    assert target.timing is not None
    name = entry.split()[0]
    timing = replace(target.timing, kernels={**target.timing.kernels, entry: replace(known, call=0, cold=0)})
    own = tuple(kernel for kernel in target.kernels if kernel.name in (name, BETWEEN.kernel))
    features, expected, measured = list[list[float]](), list[float](), list[int]()
    for l1, part in itertools.product(CUT, _parts([_requantised(case) for case in sums])):
        order = [*part, *(case for pair in zip(BETWEEN.cases, part, strict=False) for case in pair)]
        plan, layers = _simulate(order, replace(target, kernels=own, timing=timing), l1, "auto")
        codes = [code_of(call, target) for call in plan.program.calls]
        for step, (call, run, cycles) in enumerate(zip(plan.program.calls, walk_plan(plan).calls, layers, strict=True)):
            if call.kernel.name == name:
                features.append([plan.tiling(step).tiles, not is_cached(codes, step)])
                expected.append(run.cycles)
                measured.append(cycles)
    counts, rest, whole = np.array(features, float), np.array(expected), np.array(measured, float)
    found = fit_coefficients(counts, whole - rest, relative_to=whole)
    errors = np.abs((rest + counts @ found) / whole - 1)
    rate = replace(known, call=round(float(found[0])), cold=round(float(found[1])))
    return Fitted(rate, len(whole), float(np.median(errors)), float(errors.max()))


def _measure(name: str, some: Sequence[Case], other: str, between: Sequence[Case], target: Target) -> list[Measured]:
    """Every case of a kernel behind one of itself and behind one of another kernel."""
    machine = replace(target, kernels=tuple(kernel for each in (name, other) for kernel in target.kernels if kernel.name == each))
    result = []
    for part in _parts(some):
        order = [*part, *(case for pair in zip(between, part, strict=False) for case in pair)]
        result += [one for one in _layers(order, machine) if one.call.kernel.name == name]
    return result


def _parts(some: Sequence[Case]) -> Iterator[list[Case]]:
    """As many cases at once as there is room for."""
    part: list[Case] = []
    for case in some:
        part.append(case)
        if sum(array.nbytes for each in part for array in each.operands.values()) > MOST_BYTES // 4:
            yield part
            part = []
    if part:
        yield part


def _layers(order: Sequence[Case], target: Target) -> list[Measured]:
    """Kernels' cycles in a network of independent layers."""
    return _less_transfers(*_simulate(order, target, None, "single"))


def _simulate(order: Sequence[Case], target: Target, l1: int | None, buffering: Buffering) -> tuple[Plan, list[int]]:
    """The plan of a network of independent layers, and the cycles of each."""
    project = compiled(order, target, CORES, l1, None, buffering=buffering)
    plan = project.networks["network"].plan
    with tempfile.TemporaryDirectory(prefix="deeploy-gvsoc-") as scratch:
        folder = Path(scratch)
        project.write(folder / "project")
        l2 = plan.memory["L2"].peak
        program = build(
            folder / "project", folder / "work", target, "-DDEEPLOY_PROFILE -DONE_TEAM", l2_bytes=l2, main="probe.c", wrapped=()
        )
        (folder / "work" / "inputs.bin").write_bytes(sample_of(order))
        (folder / "work" / "weights.bin").write_bytes((folder / "project" / "network_weights.bin").read_bytes())
        lines = [line.split() for line in simulate(program, folder / "work", target)]
    layers = [int(words[2]) for words in lines if words[:1] == ["layer"]]
    if len(layers) != len(plan.program.calls):
        raise SimulationError(f"{len(layers)} layers were measured instead of {len(plan.program.calls)}")
    return plan, layers


def _less_transfers(plan: Plan, layers: Sequence[int]) -> list[Measured]:
    """What is left of the layers for their kernels."""
    timing = plan.target.timing
    assert timing is not None
    calls = plan.program.calls
    names = dict.fromkeys(call.kernel.name for call in calls)
    others = {entry: rate for entry, rate in timing.kernels.items() if entry.split()[0] not in names}
    free = replace(timing, kernels={**others, **dict.fromkeys(names, Rate(0, 0, 0))})
    runs = walk_plan(replace(plan, target=replace(plan.target, timing=free))).calls
    before = [None, *(call.kernel.name for call in calls)]
    return [
        Measured(call, before[step] != call.kernel.name, layer - run.cycles)
        for step, (call, layer, run) in enumerate(zip(calls, layers, runs, strict=True))
        if plan.tiling(step).tiles == 1
    ]


def _fit(family: Gathered, some: Sequence[Measured]) -> Fitted:
    features = np.array([[1.0, float(one.is_cold), *(_count(one.call, term) for term in family.terms)] for one in some])
    measured = np.array([one.cycles for one in some])
    x = fit_coefficients(features, measured)
    errors = np.abs(features @ x / measured - 1)
    per = {term: round(float(each), 4) for term, each in zip(family.terms, x[2:], strict=True) if each > 1e-6}
    rate = Rate(round(float(x[0])), 0, 0, round(float(x[1])), per=per)
    return Fitted(rate, len(some), float(np.median(errors)), float(errors.max()))


def _count(call: Call, term: str) -> float:
    """How often a term occurs in a call of one tile."""
    return _cycles(call, Rate(0, 0, 0, per={term: 1.0}))


def _cycles(call: Call, rate: Rate) -> float:
    """Cycles of a call of one tile."""
    extents = call.geometry.extents
    work = cost.work_of(call, rate)
    return float(work.cycles(lambda name, step: cost.whole_steps(extents[name], step) if step else 1))
