"""One random graph on every target: the interpreter, the generated C, and onnxruntime must agree.

C and interpreter agree in every bit of integers, and within the float tolerance else. onnxruntime may differ by what one step in any
quantised tensor, or the rounding of any float, causes: that is measured by computing the graph node by node with such changes.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import deeploy
from deeploy import chips
from deeploy import target as targets
from deeploy.backend import project
from deeploy.backend.project import select_network
from deeploy.errors import BuildError, DeeployError, FitError
from deeploy.execution.runners import host, qemu
from deeploy.ir.target import Target
from deeploy.ir.types import DType
from tests.random import oracle
from tests.random.forms import Case
from tests.random.graph import EXACT
from tests.random.oracle import Invalid

TARGETS = ("generic", "siracusa")
MICROCONTROLLERS = ("cortex_m4", "cortex_m7", "cortex_m55", "rv32imc", "rv32gcv")
CHIPS = tuple(f"{target} {partition}" for target in TARGETS for partition in ("tensor", "pipeline"))  # two of them, and what is cut
MACHINES = (*MICROCONTROLLERS, *CHIPS)
TOLERANCE = 1e-4  # of floats: absolute or relative, whichever is larger
ROUNDING = 2e-6  # of the largest value of a float tensor: what its computation in another order may change
RUNS = 5  # with changes
MORE = 2.0  # times what these runs find is allowed, where changes add up
VAGUE = 0.05  # share of an output's largest value; where changes cause more, there is nothing to compare
PROBABILITY = 10 / 255  # by which a probability of a quantised graph may differ


@dataclass
class Outcome:
    """What became of a case.

    Attributes:
        kind: ``passed``, ``refused``, ``misfit`` or ``failed``.
        reason: of a refusal, without names and numbers; of a failure what tells it from others.
        detail: of a failure, in full.
        compared: what agreed: targets, ``onnxruntime``, ``formulas``.
    """

    kind: str
    reason: str = ""
    detail: str = ""
    compared: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)


class Difference(Exception):
    """Two results that should be equal are not."""

    def __init__(self, label: str, detail: str) -> None:
        super().__init__(detail)
        self.label = label


def check(case: Case, quick: bool = False, machine: str = "") -> Outcome:
    """Compile a case for every target, run it everywhere and compare; no exception of the compiler leaves it.

    Args:
        quick: the interpreter on the first target alone, without C.
        machine: one of ``MACHINES`` beside the first target, instead of all targets.
    """
    names = (TARGETS[0], machine) if machine else TARGETS[:1] if quick else TARGETS
    operators = " ".join(sorted({node.op_type for node in case.model.graph.node}))
    outcome = Outcome("passed")
    try:
        golden = _Golden.of(case)
        reasons, results = [], {}
        for name in names:
            try:
                results[name] = _on_target(case, name, golden, quick)
            except BuildError as error:
                return Outcome("failed", f"{name}: C {_plain(error.what)[:60]}", f"{name}: {error.what}", outcome.compared)
            except FitError as error:
                reasons.append(f"{name}: {_plain(error.what)}")
            except DeeployError as error:
                reasons += _reasons(error)
        outcome.compared += list(results)
        if len(results) == 2:
            _same_on_both(case, golden, results)
        outcome.compared += golden.used if results else []
        if not results:
            return Outcome("refused", reasons[0], reasons=sorted(set(reasons)))
        if reasons:
            outcome.reason, outcome.reasons = reasons[0], sorted(set(reasons))
            outcome.kind = "partly"
        return outcome
    except Difference as difference:
        return Outcome("failed", f"{difference.label} [{operators}]", str(difference), outcome.compared)
    except Exception as error:  # whatever a compiler raises beyond its own errors is the failure looked for
        return Outcome("failed", *failure(error), outcome.compared)


def failure(error: Exception) -> tuple[str, str]:
    """The kind of an exception and the function of the compiler that raised it; the traceback."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "/deeploy/" in f.filename or "/targets/" in f.filename]
    place = f"{Path(frames[-1].filename).name}:{frames[-1].name}" if frames else "?"
    return f"{type(error).__name__} in {place}", "".join(traceback.format_exception(error))


def _reasons(error: DeeployError) -> list[str]:
    """Why a model was refused, without names and numbers: for nodes without a kernel, one reason each."""
    first, *nodes = error.what.splitlines()
    if not nodes:
        return [_plain(first)]
    return [f"no kernel for {_plain(_OPERATOR.sub('', line))}" for line in nodes]


_OPERATOR = re.compile(r"^.*?(?=\((?=[A-Z]\w*\):))")  # what stands before a node's operator
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_NUMBERS = re.compile(r"\d[\d.e+-]*")
_NAMES = re.compile(r"\b(node|input|output|tensor|constant|computes|of) [^ (]+( \d+)? ?\(")


def _plain(text: str) -> str:
    """A message without names and numbers."""
    line = " ".join(text.split())
    return _NUMBERS.sub("N", _NAMES.sub(r"\1 X (", _QUOTED.sub("'X'", line)))[:150]


def _on_target(case: Case, name: str, golden: _Golden, quick: bool) -> list[np.ndarray]:
    """The outputs of the C on one target, compared with the interpreter and with what else is known."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "model.onnx"
        path.write_bytes(case.model.SerializeToString())
        compiled = _compiled(case, path, name)
        if quick and isinstance(compiled, deeploy.Compiled):
            ports = compiled.network.inputs
            outputs = compiled.interpret({port.name: case.inputs[port.name] for port in ports})
            golden.compare(name, dict(zip((port.name for port in compiled.network.outputs), outputs, strict=True)))
            return outputs
        folder = Path(scratch) / "project"
        compiled.write(folder)
        entry = select_network(project.read_manifest(folder))
        sample = [np.asarray(case.inputs[p["name"]], DType(p["type"]).numpy) for p in entry["inputs"]]
        (interpreted,) = compiled.references([sample], False)
        is_sanitized = bool(case.plan.get("sanitize")) and name == "generic"
        runner = host.Host(is_sanitized, None if is_sanitized else "-O1")
        places = {"C": runner.run(folder, entry, [sample]).outputs}
        if name in MICROCONTROLLERS and all(map(shutil.which, qemu.tools_of((folder / "Makefile").read_text()).values())):
            places["C under QEMU"] = qemu.Qemu().run(folder, entry, [sample]).outputs
    outputs = [array[0] for array in places["C"]]
    names = [port["name"] for port in entry["outputs"]]
    for place, stacked in places.items():
        for output, (got,), want in zip(names, stacked, interpreted, strict=True):
            _equal(
                f"{name}: {place} against interpreter", output, got, want, golden.allowed.get(output, 0.0) if got.dtype.kind == "f" else 0.0
            )
    golden.compare(name, dict(zip(names, interpreted, strict=True)))
    return outputs


@cache
def _target(name: str) -> Target:
    return targets.load(name)


def _compiled(case: Case, path: Path, name: str) -> deeploy.Compiled | chips.Distributed:
    """Compiled with the budgets that the case asks for, as far as the network fits them."""
    dialect: Any = "integer" if case.form == "dialect" else None
    if name in CHIPS:
        target, partition = name.split()
        return chips.compile(path, _target(target), 2, partition=partition, input_types=case.types, dialect=dialect)
    machine = _target(name)
    if machine.paths:
        plan = case.plan
        options: dict[str, Any] = {key: plan[key] for key in ("buffering", "cores", "default_memory") if plan.get(key)}
        if plan.get("engines"):
            options["engines"] = (plan["engines"],)
        limits = {m.name.lower(): m.capacity - m.reserved for m in machine.memories if m.capacity is not None}
        for factor in (1, 3):
            capacities = {level: min(plan[level] * factor, limits[level]) for level in ("l1", "l2") if plan.get(level)}
            chosen = deeploy.Options(memory=capacities, **options)
            try:
                return deeploy.compile(path, machine, input_types=case.types, dialect=dialect, **chosen.given())
            except FitError:
                continue
    objective = case.plan.get("objective", "cycles") if machine.is_flat else "cycles"
    return deeploy.compile(path, machine, input_types=case.types, dialect=dialect, objective=objective)


def _equal(label: str, output: str, got: np.ndarray, want: np.ndarray, allowed: float) -> None:
    """Raise unless two arrays are equal: integers in every bit, floats within the tolerance and ``allowed``."""
    if got.shape != want.shape:
        raise Difference(label, f"output {output}: shape {list(got.shape)} instead of {list(want.shape)}")
    a, b = got.astype(np.float64), want.astype(np.float64)
    limit = (TOLERANCE * np.maximum(1, np.abs(b)) if got.dtype.kind == "f" else 0.0) + allowed
    with np.errstate(invalid="ignore"):
        bad = ~((np.abs(a - b) <= limit) | (a == b) | (np.isnan(a) & np.isnan(b)))
    if bad.any():
        place = tuple(int(i[0]) for i in np.nonzero(bad)) if bad.ndim else ()
        worst = float(np.nanmax(np.abs(a - b)))
        raise Difference(
            label,
            f"{label}: output {output}, {int(bad.sum())} of {bad.size} elements differ, by up to {worst:g} where {allowed:g} is allowed; "
            f"{got.dtype} {list(got.shape)}, first at {list(place)}: {a[place]:g} instead of {b[place]:g}",
        )


def _same_on_both(case: Case, golden: _Golden, results: Mapping[str, Sequence[np.ndarray]]) -> None:
    one, two = results.values()
    for value, a, b in zip(case.model.graph.output, one, two, strict=True):
        _equal("targets against each other", value.name, b, a, golden.allowed.get(value.name, 0.0) if a.dtype.kind == "f" else 0.0)


@dataclass
class _Golden:
    """What the outputs should be, by others, and by how much each may differ."""

    runs: list[dict[str, np.ndarray]]
    allowed: dict[str, float]
    vague: set[str]
    exact: dict[str, np.ndarray]
    used: list[str]

    @classmethod
    def of(cls, case: Case) -> _Golden:
        if case.form == "dialect":
            return cls([], {}, set(), case.golden, ["formulas"] if case.golden else [])
        names = [value.name for value in case.model.graph.output]
        found = [oracle.run(case.model, case.inputs, optimise) for optimise in (True, False)]
        runs = [dict(zip(names, arrays, strict=True)) for arrays in found if arrays is not None]
        try:
            plain, allowed = envelope(case.model, case.inputs)
        except Invalid:
            return cls(runs, {}, set(names), {}, ["onnxruntime"] if runs else [])
        vague = {n for n in names if allowed[n] > VAGUE * max(1.0, float(np.abs(plain[n].astype(np.float64)).max(initial=0)))}
        used = ["onnxruntime"] if runs else ["reference"]
        return cls(runs or [{n: plain[n] for n in names}], allowed, vague, {}, used + ["vague"] * bool(vague))

    def compare(self, target: str, got: Mapping[str, np.ndarray]) -> None:
        """Raise unless the outputs are those of one of the runs."""
        for name, array in self.exact.items():
            _equal(f"{target}: interpreter against formulas", name, got[name], array, 0.0)
        problems = []
        for run in self.runs:
            try:
                for name, array in run.items():
                    if name not in self.vague:
                        _equal(f"{target}: interpreter against onnxruntime", name, got[name], array, self.allowed.get(name, 0.0))
                return
            except Difference as difference:
                problems.append(difference)
        if problems:
            raise problems[0]


def envelope(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """Every tensor of a graph computed node by node, and how far changes of rounding move it.

    Raises:
        Invalid: a node has no evaluator.
    """
    exact = {name for entry in model.metadata_props if entry.key == EXACT for name in entry.value.splitlines()}
    opset = max(entry.version for entry in model.opset_import if not entry.domain)
    constants = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    quantised = any("Quantize" in n.op_type or n.op_type.startswith("Q") for n in model.graph.node)
    free = set(feeds) | set(constants) | exact  # what any implementation computes alike
    random = np.random.default_rng(0)
    plain: dict[str, np.ndarray] = {}
    moved: dict[str, float] = {}
    factors = dict.fromkeys(free, 1.0)
    for run in range(RUNS + 1):
        values = {**constants, **feeds}
        for node in model.graph.node:
            arrays = oracle.evaluate(node, values, [n for n in node.input if n in constants], opset)
            shared = all(name in free for name in node.input if name)
            for name, array in zip(node.output, arrays, strict=True):
                steady = name in exact or (shared and node.op_type in ("QuantizeLinear", "DequantizeLinear")) or not run
                values[name] = array if steady else _changed(node, array, quantised, random)
                if run and steady and node.op_type == "QuantizeLinear" and node.input[0] not in feeds and node.input[0] not in constants:
                    values[name] = np.where(_is_tie(node, values), _changed(node, array, quantised, random), array)
                if shared and node.op_type in ("QuantizeLinear", "DequantizeLinear"):
                    free.add(name)
        for name, array in values.items():
            if run == 0:
                plain[name], moved[name] = array, 0.0
            elif array.shape == plain[name].shape and array.size:
                change = np.abs(array.astype(np.float64) - plain[name].astype(np.float64)).max()
                moved[name] = max(moved[name], float(change))
    for node in model.graph.node:
        inherited = max((factors[name] for name in node.input if name), default=1.0)
        for name in node.output:
            is_step = _is_step(node, plain[name])
            factors[name] = (1.0 if moved[name] <= 1 else MORE) if is_step else max(inherited, 1.0 if quantised else MORE)
    return plain, {name: change * factors[name] for name, change in moved.items()}


def _is_step(node: onnx.NodeProto, array: np.ndarray) -> bool:
    """Whether a node quantises, so that its result may be one step apart."""
    return array.dtype in (np.int8, np.uint8) and (node.op_type in ("QuantizeLinear", "QGemm") or node.op_type.startswith("QLinear"))


def _is_tie(node: onnx.NodeProto, values: Mapping[str, np.ndarray]) -> np.ndarray:
    """Where a computed number, divided by its scale, is a middle between two steps but for the rounding of the division."""
    x, scale = values[node.input[0]].astype(np.float64), values[node.input[1]].astype(np.float64)
    if scale.ndim == 1 and scale.size > 1:
        axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 1)
        scale = scale.reshape([-1 if position == axis % x.ndim else 1 for position in range(x.ndim)])
    steps = x / scale
    return np.asarray(np.abs(steps - np.floor(steps) - 0.5) <= ROUNDING * np.maximum(1, np.abs(steps)))


def _changed(node: onnx.NodeProto, array: np.ndarray, quantised: bool, random: np.random.Generator) -> np.ndarray:
    """The result of a node as another implementation may have it."""
    if _is_step(node, array):
        info = np.iinfo(array.dtype)
        return np.clip(array.astype(np.int64) + random.integers(-1, 2, array.shape), info.min, info.max).astype(array.dtype)
    if array.dtype != np.float32 or not array.size:
        return array
    size = PROBABILITY if quantised and node.op_type == "Softmax" else ROUNDING * float(np.abs(array).max())
    return np.asarray(array + random.uniform(-size, size, array.shape), np.float32)
