"""What a record of an operator of models says: attributes, how many inputs, what must hold of its operands, what it is like."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from onnx import AttributeProto

from deeploy.frontend.predicates import Constraint

_KINDS = {name.lower(): int(value) for name, value in AttributeProto.AttributeType.items()}
# Whole numbers from one to another, both included.
_RANGES: Mapping[str, tuple[int, int]] = {
    "flag": (0, 1),
    "bits": (2, 8),
    "heads": (1, 2**15),
    "levels": (2, 2**16),
    "shift": (0, 62),
    "size": (16, 2**16),
    "steps": (2, 2**32),
    "positive": (1, 2**31 - 1),
    "negative": (-(2**31), -1),
    "natural": (0, 2**31 - 1),
    "word": (-(2**31), 2**31 - 1),
    "power": (1, 2**62),
    "wide": (-(2**62), 2**62),
}


@dataclass(frozen=True)
class Attribute:
    """An attribute of an operator.

    Attributes:
        kind: of AttributeProto; None where the onnx package says it.
        ends: the smallest and the largest value of a whole number.
        texts: what a text, or each of a list of them, is one of; any text where there are none.
        is_needed: it must be there, whatever it is.
    """

    kind: int | None = None
    ends: tuple[int, int] | None = None
    texts: tuple[str, ...] = ()
    is_needed: bool = False


def parse_attributes(text: str) -> dict[str, Attribute]:
    """Attributes by name: ``group? axis?: int; mode?: nearest|linear``.

    Behind names comes a kind (``int``, ``ints``, ``float``, ``string``, ...), a range of whole numbers, or texts that are allowed, with
    or without a kind in front of them. ``?`` marks those that may be absent.
    """
    values = {}
    for entry in filter(None, text.split("; ")):
        names, _, about = entry.partition(": ")
        words = about.split()
        kind, ends = next(filter(None, map(_KINDS.get, words)), None), next(filter(None, map(_RANGES.get, words)), None)
        texts = tuple(words[-1].split("|")) if "|" in about else ()
        for name in names.split():
            values[name.rstrip("?")] = Attribute(kind, ends, texts, not name.endswith("?"))
    return values


@dataclass(frozen=True)
class QuantisedForm:
    """An operator on integers with scales and zero points: the operator that it stands for, and where its parameters are.

    Attributes:
        op: the standard operator.
        count: of operands; each is followed by its scale and its zero point. None: they follow the parameters of the result.
        result: position of the result's scale, which its zero point follows.
        bias: position of a bias in units of the product of both scales.
    """

    op: str
    count: int | None = 1
    result: int = 3
    bias: int | None = None

    def operands(self, inputs: int) -> range:
        """Positions of the operands of a node with so many inputs."""
        return range(2, inputs, 3) if self.count is None else range(0, 3 * self.count, 3)

    def scales(self, inputs: int) -> tuple[int, ...]:
        """Positions of the scales; each is followed by its zero point."""
        return (*(position + 1 for position in self.operands(inputs)), self.result)


@dataclass(frozen=True)
class Record:
    """All that is to be known of an operator beside what the onnx package defines.

    Attributes:
        inputs: how many at least and at most, of an operator that the onnx package does not define.
        attributes: by name; of an operator of the onnx package, those that may be less than its definition allows.
        constraints: what must hold of shapes, constants and attributes together.
        rank: axes of the first input, at least.
        like: the standard operator that it has its shape from, and which of its own inputs that has.
        form: of an operator on quantised values.
        keeps_shape: the first output has the shape and the type of the first input.
        settings: positions of inputs that describe the operation, not its data: they have to be constant.
        defaults: of attributes that may be absent, where no standard operator says so.
        zero_points: those without a scale: their input, that which they belong to, and the axis along which there may be several.
        is_composed: it is taken apart into others, as ONNX defines it.
        weights: position of the weights of a convolution.
        product: of a product of data and weights, the axis of the result that weights and bias have elements for.
        inferred_from: the version of its definition from which on inference is right.
    """

    inputs: tuple[int, int] | None = None
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    constraints: tuple[Constraint, ...] = ()
    rank: int = 0
    like: tuple[str, tuple[int, ...]] | None = None
    form: QuantisedForm | None = None
    keeps_shape: bool = False
    settings: tuple[int, ...] = ()
    defaults: Mapping[str, int | float | str] = field(default_factory=dict)
    zero_points: tuple[tuple[int, int, int], ...] = ()
    is_composed: bool = False
    weights: int | None = None
    product: int | None = None
    inferred_from: int = 0


def standard_record(*known: str | Constraint, **about: Any) -> Record:
    """The record of an operator that the onnx package defines: its ``attributes`` as texts, and constraints."""
    named = {name: one for text in known if isinstance(text, str) for name, one in parse_attributes(text).items()}
    return Record(attributes=named, constraints=tuple(one for one in known if not isinstance(one, str)), **about)


def vendor_record(least: int, most: int, *known: str | Constraint, **about: Any) -> Record:
    """The record of an operator of so many inputs that the onnx package does not define."""
    return standard_record(*known, inputs=(least, most), **about)
