"""What a self-test on the device compares: outputs, and the CRC-32 of every layer's result, as the reference computes them."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from deeploy.documents import Contents
from deeploy.errors import UsageError
from deeploy.execution.simulation.interpreter import StateRows, access_at, begin_inference, execute_call, window_view
from deeploy.frontend.arrays import Expected, load_arrays
from deeploy.frontend.pins import Pinned
from deeploy.operators.views import Access
from deeploy.planning.plan import Plan
from deeploy.planning.program import Call, Role

_ALIGNMENT = 16  # bytes, of every array in flash


def describe_self_test(plan: Plan, samples: str | Path, pinned: Sequence[Pinned] = ()) -> Contents:
    """What the template of a network's self-test is told.

    Raises:
        UsageError: layers of the target have results in several memories, or the file does not fit the network.
    """
    program = plan.program
    if not plan.target.is_flat:
        what = f"--self-test: layers of {plan.target.name} have their results in several memories"
        raise UsageError(what, "Compile for a target with one memory, or compare layers with deeploy verify --layers.")
    expected = [Expected(program.buffers[name].tensor, program.buffers[name].shape) for name in program.inputs]
    given = load_arrays(Path(samples), expected, "input", pinned).samples
    layers: list[Contents] = [{"name": call.name, "regions": _list_regions(plan, call), "expected": list[int]()} for call in program.calls]
    outputs, inputs = [], []
    for sample in given:
        arrays = [np.asarray(a).astype(program.buffers[name].dtype.numpy) for a, name in zip(sample, program.inputs, strict=True)]
        inputs.append(arrays)
        memory = begin_inference(program, arrays, StateRows())
        for call, layer in zip(program.calls, layers, strict=True):
            execute_call(program, call, memory, 0)
            crc = 0
            for name in call.writes if layer["regions"] else ():
                crc = zlib.crc32(window_view(memory[call.operands[name].buffer], access_at(program, call, name)).tobytes(), crc)
            layer["expected"].append(crc)
        outputs.append([memory[name].copy() for name in program.outputs])
    exact = [call.kernel.is_exact(call.node) for call in program.calls]
    for layer in layers[exact.index(False) if not all(exact) else len(exact) :]:
        layer["regions"] = []  # last bits are those of a C library
    room = max((len(region[3]) for layer in layers for region in layer["regions"]), default=1)
    for layer in layers:
        layer["regions"] = [(*r[:3], (1,) * (room - len(r[3])) + r[3], (0,) * (room - len(r[4])) + r[4]) for r in layer["regions"]]
    return {
        "id": zlib.crc32(repr([(layer["name"], layer["expected"]) for layer in layers]).encode()),
        "samples": len(given),
        "layers": layers,
        "room": room,
        "is_exact": all(exact),
        "inputs": [_pack_arrays(arrays) for arrays in zip(*inputs, strict=True)],
        "outputs": [_pack_arrays(arrays) for arrays in zip(*outputs, strict=True)],
    }


def _pack_arrays(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """The bytes of equal arrays, one in each row, with at least one byte and a length that keeps rows aligned."""
    rows = [np.frombuffer(array.astype(array.dtype.newbyteorder("<")).tobytes(), np.uint8) for array in arrays]
    return np.stack([np.pad(row, (0, -row.size % _ALIGNMENT or _ALIGNMENT * (not row.size))) for row in rows])


def _list_regions(plan: Plan, call: Call) -> list[tuple[int, int, int, tuple[int, ...], tuple[int, ...]]]:
    """Where a call's results lie when it ends: output or -1 for the arena, offset, bytes of a run, extents and strides of runs.

    None of a layer in a fused group of which only some rows are there.
    """
    program, held = plan.program, {name for fused_group in plan.fused_groups for name in fused_group.held}
    buffers = {name: program.buffers[call.operands[name].buffer] for name in call.writes}
    if any(buffer.name in held for buffer in buffers.values()):
        return []
    regions = []
    for name, buffer in buffers.items():
        access, is_output = access_at(program, call, name), buffer.role is Role.OUTPUT
        begin = 0 if is_output else plan.offsets[buffer.name]
        if math.prod(access.shape):
            output = program.outputs.index(buffer.name) if is_output else -1
            regions.append((output, begin + access.offset * buffer.dtype.bytes, *_merge_runs(access, buffer.dtype.bytes)))
    return regions


def _merge_runs(access: Access, element: int) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """The longest runs of an access: their bytes, and what is left of its dimensions, with strides in bytes."""
    dims = [(n, stride * element) for n, stride in zip(access.shape, access.strides, strict=True) if n > 1]
    run = element
    while dims and dims[-1][1] == run:
        run *= dims.pop()[0]
    runs = dims or [(1, 0)]
    return run, tuple(n for n, _ in runs), tuple(stride for _, stride in runs)
