"""Files that can and cannot be read: formats, versions, external data, local functions, malformed graphs, hostile names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from deeploy.errors import DeeployError, ModelError, UnsupportedError, UsageError
from deeploy.frontend import import_model
from tests.frontend.models import build, f32, read

relu = helper.make_node("Relu", ["x"], ["y"], name="relu")


def refuses(error: type[DeeployError], words: str, action: Callable[[], object]) -> None:
    """The action raises exactly ``error``, with ``words`` in it, in two lines without control characters."""
    with pytest.raises(error) as caught:
        action()
    text = str(caught.value)
    assert caught.type is error
    assert words in text
    assert len(text.splitlines()) == 2
    assert all(len(line) < 600 for line in text.splitlines())
    assert caught.value.exit_status == 2


@pytest.mark.parametrize("content", [b"", b"hello, this is no model", b"\x00" * 50, b"TFL3" * 9, bytes(range(256)) * 8])
def test_what_is_no_model(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    refuses(ModelError, "model.onnx", lambda: import_model(path))


def test_truncated_at_any_place(tmp_path: Path) -> None:
    nodes = [relu, helper.make_node("Conv", ["y", "w"], ["z"])]
    content = build(nodes, {"x": f32(1, 2, 4, 4)}, ["z"], {"w": np.ones((3, 2, 3, 3), np.float32)}).SerializeToString()
    path = tmp_path / "model.onnx"
    for length in range(0, len(content), 7):
        path.write_bytes(content[:length])
        with pytest.raises(DeeployError):
            import_model(path)


def test_missing_files_and_folders(tmp_path: Path) -> None:
    refuses(ModelError, "no file", lambda: import_model(tmp_path / "absent.onnx"))
    refuses(ModelError, "folder", lambda: import_model(tmp_path))


@pytest.mark.parametrize("opset", [1, 6, 999])
def test_opsets_out_of_range(tmp_path: Path, opset: int) -> None:
    refuses(UnsupportedError, f"opset {opset}", lambda: read(build([relu], {"x": f32(2)}, ["y"], opset=opset), tmp_path))


@pytest.mark.parametrize("opset", range(7, onnx.defs.onnx_opset_version() + 1))
def test_every_opset_in_range(tmp_path: Path, opset: int) -> None:
    graph = read(build([relu], {"x": f32(2, 3)}, ["y"], opset=opset), tmp_path)
    assert [node.op for node in graph.nodes] == ["Relu"]
    assert list(graph.outputs[0].shape) == [2, 3]


def external(folder: Path, location: str, **entries: int) -> onnx.ModelProto:
    """A model whose weight [4] lies in an external file."""
    model = build([helper.make_node("Add", ["x", "w"], ["y"])], {"x": f32(4)}, ["y"], {"w": np.arange(4, dtype=np.float32)})
    tensor = model.graph.initializer[0]
    data = tensor.raw_data
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(value))
    (folder / "inside").mkdir(exist_ok=True)
    (folder / "inside" / "w.bin").write_bytes(b"head" + data)
    return model


def test_external_data_is_read_from_the_folder(tmp_path: Path) -> None:
    graph = read(external(tmp_path, "inside/w.bin", offset=4, length=16), tmp_path)
    assert graph.nodes[0].inputs[1].data.tolist() == [0, 1, 2, 3]
    graph = read(external(tmp_path, "inside/w.bin", offset=4), tmp_path)
    assert graph.nodes[0].inputs[1].data.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("location", "words"),
    [
        ("../w.bin", "outside"),
        ("inside/../../w.bin", "outside"),
        ("/etc/hostname", "outside"),
        ("C:\\w.bin", "outside"),
        ("absent.bin", "missing"),
        ("inside", "not a file"),
        ("link.bin", "outside"),
        ("linked/w.bin", "outside"),
        ("loop.bin", "missing"),
        ("n" * 5000, "missing"),
        ("", "location"),
    ],
)
def test_external_paths_that_are_refused(tmp_path: Path, location: str, words: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "w.bin").write_bytes(bytes(64))
    (folder / "link.bin").symlink_to(tmp_path / "w.bin")
    (folder / "linked").symlink_to(tmp_path)
    (folder / "loop.bin").symlink_to(folder / "loop.bin")
    refuses(ModelError, words, lambda: read(external(folder, location), folder))


@pytest.mark.parametrize("entries", [{"offset": 8, "length": 16}, {"offset": -1}, {"length": -4}, {"offset": 10**12}])
def test_external_ranges_that_are_refused(tmp_path: Path, entries: dict[str, int]) -> None:
    refuses(ModelError, "bytes", lambda: read(external(tmp_path, "inside/w.bin", **entries), tmp_path))


def function(name: str, body: list[onnx.NodeProto]) -> onnx.FunctionProto:
    return helper.make_function("own", name, ["a"], ["b"], body, [helper.make_opsetid("", 13), helper.make_opsetid("own", 1)])


def test_local_functions_are_inlined(tmp_path: Path) -> None:
    inner = function("Twice", [helper.make_node("Add", ["a", "a"], ["b"])])
    outer = function("Four", [helper.make_node("Twice", ["a"], ["t"], domain="own"), helper.make_node("Twice", ["t"], ["b"], domain="own")])
    model = build([helper.make_node("Four", ["x"], ["y"], domain="own")], {"x": f32(3)}, ["y"], functions=[inner, outer])
    graph = read(model, tmp_path)
    assert [node.op for node in graph.nodes] == ["Add", "Add"]
    assert graph.outputs[0].name == "y"


def test_functions_that_call_themselves_or_explode(tmp_path: Path) -> None:
    call = helper.make_node("F", ["x"], ["y"], domain="own")
    loop = function("F", [helper.make_node("F", ["a"], ["b"], domain="own")])
    refuses(ModelError, "calls itself", lambda: read(build([call], {"x": f32(3)}, ["y"], functions=[loop]), tmp_path))
    doubling = [function("F0", [helper.make_node("Relu", ["a"], ["b"])])]
    for level in range(1, 40):
        callee = f"F{level - 1}"
        body = [helper.make_node(callee, ["a"], ["t"], domain="own"), helper.make_node(callee, ["t"], ["b"], domain="own")]
        doubling.append(function(f"F{level}", body))
    call = helper.make_node("F39", ["x"], ["y"], domain="own")
    refuses(UnsupportedError, "expand", lambda: read(build([call], {"x": f32(3)}, ["y"], functions=doubling), tmp_path))


def node(op: str, inputs: list[str], outputs: list[str], **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op, inputs, outputs, name=f"node {outputs[0]}", **attributes)


BODY = helper.make_graph([helper.make_node("Relu", ["x"], ["b"])], "body", [], [helper.make_tensor_value_info("b", 1, [2])])
MALFORMED = {
    "cycle": ([node("Add", ["x", "b"], ["a"]), node("Relu", ["a"], ["b"])], ["b"], ModelError, "cycle"),
    "nobody produces": ([node("Add", ["x", "ghost"], ["y"])], ["y"], ModelError, "ghost"),
    "missing output": ([node("Relu", ["x"], ["y"])], ["z"], ModelError, "'z'"),
    "produced twice": ([node("Relu", ["x"], ["y"]), node("Abs", ["x"], ["y"])], ["y"], ModelError, "exists already"),
    "overwrites an input": ([node("Relu", ["x"], ["x"])], ["x"], ModelError, "exists already"),
    "outputs of one name": ([node("Relu", ["x"], ["y"])], ["y", "y"], ModelError, "two graph outputs"),
    "no outputs": ([node("Relu", ["x"], ["y"])], [], ModelError, "no outputs"),
    "input is output": ([], ["x"], UnsupportedError, "Identity"),
    "loop": ([node("Loop", ["x"], ["y"], body=BODY)], ["y"], ModelError, "a body of 0 inputs and 1 outputs"),
    "subgraph": ([node("FlexAttention", ["x", "x", "x"], ["y"], score_mod=BODY)], ["y"], UnsupportedError, "subgraph"),
    "sequence": ([node("SequenceConstruct", ["x"], ["s"]), node("SequenceLength", ["s"], ["y"])], ["y"], UnsupportedError, "'s'"),
    "string": ([node("Cast", ["x"], ["y"], to=TensorProto.STRING)], ["y"], UnsupportedError, "string"),
    "complex": ([node("Cast", ["x"], ["y"], to=TensorProto.COMPLEX64)], ["y"], ModelError, "complex64"),
    "unknown type": ([node("Cast", ["x"], ["y"], to=999)], ["y"], ModelError, "999"),
    "unknown operator": ([node("Wobble", ["x"], ["y"])], ["y"], UnsupportedError, "Wobble"),
    "missing attribute": ([node("Concat", ["x", "x"], ["y"])], ["y"], UnsupportedError, "node y"),
    "random": ([node("RandomNormal", [], ["n"], shape=[2]), node("Add", ["x", "n"], ["y"])], ["y"], None, ""),
    "training": ([node("Dropout", ["x", "r", "t"], ["y"])], ["y"], UnsupportedError, "training"),
    "shapes": ([node("MatMul", ["x", "r3"], ["y"])], ["y"], ModelError, "node y"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_and_unsupported_graphs(tmp_path: Path, case: str) -> None:
    nodes, outputs, error, words = MALFORMED[case]
    constants = {"r": np.float32(0.5), "t": np.array(True), "r3": np.ones((3, 3), np.float32)}
    model = build(nodes, {"x": f32(2, 2)}, outputs, constants)
    if error is None:
        assert [n.op for n in read(model, tmp_path).nodes] == ["RandomNormal", "Add"]
    else:
        refuses(error, words, lambda: read(model, tmp_path))


def test_values_that_are_not_tensors(tmp_path: Path) -> None:
    model = build([relu], {"x": f32(2)}, ["y"])
    model.graph.input[0].type.sequence_type.elem_type.tensor_type.elem_type = TensorProto.FLOAT
    refuses(UnsupportedError, "sequence_type", lambda: read(model, tmp_path))
    model = build([relu], {"x": f32(2)}, ["y"])
    model.graph.sparse_initializer.add().values.name = "s"
    refuses(UnsupportedError, "sparse", lambda: read(model, tmp_path))


@pytest.mark.parametrize("damage", ["short", "negative", "type"])
def test_damaged_constants(tmp_path: Path, damage: str) -> None:
    model = build([helper.make_node("Add", ["x", "w"], ["y"])], {"x": f32(4)}, ["y"], {"w": np.ones(4, np.float32)})
    tensor = model.graph.initializer[0]
    if damage == "short":
        tensor.raw_data = tensor.raw_data[:-3]
    elif damage == "negative":
        tensor.dims[0] = -1
    else:
        tensor.data_type = 77
    refuses(ModelError, "'w' is damaged", lambda: read(model, tmp_path))


def test_constants_that_would_be_huge(tmp_path: Path) -> None:
    nodes = [helper.make_node("ConstantOfShape", ["s"], ["z"]), helper.make_node("Add", ["x", "z"], ["y"])]
    model = build(nodes, {"x": f32(1)}, ["y"], {"s": np.array([1 << 40], np.int64)})
    refuses(UnsupportedError, "constant of shape", lambda: read(model, tmp_path))


def test_symbolic_dimensions(tmp_path: Path) -> None:
    model = build([relu], {"x": f32("batch", 3, "width")}, ["y"])
    assert list(read(model, tmp_path, {"batch": 2, "width": 5}).outputs[0].shape) == [2, 3, 5]
    refuses(UnsupportedError, "--dim width=VALUE", lambda: read(model, tmp_path, {"batch": 2}))
    refuses(UnsupportedError, "--dim batch=1 --dim width=VALUE", lambda: read(model, tmp_path))
    refuses(UsageError, "'height'", lambda: read(model, tmp_path, {"batch": 2, "width": 5, "height": 1}))
    refuses(UsageError, "negative", lambda: read(model, tmp_path, {"batch": -2, "width": 5}))
    unnamed = build([relu], {"x": f32(None, 3)}, ["y"])
    refuses(UnsupportedError, "without a name", lambda: read(unnamed, tmp_path))
    assert list(read(unnamed, tmp_path, {"x:0": 4}).inputs[0].shape) == [4, 3]
    unshaped = build([relu], {"x": (None, TensorProto.FLOAT)}, ["y"])  # type: ignore[dict-item]
    refuses(UnsupportedError, "has no shape", lambda: read(unshaped, tmp_path))


HOSTILE = ['quo"te', "new\nline", "${x}", "<%! import os %>", "../../etc", "l" * 10_000, "a.b", "a-b", "a b", "int", "\u202e", "\0"]


def test_hostile_names_stay_apart(tmp_path: Path) -> None:
    nodes = []
    previous = "x"
    for name in HOSTILE:
        nodes.append(helper.make_node("Relu", [previous], [name], name=name))
        previous = name
    nodes += [helper.make_node("Abs", [previous], ["t"]), helper.make_node("Neg", ["t"], ["y"], name="int")]
    graph = read(build(nodes, {"x": f32(2)}, ["y"]), tmp_path)
    names = [n.name for n in graph.nodes]
    assert names[: len(HOSTILE)] == HOSTILE
    assert names[-2:] == ["Abs_t", "int_2"]
    broken = build([helper.make_node("Wobble", ["x"], ["y"], name='"\n${x}' + "l" * 10_000)], {"x": f32(2)}, ["y"])
    refuses(UnsupportedError, "Wobble", lambda: read(broken, tmp_path))


def test_unsorted_dead_and_listed(tmp_path: Path) -> None:
    """Nodes are sorted, dead ones and unused initialisers dropped, initialisers among the inputs are constants."""
    nodes = [
        helper.make_node("Relu", ["b"], ["y"]),
        helper.make_node("Wobble", ["x"], ["nobody reads this"]),
        helper.make_node("Add", ["x", "w"], ["b"]),
    ]
    model = build(
        nodes, {"x": f32(2), "w": f32(2), "spare": f32(7)}, ["y"], {"w": np.ones(2, np.float32), "unused": np.ones(5, np.float32)}
    )
    graph = read(model, tmp_path)
    assert [n.op for n in graph.nodes] == ["Add", "Relu"]
    assert [t.name for t in graph.inputs] == ["x", "spare"]
    assert {t.name for node in graph.nodes for t in (*node.operands, *node.outputs)} == {"x", "w", "b", "y"}
    assert numpy_helper.to_array(model.graph.initializer[0]).tolist() == graph.nodes[0].inputs[1].data.tolist()


@pytest.mark.parametrize("domain", ["", "PACTOps"])
@pytest.mark.parametrize("name", ["eps", "epsilon"])
def test_the_root_mean_square_norm_of_the_dialect(tmp_path: Path, domain: str, name: str) -> None:
    """It is onnxruntime's, whose epsilon has another name; without one, it is what reproduces the published float microLlama."""
    node = helper.make_node("RMSNorm", ["x", "w"], ["y"], domain=domain, **{name: 0.5})
    constants = {"w": np.ones(3, np.float32)}
    graph = read(build([node], {"x": f32(2, 3)}, ["y"], constants), tmp_path)
    assert [(n.op, n.domain, n.attrs["epsilon"]) for n in graph.nodes] == [("SimplifiedLayerNormalization", "", 0.5)]
    assert list(graph.outputs[0].shape) == [2, 3]
    del node.attribute[:]
    graph = read(build([node], {"x": f32(2, 3)}, ["y"], constants), tmp_path)
    assert graph.nodes[0].attrs["epsilon"] == pytest.approx(1e-6)


def test_dimensions_without_a_name(tmp_path: Path) -> None:
    nodes = [helper.make_node("ReduceSum", ["s"], ["t"]), helper.make_node("Add", ["x", "t"], ["y"])]
    model = build(nodes, {"x": f32(None, None), "s": f32(2, None, 3)}, ["y"])
    assert [list(t.shape) for t in read(model, tmp_path, {"x:0": 1, "x:1": 7, "s:1": 5}).inputs] == [[1, 7], [2, 5, 3]]
    assert [list(t.shape) for t in read(model, tmp_path, {"batch": 1, "samples": 7}).inputs] == [[1, 7], [2, 1, 3]]
    refuses(UnsupportedError, "--dim x:0=VALUE --dim x:1=VALUE --dim s:1=VALUE", lambda: read(model, tmp_path))
    refuses(UsageError, "'batch'", lambda: read(model, tmp_path, {"batch": 1}))
