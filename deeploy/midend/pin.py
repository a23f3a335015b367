"""Constants that stay in the engine's own memory for ever, where a plan leaves room for them.

A window of a constant costs more to work out, to start and to wait for than its bytes do: thresholds, multipliers, tables and rows of
norms take a few hundred bytes each, and a small network fetches hundreds of them. What is copied once, before the first inference, costs
nothing afterwards. This is decided when all else is: tiles and homes stay as they are, so that a plan can only become faster. What is
likely to be pinned is expected before, so that kernels are compared by what they cost then.

The shortest constants come first, since a fetch that is saved is worth nearly the same for all of them. At most a share of the memory is
taken, because several networks may want theirs at the same time.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from deeploy.graph.target import Target
from deeploy.midend.cached import code_of, saved
from deeploy.midend.candidates import Candidate
from deeploy.midend.lifetime import FOR_EVER
from deeploy.midend.place import Placement, window_name
from deeploy.midend.plan import LevelUse, Machine, Plan, Prediction
from deeploy.midend.program import Buffer, Call, Program, Role, ahead
from deeploy.midend.share import content
from deeploy.midend.tiling import Footprints, in_place

SHARE = 4  # of the memory, one part of which at most is filled
SHORT = 1024  # bytes of constants that are worth more room than what else wants it
WORTH = 0.02  # of all cycles: what fetches of short constants take, if another plan is made for their sake

Use = tuple[int, str]  # step and operand
Measure = Callable[[Call, Candidate], Candidate]  # bytes and cycles of a candidate whose windows are others than before


def pin(plan: Plan, measured: Measure) -> Plan:
    """The plan with copies of constants above everything else in the first engine's memory."""
    level = plan.target.engines[0].memory
    use = plan.memory[level]
    groups = _affordable(plan, use)
    pinned = tuple(name for names in groups for name in names)
    pairs = zip(plan.program.calls, plan.calls, strict=True)
    calls = tuple(_in_place(call, candidate, frozenset(pinned), measured) for call, candidate in pairs)
    offered = tuple(row if c is old else (*row, c) for row, c, old in zip(plan.offered, calls, plan.calls, strict=True))
    plan = replace(plan, prediction=_cheaper(plan, calls), offered=offered)
    if not groups:
        return replace(plan, calls=calls)
    gone = _windows(plan, plan.calls) - _windows(plan, calls)
    top, copies = use.peak - use.constants, []
    for names in groups:
        copies.append(Placement(level, top, plan.program.buffers[names[0]].bytes, FOR_EVER, len(calls), names))
        top += _aligned(copies[-1].size, use)
    placements = (*(p for p in plan.placements if p.buffers[0] not in gone), *copies)
    alive = (sum(_aligned(p.size, use) for p in placements if p.level == level and p.first <= s <= p.last) for s in range(len(calls)))
    return replace(
        plan,
        placements=placements,
        memory={**plan.memory, level: replace(use, peak=top + use.constants, lower_bound=max(alive) + use.constants)},
        calls=calls,
        homes={**plan.homes, **dict.fromkeys(pinned, level)},
        fetched={**plan.fetched, **dict.fromkeys(pinned, FOR_EVER)},
    )


def is_near(target: Target, machine: Machine) -> bool:
    """Whether constants lie in the memory around the first engine's: then they may be pinned nearer."""
    return not target.is_flat and machine.default_memory == target.outward(target.engines[0].memory)[0].far


def likely(program: Program, capacity: int, alignment: int) -> int:
    """The most bytes that a constant may have to be pinned, if all that are no longer are: of every call those of its neediest variant."""
    seen: set[object] = set()
    steps: list[list[list[int]]] = []
    for step in range(len(program.calls)):
        variants = [_short(program, call, capacity // SHARE, seen) for call in program.variants(step)]
        seen |= {key for found in variants for key in found}
        steps.append([list(found.values()) for found in variants])

    def taken(most: int) -> int:
        return sum(max(sum(-(-n // alignment) * alignment for n in variant if n <= most) for variant in variants) for variants in steps)

    sizes = sorted({size for variants in steps for variant in variants for size in variant})
    fitting = bisect.bisect_right(sizes, capacity // SHARE, key=taken)
    return sizes[fitting - 1] if fitting else 0


def _short(program: Program, call: Call, most: int, seen: set[object]) -> dict[object, int]:
    """Bytes of the constants of a call that could be pinned and are not among those ``seen``, by their contents."""
    buffers = (program.buffers[operand.buffer] for operand in call.operands.values())
    found = {content(b): b.bytes for b in buffers if b.role is Role.CONSTANT and not b.memory and b.bytes <= most}
    return {key: size for key, size in found.items() if key not in seen}


def expected(call: Call, candidates: Sequence[Candidate], buffers: Mapping[str, Buffer], most: int, measured: Measure) -> list[Candidate]:
    """Candidates with the cycles that they take when constants of at most ``most`` bytes are pinned; their windows stay."""
    short = {name: _pinnable(call, name, buffers) for name, operand in call.operands.items() if buffers[operand.buffer].bytes <= most}
    found = []
    for candidate in candidates:
        pinned = frozenset(call.operands[name].buffer for name, uncut in short.items() if _is_whole(call, candidate, name, uncut))
        if pinned:
            other = _in_place(call, candidate, pinned, measured)
            candidate = replace(
                other, tiling=candidate.tiling, hops=candidate.hops, bytes=candidate.bytes, early_bytes=candidate.early_bytes
            )
        found.append(candidate)
    return found


def _aligned(size: int, use: LevelUse) -> int:
    return -(-size // use.alignment) * use.alignment


def reserve(plan: Plan) -> int:
    """Bytes of the first engine's memory with which all short constants could be pinned, where that is worth another plan; else 0.

    ``plan`` has what found room beside everything else.
    """
    level, program = plan.target.engines[0].memory, plan.program
    path, use, timing = plan.target.outward(level)[0], plan.memory[level], plan.target.timing
    if timing is None or plan.prediction is None:
        return 0
    uses = _uses(plan)
    short = [b for b in program.buffers.values() if b.name in uses and b.bytes <= SHORT and not b.memory]
    left = [b.name for b in short if plan.homes[b.name] != level and _can_be_pinned(plan, uses[b.name])]
    cycles = sum(len(uses[name]) for name in left) * (timing.loops.first_window + timing.paths[path.name].issue)
    return min(sum(_aligned(b.bytes, use) for b in short), _most(use)) if cycles > WORTH * plan.prediction.cycles else 0


def _most(use: LevelUse) -> int:
    """Bytes that constants may take at most."""
    return (use.capacity or 0) // SHARE


def _affordable(plan: Plan, use: LevelUse) -> list[tuple[str, ...]]:
    """Constants that there is room for, in groups of equal contents, the shortest first."""
    program, uses = plan.program, _uses(plan)
    groups: dict[object, list[str]] = {}
    for buffer in program.buffers.values():
        found = uses.get(buffer.name, ())
        if found and _can_be_pinned(plan, found):
            groups.setdefault(content(buffer), []).append(buffer.name)
    left = min((use.capacity or 0) - use.peak, _most(use))
    pinned = []
    for names in sorted(groups.values(), key=lambda names: program.buffers[names[0]].bytes):
        left -= _aligned(program.buffers[names[0]].bytes, use)
        if left < 0:
            break
        pinned.append(tuple(names))
    return pinned


def _in_place(call: Call, candidate: Candidate, pinned: frozenset[str], measured: Measure) -> Candidate:
    """A candidate without the windows of what is pinned, as it is then, and not as it was expected to be."""
    there = {name for name, operand in call.operands.items() if operand.buffer in pinned}
    if not there:
        again = measured(call, candidate)
        return candidate if again.cycles == candidate.cycles else again
    streams = tuple(stream for stream in candidate.tiling.streams if stream.operand not in there)
    hops = tuple(candidate.own if name in there else hop for name, hop in zip(call.operands, candidate.hops, strict=True))
    return measured(call, replace(candidate, tiling=replace(candidate.tiling, streams=streams), hops=hops))


def _windows(plan: Plan, calls: Sequence[Candidate]) -> set[str]:
    """Names of the windows in the first engine's memory."""
    level = plan.target.engines[0].memory
    pairs = ((call, s.operand) for call, candidate in zip(plan.program.calls, calls, strict=True) for s in candidate.tiling.streams)
    return {window_name(call.name, operand, level, level) for call, operand in pairs}


def _cheaper(plan: Plan, calls: Sequence[Candidate]) -> Prediction | None:
    """The prediction of a plan whose calls have fewer windows."""
    before, codes = plan.prediction, [code_of(call, plan.target) for call in plan.program.calls]
    beside = [step > 0 and codes[step - ahead(plan.program.calls, step)].is_accelerated for step in range(len(codes))]
    more, less = (sum(map(_cycles, row, beside)) - sum(saved(codes, row)) for row in (plan.calls, calls))
    return None if before is None else Prediction(before.cycles - (more - less), before.bound - (more - less), before.greedy)


def _cycles(candidate: Candidate, is_beside: bool) -> int:
    """Predicted cycles of a chosen candidate whose instructions are not cached, perhaps behind a call of an accelerator."""
    if not any(stream.is_early for stream in candidate.tiling.streams):
        return candidate.cycles
    return candidate.cycles - candidate.early - (candidate.early_issue if is_beside else 0)


def _uses(plan: Plan) -> Mapping[str, list[Use]]:
    """The calls that read each constant."""
    found: dict[str, list[Use]] = {}
    for step, call in enumerate(plan.program.calls):
        for name, operand in call.operands.items():
            if plan.program.buffers[operand.buffer].role is Role.CONSTANT:
                found.setdefault(operand.buffer, []).append((step, name))
    return found


def _can_be_pinned(plan: Plan, uses: Sequence[Use]) -> bool:
    """Whether all calls that read a constant see it whole."""
    calls, buffers = plan.program.calls, plan.program.buffers
    return all(_is_whole(calls[step], plan.calls[step], name, _pinnable(calls[step], name, buffers)) for step, name in uses)


def _pinnable(call: Call, name: str, buffers: Mapping[str, Buffer]) -> frozenset[str] | None:
    """The dimensions that must not be cut for a call to use a constant in its engine's memory as it lies; None where it never can."""
    operand, buffer = call.operands[name], buffers[call.operands[name].buffer]
    if buffer.role is not Role.CONSTANT or buffer.memory or name in call.geometry.nest.indirect:
        return None
    if not operand.access.is_dense or operand.access.offset or math.prod(operand.access.shape) != math.prod(buffer.shape):
        return None
    return in_place(call, Footprints(call.geometry, name, operand))


def _is_whole(call: Call, candidate: Candidate, name: str, uncut: frozenset[str] | None) -> bool:
    """Whether a candidate sees all of a constant through one window, or along its only axis; ``uncut``: as ``_pinnable`` says."""
    streams = [stream for stream in candidate.tiling.streams if stream.operand == name]
    if uncut is None or candidate.own or len(streams) != 1 or any(loop.dim in uncut for loop in candidate.tiling.loops):
        return False
    return streams[0].moves == 1 or sum(size > 1 for size in call.operands[name].access.shape) <= 1
