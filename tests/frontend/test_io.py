"""Inputs and outputs of lowered graphs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import deeploy
from deeploy.errors import UsageError
from deeploy.frontend.io import remove_io_quantisation
from deeploy.ir.nodes import Node, Tensor, constant
from deeploy.ir.types import DType
from deeploy.ir.values import Graph
from deeploy.operators.link import send
from tests.models import save_graph


def test_a_chip_that_is_given_integers_sends_what_it_sent() -> None:
    """What only other chips read is no part of what the conversion of an input computes."""
    x, q = Tensor("x", (4,), DType.FLOAT32), Tensor("q", (4,), DType.INT8)
    quantise = Node("quantise", "Quantize", (x, constant(np.float32([0.5])), constant(np.int32([0]))), (q,), {"low": -128, "high": 127})
    clip = Node("clip", "Clip", (q,), (Tensor("y", (4,), DType.INT8),), {"low": 0, "high": 9})
    stripped, found = remove_io_quantisation(Graph("chip", (x,), (), order=(quantise, clip, send(clip.outputs[0], 1, 0))))
    assert [node.op for node in stripped.nodes] == ["Clip", "Send"] and found == {"x": (0.5, 0)}
    assert stripped.nodes[0].inputs == stripped.inputs and str(stripped.inputs[0]) == "s8[4]"


def image_network(path: Path, before: str = "", is_read_twice: bool = False) -> Path:
    """A quantised convolution of an image, channels first, behind ``before``; the input may be quantised for another reader too."""
    rng = np.random.default_rng(0)
    arrays = {"s": np.float32(0.05), "z": np.int8(3), "w": rng.integers(-127, 127, (8, 3, 3, 3)).astype(np.int8), "ws": np.float32(0.01)}
    arrays |= {"wz": np.int8(0), "shape": np.int64([1, 3, 8, 8]), "pads": np.int64([0, 0, 1, 1, 0, 0, 0, 0]), "flat": np.int64([1, -1])}
    given = {"": [], "Reshape": ["shape"], "Pad": ["pads"], "Transpose": []}[before]
    nodes = (
        [helper.make_node(before, ["x", *given], ["moved"], **({"perm": [0, 1, 3, 2]} if before == "Transpose" else {}))] if before else []
    )

    def quantised(source: str, name: str) -> str:
        nodes.append(helper.make_node("QuantizeLinear", [source, "s", "z"], [f"{name}_q"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}_q", "s", "z"], [name]))
        return name

    nodes.append(helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["weight"]))
    nodes.append(helper.make_node("Conv", [quantised("moved" if before else "x", "image"), "weight"], ["sums"], pads=[1] * 4))
    results = [quantised("sums", "y")]
    if before == "Reshape":
        nodes.append(helper.make_node("Reshape", ["y", "flat"], ["flattened"]))
        results = ["flattened"]
    if is_read_twice:
        nodes.append(helper.make_node("Relu", [quantised("x", "again")], ["positive"]))
        results.append(quantised("positive", "y2"))
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, {"Reshape": [1, 192], "Pad": [1, 3, 7, 7]}.get(before, [1, 3, 8, 8]))]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in results]
    constants = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
    save_graph(graph, path)
    return path


@pytest.mark.parametrize("target", ["generic", "siracusa"])
@pytest.mark.parametrize(("before", "is_read_twice"), [("", False), ("", True), ("Reshape", False), ("Transpose", False)])
def test_what_moves_elements_at_the_edges_moves_integers(tmp_path: Path, target: str, before: str, is_read_twice: bool) -> None:
    path = image_network(tmp_path / "m.onnx", before, is_read_twice)
    floats, integers = (deeploy.compile(path, target, quantised_io=is_quantised) for is_quantised in (False, True))
    program = integers.plan.program
    ports = [program.buffers[name] for name in (*program.inputs, *program.outputs)]
    assert {port.dtype for port in ports} == {DType.INT8} and len(ports) == 2 + is_read_twice
    stored = np.random.default_rng(1).integers(-128, 128, ports[0].shape).astype(np.int8)
    wanted, found = floats.run({"x": np.float32(0.05) * (stored - np.float32(3))}), integers.run({"x": stored})
    for name in program.outputs:
        assert np.array_equal(wanted[name], np.float32(0.05) * (found[name] - np.float32(3)))


def test_inputs_that_are_needed_as_floats_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"input x cannot be integers, as node \S+ \(Pad\) reads floats"):
        deeploy.compile(image_network(tmp_path / "m.onnx", "Pad"), "generic", quantised_io=True)
