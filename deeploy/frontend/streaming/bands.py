"""Attention along a recording: every block of columns meets the columns that it sees (``attention``), and no others.

Scores [..., T, T] become [..., blocks, block, width]; of one block, [..., block, width]. Constants are those of a block. Where a column
that a block would see is not of the recording, what hides others hides it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from deeploy.frontend.streaming.attention import SOFTMAXES, Band, find_band, list_constants, stored_constant
from deeploy.frontend.streaming.walk import CourseWalk, Meeting, replace_name
from deeploy.ir.nodes import Node, Tensor, constant, where
from deeploy.ir.rewriting import need, require


def stream_attention(walk: CourseWalk, node: Node) -> bool:
    """An attention by its last product."""
    attention = walk.attentions[node]
    (q, k), v = attention.scores.operands, node.operands[1]
    courses = [need(walk.courses.get(tensor)) for tensor in (q, k, v)]
    require([course.axis for course in courses] == [q.rank - 2, k.rank - 1, v.rank - 2], len({course.period for course in courses}) == 1)
    require(walk.columns_in_file(q) == walk.columns_in_file(v))
    band = find_band(attention)
    met = walk.meet(node, q, k, v, band)
    now = {q: met.queries, k: met.keys}
    for each in attention.nodes:
        now[each.outputs[0]] = _remake(each, now, band, met)
    scores, y = now[node.operands[0]], node.outputs[0]
    shape = *scores.shape[:-1], y.shape[-1]
    is_whole = met.blocks == 1 and met.columns == band.block
    made = node.another(inputs=(scores, met.values), outputs=[replace(y, name=y.name if is_whole else "", shape=shape, label="blocks")])
    result = made.outputs[0]
    if not is_whole:
        joined = result.reshape((*y.shape[:-2], met.blocks * band.block, shape[-1])).cut(y.rank - 2, 0, met.columns)
        result = replace_name(joined, replace(y, shape=joined.shape))
    walk.now[y], walk.courses[y] = result, replace(met.course, axis=y.rank - 2)
    walk.bands[node] = band
    return True


def _remake(node: Node, now: Mapping[Tensor, Tensor], band: Band, met: Meeting) -> Tensor:
    """What a node between the products makes of blocks."""
    given, y = list_constants(node), node.outputs[0]
    inputs = list[Tensor | None]()
    for tensor in node.inputs:
        if tensor is None or tensor in now:
            inputs.append(tensor and now[tensor])
        elif tensor in given and tensor.elements > 1:
            inputs.append(_remake_constant(tensor, band, met))
        else:
            require(tensor in given or (tensor.data is not None and (tensor.elements == 1 or node.op == "LookUp")))
            inputs.append(tensor)
    tail = (band.block, band.width) if met.blocks == 1 else (met.blocks, band.block, band.width)
    shape = *y.shape[:-2], *tail
    attrs = {**node.attrs, "axis": len(shape) - 1} if node.op in SOFTMAXES and "axis" in node.attrs else node.attrs
    return node.another(inputs=tuple(inputs), outputs=[replace(y, shape=shape)], attrs=attrs).outputs[0]


def _remake_constant(tensor: Tensor, band: Band, met: Meeting) -> Tensor:
    """A constant for blocks: what they see of it, and what hides where a column is not of the recording."""
    stored = stored_constant(tensor)
    array = band.constants.get(tensor, need(stored.data))
    if met.blocks > 1 and array.ndim > 2:
        array = array.reshape((*array.shape[:-2], 1, *array.shape[-2:]))
    result, hidden = constant(array, stored.dtype, "seen"), band.hidden.get(tensor)
    if met.shown is not None and hidden is not None:
        result = _hide(result, met.shown, hidden)
    if stored is tensor:
        return result
    node = need(tensor.maker)
    wide = Tensor("", result.shape, tensor.dtype, label="seen")
    return node.another(name="", inputs=(result, *node.inputs[1:]), outputs=(wide,)).outputs[0]


def _hide(seen: Tensor, shown: Tensor, hidden: np.generic) -> Tensor:
    """A constant with the element that hides where columns are not shown."""
    if not isinstance(hidden, np.bool_):
        return where(shown, seen, constant(hidden, seen.dtype))
    if not hidden:
        return seen.apply("And", shown)
    return seen.apply("Or", shown.apply("Not") if shown.data is None else constant(~shown.data))
