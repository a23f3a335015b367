"""Damage to ONNX files: to their bytes, and to what a file that parses says."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from tests.random.choices import Choices

HOSTILE = (
    "",
    " ",
    "x" * 10_000,
    "a\nb",
    "*/ int z; /*",
    '"); exit(1); //',
    "\x00",
    "\x1b[31m",
    "../../etc/passwd",
    "%s%n",
    "ünïcode☃",
    "#define X",
    "1",
    "\\",
    "deeploy_network",
    "int",
)
NUMBERS = (0, -1, 1, 2, 3, 7, 255, 2**31 - 1, -(2**31), 2**31, 2**62, 2**63 - 1, -(2**63))
REALS = (0.0, -1.0, float("nan"), float("inf"), -float("inf"), 1e-45, 1e-37, 1e29, 3e38, 1e300)
EXTENTS = (0, -1, 1, 2, 3, 1000, 2**20, 2**31, 2**40, 2**63 - 1)
KINDS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 17, 21, 22, 23, 99, -1)


def of_bytes(choices: Choices, data: bytes) -> bytes:
    """Bits flipped, parts cut out, put in, repeated or overwritten."""
    found = bytearray(data)
    for _ in range(choices.weighted([(3, 1), (2, 2), (1, 8)])):
        size = len(found)
        if not size:
            break
        place, length = choices.integer(0, size - 1), choices.pick([1, 1, 2, 4, 16, 100])
        kind = choices.pick(["flip", "flip", "flip", "set", "cut", "insert", "repeat", "truncate"])
        if kind == "flip":
            found[place] ^= 1 << choices.integer(0, 7)
        elif kind == "set":
            found[place : place + length] = bytes([choices.pick([0, 255, 127, 128])]) * min(length, size - place)
        elif kind == "cut":
            del found[place : place + length]
        elif kind == "insert":
            found[place:place] = choices.generator().bytes(length)
        elif kind == "repeat":
            found[place:place] = found[place : place + length]
        else:
            del found[place:]
    return bytes(found)


Damage = Callable[[Choices, onnx.GraphProto], None]


def _tensor_names(graph: onnx.GraphProto) -> list[str]:
    return [name for node in graph.node for name in (*node.input, *node.output)] + [t.name for t in graph.initializer] or ["x"]


def _inputs(c: Choices, graph: onnx.GraphProto) -> None:
    """What a node reads."""
    node = c.pick(graph.node)
    names = list(node.input)
    place = c.integer(0, max(0, len(names) - 1))
    kind = c.pick(["remove", "blank", "add", "own", "other", "unknown", "swap", "clear", "hostile"])
    if kind == "clear":
        names = []
    elif kind == "add":
        names.insert(place, c.pick(_tensor_names(graph)))
    elif names:
        if kind == "remove":
            del names[place]
        elif kind == "swap":
            names.reverse()
        else:
            own = node.output[0] if node.output else ""
            names[place] = {"blank": "", "own": own, "other": c.pick(_tensor_names(graph)), "unknown": "nowhere"}.get(kind) or (
                c.pick(HOSTILE) if kind == "hostile" else ""
            )
    del node.input[:]
    node.input.extend(names)


def _outputs(c: Choices, graph: onnx.GraphProto) -> None:
    node = c.pick(graph.node)
    kind = c.pick(["remove", "blank", "taken", "add", "hostile"])
    if kind == "add":
        node.output.append(c.pick(["more", "", *_tensor_names(graph)[:1]]))
    elif node.output:
        if kind == "remove":
            del node.output[-1]
        else:
            node.output[0] = {"blank": "", "taken": c.pick(_tensor_names(graph))}.get(kind) or c.pick(HOSTILE)


def _order(c: Choices, graph: onnx.GraphProto) -> None:
    """Nodes removed, repeated, reordered."""
    place = c.integer(0, len(graph.node) - 1)
    kind = c.pick(["remove", "repeat", "reverse"])
    nodes = list(graph.node)
    if kind == "remove":
        del nodes[place]
    elif kind == "repeat":
        nodes.append(nodes[place])
    else:
        nodes.reverse()
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)


OPERATORS = tuple(
    word
    for line in (
        "Conv ConvTranspose MatMul Gemm Add Concat Slice Split Transpose Reshape Squeeze Unsqueeze Pad Resize Gather Where",
        "Softmax ReduceSum Cast Clip QuantizeLinear DequantizeLinear QLinearConv RequantShift iSoftmax iLayerNorm iGELU",
        "LayerNormalization BatchNormalization MaxPool AveragePool Expand Tile Shape ConstantOfShape Constant Range Loop If Scan",
        "GRU LSTM TopK NonZero Einsum DepthToSpace CumSum OneHot Flatten Identity Dropout Nonsense Upsample Attention",
        "RotaryEmbedding GroupNormalization Quantize Lookup RequantAdd Softplus QGemm QLinearAdd FusedConv IntegerMean",
    )
    for word in line.split()
)


def _operator(c: Choices, graph: onnx.GraphProto) -> None:
    node = c.pick(graph.node)
    if c.chance(3):
        node.domain = c.pick(["com.microsoft", "PACTOps", "ai.onnx.contrib", "ai.onnx", "deeploy", "nowhere", *HOSTILE])
    elif c.chance(6):
        node.op_type = c.pick(HOSTILE)
    else:
        node.op_type = c.pick(OPERATORS)


def _value(c: Choices) -> object:
    """An attribute's value of any kind."""
    kind = c.pick(["int", "float", "text", "ints", "floats", "texts", "tensor", "bytes", "empty"])
    if kind == "int":
        return c.pick(NUMBERS)
    if kind == "float":
        return float(np.float32(c.pick(REALS[:-1])))
    if kind == "text":
        return c.pick(HOSTILE)
    if kind == "ints":
        return [c.pick(NUMBERS) for _ in range(c.integer(1, 5))]
    if kind == "floats":
        return [float(np.float32(c.pick(REALS[:-1]))) for _ in range(c.integer(1, 5))]
    if kind == "texts":
        return ["constant", c.pick(HOSTILE)]
    if kind == "bytes":
        return b"\xff\xfe"
    if kind == "empty":
        return helper.make_tensor("t", TensorProto.FLOAT, [0], [])
    return helper.make_tensor("t", c.pick([TensorProto.FLOAT, TensorProto.INT64]), c.pick([[], [1], [2]]), c.pick([[0], [1], [-1]]) * 1)


def _attributes(c: Choices, graph: onnx.GraphProto) -> None:
    node = c.pick([n for n in graph.node if n.attribute] or list(graph.node))
    if not node.attribute:
        name = c.pick(
            ["axis", "axes", "perm", "pads", "strides", "kernel_shape", "mode", "group", "to", "value", "div", "n_levels", "auto_pad"]
        )
        node.attribute.append(helper.make_attribute(name, 1))
    place = c.integer(0, len(node.attribute) - 1)
    attribute = node.attribute[place]
    kind = c.pick(["remove", "value", "value", "value", "element", "element", "length", "rename", "repeat", "type", "clear"])
    if kind == "remove":
        del node.attribute[place]
    elif kind == "value":
        try:
            attribute.CopyFrom(helper.make_attribute(attribute.name, _value(c)))
        except (ValueError, TypeError):
            del node.attribute[place]
    elif kind == "element":
        if attribute.ints:
            attribute.ints[c.integer(0, len(attribute.ints) - 1)] = c.pick(NUMBERS)
        elif attribute.type == AttributeProto.INT:
            attribute.i = c.pick(NUMBERS)
        elif attribute.type == AttributeProto.FLOAT:
            attribute.f = c.pick(REALS[:-1])
        elif attribute.type == AttributeProto.STRING:
            attribute.s = c.pick([b"\xff\xfe", *(text.encode() for text in HOSTILE)])
    elif kind == "length":
        if c.chance(2):
            attribute.ints.append(c.pick(NUMBERS))
        elif attribute.ints:
            del attribute.ints[-1]
    elif kind == "rename":
        attribute.name = c.pick(["nonsense", "epilogue", "shift", "low", *HOSTILE])
    elif kind == "repeat":
        node.attribute.append(attribute)
    elif kind == "type":
        attribute.type = c.pick([t for t in range(15) if t in AttributeProto.AttributeType.values()])
    else:
        name = attribute.name
        attribute.Clear()
        attribute.name = name


def _constants(c: Choices, graph: onnx.GraphProto) -> None:
    if not graph.initializer:
        graph.initializer.append(numpy_helper.from_array(np.zeros(2, np.float32), c.pick(_tensor_names(graph))))
    place = c.integer(0, len(graph.initializer) - 1)
    tensor = graph.initializer[place]
    kind = c.pick(["remove", "dims", "dims", "kind", "data", "name", "repeat", "values", "values", "values", "external", "rank", "segment"])
    if kind == "remove":
        del graph.initializer[place]
    elif kind == "dims":
        if tensor.dims:
            tensor.dims[c.integer(0, len(tensor.dims) - 1)] = c.pick(EXTENTS)
        else:
            tensor.dims.append(c.pick(EXTENTS))
    elif kind == "rank":
        tensor.dims.append(1) if c.chance(2) or not tensor.dims else tensor.dims.pop()
    elif kind == "kind":
        tensor.data_type = c.pick(KINDS)
    elif kind == "data":
        tensor.raw_data = c.pick([b"", tensor.raw_data[:-1], tensor.raw_data + b"\0", tensor.raw_data[: len(tensor.raw_data) // 2]])
    elif kind == "name":
        tensor.name = c.pick([*HOSTILE, *_tensor_names(graph)[:2]])
    elif kind == "repeat":
        graph.initializer.append(tensor)
    elif kind == "external":
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=c.pick(["missing", "../x", "/etc/passwd", "", "."]))
    elif kind == "segment":
        tensor.segment.begin, tensor.segment.end = 0, 2**40
    else:
        _values(c, tensor)


def _values(c: Choices, tensor: TensorProto) -> None:
    """Extreme values: scales of zero, multipliers out of range."""
    try:
        array = np.array(numpy_helper.to_array(tensor))
    except (ValueError, TypeError, onnx.checker.ValidationError):
        return
    if not array.size or array.dtype.kind not in "iuf":
        return
    place = c.integer(0, array.size - 1)
    if array.dtype.kind == "f":
        value: float = c.pick(REALS[:-1])
    else:
        info = np.iinfo(array.dtype)
        value = c.pick([int(info.min), int(info.max), *(n for n in NUMBERS if info.min <= n <= info.max)])
    if c.chance(3):
        array[...] = value
    else:
        array.reshape(-1)[place] = value
    name = tensor.name
    tensor.CopyFrom(numpy_helper.from_array(array, name))


def _ports(c: Choices, graph: onnx.GraphProto) -> None:
    """Declared inputs, outputs and inner tensors."""
    lists = [entries for entries in (graph.input, graph.input, graph.output, graph.value_info) if entries]
    if not lists:
        return
    entries = c.pick(lists)
    place = c.integer(0, len(entries) - 1)
    port = entries[place]
    shape = port.type.tensor_type.shape
    kind = c.pick(["remove", "extent", "extent", "symbol", "rank", "shapeless", "kind", "repeat", "name", "sequence", "untyped", "blank"])
    if kind == "remove":
        del entries[place]
    elif kind == "extent" and shape.dim:
        shape.dim[c.integer(0, len(shape.dim) - 1)].dim_value = c.pick(EXTENTS)
    elif kind == "symbol" and shape.dim:
        shape.dim[c.integer(0, len(shape.dim) - 1)].dim_param = c.pick(["N", *HOSTILE])
    elif kind == "rank":
        shape.dim.add().dim_value = c.pick([1, 2]) if c.chance(2) or not shape.dim else 3
    elif kind == "shapeless":
        port.type.tensor_type.ClearField("shape")
    elif kind == "kind":
        port.type.tensor_type.elem_type = c.pick(KINDS)
    elif kind == "repeat":
        entries.append(port)
    elif kind == "name":
        port.name = c.pick([*HOSTILE, *_tensor_names(graph)[:3]])
    elif kind == "sequence":
        port.type.sequence_type.elem_type.tensor_type.elem_type = 1
    elif kind == "blank" and shape.dim:
        shape.dim[0].Clear()
    else:
        port.ClearField("type")


def _names(c: Choices, graph: onnx.GraphProto) -> None:
    """A tensor or node renamed everywhere: the graph stays valid."""
    new = c.pick(HOSTILE)
    if c.chance(3):
        c.pick(graph.node).name = new
        return
    if c.chance(6):
        graph.name = new
        return
    old = c.pick(_tensor_names(graph))
    for node in graph.node:
        for names in (node.input, node.output):
            for place, name in enumerate(names):
                if name == old:
                    names[place] = new
    for entry in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        if entry.name == old:
            entry.name = new


def _inner(c: Choices, graph: onnx.GraphProto) -> None:
    """A subgraph, a sparse constant, a training list: parts of ONNX that few files have."""
    node = c.pick(graph.node)
    if c.chance(2):
        inner = onnx.GraphProto()
        if c.chance(2):
            inner.CopyFrom(graph)
        node.attribute.append(helper.make_attribute(c.pick(["body", "then_branch", "value"]), inner))
    else:
        sparse = graph.sparse_initializer.add()
        sparse.values.CopyFrom(helper.make_tensor(c.pick(_tensor_names(graph)), TensorProto.FLOAT, [1], [1.0]))
        sparse.dims.append(c.pick(EXTENTS))


DAMAGES: tuple[tuple[int, Damage], ...] = (
    (3, _inputs),
    (1, _outputs),
    (1, _order),
    (2, _operator),
    (5, _attributes),
    (5, _constants),
    (4, _ports),
    (2, _names),
    (1, _inner),
)


def of_model(c: Choices, model: onnx.ModelProto) -> bytes:
    """A file that parses, with one to three things wrong in it."""
    copy = onnx.ModelProto.FromString(model.SerializeToString())
    for _ in range(c.weighted([(4, 1), (2, 2), (1, 3)])):
        if c.chance(12):
            _of_head(c, copy)
        elif copy.graph.node:
            c.weighted(DAMAGES)(c, copy.graph)
    return bytes(copy.SerializeToString())


def _of_head(c: Choices, model: onnx.ModelProto) -> None:
    """Versions, domains, local functions."""
    kind = c.pick(["version", "missing", "repeat", "domain", "function", "ir", "graphless"])
    if kind == "version" and model.opset_import:
        model.opset_import[0].version = c.pick([*NUMBERS, *range(1, 30)])
    elif kind == "missing":
        del model.opset_import[:]
    elif kind == "repeat":
        model.opset_import.add(domain="", version=c.integer(1, 30))
    elif kind == "domain":
        model.opset_import.add(domain=c.pick(["com.microsoft", *HOSTILE]), version=c.pick(NUMBERS))
    elif kind == "function" and model.graph.node:
        node = c.pick(model.graph.node)
        body = onnx.NodeProto.FromString(node.SerializeToString())
        function = helper.make_function(
            node.domain, node.op_type or "f", list(node.input), list(node.output), [body], [helper.make_opsetid("", 13)]
        )
        model.functions.append(function)
    elif kind == "ir":
        model.ir_version = c.pick(NUMBERS)
    else:
        model.ClearField("graph")
