"""Layer by layer: every intermediate tensor of the C against the interpreter, and those of the interpreter against onnxruntime.

The application writes all memories and all outputs after every layer; each call's results are cut out of the snapshot taken right
after it. It runs on this host, on a simulator, under an emulator or on a board.

Every tensor that the program and the model both have is compared with onnxruntime's twice: as the program computes it from the
network's inputs, and from onnxruntime's own values of all such tensors before it, which is what the layers in between make alone.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx

from deeploy.documents import Document
from deeploy.errors import shorten
from deeploy.execution.runners import host
from deeploy.execution.runners.runner import Snapshots
from deeploy.execution.simulation.interpreter import StateRows, access_at, begin_inference, execute_call, window_view
from deeploy.execution.verification.compare import absolute_differences as far
from deeploy.execution.verification.compare import allowed_difference, compare_output, relative_excess
from deeploy.execution.verification.onnxruntime_tensors import run_inside
from deeploy.frontend.tflite import is_tflite
from deeploy.planning.plan import Plan
from deeploy.planning.program import Call, Operand, Program, Role
from deeploy.schedule.build import build_schedule, row_values
from deeploy.schedule.ir import Compute
from deeploy.schedule.unroll import Table, Unrolled

_SHOWN = 8  # tensors that a message lists


@dataclass(frozen=True)
class Difference:
    """How a tensor differs: the share of equal elements, the worst difference in ``unit``, and whether it is what rounding makes.

    Attributes:
        unit: steps of integers, or multiples of what is allowed of floats.
        is_small: at most one step, or what floats and probabilities may differ by.
    """

    equal: float
    worst: float
    unit: str
    is_small: bool

    def __str__(self) -> str:
        return f"{self.equal:.2%} equal, worst difference {self.worst:g} {self.unit}"


@dataclass(frozen=True)
class Agreement:
    """One tensor: ``whole`` as computed from the network's inputs, ``alone`` from onnxruntime's values before it."""

    name: str
    whole: Difference
    alone: Difference


@dataclass(frozen=True)
class Compared:
    """All tensors that both have, in the order of the program, and onnxruntime's outputs in this run, stacked over samples."""

    tensors: Sequence[Agreement]
    outputs: Sequence[np.ndarray | None]


@dataclass(frozen=True)
class Place:
    """Where a tensor of the model lies: channels last where ``is_image``; ``step`` is the call after which it is complete.

    ``is_row``: the image has one row, and the tensor of the model no axis for it.
    """

    name: str
    operand: Operand
    is_image: bool
    step: int
    is_row: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that the tensor has in the model: channels first for an image, which has one row where it is none in the model."""
        shape = self.operand.access.shape
        return (shape[0], shape[3], *shape[1 + self.is_row : 3]) if self.is_image else shape

    def of(self, memory: Mapping[str, np.ndarray]) -> np.ndarray:
        """The tensor in memory, as the model sees it; a view."""
        elements = window_view(memory[self.operand.buffer], self.operand.access)
        image = elements.transpose(0, 3, 1, 2) if self.is_image else elements
        return image[:, :, 0] if self.is_row else image

    def in_rank(self, rank: int) -> Place:
        """Where a tensor of a rank lies: one of three axes lies as an image of one row."""
        return replace(self, is_row=self.is_image and rank == 3 and self.operand.access.shape[1] == 1)


def compare_tensors(program: Program, entry: Document, samples: Sequence[Sequence[np.ndarray]], model: Path) -> Compared | str:
    """Every tensor that both have, or why there is no comparison."""
    if program.dynamic_length is not None:
        return "the network has states"
    if is_tflite(model.read_bytes()):
        return "it does not read TensorFlow Lite files"
    places = {place.name: place for place in find_places(program, onnx.load(model, load_external_data=False).graph)}
    inner_tensors = run_inside(model, entry, samples, {name: _place_dtype(program, place) for name, place in places.items()})
    if isinstance(inner_tensors, str):
        return inner_tensors
    values = {name: array for name, array in inner_tensors.tensors.items() if array.shape[1:] == places[name].shape}
    common = sorted((places[name] for name in values), key=lambda place: place.step)
    ports = {port["name"]: port for port in entry["outputs"]}
    whole, alone = _compute_tensors(program, samples, common, {}), _compute_tensors(program, samples, common, values)
    result = [
        Agreement(p.name, *(_measure_difference(ports.get(p.name), got[p.name], values[p.name]) for got in (whole, alone))) for p in common
    ]
    return Compared(result, inner_tensors.outputs)


def find_places(program: Program, graph: onnx.GraphProto) -> list[Place]:
    """Where the tensors lie that a program and a model both have, in the order of the model."""
    written = _writing_calls(program)
    names = {name: None for node in graph.node for name in node.output}
    return [place for name in names if (place := _locate_tensor(program, written, name)) is not None]


def _writing_calls(program: Program) -> dict[str, np.ndarray]:
    """The call that writes each element of every buffer that calls write to; -1 where none does."""
    result = {name: np.full(math.prod(b.shape), -1) for name, b in program.buffers.items() if b.data is None}
    for step, call in enumerate(program.calls):
        for name in call.writes:
            window_view(result[call.operands[name].buffer], call.operands[name].access)[...] = step
    return result


def _locate_tensor(program: Program, written: Mapping[str, np.ndarray], name: str) -> Place | None:
    """Where a tensor lies as the model has it, or its image turned channels last; None where no call writes it."""
    image = program.tensors.get(f"{name} (channels last)")
    is_image = image is not None and len(image.access.shape) == 4
    operand = image if is_image else program.tensors.get(name)
    if operand is None or operand.buffer not in written:
        return None
    steps = window_view(written[operand.buffer], operand.access)
    return Place(name, operand, is_image, int(steps.max())) if steps.size and steps.min() >= 0 else None


def _place_dtype(program: Program, place: Place) -> np.dtype[np.generic]:
    return np.dtype(program.buffers[place.operand.buffer].dtype.numpy)


def run_layers(
    program: Program,
    sample: Sequence[np.ndarray],
    places: Sequence[Place],
    change: Callable[[str, np.ndarray], np.ndarray] = lambda name, array: array,
) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
    """Tensors by name as the interpreter computes them, and the outputs; what ``change`` makes of a tensor is put in its place."""
    held: dict[str, np.ndarray] = {}
    memory = begin_inference(program, sample, StateRows())
    for step, call in enumerate(program.calls):
        execute_call(program, call, memory, 0)
        complete = [place for place in places if place.step == step]
        held |= {place.name: place.of(memory).copy() for place in complete}
        for place in complete:
            place.of(memory)[...] = change(place.name, place.of(memory).copy())  # tensors may be views of one buffer
    return held, [memory[name].reshape(program.buffers[name].shape) for name in program.outputs]


def _compute_tensors(
    program: Program, samples: Sequence[Sequence[np.ndarray]], places: Sequence[Place], given: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Every tensor, stacked over samples; what is ``given`` is put in its place as soon as it has been computed."""
    pairs = []
    for number, sample in enumerate(samples):
        put = {name: array[number] for name, array in given.items()}
        pairs.append(run_layers(program, sample, places, lambda name, array, put=put: put.get(name, array))[0])  # type: ignore[misc]
    return {place.name: np.stack([tensors[place.name] for tensors in pairs]) for place in places}


def _measure_difference(port: Document | None, got: np.ndarray, want: np.ndarray) -> Difference:
    """By the rule of an output, where the tensor is one."""
    rule = port["equality"] if port is not None else "float" if got.dtype.kind == "f" else "steps"
    if port is not None and rule == "softmax":
        comparison = compare_output(port, got, want)
        return Difference(comparison.equal, comparison.worst, comparison.unit, comparison.passed)
    if rule == "float":
        distance, unit = relative_excess(got, want), "times the bound"
    else:
        distance, unit = far(got, want), "step(s)"
        distance = np.rint(distance / float(port["step"])) if port is not None and got.dtype.kind == "f" else distance
    equal = float(np.mean(distance == 0)) if distance.size else 1.0
    worst = float(distance.max(initial=0.0))
    return Difference(equal, worst, unit, worst <= 1)


def growing_differences(comparison: Compared) -> list[str]:
    """Where differences become larger than anywhere before, and than one step or what floats may differ by."""
    lines, largest = list[str](), dict[str, float]()
    for tensor in comparison.tensors:
        if tensor.whole.worst > largest.get(tensor.whole.unit, 1.0):
            largest[tensor.whole.unit] = tensor.whole.worst
            lines.append(f"  {shorten(tensor.name)}: {tensor.whole}; from onnxruntime's own inputs {tensor.alone}")
    if lines:
        return ["\n".join([f"of {len(comparison.tensors)} tensors, these differ more from onnxruntime than all before them:", *lines])]
    least = min(comparison.tensors, key=lambda tensor: tensor.whole.equal, default=None)
    if least is None or least.whole.equal == 1:
        return [f"all {len(comparison.tensors)} tensors that both have are those of onnxruntime"]
    return [
        f"all {len(comparison.tensors)} tensors that both have agree with onnxruntime; "
        f"the least equal is {shorten(least.name)}: {least.whole}"
    ]


def layer_differences(
    project: Path, entry: Document, plan: Plan, sample: Sequence[np.ndarray], model: Path, device: Snapshots | None = None
) -> list[str]:
    """The first layer that differs from the interpreter, and where differences from onnxruntime grow.

    Args:
        device: what the program runs on; this host by default.
    """
    program = plan.program
    got = _layer_outputs(project, entry, plan, sample, device)
    comparison = compare_tensors(program, entry, [sample], model)
    against = [f"layers not compared with onnxruntime: {comparison}"] if isinstance(comparison, str) else growing_differences(comparison)
    return [_against_interpreter(program, got, sample), *against]


def first_wrong(project: Path, entry: Document, plan: Plan, sample: Sequence[np.ndarray]) -> str | None:
    """What is said of the first layer of the C that is not what the reference makes of the C's own inputs; None where there is none.

    Floats of layers that call the C library may differ by 1e-4, of the element or of the tensor's largest magnitude below 1.
    """
    program = plan.program
    memory = begin_inference(program, sample, StateRows())
    for call, outputs in zip(program.calls, _layer_outputs(project, entry, plan, sample, None), strict=True):
        execute_call(program, call, memory, 0)
        for name in call.writes:
            if name not in outputs:
                return f"{_label_call(call)} is part of a fused group, of which only some rows are in memory"
            place = window_view(memory[call.operands[name].buffer], access_at(program, call, name))
            is_loose = place.dtype.kind == "f" and not call.kernel.is_exact(call.node)
            if (far(outputs[name], place) > (allowed_difference(place) if is_loose else 0)).any():
                return f"{_label_call(call)} is not what the reference makes of its inputs"
            place[...] = outputs[name]
    return None


def _layer_outputs(
    project: Path, entry: Document, plan: Plan, sample: Sequence[np.ndarray], device: Snapshots | None
) -> list[dict[str, np.ndarray]]:
    """What every call wrote, by operand, as the C computed it."""
    program = plan.program
    if plan.target.is_flat:
        return _flat_outputs(project, entry, plan, sample, device)
    data = _take_snapshots(project, entry, plan, sample, device)
    memory = _by_step(data, [m.name for m in plan.target.memories], len(entry["calls"]))
    ends = {step: fused_group.last for fused_group in plan.fused_groups for step in range(fused_group.first, fused_group.last + 1)}
    line_buffers = {name for fused_group in plan.fused_groups for name in fused_group.held}  # of these, some rows or tiles are left
    return [
        {
            name: _cut_operand(plan, memory[ends.get(step, step)], call, name)
            for name in call.writes
            if call.operands[name].buffer not in line_buffers
        }
        for step, call in enumerate(program.calls)
    ]


def _flat_outputs(
    project: Path, entry: Document, plan: Plan, sample: Sequence[np.ndarray], device: Snapshots | None
) -> list[dict[str, np.ndarray]]:
    """What every call wrote, by operand; that of a call of a group tile by tile, since of its tensor only some rows are there at a time."""
    unrolled = Unrolled(build_schedule(plan), row_values(plan.program, 0) if plan.program.dynamic_length is not None else {})
    tiles = [event for layer in unrolled.schedule.layers for event in unrolled.events(layer.step) if isinstance(event.node, Compute)]
    outputs: list[dict[str, np.ndarray]] = [{} for _ in plan.program.calls]
    wholes: dict[tuple[int, str], np.ndarray] = {}
    data = _take_snapshots(project, entry, plan, sample, device)
    for (_, tile, table), snapshot in zip(tiles, _read_snapshots(plan, len(tiles), data), strict=True):
        call, step = table.layer.call, table.layer.step
        if table.layer.tiling.tiles == 1:
            outputs[step] = {name: _cut_operand(plan, snapshot, call, name) for name in call.writes}
            continue
        for name in call.writes:
            buffer = plan.program.buffers[call.operands[name].buffer]
            whole = wholes.setdefault((step, name), np.zeros(math.prod(buffer.shape), buffer.dtype.numpy))
            outputs[step][name] = window_view(whole, call.operands[name].access)
            places, elements = _tile_elements(table, name, tile)
            whole[elements] = _stored_elements(plan, snapshot, call, name)[places]
    return outputs


def _tile_elements(table: Table, name: str, tile: int) -> tuple[np.ndarray, np.ndarray]:
    """What a tile sees of an operand: where its elements lie behind the address, and which elements of the whole buffer they are."""
    operand, access = table.layer.work.operands[name], table.layer.call.operands[name].access
    places, elements = np.zeros((), np.int64), np.full((), access.offset, np.int64)
    for axis, stride, pitch in zip(operand.axes, access.strides, operand.strides, strict=True):
        indices = np.arange(table.at(axis.count, tile), dtype=np.int64)
        places = np.add.outer(places, indices * table.at(pitch, tile))
        elements = np.add.outer(elements, (indices + table.at(axis.first, tile)) * stride)
    return (places + table.at(operand.element, tile)).ravel(), elements.ravel()


def _take_snapshots(project: Path, entry: Document, plan: Plan, sample: Sequence[np.ndarray], device: Snapshots | None) -> bytes:
    """All memories and the outputs, on this host without a device: after every tile of a flat machine, after every step of others."""
    if device is not None:
        return device.snapshots(project, entry, sample)
    is_flat = plan.target.is_flat
    application = host.build_application(project, network_flags="-O0 -DDEEPLOY_PROFILE" if is_flat else None)
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "snapshots"
        host.execute_application(application, project, entry, [sample], ["0" if is_flat else "--snapshot", str(path)])
        return path.read_bytes()


def _read_snapshots(plan: Plan, count: int, data: bytes) -> list[dict[str, np.ndarray]]:
    """Snapshots of a flat machine by memory, of so many tiles."""
    level = plan.target.memories[0].name
    peak = plan.memory[level].peak
    return [{level: snapshot[:peak], "outputs": snapshot[peak:]} for snapshot in np.frombuffer(data, np.uint8).reshape(count, -1)]


def _by_step(data: bytes, levels: Sequence[str], steps: int) -> dict[int, dict[str, np.ndarray]]:
    """Memory at the end of every step: bytes by level, and ``outputs``; the calls of a fused group are the step of its last one."""
    count = int(np.frombuffer(data, np.uint32, 1)[0])
    sizes = np.frombuffer(data, np.uint32, count + 1, 4).tolist()
    record = np.dtype([("step", np.int32), *((name, np.uint8, (size,)) for name, size in zip([*levels, "outputs"], sizes, strict=True))])
    records = np.frombuffer(data, record, offset=4 * (count + 2))
    names = records.dtype.names[1:] if records.dtype.names else ()
    return {int(step["step"]): {name: step[name] for name in names} for step in records if 0 <= step["step"] < steps}


def _cut_operand(plan: Plan, snapshot: Mapping[str, np.ndarray], call: Call, operand: str) -> np.ndarray:
    """One operand out of a snapshot of every level and of the outputs."""
    return window_view(_stored_elements(plan, snapshot, call, operand), access_at(plan.program, call, operand)).copy()


def _stored_elements(plan: Plan, snapshot: Mapping[str, np.ndarray], call: Call, operand: str) -> np.ndarray:
    """The buffer of an operand in a snapshot, flat; of a line buffer, more than there is of it."""
    program = plan.program
    buffer = program.buffers[call.operands[operand].buffer]
    if buffer.role is Role.OUTPUT:
        before = program.outputs[: program.outputs.index(buffer.name)]
        space, start = "outputs", sum(program.buffers[name].bytes for name in before)
    else:
        space, start = plan.residences.get(buffer.name, plan.target.memories[0].name), plan.offsets[buffer.name]
    window = snapshot[space][start : start + buffer.bytes]
    return window[: window.size // buffer.dtype.bytes * buffer.dtype.bytes].copy().view(buffer.dtype.numpy)


def _against_interpreter(program: Program, got: list[dict[str, np.ndarray]], sample: Sequence[np.ndarray]) -> str:
    """What is said of the first layer whose results are not those of the interpreter right behind it: a later one may write there anew."""
    is_exact = True  # as long as nothing depends on the C library
    memory = begin_inference(program, sample, StateRows())
    for call, outputs in zip(program.calls, got, strict=True):
        is_exact &= call.kernel.is_exact(call.node)
        execute_call(program, call, memory, 0)
        for name, array in outputs.items():
            expected = window_view(memory[call.operands[name].buffer], access_at(program, call, name))
            worst = float(far(array, expected).max(initial=0.0))
            is_loose = array.dtype.kind == "f" and not is_exact
            if (relative_excess(array, expected) > 1).any() if is_loose else worst > 0:
                return f"first layer that differs from the interpreter: {_label_call(call)}, worst difference {worst:g}"
    partial = [_label_call(call) for call, outputs in zip(program.calls, got, strict=True) if len(outputs) < len(call.writes)]
    if not partial:
        return f"all {len(program.calls)} layers agree with the interpreter"
    listed = partial[:_SHOWN] + ([f"{len(partial) - _SHOWN} more"] if len(partial) > _SHOWN else [])
    agree = f"{len(program.calls) - len(partial)} of {len(program.calls)} layers agree with the interpreter"
    return f"{agree}; of others only a part is in memory at a time (fused groups): {', '.join(listed)}"


def _label_call(call: Call) -> str:
    return f"{shorten(call.node.name)} ({call.node.op}, kernel {call.kernel.name})"
