"""The first layer that differs: every intermediate tensor of the C against the interpreter and against onnxruntime.

The application, built with DEEPLOY_PROFILE, writes the whole arena and all outputs after every layer; each call's results
are cut out of the snapshot taken right after it.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from deeploy.backend import host, host_model
from deeploy.errors import shorten
from deeploy.midend.plan import Plan
from deeploy.midend.program import Call, Program, Role
from deeploy.simulate import onnxruntime_reference
from deeploy.simulate.interpreter import access_at, interpret, tensor_value, window

_TOLERANCE = 1e-4  # of floats, whose sums the C adds up in another order


def differences(project: Path, entry: Mapping[str, Any], plan: Plan, sample: Sequence[np.ndarray], model: Path) -> list[str]:
    """Two lines: the first layer that differs from the interpreter, and the first tensor that differs from onnxruntime."""
    program = plan.program
    got = _layer_outputs(project, entry, plan, sample)
    memory = interpret(program, sample)
    return [_against_interpreter(program, got, memory), _against_onnxruntime(program, memory, entry, sample, model)]


def _layer_outputs(project: Path, entry: Mapping[str, Any], plan: Plan, sample: Sequence[np.ndarray]) -> list[dict[str, np.ndarray]]:
    """What every call wrote, by operand, as the C computed it."""
    program = plan.program
    if plan.machine is None:
        memory = _flat_snapshots(project, entry, plan, sample)
    else:
        memory = host_model.snapshots(project, entry, [m.name for m in plan.target.memories], sample)
    return [{name: _cut(plan, snapshot, call, name) for name in call.writes} for call, snapshot in zip(program.calls, memory, strict=True)]


def _flat_snapshots(project: Path, entry: Mapping[str, Any], plan: Plan, sample: Sequence[np.ndarray]) -> list[dict[str, np.ndarray]]:
    """The arena and the outputs after every call."""
    application = host.build(project, flags="-O1 -DDEEPLOY_PROFILE")
    with tempfile.TemporaryDirectory() as scratch:
        paths = {name: Path(scratch) / name for name in ("inputs", "outputs", "snapshots")}
        host.write_samples(paths["inputs"], entry, [sample])
        command = [
            str(application.resolve()),
            entry["name"],
            str(paths["inputs"]),
            str(paths["outputs"]),
            "1",
            "0",
            str(paths["snapshots"]),
        ]
        subprocess.run(command, check=True, capture_output=True)
        data = np.fromfile(paths["snapshots"], np.uint8)
    level = plan.target.memories[0].name
    peak = plan.memory[level].peak
    return [{level: snapshot[:peak], "outputs": snapshot[peak:]} for snapshot in data.reshape(len(plan.program.calls), -1)]


def _cut(plan: Plan, snapshot: Mapping[str, np.ndarray], call: Call, operand: str) -> np.ndarray:
    """One operand out of a snapshot of every level and of the outputs."""
    program = plan.program
    buffer = program.buffers[call.operands[operand].buffer]
    if buffer.role is Role.OUTPUT:
        before = program.outputs[: program.outputs.index(buffer.name)]
        space, start = "outputs", sum(program.buffers[name].bytes for name in before)
    else:
        space, start = plan.homes.get(buffer.name, plan.target.memories[0].name), plan.offsets[buffer.name]
    flat = snapshot[space][start : start + buffer.bytes].copy().view(buffer.dtype.numpy)
    return window(flat, access_at(program, call, operand)).copy()


def _against_interpreter(program: Program, got: list[dict[str, np.ndarray]], memory: Mapping[str, np.ndarray]) -> str:
    for call, outputs in zip(program.calls, got, strict=True):
        for name, array in outputs.items():
            place = call.operands[name]
            expected = window(memory[place.buffer].ravel(), access_at(program, call, name))
            worst = _worst(array, expected)
            if worst > (_TOLERANCE if array.dtype.kind == "f" else 0):
                return f"first layer that differs from the interpreter: {_label(call)}, worst difference {worst:g}"
    return f"all {len(program.calls)} layers agree with the interpreter"


def _label(call: Call) -> str:
    return f"{shorten(call.node.name)} ({call.node.op}, kernel {call.kernel.name})"


def _worst(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.abs(a.astype(np.float64) - b.astype(np.float64)).max(initial=0.0))


def _against_onnxruntime(
    program: Program, memory: Mapping[str, np.ndarray], entry: Mapping[str, Any], sample: Sequence[np.ndarray], model: Path
) -> str:
    """Compares tensors that lie in memory as in the model: those that layout left alone, and images seen channels-first."""
    loaded = onnx.load(model)
    outputs = {value.name for value in loaded.graph.output}
    candidates = {name: value for node in loaded.graph.node for name in node.output if (value := _found(program, memory, name)) is not None}
    loaded.graph.output.extend(onnx.ValueInfoProto(name=name) for name in candidates if name not in outputs)
    session, reason = onnxruntime_reference.session(loaded.SerializeToString(), entry)
    if session is None:
        return f"layers not compared with onnxruntime: {reason}"
    reference = onnxruntime_reference.Session(session.session, list(candidates), entry).run([sample])
    compared = 0
    for (name, values), other in zip(candidates.items(), reference, strict=True):
        if other is None or (layout := next((v for v in values if v.shape == other[0].shape), None)) is None:
            continue
        compared += 1
        worst = _worst(layout, other[0])
        if worst > (_TOLERANCE if layout.dtype.kind == "f" else 0):
            equal = float(np.mean(layout == other[0]))
            return f"first tensor that differs from onnxruntime: {shorten(name)}, {equal:.2%} equal, worst difference {worst:g}"
    return f"all {compared} tensors that both have agree with onnxruntime"


def _found(program: Program, memory: Mapping[str, np.ndarray], name: str) -> list[np.ndarray] | None:
    """The tensor as the program holds it, or its channels-last image turned back; None where it is not kept."""
    values = [tensor_value(program, memory, name)]
    image = tensor_value(program, memory, f"{name} (channels last)")
    if image is not None and image.ndim == 4:
        values.append(image.transpose(0, 3, 1, 2))
    present = [value for value in values if value is not None]
    return present or None
