"""Constants that stay in the engine's own memory for ever, where a plan leaves room for them.

A window of a constant costs more to work out, to start and to wait for than its bytes do: thresholds, multipliers, tables and rows of
norms take a few hundred bytes each, and a small network fetches hundreds of them. What is copied once, before the first inference, costs
nothing afterwards. This is decided when all else is: tiles and homes stay as they are, so that a plan can only become faster.

The shortest constants come first, since a fetch that is saved is worth nearly the same for all of them. At most a share of the memory is
taken, because several networks may want theirs at the same time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from deeploy.midend.candidates import Candidate
from deeploy.midend.lifetime import FOR_EVER
from deeploy.midend.place import Placement, window_name
from deeploy.midend.plan import LevelUse, Plan, Prediction
from deeploy.midend.program import Call, Role
from deeploy.midend.share import content

SHARE = 4  # of the memory, one part of which at most is filled
SHORT = 1024  # bytes of constants that are worth more room than what else wants it
WORTH = 0.02  # of all cycles: what fetches of short constants take, if another plan is made for their sake

Use = tuple[int, str]  # step and operand
Measure = Callable[[Call, Candidate], Candidate]  # bytes and cycles of a candidate whose windows are others than before


def keep(plan: Plan, measured: Measure) -> Plan:
    """The plan with copies of constants above everything else in the first engine's memory."""
    level = plan.target.engines[0].memory
    use = plan.memory[level]
    stored = plan.machine.default_memory if plan.machine is not None else ""
    groups = _affordable(plan, use) if stored == plan.target.outward(level)[0].far else []
    if not groups:
        return plan
    kept = frozenset(name for names in groups for name in names)
    calls = tuple(_in_place(call, candidate, kept, measured) for call, candidate in zip(plan.program.calls, plan.calls, strict=True))
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
        homes={**plan.homes, **dict.fromkeys(kept, level)},
        fetched={**plan.fetched, **dict.fromkeys(kept, FOR_EVER)},
        prediction=_cheaper(plan, calls),
        offered=tuple(row if c is old else (*row, c) for row, c, old in zip(plan.offered, calls, plan.calls, strict=True)),
    )


def _aligned(size: int, use: LevelUse) -> int:
    return -(-size // use.alignment) * use.alignment


def reserve(plan: Plan) -> int:
    """Bytes of the first engine's memory with which all short constants could be kept, where that is worth another plan; else 0.

    ``plan`` has what found room beside everything else.
    """
    level, program = plan.target.engines[0].memory, plan.program
    path, use, timing = plan.target.outward(level)[0], plan.memory[level], plan.target.timing
    if plan.machine is None or timing is None or plan.prediction is None or plan.machine.default_memory != path.far:
        return 0
    uses = _uses(plan)
    short = [b for b in program.buffers.values() if b.name in uses and b.bytes <= SHORT and not b.memory]
    left = [b.name for b in short if plan.homes[b.name] != level and all(_is_whole(plan, *found) for found in uses[b.name])]
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
        if buffer.role is Role.CONSTANT and not buffer.memory and found and all(_is_whole(plan, step, name) for step, name in found):
            groups.setdefault(content(buffer), []).append(buffer.name)
    left = min((use.capacity or 0) - use.peak, _most(use))
    kept = []
    for names in sorted(groups.values(), key=lambda names: program.buffers[names[0]].bytes):
        left -= _aligned(program.buffers[names[0]].bytes, use)
        if left < 0:
            break
        kept.append(tuple(names))
    return kept


def _in_place(call: Call, candidate: Candidate, kept: frozenset[str], measured: Measure) -> Candidate:
    """A candidate without the windows of what is kept."""
    there = {name for name, operand in call.operands.items() if operand.buffer in kept}
    if not there:
        return candidate
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
    before = plan.prediction
    saved = sum(_cycles(old) - _cycles(new) for old, new in zip(plan.calls, calls, strict=True))
    return None if before is None else Prediction(before.cycles - saved, before.bound - saved, before.greedy)


def _cycles(candidate: Candidate) -> int:
    """Predicted cycles of a chosen candidate."""
    return candidate.cycles - (candidate.early if any(stream.is_early for stream in candidate.tiling.streams) else 0)


def _uses(plan: Plan) -> Mapping[str, list[Use]]:
    """The calls that read each constant."""
    found: dict[str, list[Use]] = {}
    for step, call in enumerate(plan.program.calls):
        for name, operand in call.operands.items():
            if plan.program.buffers[operand.buffer].role is Role.CONSTANT:
                found.setdefault(operand.buffer, []).append((step, name))
    return found


def _is_whole(plan: Plan, step: int, name: str) -> bool:
    """Whether a call sees all of a constant through one window, or along its only axis, in the first engine's memory."""
    call, target = plan.program.calls[step], plan.target
    engine, operand = target.engine(call.kernel.engine), call.operands[name]
    streams = [stream for stream in plan.calls[step].tiling.streams if stream.operand == name]
    if engine.memory != target.engines[0].memory or len(streams) != 1 or name in call.geometry.nest.indirect:
        return False
    if not operand.access.is_dense or operand.access.offset:
        return False
    is_row = sum(size > 1 for size in operand.access.shape) <= 1
    return (streams[0].moves == 1 or is_row) and math.prod(operand.access.shape) == math.prod(plan.program.buffers[operand.buffer].shape)
