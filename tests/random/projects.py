"""Projects of every kind, made once: flat, managed, of several networks, of several chips, and a plan without code."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import deeploy
from deeploy.chips import compile as compile_chips
from deeploy.chips import plan as plan_chips
from deeploy.errors import DeeployError
from tests.models import model_of
from tests.random.choices import Choices
from tests.random.forms import Case, make
from tests.random.oracle import Invalid

BASES = 120  # models that damage starts from
KINDS = ("flat", "flat", "managed", "several", "tensor", "pipeline", "plan")


@dataclass(frozen=True)
class Built:
    """A project, inputs that it takes, and the names of its layers.

    Attributes:
        more: arguments that commands on it need.
    """

    folder: Path
    inputs: Path
    layers: tuple[str, ...]
    more: tuple[str, ...] = field(default=())


@cache
def base(seed: int) -> Case:
    """A small model that damage starts from."""
    while True:
        try:
            case = make(Choices(f"base {seed}"))
        except Invalid:
            seed += 100_000
            continue
        if len(case.model.graph.node) <= 12:
            return case
        seed += 100_000


def chosen(c: Choices, form: str | None = None) -> Case:
    seed = c.integer(0, BASES - 1)
    while form is not None and base(seed).form != form:
        seed = (seed + 1) % BASES
    return base(seed)


@cache
def chain() -> onnx.ModelProto:
    """Two matrix products with a function between them."""
    weights = [numpy_helper.from_array(np.eye(8, dtype=np.float32) + k, f"w{k}") for k in (1, 2)]
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "w2"], ["y"]),
    ]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 8]) for name in "xy"]
    graph = helper.make_graph(nodes, "chain", ports[:1], ports[1:], weights)
    return model_of(graph, 13)


@cache
def built(kind: str, number: int = 0) -> Built:
    """A project of one of ``KINDS``; flat and managed ones are of random models."""
    folder = Path(tempfile.mkdtemp(prefix="deeploy-fuzz-"))
    path, made = folder / "model.onnx", folder / "project"
    if kind in ("flat", "managed"):
        return _random(path, made, "generic" if kind == "flat" else "siracusa", 1000 * (number + 1))
    path.write_bytes(chain().SerializeToString())
    inputs = {"x": np.arange(32, dtype=np.float32).reshape(4, 8) / 8}
    if kind == "several":
        deeploy.compile({"one": path, "two": path}, "siracusa").write(made)
    elif kind == "plan":
        plan_chips(path, "edgetpu", 2, partition="pipeline").write(made)
    else:
        compile_chips(path, "siracusa", 2, partition=kind).write(made)
    return _finished(made, inputs, ("--network", "two") if kind == "several" else ())


def _random(path: Path, made: Path, target: str, seed: int) -> Built:
    while True:
        case = base(seed)
        path.write_bytes(case.model.SerializeToString())
        try:
            compiled = deeploy.compile(path, target, input_types=case.types, dialect="integer" if case.form == "dialect" else None)
        except DeeployError:
            seed += 1
            continue
        compiled.write(made)
        return _finished(made, case.inputs)


def _finished(made: Path, inputs: Mapping[str, np.ndarray], more: tuple[str, ...] = ()) -> Built:
    stored = made.parent / "inputs.npz"
    np.savez(stored, *inputs.values(), allow_pickle=False)
    manifest = made / "deploy.json"
    found = json.loads(manifest.read_text()) if manifest.exists() else {}
    entry = found["networks"][1] if "networks" in found else found["chips"][0] if "chips" in found else found
    layers = tuple(call["name"] for call in entry.get("calls", ()))
    return Built(made, stored, layers or ("x",), more)
