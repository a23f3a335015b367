"""The golden model: a Program executed by the kernels' NumPy references.

Every buffer is an array of its own, so that nothing is ever overwritten by reuse of memory: what the interpreter computes
is what the Program means, whatever a plan does with addresses.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from deeploy.errors import UsageError
from deeploy.ir import epilogue
from deeploy.ir.nodes import Node, Tensor
from deeploy.operators.views import Access
from deeploy.planning.binding.kernels import operand_names
from deeploy.planning.program import Call, Program, Role


@dataclass
class StateRows:
    """What a network's states hold between two inferences, and outputs that are not always new: flat arrays by buffer; and how many rows
    there are."""

    count: int = 0
    memory: dict[str, np.ndarray] = field(default_factory=dict)


def interpret_program(program: Program, inputs: Sequence[np.ndarray], rows: StateRows | None = None) -> dict[str, np.ndarray]:
    """Run one inference and return the value of every buffer that is not constant, by buffer name.

    Args:
        inputs: one array per network input, in order, of the input's shape and type.
        rows: the states, which the inference adds to; without them, it is the first of a sequence.

    Raises:
        UsageError: the states have no room for the rows of the inference.
    """
    rows = rows if rows is not None else StateRows()
    memory = begin_inference(program, inputs, rows)
    for call in program.calls:
        execute_call(program, call, memory, rows.count)
    return end_inference(program, memory, rows)


def begin_inference(program: Program, inputs: Sequence[np.ndarray], rows: StateRows) -> dict[str, np.ndarray]:
    """The memory at the beginning of an inference: flat arrays by buffer; as ``interpret_program``."""
    dynamic_length = program.dynamic_length
    if dynamic_length is not None and dynamic_length.resumed is not None and rows.count == dynamic_length.context:
        rows.count = dynamic_length.resumed
    if dynamic_length is not None and rows.count + dynamic_length.rows > dynamic_length.context:
        raise UsageError(
            f"position {rows.count}: the states hold at most {dynamic_length.context} rows",
            "Give shorter sequences, or compile with a larger --context.",
        )
    if dynamic_length is not None and dynamic_length.begins and rows.count:
        raise UsageError(
            f"position {rows.count}: the network begins sequences", "Run it where there are no rows, and go on with the other one."
        )
    memory = {
        b.name: np.zeros(math.prod(b.shape), b.dtype.numpy) for b in program.buffers.values() if b.role not in (Role.CONSTANT, Role.SCRATCH)
    }
    memory |= rows.memory
    if dynamic_length is not None and dynamic_length.position is not None:
        memory[dynamic_length.position][:] = rows.count
    for name, array in zip(program.inputs, inputs, strict=True):
        memory[name][:] = np.asarray(array, memory[name].dtype).ravel()
    return memory


def end_inference(program: Program, memory: Mapping[str, np.ndarray], rows: StateRows) -> dict[str, np.ndarray]:
    """Keep the states in ``rows``; returns every buffer in its shape."""
    dynamic_length = program.dynamic_length
    if dynamic_length is not None:
        rows.count += dynamic_length.rows
        rows.memory = {state.buffer: memory[state.buffer] for state in dynamic_length.states}
        rows.memory |= {name: memory[name].copy() for name in program.outputs if program.period > 1}
    return {name: flat.reshape(program.buffers[name].shape) for name, flat in memory.items()}


def network_outputs(program: Program, inputs: Sequence[np.ndarray], rows: StateRows | None = None) -> list[np.ndarray]:
    """The network's outputs for one inference, in order."""
    memory = interpret_program(program, inputs, rows)
    return [memory[name] for name in program.outputs]


def execute_call(program: Program, call: Call, memory: dict[str, np.ndarray], past: int) -> None:
    """Run a call, where it is its turn, on the rows that exist: ``past`` ones and those of the inference. Sends and Recvs are not for
    here."""
    rows = past + program.dynamic_length.rows if program.dynamic_length is not None else 0
    if not call.runs(rows):
        return
    names = operand_names(call.kernel, call.node)
    assert names is not None
    places = {name: access_at(program, call, name, past) for name in call.operands}
    arrays: dict[str, np.ndarray | None] = {}
    inputs: list[Tensor | None] = []
    for name, tensor in zip(names, call.node.inputs, strict=True):
        if tensor is None:
            arrays[name] = None
        elif tensor.data is not None:
            shape = tensor.shape if name in call.kernel.layouts else current_shape(call, name, tensor.shape, rows)
            tensor = _cut_tensor(tensor, shape)
            arrays[name] = tensor.data
        else:
            tensor = _cut_tensor(tensor, places[name].shape)
            buffer = program.buffers[call.operands[name].buffer]
            flat = buffer.data.ravel() if buffer.data is not None else memory[buffer.name]
            arrays[name] = window_view(flat, places[name]).copy()
        inputs.append(tensor)
    results = tuple(_cut_tensor(t, places[name].shape) for name, t in zip(call.kernel.outputs, call.node.outputs, strict=True))
    is_whole = all(a is b for a, b in zip((*inputs, *results), (*call.node.inputs, *call.node.outputs), strict=True))
    current = call if is_whole else replace(call, node=replace(call.node, inputs=tuple(inputs), outputs=results))
    for name, value in zip(call.kernel.outputs, evaluate_call(current, arrays), strict=True):
        window_view(memory[call.operands[name].buffer], places[name])[...] = value


def _cut_tensor(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A tensor with as many elements along every axis as there are of it now; itself where these are all."""
    if tensor.shape == shape:
        return tensor
    return replace(tensor, shape=shape, data=None if tensor.data is None else tensor.data[tuple(map(slice, shape))])


def current_shape(call: Call, name: str, shape: tuple[int, ...], rows: int) -> tuple[int, ...]:
    """The shape of an operand, cut to the rows that exist."""
    nest, dynamic = call.geometry.nest, call.geometry.dynamic
    access = next((phase.maps()[name] for phase in (nest, *nest.phases) if name in phase.maps()), None)
    if access is None or not dynamic:
        return shape
    bare = [axis.bare() for axis in access.axes]
    return tuple(rows if n > 1 and d is not None and d.name in dynamic else n for n, d in zip(shape, bare, strict=True))


def access_at(program: Program, call: Call, name: str, past: int = 0) -> Access:
    """What a call sees of an operand's buffer when ``past`` rows exist before the inference."""
    operand = call.operands[name]
    if program.dynamic_length is None:
        return operand.access
    rows = past + program.dynamic_length.rows
    return replace(
        operand.access,
        offset=operand.access.offset + operand.moved_elements(past),
        shape=current_shape(call, name, operand.access.shape, rows),
    )


def evaluate_call(call: Call, arrays: Mapping[str, np.ndarray | None]) -> tuple[np.ndarray, ...]:
    """The outputs of one call from its operands by name, in graph layout."""
    node: Node = call.node
    stages = epilogue.stage_operands(node.epilogue)
    body = [array for name, array in arrays.items() if name not in stages]
    with np.errstate(all="ignore"):  # infinities and what is no number are results like others, as in C
        result = call.kernel.reference(node, *body)
    values = result if isinstance(result, tuple) else (result,)
    if node.epilogue:
        values = (epilogue.apply_stages(node, values[0], {n: a for n, a in arrays.items() if a is not None}), *values[1:])
    return tuple(np.asarray(v).astype(t.dtype.numpy).reshape(t.shape) for v, t in zip(values, node.outputs, strict=True))


def window_view(flat: np.ndarray, access: Access) -> np.ndarray:
    """The elements that an access reaches in a flat array, as a view of it."""
    if 0 in access.shape:
        return np.zeros(access.shape, flat.dtype)
    strides = tuple(s * flat.itemsize for s in access.strides)
    return np.lib.stride_tricks.as_strided(flat[access.offset :], access.shape, strides)
