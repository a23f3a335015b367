"""Streams: a network over a window of an input becomes one over what is new of it (docs/streams.md).

What a stream means is the lengthened network: the one whose streamed axis is as long as the whole recording, so that padding is at the
ends of the recording alone. Each call gives the next columns of that, delayed by as many columns as layers look ahead. What needs the whole
window, such as a mean over time, is computed of the last columns of what streams, as many as the file has; before there are so many, zeros
stand for those that are missing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from deeploy.errors import UnsupportedError, UsageError, shorten
from deeploy.frontend.lower import forms
from deeploy.frontend.states import Pair
from deeploy.frontend.streaming.recording import Recording
from deeploy.frontend.streaming.stream import Needs, Streaming, find_reach, share_states
from deeploy.frontend.streaming.sums import WindowSums, split_pools
from deeploy.frontend.streaming.walk import Course, count_products, find_common_hop, name_all
from deeploy.ir.nodes import Tensor, compute
from deeploy.ir.values import Graph
from deeploy.options.texts import StreamAxis

_LONG = 10_000  # columns of a recording whose ends are far from each other
_ANY_HOP = 2**12 * 3**4 * 5**2 * 7  # columns that strides divide, while their product is not known


@dataclass(frozen=True)
class StreamedOutput:
    """How an output follows the stream.

    Attributes:
        axis: along which it has new columns in every call; None where it is computed of a window, anew in every call.
        columns: the new ones of a call; of the input for each of its columns, ``period``.
        delay: in columns of the input.
        calls: from one in which it is new to the next.
        reach: columns of the input from the beginning of its window to the end of the call; 0 where it follows the stream.
    """

    name: str
    axis: int | None
    columns: int
    period: int
    delay: int
    calls: int
    reach: int = 0


@dataclass(frozen=True)
class SeenBand:
    """An attention that streams: by how many columns it sees further than its own block of them, and whether the window limits that."""

    node: str
    block: int
    before: int
    after: int
    is_limited: bool


@dataclass(frozen=True)
class StreamDescription:
    """A network that streams: ``window`` columns in the file, ``hop`` new ones for each call, and what becomes of its outputs."""

    input: str
    axis: int
    window: int
    hop: int
    outputs: tuple[StreamedOutput, ...]
    heads: tuple[str, ...]  # nodes that need a window
    padding: tuple[str, ...]  # nodes that pad the streamed axis, at the ends of the recording alone
    bands: tuple[SeenBand, ...]  # attentions that need columns in front and behind alone
    products: int  # of one call, in the mean
    least_products: int  # of the lengthened network for a hop, and of what is computed of windows
    window_products: int  # of the network of the file

    def tell(self) -> list[str]:
        """What the user is told."""
        delays = ", ".join(f"{shorten(out.name)} {out.delay}" for out in self.outputs)
        lines = [f"stream: each inference takes {self.hop} new columns of {shorten(self.input)}; columns by which outputs lag: {delays}"]
        late = ", ".join(f"{shorten(out.name)} {out.calls}" for out in self.outputs if out.calls > 1)
        lines += [f"stream: inferences from one new result to the next: {late}"] if late else []
        if self.padding:
            count = len(self.padding) - 1
            who = f"{shorten(self.padding[0])} pads" if not count else f"{shorten(self.padding[0])} and {count} more pad"
            lines.append(f"stream: {who} the recording, not every window: deeploy evaluate says what that changes")
        for band in self.bands:
            limit = ", as many as the window has" if band.is_limited else ""
            lines.append(f"stream: {shorten(band.node)} sees {band.before} columns before{limit}, and {band.after} behind")
        if self.heads:
            lines.append(f"stream: computed of a window, anew in every inference: {shorten(', '.join(self.heads), 200)}, and what follows")
        return lines


@dataclass(frozen=True)
class Streamed:
    """The streamed form of a graph, its states, and masks (``Streaming.masks``); ``source`` is the graph, over a window."""

    source: Graph
    wanted: StreamAxis
    graph: Graph
    stream: StreamDescription
    pairs: tuple[Pair, ...]
    masks: Mapping[str, np.ndarray]


def find_source(graph: Graph, wanted: StreamAxis) -> tuple[Tensor, int]:
    """The streamed input and its axis.

    Raises:
        UsageError: there is none.
    """
    source = next((t for t in graph.inputs if t.name == wanted.input), None)
    if source is None:
        listed = ", ".join(shorten(t.name) for t in graph.inputs)
        raise UsageError(f"--stream {shorten(str(wanted))}: the model has no input {shorten(wanted.input)}", f"Its inputs: {listed}.")
    if not -source.rank <= wanted.axis < source.rank or source.shape[wanted.axis] < 2:
        axes = ", ".join(f"{i} ({n} columns)" for i, n in enumerate(source.shape) if n > 1)
        raise UsageError(f"--stream {shorten(str(wanted))}: a window has several columns", f"Axes of {shorten(source.name)}: {axes}.")
    return source, wanted.axis % source.rank


def stream_graph(graph: Graph, wanted: StreamAxis, is_window: bool = False) -> Streamed:
    """The network over a hop for one over a window.

    Raises:
        UsageError: there is no such axis.
        UnsupportedError: nothing streams, or not as a sliding window.
    """
    file, graph = graph, forms.OPERATORS(graph)
    source, axis = find_source(graph, wanted)
    sums = WindowSums()

    def walk(hop: int, needs: Needs | None = None) -> Streaming:
        walked = Streaming(graph, source, axis, hop, needs, is_window, sums)
        walked.run()
        return walked

    first = walk(_ANY_HOP)
    hop = wanted.hop or find_common_hop([*first.courses.values(), *(Course(0, period) for period in first.steps.values())])
    _check_blocks(first, hop)
    if first.heads and all(t is source for t in first.courses):
        raise UnsupportedError(
            f"{first.heads[0]} needs the whole window of input {shorten(source.name)}",
            "Nothing in front of it streams; leave --stream out.",
        )
    counted = graph  # whose products are those of the file
    graph, sums = split_pools(walk(hop))
    reach = find_reach(walk(hop).windows)
    final = walk(hop, Needs(share_states(walk(hop, Needs(reach=reach)).wanted), reach))
    outputs = tuple(_keep_name(final.of(t), t) for t in graph.outputs)
    inputs = tuple(final.of(t) for t in graph.inputs)
    pasts, ends = zip(*final.ends, strict=True) if final.ends else ((), ())
    told = tuple(_describe(final, t, reach) for t in graph.outputs)
    periods = {name: calls for name, calls in (*((out.name, out.calls) for out in told), *final.periods.items()) if calls > 1}
    made = replace(graph, inputs=(*inputs, *pasts, *final.mask_inputs.values()), outputs=(*outputs, *ends), periods=periods)
    made = name_all(made)
    least_products = _count_least(counted, replace(wanted, hop=hop), told)
    counts = count_products(made), least_products, count_products(counted)
    seen = (SeenBand(str(node), b.block, b.before, b.after, b.is_limited) for node, b in final.bands.items())
    heads, padding = (tuple(map(str, nodes)) for nodes in (final.heads, final.padding))
    stream = StreamDescription(source.name, axis, source.shape[axis], hop, told, heads, padding, tuple(seen), *counts)
    return Streamed(file, wanted, made, stream, tuple(final.pairs), final.masks)


def _check_blocks(walked: Streaming, hop: int) -> None:
    """Raise where a hop ends within a block of an attention."""
    for node, period in walked.steps.items():
        if hop % period:
            what = f"{node} sees columns in blocks of {walked.bands[node].block}: a hop of {hop} columns of the input ends within one"
            raise UnsupportedError(what, f"Give a hop that is a multiple of {Fraction(period).numerator}.")


def _count_least(graph: Graph, wanted: StreamAxis, outputs: Sequence[StreamedOutput]) -> int:
    """The products of the lengthened network that a further hop takes in the mean, and of the windows of one call."""
    calls = math.lcm(*(output.calls for output in outputs))
    hop = (wanted.hop or 0) * calls
    columns = -(-_LONG // hop) * hop + next(t for t in graph.inputs if t.name == wanted.input).shape[wanted.axis]
    shorter, longer = (lengthen_graph(graph, wanted, columns + more, True) for more in (0, hop))
    heads = next((calls // output.calls for output in outputs if output.axis is None), 0)
    return -(-(count_products(longer.body) - count_products(shorter.body) + count_products(longer.head) * heads) // calls)


def _keep_name(made: Tensor, output: Tensor) -> Tensor:
    """What stands for an output, under its name."""
    if made.name == output.name:
        return made
    return compute("Reshape", made, shape=made.shape, dtype=made.dtype, name=output.name)


def _describe(walked: Streaming, output: Tensor, reach: int) -> StreamedOutput:
    course = walked.courses.get(output)
    if course is None:
        calls = math.lcm(*(walked.calls(course.period) for course, _ in walked.windows)) if output in walked.whole else 1
        reach = reach if output in walked.whole else 0
        return StreamedOutput(output.name, None, 0, walked.hop * calls, max(0, reach - walked.columns_in_file(walked.source)), calls, reach)
    calls = walked.calls(course.period)
    if course.period != int(course.period):
        what = f"output {shorten(output.name)} has {walked.columns(output)} columns for {walked.hop * calls} of the input"
        raise UnsupportedError(what, "Let the network end in layers that have one column for a whole number of those of the input.")
    period = int(course.period)
    return StreamedOutput(output.name, course.axis, walked.columns(output), period, course.delay * period, calls)


@dataclass(frozen=True)
class Lengthened:
    """What a stream means: the network along a recording, and what is computed of each window of it.

    Attributes:
        body: whose outputs are those that stream, and what windows are cut from, in the order of ``cuts``.
        cuts: where windows are cut from, how many columns these have in the file, how many a window has, and what stands before the
            recording.
        head: whose inputs are windows, and others of the network, and whose outputs are those that need them.
    """

    body: Graph
    cuts: tuple[tuple[Tensor, Course, int, int, float], ...]
    head: Graph


def lengthen_graph(graph: Graph, wanted: StreamAxis, columns: int, is_sketch: bool = False) -> Lengthened:
    """The network for a recording of so many columns; of a sketch, products can be counted alone."""
    graph = forms.OPERATORS(graph)
    source, axis = find_source(graph, wanted)
    walked = Recording(graph, source, axis, columns, is_sketch)
    walked.run()
    streamed = [walked.of(t) for t in graph.outputs if t in walked.courses]
    cuts = [walked.of(tensor) for tensor, _, _ in walked.windows.values()]
    body = replace(graph, inputs=tuple(walked.of(t) for t in graph.inputs), outputs=tuple(dict.fromkeys((*streamed, *cuts))))
    outputs = tuple(_keep_name(walked.of(t), t) for t in graph.outputs if t in walked.whole)
    others = [t for t in graph.inputs if t is not source]
    head = replace(graph, inputs=(*walked.windows, *others), outputs=outputs)
    head = replace(head, inputs=tuple(t for t in head.inputs if t not in others or t in head.readers))
    windows = walked.windows.items()
    places = [(tensor, course, walked.columns_in_file(tensor), own.shape[course.axis], fill) for own, (tensor, course, fill) in windows]
    return Lengthened(name_all(body), tuple(places), name_all(head))
