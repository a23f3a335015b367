"""A model whose nodes without a kernel are replaced by nodes that have one: generated, untiled, on one engine."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

from deeploy.errors import UnsupportedError, shorten
from deeploy.fallback.generate import generate_code, generator_version
from deeploy.fallback.nodes import FAILURES, KnownTensors, Single, learn_tensors, single_model
from deeploy.fallback.portable import HEADER, STRUCT, GeneratedCode
from deeploy.frontend import without_branches
from deeploy.frontend.graph_io import name_dims
from deeploy.frontend.load import OLDEST_OPSET, opset_version, read_whole
from deeploy.frontend.pins import Pinned, pin_inputs
from deeploy.frontend.schemas import FALLBACK, canonical_domain, is_dialect_op
from deeploy.frontend.validate import check_model
from deeploy.ir.kernel import Kernel, Operator, Scratch, Tiling
from deeploy.ir.nest import Map, Nest, coupled
from deeploy.ir.nodes import Node
from deeploy.ir.types import WHOLE, DType
from deeploy.options.texts import PinnedValue

_HELD = frozenset(helper.np_dtype_to_tensor_dtype(dtype.numpy) for dtype in WHOLE)

Refusal = Callable[[onnx.ModelProto], str]


@dataclass(frozen=True, eq=False)
class Filled:
    """A model, the kernels of the nodes that were replaced, what the user is told of these, and why other nodes have no fallback.

    ``pinned`` are inputs of the model that are constants of this one.
    """

    model: onnx.ModelProto
    kernels: tuple[Kernel, ...]
    notes: tuple[str, ...]
    reasons: tuple[str, ...]
    pinned: tuple[Pinned, ...] = ()


def fill_model(path: Path, dims: Mapping[str, int], pins: Mapping[str, PinnedValue], engine: str, refusal: Refusal) -> Filled:
    """Replace every node that the target refuses and the generator has C for.

    Args:
        dims: extents of symbolic dimensions.
        pins: values of inputs that become constants.
        engine: that the kernels run on.
        refusal: why a model cannot be compiled for the target, or "" where it can.

    Raises:
        UsageError: the generator is not installed.
        ModelError: a file that cannot be read.
    """
    name = generator_version()
    model = read_whole(path)
    name_dims(model.graph, dims)
    pinned = pin_inputs(model, pins, dims)
    if opset_version(model) >= OLDEST_OPSET:
        model = without_branches(model, dims)
        check_model(model, opset_version(model))
    if any(is_dialect_op(node.op_type, canonical_domain(node.domain, node.op_type)) for node in model.graph.node):
        return Filled(model, (), (), ("fallback is for standard operators, the dialect's decide element types by what they do with them",))
    tensors = learn_tensors(model, dims)
    kernels: dict[str, Kernel] = {}
    refused: dict[str, str] = {}
    nodes, notes, reasons = list[onnx.NodeProto](), list[str](), list[str]()
    for node in model.graph.node:
        made, reason = _replace_node(node, tensors, model, engine, refusal, refused)
        nodes.append(node if made is None else made[0])
        if made is not None:
            kernels[made[1].op] = made[1]
            notes.append(f"{_node_name(node)} by the fallback, on {engine}: {name}")
        elif reason:
            reasons.append(f"{_node_name(node)} has no fallback: {reason}")
    return Filled(_rebuild_model(model, nodes, tensors), tuple(kernels.values()), tuple(notes), tuple(reasons), pinned)


def _node_name(node: onnx.NodeProto) -> str:
    name = node.name or next(filter(None, node.output), "")
    return f"node {shorten(name)} ({shorten(node.op_type)})"


def _replace_node(
    node: onnx.NodeProto, tensors: KnownTensors, model: onnx.ModelProto, engine: str, refusal: Refusal, refused: dict[str, str]
) -> tuple[tuple[onnx.NodeProto, Kernel] | None, str]:
    """The node in place of ``node`` with its kernel, where the target refuses it; else None, and why it has no fallback."""
    if node.op_type == "Constant" or all(name in tensors.values for name in node.output if name):
        return None, ""
    whole = single_model(node, tensors, model, everything=True)
    if whole is None:
        return None, ""
    values = (*whole.model.graph.input, *whole.model.graph.output)
    if any(v.type.tensor_type.elem_type not in _HELD for v in values):
        return None, ""  # the importer says which tensor it is
    key = whole.model.SerializeToString(deterministic=True).hex()
    if key not in refused:
        refused[key] = refusal(whole.model)
    if not refused[key]:
        return None, ""
    reason = ""
    for everything in (False, True):
        alone = single_model(node, tensors, model, everything)
        assert alone is not None  # as the one above
        code = generate_code(alone.model)
        if isinstance(code, GeneratedCode):
            kernel = _make_kernel(alone, code, engine)
            name = node.name or f"{node.op_type}_{next(filter(None, node.output))}"
            return (helper.make_node(kernel.op, alone.inputs, alone.outputs, name, domain=FALLBACK), kernel), ""
        reason = reason or code
    return None, reason


def _make_kernel(alone: Single, code: GeneratedCode, engine: str) -> Kernel:
    """The kernel of a model of one node: whole operands, nothing tiled, one core."""
    model = alone.model
    op = re.sub(r"\W", "", model.graph.node[0].op_type)[:32]
    digest = hashlib.sha256(model.SerializeToString(deterministic=True)).hexdigest()[:8]
    shapes = {value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in model.graph.output}
    dims = {name: coupled(*(f"{name}_{axis}" for axis in range(len(shape)))) for name, shape in shapes.items()}
    nest = Nest(reads={}, writes={name: Map(*axes) for name, axes in dims.items()})
    values = (*model.graph.input, *model.graph.output)
    types = {v.name: frozenset({DType.of(helper.tensor_dtype_to_np_dtype(v.type.tensor_type.elem_type))}) for v in values}
    inputs, outputs = tuple(v.name for v in model.graph.input), tuple(v.name for v in model.graph.output)
    source = f"{STRUCT}/{op.lower()}_{digest}.c"
    operator = Operator(f"{op}.{digest}", inputs, lambda node: nest, _make_reference(model))
    return operator.kernel(
        f"{STRUCT}_{op.lower()}_{digest}",
        source,
        outputs=outputs,
        types=types,
        struct=STRUCT,
        settings=lambda node: {"names": inputs, "results": outputs},
        scratch={"work": Scratch(lambda node, extents: code.scratch)} if code.scratch else {},
        tiling=Tiling(whole=tuple(dim.name for axes in dims.values() for dim in axes)),
        engine=engine,
        texts={source: code.text, f"{STRUCT}/{STRUCT}.h": HEADER},
        generator=generator_version(),
    )


def _make_reference(model: onnx.ModelProto) -> Callable[..., Any]:
    """What onnx itself computes for a model of one node."""

    def reference(node: Node, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        from onnx.reference import ReferenceEvaluator  # only here: its import takes longer than that of a whole small model

        feeds = {value.name: array for value, array in zip(model.graph.input, inputs, strict=True)}
        try:
            with np.errstate(all="ignore"):
                results = ReferenceEvaluator(model).run(None, feeds)
        except FAILURES as error:
            raise UnsupportedError(
                f"node {shorten(node.name)} ({shorten(node.op)}): onnx has no reference for it: {shorten(str(error), 120)}",
                "Run its C instead (deeploy run), and compare with outputs of your own.",
            ) from error
        return tuple(np.asarray(result) for result in results)

    return reference


def _rebuild_model(model: onnx.ModelProto, nodes: Sequence[onnx.NodeProto], tensors: KnownTensors) -> onnx.ModelProto:
    """The model with other nodes, whose outputs' types it declares."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    del graph.node[:]
    graph.node.extend(nodes)
    made = {name for node in nodes if node.domain == FALLBACK for name in node.output}
    for value in graph.output:
        if value.name in made:
            value.type.CopyFrom(tensors.types[value.name])
    kept = [value for value in graph.value_info if value.name not in made]
    del graph.value_info[:]
    outputs = {value.name for value in graph.output}
    graph.value_info.extend([*kept, *(helper.make_value_info(name, tensors.types[name]) for name in sorted(made - outputs))])
    result.opset_import.append(helper.make_opsetid(FALLBACK, 1))
    standard = next((entry for entry in result.opset_import if entry.domain in ("", "ai.onnx")), None)
    if all(node.domain == FALLBACK for node in nodes) and opset_version(result) < OLDEST_OPSET:  # no standard operator is left
        if standard is None:
            result.opset_import.append(helper.make_opsetid("", OLDEST_OPSET))
        else:
            standard.version = OLDEST_OPSET
    return result
