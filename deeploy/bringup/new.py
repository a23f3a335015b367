"""``deeploy new-target``: the folder of a target that compiles and verifies a network at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from deeploy.errors import UsageError, shorten

_SKELETON = Path(__file__).parent / "assets" / "skeleton"


def write_skeleton(folder: Path) -> list[str]:
    """Write the skeleton; returns its files.

    Raises:
        UsageError: the folder exists and holds something, or its name cannot be that of a target.
    """
    name = folder.resolve().name
    if not name.isidentifier():
        raise UsageError(
            f"{shorten(name)} cannot be the name of a target", "Use letters, digits and underscores: deeploy new-target mychip"
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{shorten(str(folder))} exists and is not an empty folder", "Name another folder.")
    files = {path.relative_to(_SKELETON): path.read_text(encoding="utf-8") for path in sorted(_SKELETON.rglob("*")) if path.is_file()}
    written = []
    for inside, text in files.items():
        path = folder / inside.with_suffix("" if inside.suffix == ".txt" else inside.suffix)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("@name@", name), encoding="utf-8")
        written.append(str(path.relative_to(folder)))
    onnx.save(_make_model(), folder / "model.onnx")
    return [*written, "model.onnx"]


def _make_model() -> onnx.ModelProto:
    """x[24,32] int8, two products with activations between them, and a sum around the second."""
    numbers = np.random.default_rng(0)
    constants = {f"w{i}": numbers.integers(-16, 16, (32, 32)).astype(np.float32) for i in range(2)}
    constants |= {"mul": np.array([3.0], np.float32), "add": np.array([64.0], np.float32), "one": np.array([1.0], np.float32)}

    def requantise(x: str, y: str, div: int, mul: str) -> onnx.NodeProto:
        return helper.make_node("RequantShift", [x, mul, "add"], [y], f"{y}_scale", div=div, n_levels=256, signed=1)

    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["p"], "first"),
        requantise("p", "a", 512, "mul"),
        helper.make_node("Relu", ["a"], ["r"], "activation"),
        helper.make_node("MatMul", ["r", "w1"], ["q"], "second"),
        requantise("q", "b", 256, "mul"),
        helper.make_node("Add", ["r", "b"], ["s"], "sum"),
        requantise("s", "y", 2, "one"),
    ]
    graph = helper.make_graph(
        nodes,
        "skeleton",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [24, 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [24, 32])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
