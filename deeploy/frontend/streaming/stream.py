"""The streamed form of a network: one call takes new columns of an input, and keeps of every layer's input what the next call needs.

Call n (from 0) computes, of a tensor with h columns a call and delay d, columns n*h - d to (n + 1)*h - d, counted from the beginning of the
recording. Where a stride is more than the columns of a call, what is behind it runs in every n-th call, as if that had n hops; what it
reads, the calls before have kept. A window of r columns that moves by s and begins p columns before the recording needs r - s - p + d
columns that have not come yet for its own last one, so that its delay is ceil of that / s, at least 0. Columns before the recording are
what the layer pads with: states begin so, and what inner layers compute for columns before the recording, while their delay has not
passed, is masked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from deeploy.errors import UnsupportedError
from deeploy.frontend.lower.quant import behind_dequantisation
from deeploy.frontend.states import Pair
from deeploy.frontend.streaming.attention import Band
from deeploy.frontend.streaming.rules import RULES
from deeploy.frontend.streaming.sums import WindowSums
from deeploy.frontend.streaming.walk import (
    CONVOLUTIONS,
    Course,
    CourseWalk,
    Fill,
    Meeting,
    Narrow,
    WindowSpan,
    find_common_hop,
    replace_name,
    with_columns,
)
from deeploy.ir.nodes import Node, Tensor, compute, concat, constant, inverse_order, set_name
from deeploy.ir.rewriting import need, require
from deeploy.ir.types import DType
from deeploy.ir.values import Graph
from deeploy.operators.integer_recurrent import UNIT

Key = tuple[Tensor, float | None]


@dataclass(frozen=True)
class Needs:
    """What walks before found.

    Attributes:
        states: for each reader of earlier columns, the state that serves it, and how many columns that holds; None: not known yet.
        reach: columns of the input from the beginning of what windows are of to the newest column.
    """

    states: Mapping[Key, tuple[Key, int]] | None = None
    reach: int = 0


def share_states(wanted: Mapping[Key, int]) -> dict[Key, tuple[Key, int]]:
    """One state for all readers of a tensor who want the same before the recording; who wants nothing there reads any."""
    owners, counts = dict[Key, Key](), dict[Key, int]()
    for key, count in wanted.items():
        others = (other for other in wanted if other[0] is key[0] and other[1] is not None)
        owners[key] = key if key[1] is not None else next(others, key)
        counts[owners[key]] = max(count, counts.get(owners[key], 0))
    return {key: (owner, counts[owner]) for key, owner in owners.items()}


class Streaming(CourseWalk):
    """A walk that makes the streamed form.

    Attributes:
        sums: what is known of tensors that are summed over time.
        pairs: its states.
        periods: of what states become, by name: in every how many calls that is.
        padding: the nodes that pad the streamed axis.
        steps: the columns of the input that blocks of attentions have, by their last products.
        masks: by the name of an input, in which call from 0 on each column of a tensor is one of the recording.
        needs, wanted: what walks before found, and what this one finds.
    """

    def __init__(
        self,
        graph: Graph,
        source: Tensor,
        axis: int,
        hop: int,
        needs: Needs | None = None,
        is_window: bool = False,
        sums: WindowSums | None = None,
    ) -> None:
        super().__init__(graph, source, axis, hop, RULES)
        self.hop, self.needs, self.is_window, self.is_sketch = hop, needs or Needs(), is_window, needs is None
        self.sums = sums or WindowSums()
        self.wanted: dict[Key, int] = {}
        self.windows: list[tuple[Course, int]] = []
        self.pairs: list[Pair] = []
        self.periods: dict[str, int] = {}
        self.ends: list[tuple[Tensor, Tensor]] = []  # states as they are read and as they are left
        self.padding: list[Node] = []
        self.steps: dict[Node, int | Fraction] = {}
        self.masks: dict[str, np.ndarray] = {}
        self._histories: dict[Key, Tensor] = {}
        self.mask_inputs: dict[str, Tensor] = {}

    def calls(self, period: int | Fraction) -> int:
        """The calls from one to the next in which tensors of a period have new columns."""
        columns = Fraction(period).numerator
        return columns // math.gcd(self.hop, columns)

    def slide(self, node: Node, x: Tensor, span: WindowSpan, fill: Fill) -> tuple[Tensor, Course]:
        course, new = self.courses[x], self.columns(x)
        if span.before > 0 or span.after > 0:
            self._note_padding(node)
        columns = new * self.calls(course.period * span.stride) // self.calls(course.period)
        delay = max(0, -((span.before + span.stride - span.reach - course.delay) // span.stride))
        past = delay * span.stride + span.before - course.delay
        fill = fill if span.before > 0 else None
        if course.delay < 0:
            require(fill is None or fill == course.fill)
            fill = course.fill
        length = (columns // span.stride - 1) * span.stride + span.reach
        return self._history(x, past + columns - new, length, fill), Course(course.axis, course.period * span.stride, delay)

    def meet(self, node: Node, queries: Tensor, keys: Tensor, values: Tensor, band: Band) -> Meeting:
        tensors = queries, keys, values
        course, new, delays = self.courses[queries], self.columns(queries), [self.courses[x].delay for x in tensors]
        period = course.period * band.block
        require(not self.is_window, all(self.columns(x) == new and self.courses[x].fill in (None, 0.0) for x in tensors))
        self.steps[node] = period
        blocks = max(1, new * self.calls(period) // self.calls(course.period) // band.block)
        columns = blocks * band.block
        late = max(0, *(-(-(delay + ahead) // band.block) for delay, ahead in zip(delays, (0, band.after, band.after), strict=True)))
        reach = columns - band.block + band.width
        given = [
            self._history(x, late * band.block + past - delay + columns - new, length, fill)
            for x, delay, past, length, fill in zip(
                tensors, delays, (0, band.before, band.before), (columns, reach, reach), (None, 0.0, 0.0), strict=True
            )
        ]
        shown = self._mask_keys(band, blocks, late, self.calls(period)) if band.before else None
        return self.pair_blocks(given, shown, band, blocks, replace(course, delay=late * band.block, fill=None), columns)

    def _mask_keys(self, band: Band, blocks: int, late: int, calls: int) -> Tensor:
        """Which columns in front of blocks are of the recording, as an input of the graph; blocks see themselves always."""
        shape = (1, band.width) if blocks == 1 else (blocks, 1, band.width)
        name = f"stream keys {late} {blocks} {band.block} {band.before} {band.width} {calls}"
        places, first = np.arange(band.width), (np.arange(0 if self.is_sketch else blocks) - late)[:, None] * band.block
        since = np.where(places < band.before, -((places - band.before + first) // (blocks * band.block)), 0)
        return self._add_mask(name, shape, calls * since)

    def _add_mask(self, name: str, shape: Sequence[int], since: np.ndarray) -> Tensor:
        """An input of the graph, from ``since`` on true in each element."""
        if name not in self.mask_inputs:
            self.mask_inputs[name] = Tensor(name, tuple(shape), DType.BOOL)
            if self.needs.states is not None:
                self.masks[name] = since.reshape(shape)
        return self.mask_inputs[name]

    def wait(self, x: Tensor, delay: int) -> Tensor:
        course = self.courses[x]
        if delay == course.delay:
            return self.of(x)
        return self._history(x, delay - course.delay, self.columns(x), course.fill if course.delay < 0 else None)

    def window(self, x: Tensor, count: int) -> Tensor:
        return self._history(x, count - self.columns(x) + self._lag_window(x), count, self._fill_window(x))

    def _lag_window(self, x: Tensor) -> int:
        """How many columns of a tensor have come behind a window: all windows begin at one time, as those of the file do."""
        course, columns = self.courses[x], self.columns_in_file(x)
        self.windows.append((course, columns))
        return max(0, self.needs.reach // course.period - course.delay - columns)

    def _fill_window(self, x: Tensor) -> Fill:
        """What stands in windows for columns from before the recording."""
        course = self.courses[x]
        return course.fill if course.delay < 0 else float(self.sums.befores.get(x, 0))

    def add_up(self, node: Node) -> bool:
        x, total = node.operands[0], node.outputs[0]
        if total not in self.sums.running:
            return False
        course, new, count = self.courses[x], self.columns(x), self.columns_in_file(x)
        late, fill = self._lag_window(x), self._fill_window(x)
        assert isinstance(fill, float)
        past = Tensor(f"{total.name} (past {len(self.pairs)})", total.shape, total.dtype)
        enters, leaves = (
            compute("ReduceSum", self._history(x, late + before, new, fill), dtype=total.dtype, domain=node.domain, **node.attrs)
            for before in (0, count)
        )
        result = replace_name((past + enters) - leaves, total)
        self._keep(past, result, np.asarray(fill * count), course)
        return self.show(node, result)

    def pad(self, node: Node, before: int, after: int, fill: float) -> bool:
        self._note_padding(node)
        x = node.operands[0]
        course, columns = self.courses[x], self.columns(x)
        require(course.delay >= 0 or fill == course.fill)
        narrow = self.narrow(x)
        shown = self.widen(narrow, self._masked(narrow, course, narrow.store(fill)))
        delay = course.delay - before
        self.courses[node.outputs[0]] = replace(course, delay=delay, fill=fill if delay < 0 else None)
        self.now[node.outputs[0]] = shown
        require(columns == shown.shape[course.axis])
        return True

    def _note_padding(self, node: Node) -> None:
        if self.is_window:
            raise _pad_columns(node)
        self.padding.append(node)

    def recur(self, node: Node) -> bool:
        if self.is_window:
            raise UnsupportedError(
                f"{node} goes on where the last call ended, which a sliding window's layers do not", "Leave --stream-mode window out."
            )
        x = node.operands[0]
        course, columns = self.courses[x], self.columns(x)
        delay = -(-max(course.delay, 0) // columns) * columns
        shape = (1, x.shape[1], need(node.inputs[2]).shape[-1])
        inputs, initial = [self.wait(x, delay), *node.inputs[1:]], dict[Tensor, np.ndarray]()
        for place in range(5, 7 if node.op == "LSTM" else 6):
            given = node.inputs[place]
            value = np.zeros(shape, np.float32) if given is None else need(given.data)
            is_whole = place == 5 and behind_dequantisation(need(node.inputs[2])) is not None and float(np.abs(value).max()) <= 1
            past = Tensor(f"{node.name} (state {place - 5} past)", shape, DType.INT16 if is_whole else DType.FLOAT32)
            initial[past] = np.clip(np.rint(value * 2.0**UNIT), -(2**15) + 1, 2**15 - 1) if is_whole else value
            inputs[place] = past.apply("DequantizeLinear", *_state_step(), axis=0) if is_whole else past
        y = node.outputs[0]
        after = [Tensor(f"{node.name} (state {i} next)", shape, DType.FLOAT32) for i in range(len(initial))]
        sequence = Tensor(y.name or f"{node.name} (sequence)", (columns, *shape), DType.FLOAT32)
        made = node.another(inputs=tuple(inputs), outputs=(sequence, *after))
        self.now[y], self.courses[y] = made.outputs[0], Course(0, course.period, delay)
        for (past, value), new in zip(initial.items(), made.outputs[1:], strict=True):
            if not past.dtype.is_float:
                new = compute("QuantizeLinear", new, *_state_step(), dtype=past.dtype, axis=0)
            if delay:
                new = self._mask(self.courses[y], columns, 3, 0).apply("Where", new, constant(value, past.dtype))
            if not new.name:
                set_name(new, f"{past.name} (left)")
            self._keep(past, new, value, course)
        return True

    def _keep(self, past: Tensor, new: Tensor, initial: np.ndarray, course: Course) -> None:
        """What one call leaves is what the next one reads."""
        self.periods[new.name] = self.calls(course.period)
        is_uniform = bool((initial == initial.flat[0]).all())
        self.pairs.append(Pair(past.name, new.name, None, np.asarray(initial.flat[0]) if is_uniform else initial))
        self.ends.append((past, new))

    def _history(self, x: Tensor, past: int, length: int, fill: Fill) -> Tensor:
        """So many columns of a tensor, from ``past`` columns before the new ones on."""
        narrow = self.narrow(x)
        key = narrow.tensor, narrow.store(fill)
        self.wanted[key] = max(self.wanted.get(key, 0), past)
        state, kept = (key, max(past, 0)) if self.needs.states is None else self.needs.states[key]
        if self.needs.states is None or state not in self._histories:
            self._histories[state] = self._extend(narrow, kept, state[1])
        order = self._order(narrow.tensor)
        axis, start = order.index(self.courses[narrow.tensor].axis), kept - past
        columns = self._histories[state].cut(axis, start, start + length)
        return self.widen(narrow, columns.transpose(inverse_order(order)))

    def _order(self, tensor: Tensor) -> list[int]:
        """The order of axes in which a tensor is kept: channels are behind columns where layers have images, as their kernels read them."""
        is_image = self.courses[tensor].axis > 1 and not self.graph.operators.isdisjoint(CONVOLUTIONS)
        return [0, *range(2, tensor.rank), 1] if is_image else [*range(tensor.rank)]

    def _extend(self, narrow: Narrow, kept: int, fill: float | None) -> Tensor:
        """The columns that are kept of a tensor, and the new ones behind them."""
        tensor, order = narrow.tensor, self._order(narrow.tensor)
        axis = order.index(self.courses[tensor].axis)
        new = self._masked(narrow, self.courses[tensor], fill).transpose(order)
        if not kept:
            return new
        past = Tensor(f"{tensor.name} (past {len(self.pairs)})", with_columns(new.shape, axis, kept), tensor.dtype)
        both = concat([past, new], axis)
        count = both.shape[axis]
        after = both.cut(axis, count - kept, count)
        set_name(after, f"{tensor.name} (next {len(self.pairs)})")
        self._keep(past, after, np.asarray(fill or 0.0), self.courses[tensor])
        return both

    def _masked(self, narrow: Narrow, course: Course, fill: float | None) -> Tensor:
        """New columns of what is stored, those before the recording as something else."""
        new, axis = self.of(narrow.tensor), self.courses[narrow.tensor].axis
        if course.delay <= 0 or fill is None:
            return new
        mask = self._mask(course, new.shape[axis], new.rank, axis)
        return mask.apply("Where", new, constant(np.full([1] * new.rank, fill, new.dtype.numpy)))

    def _mask(self, course: Course, columns: int, rank: int, axis: int) -> Tensor:
        """Whether columns are of the recording, as an input of the graph."""
        delay, calls = course.delay, self.calls(course.period)
        count = 1 if delay % columns == 0 else columns
        name = f"stream {delay} {columns} {rank} {axis}{f' {calls}' if calls > 1 else ''}"
        since = calls * -((np.arange(0 if self.is_sketch else count) - delay) // columns)
        return self._add_mask(name, with_columns([1] * rank, axis, count), since)


def _state_step() -> tuple[Tensor, Tensor]:
    """Scale and zero point of a state between -1 and 1, as recurrent layers in integers have it."""
    return constant(np.float32(2.0**-UNIT), label="step"), constant(np.int16(0), label="zero")


def _pad_columns(node: Node) -> UnsupportedError:
    what = f"{node} pads the streamed axis: every column of a sliding window would be new"
    return UnsupportedError(what, "Leave --stream-mode window out: then padding is at the ends of the recording alone.")


def find_reach(windows: Sequence[tuple[Course, int]]) -> int:
    """How many columns of the input there are from the beginning of all windows on until all of them have come.

    Args:
        windows: courses of tensors, and their columns in the file.
    """
    step = find_common_hop(course for course, _ in windows)
    return -(-max(((course.delay + columns) * course.period for course, columns in windows), default=0) // step) * step
