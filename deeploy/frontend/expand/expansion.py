"""What expansions are written with: functions of tensors, called with what their parameters name.

Positional parameters are the node's inputs: tensors, or arrays where an input has to be constant; None where one is absent that may be.
Parameters behind ``*`` are its attributes. A first parameter of type ``Expansion`` is the node itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from inspect import Parameter
from typing import Any, TypeAlias, TypeVar

import numpy as np
import onnx
from onnx import helper

from deeploy.errors import ModelError, UnsupportedError, shorten
from deeploy.frontend.predicates import Constraint, value_of
from deeploy.frontend.records import vendor_record
from deeploy.frontend.schemas import MICROSOFT, RECORDS, Attributes
from deeploy.frontend.structure import describe_node
from deeploy.frontend.walk import GraphWalk
from deeploy.ir.nodes import Tensor
from deeploy.ir.rewriting import bind_function

Results: TypeAlias = "Tensor | Sequence[Tensor | None] | None"  # of a node; None where it stays as it is
Function: TypeAlias = "Callable[..., Results]"
_Expands = TypeVar("_Expands", bound=Function)
EXPANSIONS: dict[tuple[str, str], Function] = {}


_KINDS = {int: "int", float: "float", str: "string", Sequence[int]: "ints", Sequence[float]: "floats"}


def expands(*ops: str, domain: str = "") -> Callable[[_Expands], _Expands]:
    """Decorator: a function that says what nodes with some operators of a domain are made of."""

    def register(function: _Expands) -> _Expands:
        EXPANSIONS.update(dict.fromkeys(((domain, op) for op in ops), bind_function(function, Expansion, Expansion.read)))
        return function

    return register


def declares(
    op: str, *known: str | Constraint, domain: str = MICROSOFT, inputs: tuple[int, int] | None = None, rank: int = 0
) -> Callable[[_Expands], _Expands]:
    """Decorator: a function that says what an operator is made of, and is its record, as the onnx package has none.

    How many inputs there are, and which attributes of which kinds, is what its parameters say.

    Args:
        known: constraints, and attributes as texts (``records.attributes``): those that no parameter says, or whose values are limited.
        inputs: how many at least and at most, where that is not what parameters say.
        rank: axes of the first input, at least.
    """

    def register(function: _Expands) -> _Expands:
        parameters = inspect.signature(function, eval_str=True).parameters.values()
        operands = [p for p in parameters if p.kind is Parameter.POSITIONAL_OR_KEYWORD and p.annotation is not Expansion]
        least = max((number for number, p in enumerate(operands, 1) if p.annotation in (Tensor, np.ndarray)), default=0)
        texts = [f"{p.name}?: {_KINDS[p.annotation]}" for p in parameters if p.kind is Parameter.KEYWORD_ONLY]
        RECORDS[domain, op] = vendor_record(*(inputs or (least, len(operands))), *texts, *known, rank=rank)
        return expands(op, domain=domain)(function)

    return register


class Refusal(Exception):
    """Something of a node that cannot be expanded: what it has or does, and what to do."""

    def __init__(self, what: str, remedy: str = "export the model without it") -> None:
        super().__init__(what)
        self.what, self.remedy = what, remedy


class Expansion:
    """A node that is expanded.

    Attributes:
        walk: the walk that came to it.
        attrs: its attributes.
    """

    def __init__(self, walk: GraphWalk, node: onnx.NodeProto, attrs: Attributes) -> None:
        self.walk, self._node, self.attrs = walk, node, attrs
        self._label = node.name or next(name for name in node.output if name)

    @property
    def op(self) -> str:
        return self._node.op_type

    def input(self, position: int) -> Tensor | None:
        """An input; None where it is absent."""
        name = self._name(position)
        return self.walk.operand(self.walk.tensors[name], name) if name else None

    def inputs(self) -> list[Tensor]:
        """All inputs that are there."""
        return [tensor for tensor in map(self.input, range(len(self._node.input))) if tensor is not None]

    def value(self, position: int) -> np.ndarray | None:
        """The value of an input that has to be constant; None where it is absent.

        Raises:
            Refusal: it is computed at run time.
        """
        name = self._name(position)
        if not name:
            return None
        tensor = self.walk.tensors[name]
        value = value_of(tensor)
        if value is None:
            hint = self.walk.pinning([tensor]) or "export the model with fixed ones"
            raise Refusal(
                f"takes its input {position} ('{shorten(name)}') from run-time values", f"only constants are supported there; {hint}"
            )
        return value

    def _name(self, position: int) -> str:
        return self._node.input[position] if position < len(self._node.input) else ""

    def output(self, position: int) -> str:
        """The name of an output; empty where it is absent."""
        return self._node.output[position] if position < len(self._node.output) else ""

    def wants(self, position: int) -> bool:
        """Whether an output is there."""
        return bool(self.output(position))

    def compute(self, op: str, *inputs: Tensor | None, **attributes: Any) -> Tensor:
        """The result of an operator as files have it: normalised, or expanded itself."""
        return self.compute_several(op, 1, *inputs, **attributes)[0]

    def compute_several(self, op: str, count: int, *inputs: Tensor | None, **attributes: Any) -> list[Tensor]:
        """The first results of an operator as files have it."""
        names = [self.walk.known.fresh(f"{self._label}_{op.lower()}") for _ in range(count)]
        self.walk.read.update(names)
        node = helper.make_node(op, ["" if x is None else self._register(x) for x in inputs], names, f"{self._label}_{op}", **attributes)
        self.walk.over([node])
        return [self.walk.operand(self.walk.tensors[name], name) for name in names]

    def _register(self, tensor: Tensor) -> str:
        """The name by which nodes of the file read a tensor."""
        self.walk.publish(tensor, self.walk.known.fresh(f"{self._label} ({tensor.label})"))
        if self.walk.tensors.get(tensor.name) is not tensor:
            own = tensor.name if tensor.name not in self.walk.tensors else self.walk.known.fresh(tensor.name)
            self.walk.tensors[own] = tensor
            return own
        return tensor.name

    def spend(self, nodes: int) -> None:
        """Count nodes that a loop becomes.

        Raises:
            UnsupportedError: they are more than ``--unroll`` allows.
        """
        self.walk.spend(self._node, nodes)

    def expand(self, function: Function) -> bool:
        """Give the node's outputs what a function says; False where that is nothing.

        Raises:
            ModelError: the node does not fit its inputs.
            UnsupportedError: something of the operator is not supported.
        """
        try:
            tensors = function(self)
        except Refusal as refusal:
            raise UnsupportedError(f"{describe_node(self._node)} {refusal.what}", refusal.remedy) from refusal
        except (ArithmeticError, IndexError, KeyError, TypeError, ValueError) as error:  # of operands that no valid model has
            raise ModelError(f"{describe_node(self._node)} does not fit its inputs", "correct the model, or export it again") from error
        if tensors is None:
            return False
        results = [tensors] if isinstance(tensors, Tensor) else tensors
        for position, name in enumerate(self._node.output):
            result = results[position] if position < len(results) else None
            if name and result is None:
                raise UnsupportedError(
                    f"{describe_node(self._node)} has its output {position}, which is not supported", "export the model without it"
                )
            if name and result is not None:
                self.walk.publish(result, name, self._label)
                self.walk.tensors[name] = result
        return True

    def read(self, parameter: Parameter, position: int) -> Tensor | np.ndarray | None:
        """An input as a function asks for it.

        Raises:
            ModelError: it is absent, and must not be.
        """
        value = self.value(position) if parameter.annotation in (np.ndarray, np.ndarray | None) else self.input(position)
        if value is None and parameter.annotation in (Tensor, np.ndarray):
            raise ModelError(f"{describe_node(self._node)} lacks its input {position}", "correct the model, or export it again")
        return value


def is_fixed(tensor: Tensor) -> bool:
    """Whether a tensor is a constant, or made of nothing else, as dequantised weights are."""
    return tensor.data is not None or (tensor.maker is not None and all(map(is_fixed, tensor.maker.operands)))
