"""The golden model: a Program executed by the kernels' NumPy references.

Every buffer is an array of its own, so that nothing is ever overwritten by reuse of memory: what the interpreter computes
is what the Program means, whatever a plan does with addresses.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from deeploy.graph import epilogue
from deeploy.graph.nodes import Node
from deeploy.midend.bind import operand_names
from deeploy.midend.program import Call, Operand, Program, Role
from deeploy.operators.views import Access


def interpret(program: Program, inputs: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """Run one inference and return the value of every buffer that is not constant, by buffer name.

    Args:
        inputs: one array per network input, in order, of the input's shape and type.
    """
    memory = {
        b.name: np.zeros(math.prod(b.shape), b.dtype.numpy) for b in program.buffers.values() if b.role not in (Role.CONSTANT, Role.SCRATCH)
    }
    for name, array in zip(program.inputs, inputs, strict=True):
        memory[name][:] = np.asarray(array, memory[name].dtype).ravel()
    for call in program.calls:
        _execute(program, call, memory)
    return {name: flat.reshape(program.buffers[name].shape) for name, flat in memory.items()}


def outputs(program: Program, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The network's outputs for one inference, in order."""
    memory = interpret(program, inputs)
    return [memory[name] for name in program.outputs]


def tensor_value(program: Program, memory: Mapping[str, np.ndarray], tensor: str) -> np.ndarray | None:
    """The value of a tensor of the graph after an inference, or None where it lies in no buffer of the program.

    Only meaningful where later calls do not write to the same place, which holds since every buffer is written once.
    """
    place = program.tensors.get(tensor)
    if place is None or place.buffer not in memory:
        return None
    return window(memory[place.buffer].ravel(), place.access).copy()


def _execute(program: Program, call: Call, memory: dict[str, np.ndarray]) -> None:
    names = operand_names(call.kernel, call.node)
    assert names is not None
    arrays: dict[str, np.ndarray | None] = {}
    for name, tensor in zip(names, call.node.inputs, strict=True):
        if tensor is None:
            arrays[name] = None
        elif tensor.data is not None:
            arrays[name] = tensor.data
        else:
            arrays[name] = _read(call.operands[name], memory)
    for name, value in zip(call.kernel.outputs, evaluate(call, arrays), strict=True):
        place = call.operands[name]
        window(memory[place.buffer], place.access)[...] = value


def evaluate(call: Call, arrays: Mapping[str, np.ndarray | None]) -> tuple[np.ndarray, ...]:
    """The outputs of one call from its operands by name, in graph layout."""
    node: Node = call.node
    stages = epilogue.operands(node.epilogue)
    body = [array for name, array in arrays.items() if name not in stages]
    result = call.kernel.reference(node, *body)
    values = result if isinstance(result, tuple) else (result,)
    if node.epilogue:
        values = (epilogue.apply(node, values[0], {n: a for n, a in arrays.items() if a is not None}), *values[1:])
    return tuple(np.asarray(v).astype(t.dtype.numpy).reshape(t.shape) for v, t in zip(values, node.outputs, strict=True))


def _read(operand: Operand, memory: Mapping[str, np.ndarray]) -> np.ndarray:
    return window(memory[operand.buffer], operand.access).copy()


def window(flat: np.ndarray, access: Access) -> np.ndarray:
    """The elements that an access reaches in a flat array, as a view of it."""
    if 0 in access.shape:
        return np.zeros(access.shape, flat.dtype)
    strides = tuple(s * flat.itemsize for s in access.strides)
    return np.lib.stride_tricks.as_strided(flat[access.offset :], access.shape, strides)
