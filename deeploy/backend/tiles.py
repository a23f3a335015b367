"""One tiled call as C: where its tiles lie, which windows they fetch and store, and what every core computes.

The pieces are lines of C for the template ``tiled_call.c.mako``; all of them follow from the tiling and the operands' maps.
Variables are declared one per line, so that ``used`` can drop those that nothing mentions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from deeploy.backend import calls as c
from deeploy.backend.symbols import Size, text
from deeploy.backend.windows import AxisText, Range, WindowText, window_text
from deeploy.graph.types import DType
from deeploy.midend.place import window_name
from deeploy.midend.plan import Plan
from deeploy.midend.program import Call
from deeploy.midend.tiling import Loop, Stream, Windows

_DECLARED = re.compile(r"const int32_t (\w+) = ")


def used(lines: Sequence[str], body: Sequence[str]) -> list[str]:
    """The declarations among ``lines`` that the lines after them or ``body`` mention; everything else stays."""
    words = set(re.findall(r"\w+", "\n".join(body)))
    kept = []
    for line in reversed(lines):
        declared = _DECLARED.match(line)
        if declared is None or declared[1] in words:
            words |= set(re.findall(r"\w+", line))
            kept.append(line)
    return kept[::-1]


def macro(name: str) -> str:
    """The enumerator that holds the offset of a buffer or window."""
    return f"AT_{name.upper().replace('.', '__').replace('@', '__')}"


class TiledCall:
    """The C of one call; ``addresses`` maps buffers to C expressions of type rt_address."""

    def __init__(self, plan: Plan, step: int, addresses: Mapping[str, str]) -> None:
        self.plan = plan
        self.call: Call = plan.program.calls[step]
        self.tiling = plan.tiling(step)
        self.addresses = addresses
        self.engine = plan.target.engine(self.call.kernel.engine)
        self.paths = plan.target.outward(self.engine.memory)
        most = plan.machine.cores if plan.machine is not None else 1
        self.cores = min(most, self.engine.cores) if self.tiling.core_dim is not None else 1
        self.windows = {name: Windows(self.call.geometry, name, operand) for name, operand in self.call.operands.items()}

    # ---- where tiles lie

    def _ranges(self, loops: int | None = None) -> dict[str, tuple[str, str]]:
        """C expressions of the first iteration and the number of iterations, per cut dimension, in tile ``t``."""
        rest = self.tiling.tiles
        firsts: dict[str, list[str]] = {}
        last: dict[str, Loop] = {}
        for index, loop in enumerate(self.tiling.loops[:loops]):
            rest //= loop.trips
            digit = f"t / {rest}" if rest > 1 else "t"
            digit = digit if index == 0 else f"{digit} % {loop.trips}"
            firsts.setdefault(loop.dim, []).append(f"{digit} * {loop.tile}" if loop.tile > 1 else digit)
            last[loop.dim] = loop
        return {dim: (" + ".join(terms), self._count(last[dim])) for dim, terms in firsts.items()}

    def _count(self, loop: Loop) -> str:
        if loop.dim in self.call.geometry.limited:
            return f"larger(smaller({loop.tile}, {c.LIVE} - {{first}}), 0)"
        extent = self.call.geometry.extents[loop.dim]
        return str(loop.tile) if extent % loop.tile == 0 else f"smaller({loop.tile}, {extent} - {{first}})"

    def tile_lines(self, loops: int | None = None, suffix: str = "") -> list[str]:
        """Declarations of the variables that say where tile ``t`` lies, as the outermost ``loops`` loops see it."""
        lines = []
        for dim, (first, count) in self._ranges(loops).items():
            name = f"at_{dim}{suffix}"
            lines += [f"const int32_t {name} = {first};", f"const int32_t n_{dim}{suffix} = {count.format(first=name)};"]
        return lines

    def _range(self, loops: int | None = None, suffix: str = "") -> Range:
        """The names of these variables; what is limited and not cut runs over the rows that exist."""
        whole = {dim: ("0", c.LIVE) for dim in sorted(self.call.geometry.limited) if self.call.geometry.extents[dim] > 1}
        return whole | {loop.dim: (f"at_{loop.dim}{suffix}", f"n_{loop.dim}{suffix}") for loop in self.tiling.loops[:loops]}

    # ---- windows

    def _dtype(self, operand: str) -> DType:
        return self.plan.program.buffers[self.call.operands[operand].buffer].dtype

    def _slot(self, stream: Stream) -> str:
        """The address of the window that serves tile ``t``."""
        level = next(path.near for path in self.paths if path.name == stream.path)
        base = f"{level.lower()} + {macro(window_name(self.call.name, stream.operand, level, self.engine.memory))}"
        if stream.depth == 1:
            return base
        turn = f"t / {stream.period} % 2" if stream.period > 1 else "t % 2"
        return f"{base} + {turn} * {stream.bytes}"

    def streams(self, hop: int, is_output: bool) -> list[Stream]:
        """The windows that move over the path that is ``hop`` memories away from the engine's own."""
        if hop >= len(self.paths):
            return []
        return [s for s in self.tiling.streams if s.path == self.paths[hop].name and s.is_output == is_output]

    def fetches(self, hop: int, ticket: str) -> list[str]:
        """Lines that fetch what tile ``t`` needs and the tile before it did not; early windows are there at the first tile."""
        lines: list[str] = []
        for stream in self.streams(hop, False):
            if stream.moves == 1:
                condition = "" if self.tiling.tiles == 1 else "t == 0"
                if stream.is_early:
                    continue
            else:
                condition = "" if stream.period == 1 else f"t % {stream.period} == 0"
                if stream.is_early:
                    condition = f"t && {condition}" if condition else "t"
            lines += self._move(stream, "rt_fetch", ticket, condition)
        return lines

    def early(self, ticket: str) -> list[str]:
        """Lines that fetch the first windows of constants while the call before runs."""
        lines: list[str] = []
        for stream in self.streams(0, False):
            if stream.is_early:
                lines += self._move(stream, "rt_fetch", ticket, "")
        return lines

    def stores(self, hop: int, ticket: str) -> list[str]:
        """Lines that store what tile ``t`` computed; further out, what its group of tiles did."""
        lines: list[str] = []
        for stream in self.streams(hop, True):
            lines += self._move(stream, "rt_store", ticket, "")
        return lines

    def _move(self, stream: Stream, verb: str, ticket: str, condition: str) -> list[str]:
        windows = self.windows[stream.operand]
        shown = window_text(windows, self._range(stream.loops), stream.operand)
        unit = self._dtype(stream.operand).bytes
        lines = self.tile_lines(stream.loops) + list(shown.lines)
        if stream.inner:
            outer = next(s for s in self.tiling.streams if s.operand == stream.operand and s.path != stream.path)
            around = window_text(windows, self._range(outer.loops, "_outer"), f"{stream.operand}_outer")
            lines += self.tile_lines(outer.loops, "_outer") + list(around.lines)
            strides = around.strides(windows.order)
            firsts = [_difference(a.first, b.first) for a, b in zip(shown.axes, around.axes, strict=True)]
            base = self._slot(outer)
        else:
            operand = self.call.operands[stream.operand]
            strides = operand.access.strides
            firsts = [str(axis.first) for axis in shown.axes]
            base = self.addresses[operand.buffer] + (f" + {operand.access.offset * unit}" if operand.access.offset else "")
            base += f" + (rt_address){c.PAST} * {operand.step * unit}" if operand.step else ""
        place = text(*((first, stride * unit) for first, stride in zip(firsts, strides, strict=True)))
        far = base if place == "0" else f"{base} + (rt_address)({place})"
        counts, pitches, run = _box(windows, shown, strides, unit)
        body = [_moved(verb, f"DMA_{stream.path}, {ticket}", self._slot(stream), far, run, counts, pitches)]
        lines = used(lines, body) + body
        return [f"if ({condition}) {{" if condition else "{", *(f"    {line}" for line in lines), "}"]

    def at_tile(self, number: str, lines: list[str]) -> list[str]:
        """The lines with ``t`` declared, where they mention it."""
        return used([f"const int32_t t = {number};"], lines) + lines if lines else []

    # ---- what a core computes

    def _part_lines(self) -> list[str]:
        """The share of the calling core, where the tile is divided over a team."""
        dim = self.tiling.core_dim
        if dim is None:
            return []
        extent = self.call.geometry.extents[dim]
        first, count = self._range().get(dim, ("0", str(extent)))
        whole = self.tiling.tile(dim, extent)
        is_fixed = extent % whole == 0 and dim not in self.call.geometry.limited
        share = str(-(-whole // self.cores)) if is_fixed else f"(({count} + {self.cores - 1}) / {self.cores})"
        begin, end = (f"rt_core() * {share}", count) if first == "0" else (f"{first} + rt_core() * {share}", f"{first} + {count}")
        return [
            f"const int32_t part_{dim} = {begin};",
            f"const int32_t part_{dim}_n = smaller({share}, {end} - part_{dim});",
            f"if (part_{dim}_n <= 0) return;",
        ]

    def _part(self) -> Range:
        dim = self.tiling.core_dim
        return {**self._range(), **({dim: (f"part_{dim}", f"part_{dim}_n")} if dim is not None else {})}

    def body(self, operand_lines: Sequence[str], kernel: str) -> list[str]:
        """All that a core does for tile ``t``, given the lines that locate operands and the text of the kernel's call."""
        limited = sorted({loop.dim for loop in self.tiling.loops} & self.call.geometry.limited - {self.tiling.core_dim})
        empty = [f"if (n_{dim} <= 0) return;" for dim in limited]
        return used([*self.tile_lines(), *empty, *self._part_lines(), *operand_lines], kernel.splitlines()) + kernel.splitlines()

    def counts(self) -> dict[str, str]:
        """C variables with the iterations of limited dimensions in the part of a core."""
        return {dim: count for dim, (_, count) in self._part().items() if dim in self.call.geometry.limited}

    def operands(self) -> tuple[list[str], dict[str, c.View | None]]:
        """The C lines that locate every operand for the calling core, and the views that the call's template sees."""
        lines: list[str] = []
        views: dict[str, c.View | None] = {name.rstrip("?"): None for name in self.call.kernel.inputs}
        streams = {s.operand: s for s in self.tiling.streams if s.path == self.paths[0].name}
        for name, operand in self.call.operands.items():
            windows = self.windows[name]
            part = window_text(windows, self._part(), f"{name}_part")
            if not windows.is_mapped:
                part = WindowText(tuple(AxisText(0, n, 0) for n in windows.shape), ())
            stream = streams.get(name)
            if stream is None:
                strides: tuple[Size | int, ...] = operand.access.strides
                base, constant = self.addresses[operand.buffer], operand.access.offset
                origin = [str(axis.first) for axis in part.axes]
                lines += part.lines
            else:
                whole = window_text(windows, self._range(), name)
                lines += [*whole.lines, *(line for line in part.lines if line not in whole.lines)]
                strides, base, constant = whole.strides(windows.order), self._slot(stream), 0
                origin = [_difference(p.first, w.first) for p, w in zip(part.axes, whole.axes, strict=True)]
            grown = (c.PAST, operand.step if stream is None else 0)
            place = text(*((first, stride) for first, stride in zip(origin, strides, strict=True)), ("1", constant), grown)
            lines.append(self._pointer(name, base, place))
            view = c.View(
                ptr=name,
                extent=tuple(axis.count for axis in part.axes),
                stride=strides,
                before=tuple(axis.before for axis in part.axes),
                first=tuple(axis.first for axis in part.axes),
                shape=operand.access.shape,
                dtype=self._dtype(name),
            )
            views[name] = replace(view, stride=c.broadcast(self.call, name, strides))
        return lines, views

    def _pointer(self, name: str, base: str, place: str) -> str:
        const = "" if name in self.call.writes else "const "
        kind = f"{const}{self._dtype(name).c} *"
        start = f"({kind})({base})"
        return f"{kind}const {name} = {start};" if place == "0" else f"{kind}const {name} = {start} + ({place});"

    def scratch(self) -> dict[str, str]:
        """Pointers to the call's scratch memory."""
        return {key: f"(void *)({self.engine.memory.lower()} + {macro(name)})" for key, name in self.call.scratch.items()}


def _box(windows: Windows, shown: WindowText, strides: Sequence[Size | int], unit: int) -> tuple[list[str], list[str], str]:
    """Counts and pitches of the outer axes, outermost first, and the bytes of a run; constant axes are merged here."""
    run: Size | int = unit
    axes: list[tuple[Size | int, Size | int]] = []
    for axis in reversed(windows.order):
        count, pitch = shown.axes[axis].count, strides[axis] * unit
        if count == 1:
            continue
        if not axes and pitch == run:
            run = run * count
        elif axes and pitch == axes[-1][0] * axes[-1][1]:
            axes[-1] = (axes[-1][0] * count, axes[-1][1])
        else:
            axes.append((count, pitch))
    axes.reverse()
    return [str(n) for n, _ in axes], [str(p) for _, p in axes], str(run)


def _moved(verb: str, how: str, near: str, far: str, run: str, counts: Sequence[str], pitches: Sequence[str]) -> str:
    """The call that moves a box; most are one run or rows of them."""
    if not counts:
        return f"{verb}_run({how}, {near}, {far}, {_unsigned([run])});"
    if len(counts) == 1:
        return f"{verb}_rows({how}, {near}, {far}, {_unsigned([run, counts[0], pitches[0]])});"
    fields = [f".near = {near}", f".far = {far}", f".bytes = {_unsigned([run])}", f".axes = {len(counts)}"]
    fields += [f".count = {{{_unsigned(counts)}}}", f".pitch = {{{_unsigned(pitches)}}}"]
    return f"{verb}({how}, &(struct rt_box){{{', '.join(fields)}}});"


def _unsigned(values: Sequence[str]) -> str:
    return ", ".join(value if value.isdigit() else f"(uint32_t){value}" for value in values)


def _difference(a: str | int, b: str | int) -> str:
    """a - b as C, "0" where both are the same."""
    if a == b:
        return "0"
    if isinstance(a, int) and isinstance(b, int):
        return str(a - b)
    return f"({a} - {b})" if b != 0 else str(a)
