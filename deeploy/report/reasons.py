"""Why a call runs as it does: its tile, its engine, where its operands lie, and what the next candidates would cost.

Put together when a network is compiled, since the candidates are known only then; ``explain.json`` keeps it, and ``deeploy explain`` and
the report read it.
"""

from __future__ import annotations

from collections.abc import Sequence

from deeploy.documents import Contents, Document
from deeploy.errors import shorten
from deeploy.ir.kernel import Kernel
from deeploy.planning.binding.kernels import closest_needs, list_mismatches
from deeploy.planning.candidates.candidate import Candidate, with_prefetch
from deeploy.planning.candidates.instruction_cache import code_of, is_cached
from deeploy.planning.cost import kernel_instance
from deeploy.planning.packing.addresses import Placement
from deeploy.planning.packing.lifetimes import FOR_EVER
from deeploy.planning.plan import Plan
from deeploy.planning.planner.machine import levels_of
from deeploy.planning.planner.occupancy import Occupancy
from deeploy.planning.program import Call, Role, calls_ahead
from deeploy.planning.tiling.loops import Stream
from deeploy.report import fusion as fused_groups
from deeploy.schedule import build_schedule

SAME, OTHER = 4, 4  # candidates shown with the residences chosen, and with others
NEIGHBOURS = 3  # buffers named where there is no room


def explain_calls(plan: Plan, entry: Document) -> Contents:
    """What is to be said of every call; nothing of any where there were no candidates to choose from.

    Args:
        entry: the network's entry of ``deploy.json``.
    """
    levels = list(levels_of(plan.target))
    if not plan.offered:
        return {"levels": levels, "calls": []}
    overview = _Overview(plan)
    calls = [_Explanation(plan, overview, step, levels, entry).all() for step in range(len(plan.program.calls))]
    return {"levels": levels, "calls": calls}


def group_digits(value: float) -> str:
    """A whole number with its digits in groups of three."""
    return f"{value:,.0f}".replace(",", " ")


class _Overview:
    """What lies in every memory in every step, and when every buffer is used: put together once for all calls."""

    def __init__(self, plan: Plan) -> None:
        self.text = [str(layer) for layer in build_schedule(plan).layers]
        self.occupancy = Occupancy(plan)
        self.codes = [code_of(call, plan.target) for call in plan.program.calls] if plan.target.timing is not None else []
        self.uses: dict[str, tuple[int, int]] = {}
        for step, call in enumerate(plan.program.calls):
            for operand in call.operands.values():
                self.uses[operand.buffer] = (self.uses.get(operand.buffer, (step, step))[0], step)


class _Explanation:
    """One call's."""

    def __init__(self, plan: Plan, overview: _Overview, step: int, levels: Sequence[str], entry: Document) -> None:
        self.plan = plan
        self.overview = overview
        self.step = step
        self.levels = levels
        self.entry = entry["calls"][step]
        self.entry_cycles: int | None = entry["cycles"]
        self.fused_group = fused_groups.group_reason(entry, step) or fused_groups.dynamic_length_reason(entry)
        self.call: Call = plan.program.calls[step]
        self.chosen = plan.calls[step]
        self.variants: Sequence[Call] = plan.variants[step] if plan.variants else (self.call,)
        self.is_prefetchable = any(stream.is_prefetchable for stream in self.chosen.tiling.streams)
        codes = overview.codes[:step]
        ahead = calls_ahead(plan.program.calls, step)
        self.begins_ahead = ahead > 0 and bool(codes) and codes[step - ahead].is_accelerated
        self.is_cached_before = (
            [is_cached([*codes, code_of(variant, plan.target)], step) for variant in self.variants] if overview.codes else []
        )
        self.offered = list(dict.fromkeys(plan.offered[step]))
        plain = with_prefetch(self.chosen, False)
        self.plain = next(c for c in self.with_same_residences(self.chosen) if with_prefetch(c, False) == plain)

    def all(self) -> Contents:
        call = self.call
        return {
            "name": call.name,
            "node": call.node.name,
            "op": call.node.op,
            "considered": len(self.offered),
            "reasons": [
                *self.fixed(),
                self.engine(),
                self.tile(),
                *([self.fused_group] if self.fused_group else []),
                *self.order(),
                self.residence(),
                self.time(),
                *self.energy(),
            ],
            "operands": [{"name": name, "tensor": self.tensor(name), "where": self.where(name)} for name in call.operands],
            "candidates": [self.candidate(c) for c in self.shown()],
            "schedule": self.overview.text[self.step],
        }

    def with_same_residences(self, other: Candidate) -> list[Candidate]:
        """The candidates offered that are of the same variant of the call and have their operands in the same memories."""
        return [c for c in self.offered if (c.variant, c.distances) == (other.variant, other.distances)]

    # ---- reasons

    def engine(self) -> str:
        """Who computes, and what the best tiling of every other kernel would cost."""
        target, call = self.plan.target, self.call
        dim = self.chosen.tiling.core_dims
        team = (
            f"{min(self.plan.machine.cores, target.engine(call.kernel.engine).cores)} cores share {dim}"
            if dim is not None
            else "one core does the work"
        )
        compared = [f" {self.by(best)}: {self.verdict(best)}." for best in self.rivals()]
        fitting = [kernel for kernel in target.kernels if kernel.op == call.node.op and not list_mismatches(kernel, call.node)]
        why = "" if compared else ", the only kernel that fits the node" if len(fitting) < 2 else ", as no other kernel is ever faster here"
        if call.kernel.generator:
            why = f", whole, in C from {call.kernel.generator} (--fallback): no kernel of the target has this operator"
        return f"Engine: {call.kernel.engine}, by {kernel_instance(call, target)}{why}; {team}.{''.join(compared)}{self.refusals(fitting)}"

    def refusals(self, fitting: Sequence[Kernel]) -> str:
        """Why each of the other engines with kernels for the operator does not run it; ``fitting`` are the kernels that could."""
        target, node = self.plan.target, self.call.node
        if {"engine", "kernel"} & self.plan.machine.fixed(self.call.name).keys():
            return ""
        shown = {variant.kernel.engine for variant in self.variants}
        others: dict[str, list[Kernel]] = {}
        for kernel in target.kernels:
            if kernel.op == node.op and kernel.engine not in shown:
                others.setdefault(kernel.engine, []).append(kernel)
        reasons = [] if len(self.variants) > 1 else [self.faster(fitting)]
        for engine, kernels in others.items():
            if any(kernel in fitting for kernel in kernels):
                is_left_out = self.plan.machine.engines and engine not in self.plan.machine.engines
                reasons.append(f" --engines leaves {engine} out." if is_left_out else f" {engine} cannot work on it where its tensors lie.")
            else:
                needs = min((list_mismatches(kernel, node) for kernel in kernels), key=len)
                reasons.append(f" {engine} cannot run it: it would need {'; '.join(needs)}.")
        return "".join(reasons)

    def faster(self, fitting: Sequence[Kernel]) -> str:
        """What the kernel of another source on the same engine would need that misses least."""
        node, own = self.call.node, self.call.kernel
        others = [k for k in self.plan.target.kernels if (k.op, k.engine) == (node.op, own.engine) and k.source != own.source]
        closest_kernel = closest_needs([kernel for kernel in others if kernel not in fitting], node, own)
        return f" Kernel {closest_kernel[0].name} would need {'; '.join(closest_kernel[1])}." if closest_kernel is not None else ""

    def rivals(self) -> list[Candidate]:
        """The fastest candidate of every other kernel that can run the call."""
        best: dict[int, Candidate] = {}
        for candidate in sorted(self.offered, key=lambda c: (self.cycles(c), c.bytes)):
            if candidate.variant != self.plain.variant:
                best.setdefault(candidate.variant, candidate)
        return [best[number] for number in sorted(best)]

    def by(self, candidate: Candidate) -> str:
        """The instance of a kernel and the engine of a candidate."""
        variant = self.variants[candidate.variant]
        return f"{kernel_instance(variant, self.plan.target)} on {variant.kernel.engine}"

    def tile(self) -> str:
        """What bound the tile: nothing, or a memory."""
        with_same_residences = self.with_same_residences(self.chosen)
        best = min(with_same_residences, key=self.cycles, default=self.plain)
        what = f"Tile: {_describe_loops(self.chosen)}, {'two buffers' if self.chosen.is_double else 'one buffer'}"
        if self.cycles(best) >= self.cycles(self.plain):
            if min(map(self.cycles, self.offered)) >= self.cycles(self.plain):
                return f"{what}. No candidate is faster: more memory would not help this layer."
            return f"{what}. No other tiling with these residences is faster."
        lack = self.lack(best)
        if lack is None:
            less = group_digits(self.cycles(self.plain) - self.cycles(best))
            return f"{what}. Another tiling would be {less} cycles faster here, and cost more in other calls."
        fastest = f"{_describe_loops(best)}, {group_digits(self.cycles(best))} cycles"
        return f"{what}. The fastest tiling ({fastest}) does not fit: {lack}{self.neighbours()}."

    def residence(self) -> str:
        """What bound the memories that operands lie in."""
        others = [c for c in self.offered if c.variant == self.chosen.variant and c.distances != self.chosen.distances]
        best = min(others, key=self.cycles, default=self.plain)
        if self.cycles(best) >= self.cycles(self.plain):
            return f"Residence: {self.sources(self.plain)}. This kernel is not faster with any other."
        return f"Residence: {self.sources(self.plain)}. With {self.sources(best)}: {self.verdict(best)}."

    def time(self) -> str:
        entry = self.entry
        if entry["cycles"] is None:
            return "Time: nothing is known of the target's."
        total = max(1, entry["cycles"])
        shares = {"computing": entry["compute"], "forks and set-up": entry["overhead"], "starting transfers": entry["issue"]}
        waits = {f"{reason} over {path}": n for path, stall_cycles in entry["stalls"].items() for reason, n in stall_cycles.items()}
        parts = [f"{100 * n / total:.1f} % {words}" for words, n in shares.items()]
        parts += [f"{100 * n / total:.1f} % waiting for {words}" for words, n in sorted(waits.items(), key=lambda w: -w[1])]
        counted = self.cycles(self.plain)
        formula = (
            f" (the planner's formula, by which candidates are compared: {group_digits(counted)})"
            if counted != round(entry["cycles"])
            else ""
        )
        return f"Time: {group_digits(entry['cycles'])} cycles{formula}, bound by {entry['bound']}: {', '.join(parts)}."

    def energy(self) -> list[str]:
        """What takes how much, the most first; nothing where no energy is known."""
        microjoules: Document = self.entry.get("energy", {})
        parts = ", ".join(f"{name} {part:.2f}" for name, part in sorted(microjoules.items(), key=lambda one: -one[1]) if part)
        return [f"Energy: {sum(microjoules.values()):.2f} uJ: {parts}."] if parts else []

    def neighbours(self) -> str:
        """The largest buffers that share the engine's memory with the call."""
        level = self.levels[0]
        own = set(self.own())
        inside = [p for p in self.overview.occupancy.alive[level][self.step] if p not in own]
        largest = sorted(inside, key=lambda p: (-p.size, p.offset))[:NEIGHBOURS]
        named = ", ".join(f"{p.buffers[0]} ({group_digits(p.size)})" for p in largest)
        return f"; beside it lie {named}" if named else ""

    def fixed(self) -> list[str]:
        """What the user fixed of the call and of its operands, and what all that is fixed costs."""
        names = {self.call.name, *(operand.buffer for operand in self.call.operands.values())}
        own = [f"{shorten(fix.subject, 48)}.{fix.what}={shorten(fix.value, 48)}" for fix in self.plan.machine.fixes if fix.names & names]
        if not own:
            return []
        now, free = self.entry_cycles, self.plan.free_cycles
        cost = (
            f" The network takes {group_digits(now)} cycles, {group_digits(free)} where nothing is fixed."
            if now is not None and free is not None
            else ""
        )
        return [f"Fixed by you: {', '.join(own)}.{cost}"]

    def order(self) -> list[str]:
        """What became of another order of calls, in which more of them can run side by side."""
        choice = self.plan.order
        if choice is None:
            return []
        if not choice.is_taken:
            figures = f"{group_digits(choice.cycles_other)} cycles instead of {group_digits(choice.cycles_file)}"
            return [f"Order: that of the file; the one that brings calls of different engines next to each other takes {figures}."]
        before = choice.file.index(self.call.name)
        figures = f"{group_digits(choice.cycles_other)} cycles instead of {group_digits(choice.cycles_file)} in the order of the file"
        moved = f"call {self.step} here, call {before} in the file, so" if before != self.step else f"call {self.step}, as in the file;"
        return [f"Order: {moved} that calls of different engines are next to each other: the network takes {figures}."]

    # ---- memory

    def own(self) -> list[Placement]:
        """Placements of the windows and the scratch memory of the explained call."""
        return self.overview.occupancy.own.get(self.call.name, [])

    def free(self, distance: int, step: int) -> int:
        """Bytes of a memory that are not taken in a step by anything but this call's windows and scratch."""
        return self.overview.occupancy.free(self.levels[distance], step, self.call.name)

    def life(self, buffer: str) -> tuple[int, int, int]:
        """First and last step in which a buffer is needed, and its bytes."""
        return *self.overview.uses[buffer], self.plan.program.buffers[buffer].bytes

    def lack(self, candidate: Candidate) -> str | None:
        """The memory that has no room for a candidate's windows, or None."""
        for distance, need in enumerate(candidate.bytes):
            if self.levels[distance] in self.plan.memory and need > self.free(distance, self.step):
                free = max(0, self.free(distance, self.step))
                return f"it needs {group_digits(need)} bytes of {self.levels[distance]}, {group_digits(free)} are free in step {self.step}"
        return None

    # ---- operands

    def tensor(self, name: str) -> str:
        return self.plan.program.buffers[self.call.operands[name].buffer].tensor

    def where(self, name: str) -> str:
        """Where an operand lies, and what of it moves."""
        plan, buffer = self.plan, self.plan.program.buffers[self.call.operands[name].buffer]
        residence = plan.residences.get(buffer.name)
        if buffer.role is Role.CONSTANT:
            stored = plan.stored(buffer)
            first = plan.fetched.get(buffer.name)
            copied = "stays there after init" if first == FOR_EVER else f"fetched in step {first}"
            text = f"constant in {stored}" if stored else "constant"
            text += f", copied to {residence}, {copied}" if first is not None else ""
        elif residence is None:
            text = "the caller's" if plan.target.is_flat else f"the caller's, in {self.levels[1]}"
        else:
            text = f"lies in {residence}"
        streams = [self.stream(s) for s in self.chosen.tiling.streams if s.operand == name]
        return "; ".join([text, *streams]) if streams else f"{text}; used in place"

    def stream(self, stream: Stream) -> str:
        near = next(path.near for path in self.plan.target.paths if path.name == stream.path)
        depth = f"{stream.depth} x " if stream.depth > 1 else ""
        times = "once" if stream.moves == 1 else f"{group_digits(stream.moves)} times"
        early = ", first during the call before" if stream.is_prefetchable else ""
        return (
            f"window of {depth}{group_digits(stream.bytes)} bytes in {near}, {'stored' if stream.is_output else 'fetched'} {times}{early}"
        )

    # ---- candidates

    def cycles(self, candidate: Candidate) -> int:
        """Predicted cycles behind the calls that were chosen; with first constants fetched early where the choice has that."""
        saved = candidate.cache_saving if candidate.cache_saving and self.is_cached_before[candidate.variant] else 0
        return (
            candidate.cycles
            - saved
            - (candidate.prefetchable_cycles + candidate.prefetchable_issue * self.begins_ahead if self.is_prefetchable else 0)
        )

    def shown(self) -> list[Candidate]:
        """The chosen candidate, the next best with its residences, the best of some other residences, and of each other kernel."""
        with_same_residences = (c for c in self.offered if c != self.plain and c.variant == self.plain.variant)
        ranked = sorted(with_same_residences, key=lambda c: (self.cycles(c), c.bytes))
        same = [c for c in ranked if c.distances == self.plain.distances][:SAME]
        others: dict[tuple[int, ...], Candidate] = {}
        for candidate in ranked:
            if candidate.distances != self.plain.distances:
                others.setdefault(candidate.distances, candidate)
        shown = [self.plain, *same, *list(others.values())[:OTHER], *self.rivals()]
        return sorted(shown, key=lambda c: (self.cycles(c), c != self.plain))

    def candidate(self, candidate: Candidate) -> Contents:
        return {
            "kernel": kernel_instance(self.variants[candidate.variant], self.plan.target),
            "engine": self.variants[candidate.variant].kernel.engine,
            "loops": _describe_loops(candidate),
            "is_double": candidate.is_double,
            "core_dim": candidate.tiling.core_dims,
            "sources": self.sources(candidate),
            "bytes": list(candidate.bytes),
            "cycles": self.cycles(candidate),
            "chosen": candidate == self.plain,
            "verdict": self.verdict(candidate),
        }

    def sources(self, candidate: Candidate) -> str:
        """The operands by the memory that they come from or go to."""
        places: dict[int, list[str]] = {}
        for name, distance in zip(self.variants[candidate.variant].operands, candidate.distances, strict=True):
            places.setdefault(distance, []).append(name)
        return "; ".join(f"{self.levels[distance]}: {' '.join(names)}" for distance, names in sorted(places.items()))

    def verdict(self, candidate: Candidate) -> str:
        if candidate == self.plain:
            return "chosen"
        more = self.cycles(candidate) - self.cycles(self.plain)
        cost = f"{group_digits(abs(more))} cycles {'more' if more > 0 else 'fewer'}" if more else "as many cycles"
        lack = self.lack(candidate) or self.without_room(candidate)
        if lack is not None:
            return f"{cost}, but {lack}" if more <= 0 else f"{cost}, and {lack}"
        return cost if more > 0 else f"{cost} here, but more in other calls, or more bytes"

    def without_room(self, candidate: Candidate) -> str | None:
        """A buffer that would have to lie nearer than it does, where there is no room for it."""
        now = dict(zip((operand.buffer for operand in self.call.operands.values()), self.plain.distances, strict=True))
        for (name, operand), distance in zip(self.variants[candidate.variant].operands.items(), candidate.distances, strict=True):
            if distance == now.get(operand.buffer, distance) or (0 < distance < 3 and distance > now[operand.buffer]):
                continue
            first, last, size = self.life(operand.buffer)
            free = max(0, min(self.free(distance, step) for step in range(first, last + 1)))
            if size > free:
                needed = f"{name} needs {group_digits(size)} bytes of {self.levels[distance]}"
                return f"{needed} in steps {first} to {last}, {group_digits(free)} are free"
        return None


def _describe_loops(candidate: Candidate) -> str:
    loops = ", ".join(f"{loop.dim} {loop.trips} x {loop.tile}" for loop in candidate.tiling.loops)
    return loops or "one tile"
