"""Nodes that contradict themselves: a valid node of every operator with something wrong in it, and what onnxruntime says of it.

What is wrong is drawn from the operator's definition in the onnx package where it has one: attributes that are missing, of another kind or
out of range, inputs of other ranks, extents and types, constants that point outside, huge extents, too many inputs and outputs. A node that
onnxruntime takes all the same has to give the same result; one that it refuses must be refused as well, but for ``JUSTIFIED``.
"""

from __future__ import annotations

import copy
import math
import re
import tempfile
import traceback
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from deeploy.frontend.schemas import DIALECT_OPS, find_signature, operator_history
from tests.frontend import nodes
from tests.random import oracle
from tests.random.choices import Choices

OPSETS = (8, 11, 13, 18, 22)
MOST_ELEMENTS = 1 << 20  # of any tensor that onnxruntime is given
HUGE = (2**20, 2**31, 2**40, 2**62)
NUMBERS = (0, -1, 1, 2, 3, 7, -3, 100, 2**31 - 1, 2**31, -(2**31), 2**62, -(2**63))
REALS = (0.0, -1.0, 0.5, 1000.0, float("nan"), float("inf"), -float("inf"))
TYPES = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 99)

Change = Callable[[Choices, onnx.ModelProto], None]


@cache
def bases() -> dict[str, onnx.ModelProto]:
    """Valid nodes, by name and opset: those of the importer's tests, in every opset whose definition they fit."""
    found = {}
    for name, model in nodes.sample_models().items():
        node = model.graph.node[0]
        for version in {*OPSETS, model.opset_import[0].version}:
            attributes = frozenset(attribute.name for attribute in node.attribute)
            known = find_signature(node.op_type, version, attributes, len(node.input)) if not node.domain else None
            if known is None and version != model.opset_import[0].version:
                continue
            newest = max(
                (s.schema.since_version for s in operator_history(node.op_type, "") if s.schema.since_version <= version), default=0
            )
            if known is None or (known.schema.since_version == newest and known.fits(attributes, len(node.input), True)):
                made = copy.deepcopy(model)
                for value in made.graph.output:
                    value.ClearField("type")
                made.opset_import[0].version = version
                found[f"{name} {version}"] = made
    return found


def drawn(c: Choices) -> tuple[str, onnx.ModelProto]:
    """A node with one thing wrong, seldom two; its label says which."""
    name = c.pick(sorted(bases()))
    model = copy.deepcopy(bases()[name])
    changes = [c.weighted(CHANGES) for _ in range(c.weighted([(5, 1), (1, 2)]))]
    for change in changes:
        change(c, model)
    return f"{name}: {', '.join(change.__name__.strip('_') for change in changes)}", model


def _attribute(c: Choices, model: onnx.ModelProto) -> AttributeProto | None:
    found = model.graph.node[0].attribute
    return c.pick(list(found)) if found else None


def _attribute_missing(c: Choices, model: onnx.ModelProto) -> None:
    if (attribute := _attribute(c, model)) is not None:
        model.graph.node[0].attribute.remove(attribute)


def _attribute_of_another_kind(c: Choices, model: onnx.ModelProto) -> None:
    if (attribute := _attribute(c, model)) is not None:
        value: Any = c.pick([1, 0.5, "text", [1, 2], [0.5], ["a"], numpy_helper.from_array(np.ones(2, np.float32)), [], True])
        kind = AttributeProto.INTS if value == [] else None
        attribute.CopyFrom(helper.make_attribute(attribute.name, value, attr_type=kind))


def _attribute_out_of_range(c: Choices, model: onnx.ModelProto) -> None:
    attribute = _attribute(c, model)
    if attribute is None:
        return
    if attribute.type == AttributeProto.INT:
        attribute.i = c.pick(NUMBERS)
    elif attribute.type == AttributeProto.FLOAT:
        attribute.f = float(np.float32(c.pick(REALS)))
    elif attribute.type == AttributeProto.INTS and attribute.ints:
        attribute.ints[c.integer(0, len(attribute.ints) - 1)] = c.pick(NUMBERS)
    elif attribute.type == AttributeProto.STRING:
        attribute.s = c.pick([b"", b"nonsense", b"VALID", b"SAME_UPPER", b"CRD", b"linear", b"cubic", b"reflect", b"wrap"])


def _attribute_of_another_length(c: Choices, model: onnx.ModelProto) -> None:
    lists = [attribute for attribute in model.graph.node[0].attribute if attribute.ints]
    if lists:
        attribute = c.pick(lists)
        if c.chance(2):
            attribute.ints.append(c.pick([0, 1, 2]))
        else:
            del attribute.ints[-1]


def _attribute_unknown(c: Choices, model: onnx.ModelProto) -> None:
    name = c.pick(["axis", "axes", "nonsense", "keepdims", "mode", "output_shape", "ceil_mode", "to", "blocksize", "group", "auto_pad"])
    node = model.graph.node[0]
    if all(attribute.name != name for attribute in node.attribute):
        node.attribute.append(helper.make_attribute(name, c.pick([0, 1, -7, [1], "SAME_UPPER"])))


def _shaped(c: Choices, model: onnx.ModelProto) -> onnx.ValueInfoProto | TensorProto | None:
    found = [*model.graph.input, *model.graph.initializer]
    return c.pick(found) if found else None


def _dims(chosen: onnx.ValueInfoProto | TensorProto) -> list[int]:
    if isinstance(chosen, TensorProto):
        return list(chosen.dims)
    return [dim.dim_value for dim in chosen.type.tensor_type.shape.dim]


def _reshape(chosen: onnx.ValueInfoProto | TensorProto, dims: list[int]) -> None:
    if isinstance(chosen, TensorProto):
        if math.prod(dims) <= MOST_ELEMENTS:
            chosen.CopyFrom(numpy_helper.from_array(np.resize(numpy_helper.to_array(chosen), dims), chosen.name))
    elif max(dims, default=0) < 2**63:
        chosen.CopyFrom(helper.make_tensor_value_info(chosen.name, chosen.type.tensor_type.elem_type, dims))


def _rank(c: Choices, model: onnx.ModelProto) -> None:
    if (chosen := _shaped(c, model)) is not None:
        dims = _dims(chosen)
        kind = c.pick(["front", "back", "drop", "flat", "scalar"])
        changed = {"front": [1, *dims], "back": [*dims, c.pick([1, 2])], "drop": dims[1:], "flat": [math.prod(dims)], "scalar": []}
        _reshape(chosen, changed[kind])


def _extent(c: Choices, model: onnx.ModelProto) -> None:
    chosen = _shaped(c, model)
    if chosen is not None and (dims := _dims(chosen)):
        place = c.integer(0, len(dims) - 1)
        dims[place] = c.pick([dims[place] + 1, max(dims[place] - 1, 0), 0, 1, 5, 2 * dims[place], c.pick(HUGE)])
        _reshape(chosen, dims)


def _type(c: Choices, model: onnx.ModelProto) -> None:
    chosen = _shaped(c, model)
    if isinstance(chosen, onnx.ValueInfoProto):
        chosen.type.tensor_type.elem_type = c.pick(TYPES)
    elif chosen is not None and chosen.data_type != TensorProto.STRING:
        array = numpy_helper.to_array(chosen)
        kind: Any = c.pick([np.float32, np.float64, np.float16, np.int32, np.int64, np.int8, np.uint8, np.uint16, bool, object])
        changed = np.full(array.shape, "a", object) if kind is object else array.astype(kind)
        chosen.CopyFrom(numpy_helper.from_array(changed, chosen.name))


def _constant(c: Choices, model: onnx.ModelProto) -> TensorProto | None:
    found = [tensor for tensor in model.graph.initializer if tensor.data_type != TensorProto.STRING and math.prod(tensor.dims)]
    return c.pick(found) if found else None


def _constant_out_of_range(c: Choices, model: onnx.ModelProto) -> None:
    chosen = _constant(c, model)
    if chosen is None:
        return
    array = np.array(numpy_helper.to_array(chosen))
    place = c.integer(0, array.size - 1)
    if array.dtype.kind in "iu":
        info = np.iinfo(array.dtype)
        array.reshape(-1)[place] = c.pick([n for n in NUMBERS if info.min <= n <= info.max])
    elif array.dtype.kind == "f":
        with np.errstate(over="ignore"):
            array.reshape(-1)[place] = c.pick(REALS)
    chosen.CopyFrom(numpy_helper.from_array(array, chosen.name))


def _constant_of_another_length(c: Choices, model: onnx.ModelProto) -> None:
    chosen = _constant(c, model)
    if chosen is not None and len(chosen.dims) == 1:
        _reshape(chosen, [c.pick([0, int(chosen.dims[0]) + 1, max(int(chosen.dims[0]) - 1, 0)])])


def _constant_at_run_time(c: Choices, model: onnx.ModelProto) -> None:
    chosen = _constant(c, model)
    if chosen is not None:
        model.graph.input.append(helper.make_tensor_value_info(chosen.name, chosen.data_type, list(chosen.dims)))
        model.graph.initializer.remove(chosen)


def _input_absent(c: Choices, model: onnx.ModelProto) -> None:
    node = model.graph.node[0]
    if node.input:
        place = c.integer(0, len(node.input) - 1)
        names = [name for i, name in enumerate(node.input) if i != place] if c.chance(2) else list(node.input)
        if len(names) == len(node.input):
            names[place] = ""
        del node.input[:]
        node.input.extend(names)


def _input_too_many(c: Choices, model: onnx.ModelProto) -> None:
    node = model.graph.node[0]
    if node.input:
        node.input.append(c.pick(list(node.input)))


def _inputs_swapped(c: Choices, model: onnx.ModelProto) -> None:
    node = model.graph.node[0]
    names = c.shuffled(list(node.input))
    del node.input[:]
    node.input.extend(names)


def _output_too_many(c: Choices, model: onnx.ModelProto) -> None:
    model.graph.node[0].output.append("more")
    if c.chance(2):
        model.graph.output.append(onnx.ValueInfoProto(name="more"))


CHANGES: list[tuple[int, Change]] = [
    (3, _attribute_missing),
    (3, _attribute_of_another_kind),
    (8, _attribute_out_of_range),
    (4, _attribute_of_another_length),
    (1, _attribute_unknown),
    (6, _rank),
    (8, _extent),
    (5, _type),
    (8, _constant_out_of_range),
    (4, _constant_of_another_length),
    (2, _constant_at_run_time),
    (2, _input_absent),
    (1, _input_too_many),
    (1, _inputs_swapped),
    (1, _output_too_many),
]


# What onnxruntime refuses and the compiler takes for a reason: the operators whose messages these are.
JUSTIFIED: tuple[tuple[str, str], ...] = (
    # Files of integer tools call numbers what they are not, and store an attribute's number as another kind.
    ("", r"Type '\S+' of input parameter|bound to different types|Type Error: Type parameter"),
    ("", "Mismatched attribute type"),
    ("Gemm", "First input does not have rank 2"),  # the dialect's has batches
    # Vendors add attributes with new versions; none of these changes what the operator computes here.
    (nodes.MS, "Unrecognized attribute"),
    # What only onnxruntime's kernels cannot do.
    (f"{nodes.MS}QLinear", "Scale and Zero-point must be a scalar"),  # or one element, which is checked here as well
    (nodes.MS, "head_size shall be a multiple of 16"),
    ("Resize", "ScalesValidation"),
    ("Squeeze", r"squeeze\.h:53"),  # axes from the end, in opsets that did not have them
    ("Resize", "exclude_outside can be set to 1 when"),
    ("LRN", "beta_ > 0.0f was false"),
    ("LRN", r"NumDimensions\(\) == 4 was false"),
    (f"{nodes.MS}DynamicQuantizeLSTM", "clip_ > 0.f was false"),  # 0 stands for none
    # What later versions of the standard say, and no earlier one forbids: a Clip with min above max gives max; a Softmax along an axis
    # behind the last has rows of one element.
    ("Clip", "min_ <= max_ was false"),
    *((op, r"common\.h:31 .* is not in valid range") for op in ("Hardmax", "LogSoftmax", "Softmax")),
    ("QLinearConv", r"Invalid input shape: \{.*\b0\b"),  # the others compute results without elements
    # What a result does not depend on.
    (f"{nodes.MS}EmbedLayerNormalization", "output index 1 is out of range"),  # the indices of a mask, which nothing reads
    ("Dropout", "ratio must be in the range"),
    (nodes.MS, "Required attribute 'opset' is missing"),  # of a Softmax along one axis
    ("", "NOT_IMPLEMENTED"),
)


def feeds_of(model: onnx.ModelProto) -> dict[str, np.ndarray] | None:
    """Inputs of a model: small numbers; None where they are too large or of types that NumPy does not have."""
    found, numbers = {}, np.random.default_rng(1)
    for value in model.graph.input:
        dims = _dims(value)
        try:
            dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        except (KeyError, TypeError, ValueError):
            return None
        if math.prod(dims) > MOST_ELEMENTS or dtype.kind not in "iufb":
            return None
        is_real = dtype.kind == "f" and model.graph.node[0].op_type != "OneHot"  # whose indices may be whole numbers in floats
        found[value.name] = (numbers.normal(size=dims) if is_real else numbers.integers(0, 2, dims)).astype(dtype)
    return found


@cache
def known_operators() -> set[tuple[str, str]]:
    """Domain and name of what onnxruntime has; builds without training have none of its operators."""
    from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

    return {(schema.domain, schema.name) for schema in get_all_operator_schema()}


def truth(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> tuple[str, Any]:
    """``valid`` with the outputs, ``invalid`` with a message, ``unknown`` where onnxruntime and onnx's reference do not compute it."""
    import onnxruntime

    node = model.graph.node[0]
    if node.op_type in DIALECT_OPS or (node.domain, node.op_type) not in known_operators():
        return "unknown", ""
    if any(math.prod(t.dims) > MOST_ELEMENTS or t.data_type == TensorProto.STRING for t in model.graph.initializer):
        return "unknown", ""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return "valid", session.run(None, feeds)
    except Exception as error:
        message = " ".join(str(error).split())
    if node.domain or not re.search("NOT_IMPLEMENTED|Could not find an implementation", message):
        return "invalid", message
    try:
        onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    except Exception as error:
        return "invalid", " ".join(str(error).split())
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            found = oracle.ReferenceEvaluator(model).run(None, feeds)
            return ("valid", found) if all(np.isfinite(np.asarray(a, float)).all() for a in found) else ("unknown", "")
    except Exception:
        return "unknown", ""


def check(c: Choices, how: str = "border", keep: Path | None = None) -> tuple[str, str, str]:
    """Kind (``passed``, ``refused``, ``failed``), reason and detail of a node that is drawn; its file is copied to the folder ``keep``.

    Args:
        how: ``border``: read, lowered, and computed by the references of kernels; ``C``: compiled, built and run; ``fallback``: compiled
            with generated C where no kernel takes the node.
    """
    label, model = drawn(c)
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        (keep / "model.onnx").write_bytes(model.SerializeToString())
    return judged(label, model, how)


def judged(label: str, model: onnx.ModelProto, how: str) -> tuple[str, str, str]:
    """Compile a model of one node and compare what becomes of it with what onnxruntime says."""
    import deeploy
    from deeploy.driver.lower import Stopwatch, lower_model
    from deeploy.errors import DeeployError
    from deeploy.execution.simulation.interpreter import network_outputs
    from deeploy.options import Options
    from deeploy.planning.binding.assemble import assemble_program
    from deeploy.target import load

    op, feeds = label.partition(" ")[0].rstrip(":"), feeds_of(model)
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "model.onnx"
        path.write_bytes(model.SerializeToString())
        try:
            arrays = [feeds[value.name] for value in model.graph.input] if feeds is not None else None
            if how != "border":
                compiled = deeploy.compile(path, fallback=how == "fallback")
                got = None if arrays is None else compiled.run(arrays) if how == "C" else compiled.interpret(arrays)
            else:
                found, target = lower_model(Stopwatch(), path, load("generic"), Options()), load("generic")
                program = assemble_program("network", found.graph, target.kernels, {})
                got = None if arrays is None else network_outputs(program, arrays)
        except DeeployError as error:
            lines = [line for line in str(error).splitlines() if "has no fallback" not in line]
            wrong = (len(lines) != 2 and "no kernel" not in lines[0]) or not all(line.isprintable() and len(line) < 1000 for line in lines)
            return ("failed", f"{op}: lines of an error", str(error)) if wrong else ("refused", f"{op}: {plain(lines[0])}", "")
        except Exception as crash:
            frames = [f for f in traceback.extract_tb(crash.__traceback__) if "/deeploy/" in f.filename or "/targets/" in f.filename]
            place = f"{Path(frames[-1].filename).name}:{frames[-1].name}" if frames else "?"
            return "failed", f"{type(crash).__name__} in {place}", f"{label}\n{traceback.format_exc()}"
    if feeds is None or got is None:
        return "passed", f"{op}: not compared", ""
    is_fatal = model.graph.node[0].domain == nodes.MS and "input_absent" in label  # onnxruntime may end its process
    verdict, found = ("unknown", "") if is_fatal else truth(model, feeds)
    if verdict == "unknown":
        return "passed", f"{op}: not compared", ""
    if verdict == "invalid":
        if any(op.startswith(name) and re.search(pattern, found) for name, pattern in JUSTIFIED):
            return "passed", f"{op}: justified", ""
        return "failed", f"{op}: taken, though onnxruntime refuses it", f"{label}\n{found}\n{onnx.printer.to_text(model.graph)}"
    if not all(map(agrees, got, found)) and not _is_defined(model, feeds, got):
        return "failed", f"{op}: differs", f"{label}\n{got}\n{found}\n{onnx.printer.to_text(model.graph)}"
    return "passed", f"{op}: agrees", ""


def _is_defined(model: onnx.ModelProto, feeds: dict[str, np.ndarray], got: Sequence[np.ndarray]) -> bool:
    """Whether a result is what onnx's reference computes, where a constant is no number or infinite: onnxruntime folds such constants."""
    values = [numpy_helper.to_array(tensor) for tensor in model.graph.initializer if tensor.data_type == TensorProto.FLOAT]
    if model.graph.node[0].domain or all(np.isfinite(value).all() for value in values):
        return False
    with np.errstate(all="ignore"):
        return all(map(agrees, got, oracle.ReferenceEvaluator(model).run(None, feeds)))


def plain(line: str) -> str:
    return re.sub(r"'[^']*'|\d[\d.e+-]*", "#", line)[:70]


def agrees(got: np.ndarray, wanted: np.ndarray) -> bool:
    """Floats within 1e-4, absolute or relative; whole numbers within one step, which roundings before a quantisation may move them."""
    got, wanted = np.asarray(got), np.asarray(wanted)
    if got.shape != wanted.shape:
        return False
    if wanted.dtype.kind == "f":
        return bool(np.allclose(got, wanted, rtol=1e-3, atol=1e-4, equal_nan=True))
    if wanted.dtype.kind in "OSU":
        return bool(np.array_equal(got, wanted))
    difference = np.abs(got.astype(np.float64) - wanted.astype(np.float64)) if wanted.dtype.kind != "b" else got != wanted
    return bool(difference.max(initial=0) <= (1 if wanted.dtype in (np.int8, np.uint8) else 0))
