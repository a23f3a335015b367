"""Cycles of a tiled call, predicted in closed form from a target's timing.

A kernel's cycles are linear in what it does, counted over the core with the largest part of a tile (``deeploy.ir.target.Rate``):
the part is a box of the nest, and every term is a product of its extents, in whole steps.

With single buffering everything adds up. With two slots per window, while a tile is computed the next one's windows arrive and those
of the one before leave: the longer counts for every tile, besides the first window to arrive and the last one to leave. Nothing
arrives beside the last tile, and nothing leaves beside the first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import update_wrapper
from typing import Concatenate, NamedTuple, ParamSpec, TypeVar

import numpy as np

from deeploy.ir.dimensions import Kind
from deeploy.ir.loops import from_geometry
from deeploy.ir.target import ESTIMATE, GENERATED, Rate, Target, Timing
from deeploy.ir.types import Numeric
from deeploy.planning.binding.kernels import operand_names
from deeploy.planning.program import Buffer, Call, Role
from deeploy.planning.tiling.loops import Division

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Load:
    """What one path does for a call: cycles of all that comes in and of all that goes out, of the first windows in and the last ones out.

    ``prefetchable`` is what is saved when the first windows of constants are there already.
    """

    fetched: Numeric = 0.0
    stored: Numeric = 0.0
    first: Numeric = 0.0
    last: Numeric = 0.0
    prefetchable: Numeric = 0.0

    @property
    def data(self) -> Numeric:
        """Cycles in which the path is busy for the call."""
        return self.fetched + self.stored


@dataclass(frozen=True)
class TransferCost:
    """An operand's windows on one path; numbers, or arrays of them.

    Attributes:
        data: cycles in which the path moves all of them.
        issue: cycles of the first core to start that, in ``commands`` transfers.
        moves: how often they move.
    """

    data: Numeric
    issue: Numeric
    commands: Numeric
    moves: Numeric
    is_output: bool
    is_prefetchable: bool


def path_load(windows: Sequence[TransferCost], target: Target, path: str) -> Load:
    """What a path does for all operands of a call.

    Constants that can be prefetched save what the first windows take longer with them than without: nothing, where the path moves them
    while the first core starts the others.
    """
    data_in, first = _direction_cycles([w for w in windows if not w.is_output], target, path)
    data_out, last = _direction_cycles([w for w in windows if w.is_output], target, path)
    _, rest = _direction_cycles([w for w in windows if not w.is_output and not w.is_prefetchable], target, path)
    return Load(data_in, data_out, first, last, larger_of(first - rest, 0.0))


def _direction_cycles(windows: Sequence[TransferCost], target: Target, path: str) -> tuple[Numeric, Numeric]:
    """Cycles until all windows in one direction have moved, and until those of one tile have.

    Windows that move at once are waited for together: the path's latency counts once for all of them. An operand's window
    moves only when that of the operand that moves most often does, so these are as many times as that one moves. While the
    first core starts the second transfer of those, the path works on the first, for as long as that has work.
    """
    if not windows:
        return 0.0, 0.0
    timing, loops = timing_of(target).paths[path], timing_of(target).loops
    most = windows[0].moves
    for w in windows[1:]:
        most = larger_of(most, w.moves)
    cycles, issue, commands = sum(w.data for w in windows), sum(w.issue for w in windows), sum(w.commands for w in windows)
    first = cycles * most / larger_of(commands, 1.0)  # no commands at all where windows are empty
    hidden = larger_of(smaller_of(issue - most * (loops.window + timing.issue), cycles - first), 0.0)
    before: Numeric = 0.0  # what the path has to do when an operand's first transfer is started
    queued: Numeric = 0.0
    for w in windows:
        moves, commands = larger_of(w.moves, 1.0), larger_of(w.commands / larger_of(w.moves, 1.0), 1.0)
        start, rest = w.issue / moves / commands, w.data / moves * (1 - 1 / commands)
        queued = queued + w.moves * (smaller_of(before, start) + smaller_of(start * (commands - 1), rest))
        before = larger_of(before - start, 0.0) + w.data / moves
    hidden = smaller_of(hidden, queued)
    latency = timing.latency[windows[0].is_output]
    return cycles + most * latency - hidden, sum(w.data / w.moves for w in windows) + latency - hidden / most


def timing_of(target: Target) -> Timing:
    """The figures of a target; where it has none, nothing takes any time."""
    return target.timing or _NONE


def larger_of(a: Numeric, b: Numeric) -> Numeric:
    """The larger of two numbers, or of arrays element by element."""
    return np.maximum(a, b) if isinstance(a, np.ndarray) or isinstance(b, np.ndarray) else max(a, b)


def smaller_of(a: Numeric, b: Numeric) -> Numeric:
    """The smaller of two numbers, or of arrays element by element."""
    return np.minimum(a, b) if isinstance(a, np.ndarray) or isinstance(b, np.ndarray) else min(a, b)


def of_call(function: Callable[Concatenate[Call, Target, P], T]) -> Callable[Concatenate[Call, Target, P], T]:
    """Lets a function of a call keep its results with the call, which plans, fused groups and walks ask for again and again."""

    def remembered(call: Call, target: Target, /, *arguments: P.args, **named: P.kwargs) -> T:
        key = function, id(target), *arguments, *named.values()
        if key not in call.known:
            call.known[key] = function(call, target, *arguments, **named), target  # which lives as long as its number is a key
        result: T = call.known[key][0]
        return result

    update_wrapper(remembered, function)
    return remembered


def instance_words(call: Call) -> frozenset[str]:
    """What distinguishes the instance of a kernel that a call needs: types, stages of the epilogue, macros, a named function.

    ``transposed``: a product reads rows of its second operand, as the graph stores it; kernels with a layout of their own do not.
    ``grouped``: channels lie in several groups, which a kernel takes one by one.
    """
    node = call.node
    types = {tensor.dtype.value for tensor in (*node.inputs, *node.outputs) if tensor is not None} | set(node.epilogue)
    names = operand_names(call.kernel, node) or ()
    packings = (call.kernel.packing(name, t) for name, t in zip(names, node.inputs, strict=False) if t is not None)
    types |= {packing.value for packing in packings if packing is not None}
    if call.kernel.macros is not None:
        types |= {*filter(None, call.kernel.macros(node).values())}
    if "requantise" in node.epilogue and not types & {"narrow", "split", "high"}:
        types.add("wide")
    if node.attrs.get("trans_b") and "b" not in call.kernel.layouts:
        types.add("transposed")
    if node.attrs.get("group", 1) != 1:
        types.add("grouped")
    types |= {*node.words}
    return frozenset(types | ({str(node.attrs["function"])} if "function" in node.attrs else set()))


FORMS = {  # of requantisations, in words (see ``deeploy.operators.staircase``); upper: as wide, by words of 32 bits
    "narrow": "in 32 bits",
    "split": "by two products of 32 bits",
    "high": "by the upper half of a product of 64 bits",
    "upper": "in 64 bits",
    "wide": "in 64 bits",
}


def requantisation_form(call: Call, target: Target) -> str:
    """The form in which the cores of a call requantise; empty where they do not, or do it to the sums of an accelerator."""
    is_alone = call.kernel.post_processing is None and not target.engine(call.kernel.engine).accelerator
    words = instance_words(call) if is_alone else frozenset[str]()
    return next((name for name in FORMS if name in words), "")


def kernel_instance(call: Call, target: Target) -> str:
    """The kernel of a call, and the form in which its cores requantise."""
    return f"{call.kernel.name} {requantisation_form(call, target)}".rstrip()


@of_call
def kernel_rate(call: Call, target: Target) -> Rate:
    """The rate of the instance of a kernel that a call needs, which is of one piece."""
    return timing_of(target).kernel(GENERATED if call.kernel.generator else call.kernel.name, instance_words(call), call.kernel.engine)


_NONE = Timing(0.0, {}, 0.0, {}, {}, {ESTIMATE: Rate(0.0, 0.0, 0.0)})
Factors = Mapping[str, int]  # a product of the extents of dimensions, each in ``whole_steps`` of so many iterations
Count = Callable[[str, int], Numeric]


@dataclass(frozen=True)
class Work:
    """What one core does in a kernel: cycles by products of extents.

    Attributes:
        terms: cycles, and what they are counted by.
        dims: all dimensions of the call.
        merged: dimensions whose elements follow each other in memory, the outermost first: one run, as long as it is not divided.
        by_runs: numbers of the terms that count runs.
    """

    terms: tuple[tuple[float, Factors], ...]
    dims: tuple[str, ...]
    shared: float
    merged: tuple[str, ...] = ()
    by_runs: frozenset[int] = frozenset()

    def divided(self, division: Division) -> Work:
        """The work of cores that divide dimensions: inside of runs, each step of the dimensions around begins a new one."""
        inner = max((self.merged.index(name) for name, _ in division if name in self.merged), default=0)
        around = dict.fromkeys(self.merged[:inner], 1)
        if not around or not self.by_runs:
            return self
        terms = ((each, {**around, **factors} if n in self.by_runs else factors) for n, (each, factors) in enumerate(self.terms))
        return replace(self, terms=tuple(terms))

    def followed(self, other: Work, extents: Mapping[str, int]) -> Work:
        """Both, one behind the other, on the same iterations; runs are those of the one that counts them."""
        mine, theirs = (float(one.cycles(lambda name, step: whole_steps(extents[name], step) if step else 1)) for one in (self, other))
        shared = (mine * self.shared + theirs * other.shared) / max(mine + theirs, 1.0)
        by_runs = self.by_runs | {len(self.terms) + number for number in other.by_runs}
        return Work((*self.terms, *other.terms), self.dims, shared, self.merged if self.by_runs else other.merged, by_runs)

    def slower(self, cores: Numeric) -> Numeric:
        """By which factor a core takes longer where so many work at once."""
        return 1 + self.shared * (cores - 1)

    def cycles(self, count: Count) -> Numeric:
        """Cycles of the core with the largest part; of one tile, or of all added up.

        ``count(dim, step)`` is the extent in ``whole_steps``, added up over tiles along the dimension, and for step 0 the number of
        those; where the dimension is divided over cores, each times ``slower``. Numbers, or arrays of them.
        """
        total: Numeric = 0.0
        known: dict[tuple[str, int], Numeric] = {}
        for each, factors in self.terms:
            value: Numeric = each
            for dim in self.dims:
                step = factors.get(dim, 0)
                if (dim, step) not in known:
                    known[dim, step] = count(dim, step)
                value = value * known[dim, step]
            total = total + value
        return total


@of_call
def kernel_work(call: Call, target: Target) -> Work:
    """What a call's kernel does, or the first part of it, without what every tile costs."""
    first, *further = (work_of(phase, kernel_rate(phase, target)) for phase in call.parts[0].phases)
    for other in further:
        first = first.followed(other, call.geometry.extents)
    return first


@dataclass(frozen=True)
class PostProcessingCost:
    """What the post-processing of a kernel costs.

    Attributes:
        work: of which ``cores`` divide the dimension ``dim``.
        overhead: what every tile costs besides.
    """

    work: Work
    dim: str
    cores: int
    overhead: float

    def cycles(self, sizes: Mapping[str, int]) -> float:
        """Cycles of the core with the largest part of a tile of these sizes, without the overhead."""
        return largest_part(self.work, sizes, ((self.dim, self.cores),))


@of_call
def post_processing_cost(call: Call, target: Target, cores: int) -> PostProcessingCost | None:
    """What the post-processing of a call costs on a team of at most ``cores``; None where the call has none."""
    part = call.parts[-1]
    if part is call:
        return None
    rate, (written,) = kernel_rate(part, target), call.geometry.nest.writes.values()
    (dim,) = written.axes[-1].dims()
    team = min(cores, target.engine(part.kernel.engine).cores)
    meet = fork_cycles if call.kernel.forks else barrier_cycles
    return PostProcessingCost(work_of(part, rate), dim.name, team, meet(part, target) + rate.call)


def work_of(call: Call, kernel_rate: Rate) -> Work:
    """The cycles of a call's kernel (``Work``) at the given rate, whatever the target's timing says."""
    nest = call.geometry.nest
    written = [access for access in (*nest.writes.values(), *nest.updates.values()) if access.axes]
    outputs = [[dim.name for dim in access.dims()] for access in written]
    last = {dim.name for dim in written[0].axes[-1].dims()} if written else set()
    phases = [phase.iterated() for phase in (nest, *nest.phases)]
    macs = [[dim.name for dim in dims] for dims in phases if any(dim.kind is Kind.REDUCTION for dim in dims)]
    mac = kernel_rate.mac * _idle_products(call, kernel_rate)
    plain = [(mac, dict.fromkeys(dims, 1)) for dims in macs] + [(kernel_rate.output, dict.fromkeys(dims, 1)) for dims in outputs]
    terms = [term for term in plain if term[0]]
    rows = [name for name in (outputs[0] if outputs else ()) if name not in last]
    around, merged = _output_runs(call)
    groups = {"rows": rows, "channels": sorted(last), "runs": around}
    by_runs = set()
    for text, each in kernel_rate.per.items():
        factors = _term_factors(text, groups)
        by_runs |= {len(terms)} if "runs" in text.split() else set()
        terms += [(each, {**dict.fromkeys(dims, 1), **factors}) for dims in (macs if "macs" in text.split() else [[]])]
    return Work(tuple(terms), tuple(call.geometry.extents), kernel_rate.shared, merged, frozenset(by_runs))


def _idle_products(call: Call, kernel_rate: Rate) -> float:
    """How many products an array of multipliers could have done for each that it does; 1 where nothing is unrolled."""
    if kernel_rate.slots is None:
        return 1.0
    names = [name.rstrip("?") for name in call.kernel.inputs]
    constants = {name for name, tensor in zip(names, call.node.inputs, strict=False) if tensor is not None and tensor.data is not None}
    layers = from_geometry(call.node.name, call.geometry, constants)
    return sum(map(kernel_rate.slots, layers)) / max(call.geometry.macs(), 1)


def _term_factors(text: str, groups: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """The dimensions that a term of ``Rate.per`` names, and their steps."""
    factors: dict[str, int] = {}
    for factor in text.split():
        name, below, limit = factor.partition("<")
        name, _, step = name.partition("/")
        if name != "macs":
            factors |= dict.fromkeys(groups[name], 1) if name in groups else {name: -int(limit) if below else int(step or 1)}
    return factors


def _output_runs(call: Call) -> tuple[list[str], tuple[str, ...]]:
    """The dimensions around the longest run of outputs whose elements, and those of all operands, follow each other in memory; its own."""
    nest = call.geometry.nest
    written = next((access for access in (*nest.writes.values(), *nest.updates.values()) if access.axes), None)
    dims = [dim for dim in (axis.bare() for axis in written.axes)] if written is not None else []
    names = [dim.name if dim is not None else "" for dim in dims]
    merged = names[-1:]
    while len(names) > 1 and all(_axis_follows(call, name, names[-2], names[-1]) for name in nest.maps()):
        names.pop()
        merged.insert(0, names[-1])
    return [name for name in names[:-1] if name], tuple(merged)


def _axis_follows(call: Call, operand: str, outer: str, inner: str) -> bool:
    """Whether a step along one dimension of an operand goes where the last one along another ends, or it is not stored at all."""
    extents = call.geometry.extents
    if not outer or not inner:
        return extents.get(outer) == 1
    if operand not in call.operands:
        return True
    access, strides = call.geometry.nest.maps()[operand], call.operands[operand].access.strides

    def stride(name: str) -> int:
        return sum(strides[i] for i, axis in enumerate(access.axes) if (dim := axis.bare()) is not None and dim.name == name)

    return extents[outer] == 1 or stride(outer) == stride(inner) * extents[inner]


def whole_steps(size: Numeric, step: int) -> Numeric:
    """``size`` iterations in whole steps, the last of which may be incomplete; below zero: what is less than ``-step``, else 0."""
    return -(-size // step) if step > 0 else size * (size < -step)


def largest_part(work: Work, sizes: Mapping[str, int], division: Division) -> float:
    """Cycles of the core with the largest part of a tile of ``sizes``."""
    cores = math.prod(active_cores(sizes[name], parts) for name, parts in division)
    mine = {**sizes, **{name: -(-sizes[name] // parts) for name, parts in division}}
    return float(work.divided(division).cycles(lambda name, step: whole_steps(mine[name], step) if step else 1) * work.slower(cores))


def active_cores(size: Numeric, cores: int) -> Numeric:
    """How many of ``cores`` have a part of ``size`` iterations, of which all parts but the last are as large as the largest."""
    return -(-size // -(-size // cores))


@of_call
def tile_overhead(call: Call, target: Target) -> float:
    """Cycles that every tile costs besides its share of the work: to set it up and to call the kernel."""
    phases = call.parts[0].phases
    meetings = sum(bool(phase.whole) for phase in call.kernel.phases) * any(dim.whole for dim in call.geometry.dims().values())
    return timing_of(target).tile + sum(kernel_rate(phase, target).call for phase in phases) + meetings * barrier_cycles(call, target)


def call_once(call: Call, is_cached: bool, target: Target) -> float:
    """Cycles that a call costs once: more where its kernel's instructions are not cached (``candidates.cached``)."""
    cold = 0.0 if is_cached else sum(kernel_rate(phase, target).cold for part in call.parts for phase in part.phases)
    return timing_of(target).loops.layer + cold


def window_moves(count: Numeric, target: Target) -> Numeric:
    """Cycles to work out a window that moves ``count`` times."""
    loops = timing_of(target).loops
    return loops.first_window + (count - 1) * loops.window


def later_windows(windows: Sequence[TransferCost]) -> Numeric:
    """What of starting the windows that come in is for other tiles than the first."""
    return sum(w.issue * (1 - 1 / w.moves) for w in windows if not w.is_output)


@of_call
def slowdown_in_parallel(call: Call, target: Target) -> float:
    """By which part a kernel, or one of its parts, takes longer while another engine works in the same memory."""
    return max(kernel_rate(phase, target).contention for phase in call.phases)


def meet_engines(first: Numeric, second: Numeric, slower: tuple[float, float]) -> tuple[Numeric, Numeric]:
    """When two engines that begin together end, where each is ``slower`` while the other one works as well; numbers, or arrays of them."""
    one, other = slower
    both = smaller_of(first * (1 + one), second * (1 + other))
    return first + both * one / (1 + one), second + both * other / (1 + other)


def fork_cycles(call: Call, target: Target) -> float:
    """Cycles to start a team and to join it, once for all calls of a section."""
    return timing_of(target).fork.get(call.kernel.engine, 0.0)


def barrier_cycles(call: Call, target: Target) -> float:
    """Cycles that the cores of a team wait for each other before and behind the kernel of a tile."""
    return timing_of(target).barrier.get(call.kernel.engine, 0.0)


class SharedCycles(NamedTuple):
    """How an accelerator and cores share the tiles of a call; numbers, or arrays of them. All 0 where cores do all.

    Attributes:
        set_up: cycles in which the first core sets tiles of an accelerator up.
        overlapped: of starting transfers, what the first core does while the accelerator computes.
        first: of the accelerator for the first tile.
        post_processing: what cores do of all tiles of their accumulators, and ``last`` of the last one.
        slower: by which part both are slower while they work side by side (``meet_engines``).
    """

    set_up: Numeric = 0.0
    overlapped: Numeric = 0.0
    first: Numeric = 0.0
    post_processing: Numeric = 0.0
    last: Numeric = 0.0
    slower: tuple[float, float] = (0.0, 0.0)


ALONE = SharedCycles()


def call_cycles(
    compute: Numeric, tiles: Numeric, issue: Numeric, loads: Mapping[str, Load], is_double: Numeric, shared: SharedCycles = ALONE
) -> Numeric:
    """Cycles of a call whose ``tiles`` take ``compute`` in all; works on numbers and on arrays of them.

    ``issue`` is what the first core spends to start transfers; it overlaps with nothing but an accelerator. What cores do in
    post-processing overlaps with what the accelerator does of the tiles behind them, all but that of the last one.
    """
    added_up = compute + shared.post_processing + issue + sum(load.data for load in loads.values())
    if not np.any(is_double):
        return added_up
    overlapped = _overlapped_cycles(compute, tiles, issue, loads, shared)
    return overlapped if np.all(is_double) else np.where(is_double, overlapped, added_up)


def _overlapped_cycles(compute: Numeric, tiles: Numeric, issue: Numeric, loads: Mapping[str, Load], shared: SharedCycles) -> Numeric:
    """The same where windows have two slots."""
    ends: Numeric = sum(load.first + load.last for load in loads.values())
    between, alone = larger_of(tiles - 1, 1), shared.set_up
    if np.any(shared.post_processing):
        job, rest, start = (compute - alone - shared.first) / between, (shared.post_processing - shared.last) / between, issue / tiles
        job_ended, cores_ended = meet_engines(job, rest, shared.slower)
        inner = larger_of(job_ended, cores_ended + start)
        for load in loads.values():
            inner = larger_of(inner, (load.data - load.first - load.last) / between)
        return alone + shared.first + (tiles - 1) * inner + shared.last + start + ends
    first = inner = final = (compute - alone) / tiles
    for load in loads.values():
        fetch, store = (shared.overlapped + load.fetched - load.first) / between, (load.stored - load.last) / between
        first, inner, final = larger_of(first, fetch), larger_of(inner, fetch + store), larger_of(final, store)
    return alone + first + (tiles - 2) * inner + final + issue - shared.overlapped + ends


def candidate_kind(call: Call, buffers: Mapping[str, Buffer]) -> tuple[object, ...]:
    """What two calls have in common when they have the same candidates."""
    operands = tuple(
        (name, operand.access, buffers[operand.buffer].dtype, buffers[operand.buffer].role is Role.CONSTANT)
        for name, operand in call.operands.items()
    )
    attrs = tuple(sorted((name, str(value)) for name, value in call.node.attrs.items()))
    scratch = tuple(buffers[name].bytes for name in call.scratch.values())
    rates = instance_words(call), instance_words(call.parts[-1])  # which constants decide as well
    return id(call.kernel), call.node.epilogue, rates, attrs, operands, scratch, call.geometry.dynamic
