"""Control flow without a trace of it: the branch of an ``If`` that is taken, the rounds of a ``Loop`` and a ``Scan`` one behind the other.

Conditions and numbers of rounds have to be constant, in the model or because inputs are pinned; an ``If`` may also become a choice between
the results of both branches. Where rounds would be more nodes than the budget allows, the loop stays one (``deeploy.frontend.rounds``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from deeploy.errors import DeeployError, ModelError, UnsupportedError, shorten
from deeploy.frontend.branches import is_heavy, unfold_nodes
from deeploy.frontend.predicates import Known, type_of, type_text, value_of
from deeploy.frontend.rounds import LoopTensors, keep_loop_node
from deeploy.frontend.shapes import read_type
from deeploy.frontend.structure import CONTROL, Scanned, body_of, check_and_sort, describe_node, if_branches, scan_attributes
from deeploy.frontend.walk import GraphWalk


def choose_branch(walk: GraphWalk, node: onnx.NodeProto) -> None:
    """Take the branch of an ``If`` whose condition is constant; both where it is not, and choose between their results."""
    condition, (then, otherwise) = _read_condition(walk, node, node.input[0]), if_branches(node)
    if (value := value_of(condition)) is not None:
        _walk_copy(walk, then if value.item() else otherwise, [], node.output)
        return
    hint = walk.pinning([condition], 1)
    if hint and (is_heavy(then) or is_heavy(otherwise)):
        raise UnsupportedError(f"{describe_node(node)} chooses at run time between branches with expensive operators", hint)
    results = [[walk.known.fresh(f"{name}_{end}") if name else "" for name in node.output] for end in ("then", "else")]
    try:
        for branch, names in zip((then, otherwise), results, strict=True):
            _walk_copy(walk, branch, [], names)
    except DeeployError as error:
        raise type(error)(error.what, hint or error.remedy) from error
    for name, one, other in zip(node.output, *results, strict=True):
        if name:
            _select_result(walk, node, (one, other, name), hint)


def _select_result(walk: GraphWalk, node: onnx.NodeProto, names: tuple[str, str, str], hint: str) -> None:
    """A result of both branches: ``names`` are those of the first, of the second, and of what is chosen."""
    one, other = (type_text(walk.tensors[name]) for name in names[:2])
    if one != other:
        raise UnsupportedError(
            f"{describe_node(node)} computes '{shorten(names[2])}' as {one} or {other}, as its condition says at run time",
            hint or "export the model with a fixed condition",
        )
    walk.over([helper.make_node("Where", [node.input[0], *names[:2]], names[2:], name=node.name)])


def _walk_copy(walk: GraphWalk, graph: onnx.GraphProto, given: Sequence[str], results: Sequence[str]) -> None:
    """Walk over a copy of a branch or body: its inputs are the tensors ``given``, its outputs get the names ``results``."""
    around = walk.known.taken.union(walk.tensors)
    walk.over(unfold_nodes(graph, check_and_sort(graph, around), given, results, walk.known))


def _read_condition(walk: GraphWalk, node: onnx.NodeProto, name: str) -> Known:
    condition = walk.tensors[name]
    if type_of(condition) != np.bool_ or math.prod(condition.shape) != 1:
        raise ModelError(f"{describe_node(node)} has a condition of type {type_text(condition)}", "give it one element of type bool")
    return condition


def _condition_holds(walk: GraphWalk, node: onnx.NodeProto, name: str) -> bool:
    """The value of a loop's condition."""
    condition = _read_condition(walk, node, name)
    value = value_of(condition)
    if value is None:
        hint = walk.pinning([condition], 1) or "export the model with a fixed number of iterations"
        raise UnsupportedError(f"{describe_node(node)} has a condition that is computed at run time", hint)
    return bool(value.item())


def _count_rounds(walk: GraphWalk, node: onnx.NodeProto, name: str) -> int | None:
    """The number of rounds of a loop at most; None where only its condition ends it."""
    if not name:
        return None
    count = walk.tensors[name]
    if type_of(count) != np.int64 or math.prod(count.shape) != 1:
        raise ModelError(f"{describe_node(node)} has a number of iterations of type {type_text(count)}", "give it one int64")
    value = value_of(count)
    if value is None:
        hint = walk.pinning([count], 1) or "export the model with a fixed number of iterations"
        raise UnsupportedError(f"{describe_node(node)} has a number of iterations that is computed at run time", hint)
    return int(value.item())


def unroll_loop(walk: GraphWalk, node: onnx.NodeProto) -> None:
    """The rounds of a ``Loop``, one behind the other."""
    body, carried = body_of(node), list(node.input[2:])
    most = _count_rounds(walk, node, node.input[0])
    going = not node.input[1] or _condition_holds(walk, node, node.input[1])
    why, parts = "", len(body.output) - 1 - len(carried)
    plan = Scanned(len(carried), (), (), [0] * parts, [False] * parts)
    if going and most is not None and _is_long(walk, body, most):
        results = [*node.output, *[""] * (len(body.output) - 1 - len(node.output))]
        why = _keep_loop(walk, node, body, most, LoopTensors(carried, [], [], results, plan.output_reversed))
        if not why:
            return

    def begin(number: int, carried: Sequence[str]) -> list[str]:
        return [_add_constant(walk, node, "round", np.int64(number)), _add_constant(walk, node, "condition", np.bool_(True)), *carried]

    _unroll_rounds(walk, node, body, plan, begin, carried, most if going else 0, why)


def unroll_scan(walk: GraphWalk, node: onnx.NodeProto) -> None:
    """The rounds of a ``Scan``: each reads the next part of some inputs, and adds a part to some outputs."""
    body = body_of(node)
    plan = scan_attributes(node, body)
    carried, sources = list(node.input[: plan.carried]), list(node.input[plan.carried :])
    _check_version(walk, node)
    axes = [_scan_axis(node, axis, len(walk.tensors[name].shape)) for name, axis in zip(sources, plan.input_axes, strict=True)]
    lengths = {int(walk.tensors[name].shape[axis]) for name, axis in zip(sources, axes, strict=True)}
    if len(lengths) != 1:
        raise ModelError(f"{describe_node(node)} reads inputs of {sorted(lengths)} parts", "give all of them as many")
    (length,) = lengths
    why = _keep_scan(walk, node, body, plan, axes) if _is_long(walk, body, length) else ""
    if _is_long(walk, body, length) and not why:
        return

    def begin(number: int, carried: Sequence[str]) -> list[str]:
        parts = zip(sources, axes, plan.input_reversed, strict=True)
        return [*carried, *(_take_part(walk, node, entry, number, length) for entry in parts)]

    _unroll_rounds(walk, node, body, plan, begin, carried, length, why)


def _unroll_rounds(
    walk: GraphWalk,
    node: onnx.NodeProto,
    body: onnx.GraphProto,
    plan: Scanned,
    begin: Callable[[int, Sequence[str]], list[str]],
    carried: Sequence[str],
    most: int | None,
    why: str,
) -> None:
    """Rounds one behind the other, and the node's results.

    Args:
        begin: gives the inputs of the body in a round, to which tensors are handed.
        most: rounds; None where only the condition that the body leaves ends them.
        why: the loop cannot stay one.
    """
    first = len(body.output) - len(plan.output_axes)
    collected: list[list[str]] = [[] for _ in plan.output_axes]
    number, going = 0, True
    while going and (most is None or number < most):
        walk.spend(node, 1 + len(body.node), why)
        given = begin(number, carried)
        results = [walk.known.fresh(f"{value.name}_{number}") for value in body.output]
        _walk_copy(walk, body, given, results)
        going, carried = first == plan.carried or _condition_holds(walk, node, results[0]), results[first - plan.carried : first]
        for rows, name in zip(collected, results[first:], strict=True):
            rows.append(name)
        number += 1
    _hand_on(walk, carried, node.output)
    ends = zip(body.output[first:], collected, plan.output_axes, plan.output_reversed, node.output[plan.carried :], strict=False)
    for value, rows, axis, is_reversed, name in ends:
        if name:
            _stack_results(walk, node, value, rows[::-1] if is_reversed else rows, axis, name)


def _is_long(walk: GraphWalk, body: onnx.GraphProto, rounds: int) -> bool:
    """Whether so many rounds are more nodes than the budget has left."""
    return walk.unrolled + rounds * (1 + len(body.node)) > walk.budget


def _keep_loop(walk: GraphWalk, node: onnx.NodeProto, body: onnx.GraphProto, rounds: int, ends: LoopTensors) -> str:
    """Let a loop stay one; why that cannot be, or ""."""
    try:
        keep_loop_node(walk, node, body, rounds, ends)
    except UnsupportedError as error:
        return error.what
    return ""


def _keep_scan(walk: GraphWalk, node: onnx.NodeProto, body: onnx.GraphProto, plan: Scanned, axes: Sequence[int]) -> str:
    """The same of a ``Scan``: parts are read and left along the first axis, which others are brought to."""
    label, sources = node.name or node.output[0], node.input[plan.carried :]
    given = [_move_axis(walk, label, name, axis, 0) for name, axis in zip(sources, axes, strict=True)]
    results = [*node.output, *[""] * (len(body.output) - len(node.output))]
    parts = [name and walk.known.fresh(f"{name}_parts") for name in results[plan.carried :]]
    ends = LoopTensors(node.input[: plan.carried], given, plan.input_reversed, [*results[: plan.carried], *parts], plan.output_reversed)
    why = _keep_loop(walk, node, body, int(walk.tensors[given[0]].shape[0]), ends)
    for name, part, axis in zip(results[plan.carried :], parts, plan.output_axes, strict=True):
        if name and not why:
            walk.tensors[name] = walk.tensors[_move_axis(walk, label, part, 0, _scan_axis(node, axis, len(walk.tensors[part].shape)))]
    return why


def _move_axis(walk: GraphWalk, label: str, name: str, axis: int, to: int) -> str:
    """A tensor with an axis in another place."""
    order = [at for at in range(len(walk.tensors[name].shape)) if at != axis]
    order.insert(to, axis)
    if order == sorted(order):
        return name
    moved = walk.known.fresh(f"{name}_moved")
    walk.over([helper.make_node("Transpose", [name], [moved], f"{label}_moved", perm=order)])
    return moved


def _check_version(walk: GraphWalk, node: onnx.NodeProto) -> None:
    if walk.version < 9:
        raise UnsupportedError(f"{describe_node(node)} is of opset 8, where it has batches", "export the model with opset 9 or newer")


def _scan_axis(node: onnx.NodeProto, axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise ModelError(f"{describe_node(node)} scans axis {axis} of a tensor of {rank} axes", "correct the model")
    return axis % rank


def _take_part(walk: GraphWalk, node: onnx.NodeProto, entry: tuple[str, int, bool], number: int, length: int) -> str:
    """What a round reads of an input: one index of an axis, from the front or from the back."""
    name, axis, is_reversed = entry
    part = walk.known.fresh(f"{name}_{number}")
    index = _add_constant(walk, node, "index", np.int64(length - 1 - number if is_reversed else number))
    walk.over([helper.make_node("Gather", [name, index], [part], f"{node.name or node.output[0]}_part", axis=axis)])
    return part


def _stack_results(walk: GraphWalk, node: onnx.NodeProto, value: onnx.ValueInfoProto, rows: Sequence[str], axis: int, name: str) -> None:
    """One output of the results of all rounds, along a new axis."""
    if not rows:
        known = read_type(value.type, {})
        if known.static_shape is None or known.dtype is None:
            raise UnsupportedError(
                f"{describe_node(node)} has no iteration, and an output of unknown shape", "leave the loop out of the model"
            )
        shape = list(known.static_shape)
        shape.insert(_scan_axis(node, axis, len(shape) + 1), 0)
        walk.over([helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.zeros(shape, known.dtype), name))])
        return
    shape = list(walk.tensors[rows[0]].shape)
    at = _scan_axis(node, axis, len(shape) + 1)
    wide = _add_constant(walk, node, "shape", np.array([*shape[:at], 1, *shape[at:]], np.int64))
    thick = [walk.known.fresh(f"{row}_part") for row in rows]
    label = f"{node.name or name}_rows"
    walk.over(helper.make_node("Reshape", [row, wide], [part], label) for row, part in zip(rows, thick, strict=True))
    walk.over([helper.make_node("Concat", thick, [name], label, axis=at)])


def _add_constant(walk: GraphWalk, node: onnx.NodeProto, label: str, value: np.generic | np.ndarray) -> str:
    name = walk.known.fresh(f"{node.name or node.output[0]}_{label}")
    walk.over([helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.asarray(value), name))])
    return name


def _hand_on(walk: GraphWalk, names: Sequence[str], results: Sequence[str]) -> None:
    walk.over(helper.make_node("Identity", [name], [result]) for name, result in zip(names, results, strict=False) if result)


UNFOLD: Mapping[str, Callable[[GraphWalk, onnx.NodeProto], None]] = dict(
    zip(CONTROL, (choose_branch, unroll_loop, unroll_scan), strict=True)
)
