"""A machine whose transfers are begun by another core than the one that runs the loops over tiles, from outside the tree."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import deeploy
from deeploy.driver.verify import run_project
from deeploy.errors import FitError
from deeploy.execution.runners import gvsoc
from deeploy.options import Options
from deeploy.quantization.static import quantize_model
from deeploy.target import load
from tests.models import model_of

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples" / "targets" / "snitch" / "deeploy_snitch"


def save_float_network(folder: Path) -> Path:
    """A convolution, products and a softmax of floats; a second file has the same in 8 bits."""
    numbers = np.random.default_rng(0)
    shapes = {"w0": (12, 3, 3, 3), "w1": (12 * 64, 24), "w2": (24, 10)}
    constants = [numpy_helper.from_array(numbers.normal(0, 0.1, shape).astype(np.float32), name) for name, shape in shapes.items()]
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], pads=[1] * 4, strides=[2, 2]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Flatten", ["b"], ["c"]),
        helper.make_node("MatMul", ["c", "w1"], ["d"]),
        helper.make_node("Relu", ["d"], ["e"]),
        helper.make_node("MatMul", ["e", "w2"], ["f"]),
        helper.make_node("Softmax", ["f"], ["y"]),
    ]
    ports = [helper.make_tensor_value_info(*each) for each in (("x", TensorProto.FLOAT, [1, 3, 16, 16]), ("y", TensorProto.FLOAT, [1, 10]))]
    model = model_of(helper.make_graph(nodes, "g", ports[:1], ports[1:], constants))
    model.ir_version = 8
    onnx.save(model, folder / "float.onnx")
    np.savez(folder / "inputs.npz", x=numbers.normal(0, 1, (2, 1, 3, 16, 16)).astype(np.float32))
    np.savez(folder / "samples.npz", x=numbers.normal(0, 1, (4, 3, 16, 16)).astype(np.float32))
    quantize_model(folder / "float.onnx", folder / "samples.npz", folder / "int8.onnx")
    return folder


def check(compiled: deeploy.Compiled, folder: Path, on: str) -> tuple[int, ...]:
    """Run the project on two samples, compare it with the kernels' references; returns the cycles that were counted."""
    compiled.write(folder / "out")
    found = run_project(folder / "out", folder / "inputs.npz", on=on)
    with np.load(folder / "inputs.npz") as arrays:
        for got, sample in zip(found.outputs[0], arrays["x"], strict=True):
            np.testing.assert_allclose(got, compiled.interpret([sample])[0], rtol=1e-5, atol=1e-6)
    return found.cycles


def test_what_it_is() -> None:
    target = load(FOLDER)
    (path,) = target.paths
    assert path.near_pitch and target.engines[0].cores == 8
    assert "cluster_mover" in (FOLDER / "runtime" / "bare" / "cluster.c").read_text()


@pytest.mark.parametrize("l1", [None, 8000])
@pytest.mark.parametrize("name", ["float", "int8"])
def test_the_host_model_agrees(tmp_path: Path, name: str, l1: int | None) -> None:
    options = Options(memory={} if l1 is None else {"l1": l1})
    compiled = deeploy.compile(save_float_network(tmp_path) / f"{name}.onnx", FOLDER, **options.given())
    streamed = [call.kernel.name for call in compiled.plan.program.calls if call.kernel.name.startswith("snitch_")]
    assert len(streamed) == (4 if name == "float" else 0), "a convolution, two products and a softmax"
    check(compiled, tmp_path, "host")


@pytest.mark.parametrize(("rows", "depth", "columns", "is_streamed"), [(3, 64, 9, True), (5, 63, 8, False), (2, 130, 6, True)])
def test_products_of_an_even_depth_are_streamed(tmp_path: Path, rows: int, depth: int, columns: int, is_streamed: bool) -> None:
    """Both operands are inputs; the second one has its rows along the depth."""
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("a", [2, rows, depth]), ("b", [2, columns, depth]))]
    nodes = [helper.make_node("Transpose", ["b"], ["t"], perm=[0, 2, 1]), helper.make_node("MatMul", ["a", "t"], ["y"])]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, rows, columns])
    model = model_of(helper.make_graph(nodes, "g", ports, [result]))
    model.ir_version = 8
    onnx.save(model, tmp_path / "m.onnx")
    compiled = deeploy.compile(tmp_path / "m.onnx", FOLDER)
    kernels = {call.kernel.name for call in compiled.plan.program.calls}
    assert ("snitch_matmul_rows" in kernels) is is_streamed
    numbers = np.random.default_rng(depth)
    sample = [numbers.normal(0, 1, shape).astype(np.float32) for shape in ((2, rows, depth), (2, columns, depth))]
    np.testing.assert_allclose(compiled.run(sample)[0], compiled.interpret(sample)[0], rtol=1e-5, atol=1e-6)


def layers(folder: Path) -> Path:
    """A depthwise convolution, norm of rows, sums, bounds and a product of two variables, of lengths that leave remainders."""
    numbers = np.random.default_rng(1)
    shapes = {"w": (10, 1, 3, 3), "b": (10,), "scale": (10,), "offset": (10,), "more": (10,)}
    constants = [numpy_helper.from_array(numbers.normal(0, 0.5, shape).astype(np.float32), name) for name, shape in shapes.items()]
    constants += [numpy_helper.from_array(np.array(shape, np.int64), name) for name, shape in (("rows", (1, 10, 99)),)]
    constants += [numpy_helper.from_array(np.array(value, np.float32), name) for name, value in (("low", -0.5), ("high", 0.7))]
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["a"], group=10, pads=[1] * 4),
        helper.make_node("Reshape", ["a", "rows"], ["flat"]),
        helper.make_node("Transpose", ["flat"], ["tokens"], perm=[0, 2, 1]),
        helper.make_node("LayerNormalization", ["tokens", "scale", "offset"], ["n"], axis=-1),
        helper.make_node("Add", ["n", "more"], ["s"]),
        helper.make_node("Mul", ["s", "n"], ["m"]),
        helper.make_node("Clip", ["m", "low", "high"], ["c"]),
        helper.make_node("Transpose", ["c"], ["t"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["t", "c"], ["p"]),
        helper.make_node("Softmax", ["p"], ["y"], axis=-1),
    ]
    ports = [
        helper.make_tensor_value_info(*each) for each in (("x", TensorProto.FLOAT, [1, 10, 11, 9]), ("y", TensorProto.FLOAT, [1, 10, 10]))
    ]
    model = model_of(helper.make_graph(nodes, "g", ports[:1], ports[1:], constants))
    model.ir_version = 8
    onnx.save(model, folder / "layers.onnx")
    np.savez(folder / "inputs.npz", x=numbers.normal(0, 1, (2, 1, 10, 11, 9)).astype(np.float32))
    return folder / "layers.onnx"


@pytest.mark.parametrize("l1", [None, 3000])
def test_layers_of_remainders_on_the_host_model(tmp_path: Path, l1: int | None) -> None:
    compiled = deeploy.compile(layers(tmp_path), FOLDER, memory={} if l1 is None else {"l1": l1})
    kernels = {call.kernel.name for call in compiled.plan.program.calls}
    assert {"snitch_add", "snitch_mul", "snitch_softmax"} <= kernels
    assert ("snitch_depthwise" in kernels) is (l1 is None), "of few outputs another kernel is faster"
    check(compiled, tmp_path, "host")


def test_norms_of_long_rows_are_streamed(tmp_path: Path) -> None:
    """Of short ones the portable kernel is faster."""
    numbers = np.random.default_rng(3)
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [64, 250]) for name in ("x", "y")]
    constants = [numpy_helper.from_array(numbers.normal(0, 1, 250).astype(np.float32), name) for name in ("scale", "offset")]
    node = helper.make_node("LayerNormalization", ["x", "scale", "offset"], ["y"], axis=-1)
    model = model_of(helper.make_graph([node], "g", ports[:1], ports[1:], constants))
    model.ir_version = 8
    onnx.save(model, tmp_path / "norm.onnx")
    np.savez(tmp_path / "inputs.npz", x=numbers.normal(0, 1, (1, 64, 250)).astype(np.float32))
    compiled = deeploy.compile(tmp_path / "norm.onnx", FOLDER)
    assert [call.kernel.name for call in compiled.plan.program.calls] == ["snitch_normalise"]
    check(compiled, tmp_path, "host")


FUNCTIONS = {
    "Sigmoid": {},
    "Tanh": {},
    "Erf": {},
    "Exp": {},
    "Neg": {},
    "HardSigmoid": {"alpha": 0.3},
    "HardSwish": {},
    "LeakyRelu": {},
    "Gelu": {},
}


def functions(folder: Path) -> Path:
    """Functions of rows of 37 elements, each with an output of its own, and GELU by tanh."""
    numbers = np.random.default_rng(2)
    nodes = [helper.make_node(op, ["x"], [op.lower()], **attrs) for op, attrs in FUNCTIONS.items()]
    nodes.append(helper.make_node("Gelu", ["x"], ["gelu_tanh"], approximate="tanh"))
    shape = [3, 37]
    results = [helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, shape) for node in nodes]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)], results)
    model = model_of(graph, 20)
    model.ir_version = 9
    onnx.save(model, folder / "functions.onnx")
    samples = numbers.normal(0, 1, (2, *shape)).astype(np.float32) * np.array([1, 30], np.float32)[:, None, None]
    np.savez(folder / "inputs.npz", x=samples)
    return folder / "functions.onnx"


def check_functions(compiled: deeploy.Compiled, folder: Path, on: str) -> None:
    compiled.write(folder / "out")
    found = run_project(folder / "out", folder / "inputs.npz", on=on)
    with np.load(folder / "inputs.npz") as arrays:
        for number, sample in enumerate(arrays["x"]):
            for got, wanted in zip(found.outputs, compiled.interpret([sample]), strict=True):
                np.testing.assert_allclose(got[number], wanted, rtol=1e-5, atol=2e-7 * np.abs(sample).max())


def test_functions_of_elements_on_the_host_model(tmp_path: Path) -> None:
    compiled = deeploy.compile(functions(tmp_path), FOLDER)
    assert {call.kernel.name for call in compiled.plan.program.calls} == {"snitch_unary"}
    check_functions(compiled, tmp_path, "host")


@pytest.mark.gvsoc
def test_functions_of_elements_on_the_simulator(tmp_path: Path) -> None:
    skip_without_a_simulator()
    check_functions(deeploy.compile(functions(tmp_path), FOLDER), tmp_path, "gvsoc")


def skip_without_a_simulator() -> None:
    launcher = os.environ.get("GVSOC") or shutil.which("gvsoc")
    if launcher is None or not list(Path(launcher).resolve().parents[1].glob("models/**/*snitch_dma*")):
        pytest.skip("no GVSoC that was built for snitch: set GVSOC to the launcher of one")


def test_what_does_not_fit_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FitError):
        deeploy.compile(save_float_network(tmp_path) / "float.onnx", FOLDER, memory={"l1": 100})


def test_the_program_for_the_cluster_links(tmp_path: Path) -> None:
    if shutil.which("riscv64-unknown-elf-gcc") is None:
        pytest.skip("no riscv64-unknown-elf-gcc: install Debian's gcc-riscv64-unknown-elf and picolibc-riscv64-unknown-elf")
    deeploy.compile(save_float_network(tmp_path) / "float.onnx", FOLDER).write(tmp_path / "out")
    program = gvsoc.build_network(tmp_path / "out", "network") / "application.elf"
    text = subprocess.run(["riscv64-unknown-elf-nm", program], capture_output=True, text=True, check=True).stdout
    addresses = {words[-1]: int(words[0], 16) for words in map(str.split, text.splitlines()) if len(words) == 3}
    assert addresses["_start"] == 0x80000000 and addresses["__l1_end"] == 0x10020000
    stacks = program.with_suffix(".stacks").read_text()
    assert all(core in stacks for core in ("core 0: ", "a core: ", "the core that moves data: "))


@pytest.mark.gvsoc
@pytest.mark.parametrize(
    ("name", "l1"), [("float", None), ("float", 8000), ("int8", None), ("int8", 8000), ("layers", None), ("layers", 3000)]
)
def test_the_simulator_agrees(tmp_path: Path, name: str, l1: int | None) -> None:
    skip_without_a_simulator()
    options = Options(memory={} if l1 is None else {"l1": l1})
    model = layers(tmp_path) if name == "layers" else save_float_network(tmp_path) / f"{name}.onnx"
    cycles = check(deeploy.compile(model, FOLDER, **options.given()), tmp_path, "gvsoc")
    assert len(cycles) == 2 and min(cycles) > 1000


@pytest.mark.gvsoc
def test_long_rows_move_both_ways_at_once(tmp_path: Path) -> None:
    """Rows of kilobytes are fetched for one tile while those of another one are stored."""
    skip_without_a_simulator()
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, rows, 64]) for name, rows in (("x", 256), ("z", 128), ("y", 384))]
    nodes = [helper.make_node("Concat", ["x", "z"], ["y"], axis=1)]
    model = model_of(helper.make_graph(nodes, "g", ports[:2], ports[2:]))
    model.ir_version = 8
    onnx.save(model, tmp_path / "concat.onnx")
    numbers = np.random.default_rng(4)
    x, z = (numbers.normal(0, 1, (1, rows, 64)).astype(np.float32) for rows in (256, 128))
    np.savez(tmp_path / "inputs.npz", x=x, z=z)
    deeploy.compile(tmp_path / "concat.onnx", FOLDER).write(tmp_path / "out")
    (got,) = run_project(tmp_path / "out", tmp_path / "inputs.npz", on="gvsoc").outputs
    np.testing.assert_array_equal(got.reshape(1, 384, 64), np.concatenate([x, z], 1))
