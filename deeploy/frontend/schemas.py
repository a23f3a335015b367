"""What ONNX and other vendors' documents say about operators: versions, attributes, and which operator has which shapes.

Files mix versions: a graph of opset 13 may hold a ``Pad`` with the attributes of opset 2. ``find_signature`` therefore takes
the version of an operator that fits a node best, the declared opset being only the first choice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import onnx
from onnx import AttributeProto
from onnx.defs import OpSchema, SchemaError

from deeploy.frontend.records import QuantisedForm, Record
from deeploy.frontend.standard import STANDARD
from deeploy.frontend.vendors import DIALECT, ONNXRUNTIME, QONNX_RECORDS, TFLITE, TFLITE_DOMAIN

# What the C++ of onnx raises for models that it does not take, whichever of its functions is called.
ONNX_FAILURES = (
    *(RuntimeError, ValueError, SchemaError, onnx.checker.ValidationError),
    *(onnx.shape_inference.InferenceError, onnx.version_converter.ConvertError),
)

Attributes = dict[str, Any]  # of a node, by name: numbers, texts, None, lists of these, arrays

DIALECT_DOMAINS = frozenset({"", "PACTOps", "ai.onnx.contrib"})
DIALECT_OPS = frozenset(DIALECT)
MICROSOFT = "com.microsoft"
ML = "ai.onnx.ml"
QONNX = "qonnx.custom_op.general"
_QONNX_DOMAINS = frozenset({QONNX, "onnx.brevitas", "finn.custom_op.general"})
FALLBACK = "deeploy.fallback"  # of nodes whose kernels are generated (``deeploy.fallback``)
_MICROSOFT_STANDARD = frozenset({"QuantizeLinear", "DequantizeLinear"})  # as in ONNX, with more element types
RESERVED = "deeploy"  # of nodes that lowering makes
INTERNAL = frozenset(
    [
        *("Binary", "Copy", "Dequantize", "IntegerFunction", "IntegerLayerNorm", "IntegerRMSNorm", "Lookup", "Normalise", "Quantize"),
        *("Recv", "RequantAdd", "ResidualSum", "Rotate", "ScaledAdd", "ScaledDiv", "Send", "ShiftSoftmax", "Standardise", "Unary"),
        *("Append", "Keep", "Slide", "DynamicScale", "LSTMCell", "GRUCell", "IntegerLSTM", "IntegerGRU", "IntegerRNN", "DecisionTrees"),
        *(
            "BandMatMul",
            "BlockMatMul",
            "FixedFourier",
            "FixedL2Norm",
            "FixedSoftmax",
            "Interpolate",
            "PairwiseCoupling",
            "RealFourier",
            "RunningSum",
        ),
        *("BandMatMul", "Thresholds"),
    ]
)  # operators of the integer form that no file has

# Operators whose results hold elements of the first input alone, but for what a Pad adds: they commute with what keeps the order of values.
SELECTING = ("Reshape", "Transpose", "Slice", "Gather", "MaxPool", "Pad", "GlobalMaxPool", "ReduceMax", "ReduceMin")

RECORDS: dict[tuple[str, str], Record] = {
    (domain, op): record
    for domain, family in (("", {**STANDARD, **DIALECT}), (MICROSOFT, ONNXRUNTIME), (QONNX, QONNX_RECORDS), (TFLITE_DOMAIN, TFLITE))
    for op, record in family.items()
}
QUANTISED: Mapping[str, QuantisedForm] = {op: record.form for (_, op), record in RECORDS.items() if record.form is not None}

WEIGHTS: Mapping[str, int] = {op: record.weights for op, record in STANDARD.items() if record.weights is not None}
PRODUCTS: Mapping[str, int] = {op: record.product for op, record in STANDARD.items() if record.product is not None}


def find_record(domain: str, op: str) -> Record:
    """The record of an operator, or, of one that nobody defines there, of that of another domain which has the name."""
    known = RECORDS.get((domain, op))
    others = () if known or (not domain and onnx.defs.has(op)) else (record for (_, name), record in RECORDS.items() if name == op)
    return known or next(iter(others), Record())


def keeps_shape(domain: str, op: str) -> bool:
    """Whether the first output has the shape and type of the first input."""
    record = RECORDS.get((domain, op))
    return record is not None and (record.keeps_shape or domain == QONNX or (is_dialect_op(op, domain) and record.like is None))


def like_standard(domain: str, op: str, inputs: int) -> tuple[str, Sequence[int]] | None:
    """The standard operator that another one of so many inputs is like, and which inputs it has of these; None where there is none."""
    record = RECORDS.get((domain, op), Record())
    return (record.form.op, record.form.operands(inputs)) if domain and record.form is not None else record.like


def canonical_domain(domain: str, op: str) -> str:
    """The one domain under which an operator is known that files put into several."""
    if domain == "ai.onnx" or (op in DIALECT_OPS and domain in DIALECT_DOMAINS) or (domain == MICROSOFT and op in _MICROSOFT_STANDARD):
        return ""
    return QONNX if op in QONNX_RECORDS and domain in _QONNX_DOMAINS else domain


def explain_misplaced(op: str, domain: str) -> str | None:
    """What is wrong with an operator of this canonical domain; None where its name says what it is.

    Rules and kernels go by an operator's name alone. A vendor's operator must therefore not be called like one of another domain, which
    it need not be, and none like those that lowering makes.
    """
    if op in INTERNAL or domain == RESERVED:
        return "which is a name that the compiler uses itself"
    if (domain, op) in RECORDS:
        return None
    if domain and (op in DIALECT_OPS or onnx.defs.has(op)):
        return "and may differ from the standard operator of that name"
    return f"and may differ from the operator of that name in {MICROSOFT}" if (MICROSOFT, op) in RECORDS and not onnx.defs.has(op) else None


def is_dialect_op(op: str, domain: str) -> bool:
    """Whether an operator, under its canonical domain, belongs to the integer dialect."""
    return not domain and op in DIALECT_OPS


def constant_inputs(op: str) -> tuple[int, ...]:
    """Positions of the inputs that have to be constant."""
    return find_record("", op).settings


@dataclass(frozen=True, eq=False)
class Signature:
    """One version of a standard operator.

    Attributes:
        schema: the definition in the onnx package.
        attributes: type of every attribute, by name.
        required: attributes that must be present.
        defaults: numbers and strings that attributes have when they are absent.
        inputs: type string of every formal input; the last one repeats when ``variadic``.
        outputs: type string of every formal output.
        allowed: element types, as strings, by type variable.
    """

    schema: OpSchema
    attributes: dict[str, int]
    required: frozenset[str]
    defaults: dict[str, int | float | str]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    allowed: dict[str, frozenset[str]]

    def fits(self, attributes: frozenset[str], inputs: int, strict: bool) -> bool:
        """Whether a node with these attributes and this many inputs can be meant; not strict: it may have more attributes."""
        counts = self.schema.min_input <= inputs <= self.schema.max_input
        return counts and self.required <= attributes and (not strict or attributes <= self.attributes.keys())


def _default_value(attribute: AttributeProto) -> int | float | str | None:
    if attribute.type == AttributeProto.INT:
        return int(attribute.i)
    if attribute.type == AttributeProto.FLOAT:
        return float(attribute.f)
    return attribute.s.decode() if attribute.type == AttributeProto.STRING else None


def _make_signature(schema: OpSchema) -> Signature:
    attributes = dict(schema.attributes)
    return Signature(
        schema,
        {name: int(cast(Any, attribute.type)) for name, attribute in attributes.items()},
        frozenset(name for name, attribute in attributes.items() if attribute.required),
        {name: value for name, attribute in attributes.items() if (value := _default_value(attribute.default_value)) is not None},
        tuple(parameter.type_str for parameter in schema.inputs),
        tuple(parameter.type_str for parameter in schema.outputs),
        {constraint.type_param_str: frozenset(constraint.allowed_type_strs) for constraint in schema.type_constraints},
    )


@cache
def operator_history(op: str, domain: str) -> tuple[Signature, ...]:
    """Every version of an operator of ONNX that is not deprecated, the newest first."""
    versions = []
    version = onnx.defs.onnx_opset_version()
    while version > 0:
        try:
            schema = onnx.defs.get_schema(op, version, domain)
        except SchemaError:
            break
        if not schema.deprecated:
            versions.append(_make_signature(schema))
        version = schema.since_version - 1
    return tuple(versions)


@cache
def find_signature(op: str, version: int, attributes: frozenset[str], inputs: int, domain: str = "") -> Signature | None:
    """The version of an operator of ONNX that a node is written in; None when ONNX has no such operator.

    The version of opset ``version`` if the node fits it, else the nearest one that it fits.
    """
    versions = operator_history(op, domain)
    current = next((s for s in versions if s.schema.since_version <= version), None)
    base = current.schema.since_version if current else version
    nearest = sorted(versions, key=lambda s: abs(s.schema.since_version - base))
    for strict in (True, False):
        for candidate in nearest:
            if candidate.fits(attributes, inputs, strict):
                return candidate
    return nearest[0] if nearest else None


def default_attributes(op: str, domain: str, version: int, attributes: frozenset[str], inputs: int) -> dict[str, int | float | str]:
    """Values of the attributes that a node does not state."""
    like = like_standard(domain, op, inputs)
    if stated := find_record(domain, op).defaults:
        return dict(stated)
    if domain and like is None:
        return {}
    name, count = (op, inputs) if like is None else (like[0], len(like[1]))
    signature = find_signature(name, version, attributes, count)
    return {} if signature is None else signature.defaults
