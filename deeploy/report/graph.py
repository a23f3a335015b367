"""The network as a picture: a box for every layer, in the colour of its engine, with the size of the tensor that it makes.

Layers are drawn in their order, downwards; lines lead from the layer that makes a tensor to those that read it. Lines to the next layer are
straight, others run in lanes to the right, as many as are needed at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from deeploy.documents import Document
from deeploy.report.blocks import layer_labels
from deeploy.report.markup import legend, name, number, section, tag, text
from deeploy.report.text import call_instance

_WIDE, _HIGH, _GAP, _LEFT = 300, 30, 16, 8  # pixels of a box, between boxes, and beside them
_LANE = 12  # pixels between two lines
_LETTERS = 28  # of a label
_MOST_LANES = 24
COLOURS = 6  # of engines, in the style sheet


def graph_section(entry: Document) -> str:
    """The section with the picture of one network; its entry of ``deploy.json``."""
    calls: Sequence[Document] = entry["calls"]
    engines = list(dict.fromkeys(call["engine"] for call in calls))
    edges = _layer_edges(entry)
    lanes, count = _assign_lanes([edge for edge in edges if edge[1] > edge[0] + 1])
    height, width = len(calls) * (_HIGH + _GAP) + _GAP, _LEFT + _WIDE + _LANE * (min(count, _MOST_LANES) + 2)
    parts = [_draw_line(source, reader, lanes.get((source, reader))) for source, reader in edges]
    sizes = _tensor_sizes(entry)
    for step, (call, label) in enumerate(zip(calls, layer_labels(calls), strict=True)):
        parts.append(_draw_box(entry, step, call, label, engines.index(call["engine"]) % COLOURS, sizes))
    drawn = tag("svg", *parts, viewBox=f"0 0 {width} {height}", width=width, height=height, role="img", aria_label="graph of layers")
    colours = legend((f"engine{number_ % COLOURS}", text(engine)) for number_, engine in enumerate(engines))
    note = "Boxes are layers with the bytes of their output; lines are tensors. Arrow keys move from box to box."
    return section("Graph", colours, tag("div", drawn, class_="graph", id=f"graph-{entry['name']}"), note=note)


def _layer_edges(entry: Document) -> list[tuple[int, int]]:
    """From the layer that makes a tensor to those that read it: the first that names a buffer makes it, unless it is the caller's."""
    given = {constant["name"] for constant in entry["constants"]}
    names = {single: buffer["name"] for buffer in entry["buffers"] for single in buffer["name"].split("=")}
    makers: dict[str, int] = {}
    edges: dict[tuple[int, int], None] = {}
    for step, call in enumerate(entry["calls"]):
        *read, made = call["operands"].values() or [""]
        for buffer in read:
            source = makers.get(buffer)
            if source is not None and buffer not in given:
                edges[source, step] = None
        makers[made] = step
        makers.setdefault(names.get(made, made), step)
    return [edge for edge in edges if edge[0] < edge[1]]


def _assign_lanes(edges: Sequence[tuple[int, int]]) -> tuple[dict[tuple[int, int], int], int]:
    """A lane for every line that passes layers, so that no two share one at the same height; and how many lanes there are."""
    ends: list[int] = []
    lanes = {}
    for source, reader in sorted(edges):
        lane = next((number_ for number_, end in enumerate(ends) if end <= source), len(ends))
        ends[lane : lane + 1] = [reader]
        lanes[source, reader] = min(lane, _MOST_LANES - 1)
    return lanes, len(ends)


def _layer_top(step: int) -> int:
    return _GAP + step * (_HIGH + _GAP)


def _draw_line(source: int, reader: int, lane: int | None) -> str:
    start, end = _layer_top(source) + _HIGH, _layer_top(reader)
    if lane is None:
        middle = _LEFT + _WIDE / 2
        return f'<path class="edge" d="M{middle:.0f} {start}V{end}"/>'
    right, at = _LEFT + _WIDE, _LEFT + _WIDE + _LANE * (lane + 1)
    return f'<path class="edge" d="M{right} {start - _HIGH // 2}H{at}V{end + _HIGH // 2}H{right}"/>'


def _tensor_sizes(entry: Document) -> dict[str, int]:
    """Bytes of every tensor in an arena."""
    return {single: buffer["bytes"] for buffer in entry["buffers"] for single in buffer["name"].split("=")}


def _draw_box(entry: Document, step: int, call: Document, label: str, colour: int, sizes: dict[str, int]) -> str:
    made = list(call["operands"].values())[-1:] or [""]
    size = f"{number(sizes[made[0]])} B" if made[0] in sizes else ""
    cycles = f"\n{number(call['cycles'])} cycles" if call["cycles"] is not None else ""
    title = f"{name(call['node'], 200)}\n{name(call['op'], 40)}, by {text(call_instance(call))} on {text(call['engine'])}{cycles}"
    y = _layer_top(step)
    shape = f'<rect class="engine{colour}" x="{_LEFT}" y="{y}" width="{_WIDE}" height="{_HIGH}"><title>{title}</title></rect>'
    words = f"{step} {name(call['op'], 14)} {_shorten_label(label, max(6, _LETTERS - min(14, len(call['op']))))}"
    texts = f'<text class="label" x="{_LEFT + 8}" y="{y + 19}">{words}</text>'
    texts += f'<text class="label" x="{_LEFT + _WIDE - 8}" y="{y + 19}" text-anchor="end">{size}</text>' if size else ""
    return f'<g class="block" data-step="{step}">{shape}{texts}</g>'


def _shorten_label(label: str, letters: int) -> str:
    """A label of so many letters, as HTML: its end, which is what names differ in, and as much of its beginning as there is room for."""
    if len(label) <= letters:
        return name(label, 200)
    end = letters * 2 // 3
    return f"{name(label[: letters - end - 1], 200)}\u2026{name(label[-end:], 200)}"
