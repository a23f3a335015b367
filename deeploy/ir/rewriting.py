"""Rewrites of a value graph: tables of rules, applied until none of them finds anything.

A rule is called for every node whose operator it names, in the order of the graph, with a ``Match``: it looks at what the node reads and
who reads that, makes other nodes, and returns what takes the place of the node's result. It states what it needs (``need``, ``require``),
and does not apply where that is not so, or where it returns None. Nothing is changed in place, so that a rule may give up after it has
made something.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from inspect import Parameter
from typing import Any, TypeAlias, TypeVar

import numpy as np

from deeploy.errors import ModelError, shorten
from deeploy.ir.nodes import INTEGER_FORM, Node, Tensor, compute, list_makers, name_part, set_name
from deeploy.ir.values import Graph

Result: TypeAlias = "Tensor | Mapping[Tensor, Tensor] | Reading | None"  # what stands in for the result, or for several tensors
ANY = "biuf"  # kinds of elements
_T = TypeVar("_T")
_FOLLOWING = ("Reshape", "Transpose", "QuantizeLinear")  # what stands behind the operator that a node is named after


class Unfit(Exception):
    """A rule does not apply to a node."""


def need(value: _T | None) -> _T:
    """A value; where there is none, the rule that asks for it does not apply."""
    if value is None:
        raise Unfit
    return value


def require(*conditions: object) -> None:
    """A rule applies only where all conditions hold."""
    if not all(conditions):
        raise Unfit


def attempt(function: Callable[..., _T], *arguments: Any) -> _T | None:
    """What a function returns; None where something that it needs is not there."""
    try:
        return function(*arguments)
    except Unfit:
        return None


@dataclass(frozen=True, eq=False)
class Reading:
    """Some nodes read another tensor instead of one that is read on by others."""

    readers: Sequence[Node]
    old: Tensor
    new: Tensor


@dataclass(frozen=True)
class Rule:
    """What ``rewrite`` makes of nodes whose operator is in ``ops``, and whose results are of the integer form or not."""

    name: str
    ops: frozenset[str]
    is_lowered: bool
    rewrite: Callable[[Match], Result]
    domain: str = INTEGER_FORM  # of the nodes that it makes
    kind: str = ANY  # of the elements of all inputs

    def fits(self, node: Node) -> bool:
        """Whether the inputs of a node with one of the operators have elements of the kind."""
        return self.kind == ANY or all(tensor.dtype.numpy.kind in self.kind for tensor in node.operands)


def lowered(*ops: str, kind: str = ANY, commutes: bool = False) -> Callable[[Callable[..., Result]], Rule]:
    """Decorator: a rule for operators of the integer form; the other arguments and the parameters of the function as of ``standard``."""
    return lambda function: Rule(function.__name__, frozenset(ops), True, _bind_rule(function, commutes), kind=kind)


def standard(*ops: str, kind: str = ANY, lowers: bool = False, commutes: bool = False) -> Callable[[Callable[..., Result]], Rule]:
    """Decorator: a rule for operators of ONNX.

    The function is called with what its parameters name: the match, where the first one is a ``Match``; inputs by position, those behind
    ``*`` as many as there are; attributes by keyword, where the node has them. An input that is an array is the value of a constant,
    one that is a number its only element. The rule does not apply where an input is absent that has no default, or is not constant where
    a value is asked for.

    Args:
        kind: of the elements of all inputs, as NumPy calls it: "f" or "iu", say.
        lowers: it makes operators of the integer form, else ONNX's.
        commutes: it is tried with the first two inputs exchanged as well.
    """
    return lambda function: Rule(
        function.__name__, frozenset(ops), False, _bind_rule(function, commutes), INTEGER_FORM if lowers else "", kind
    )


def bind_function(function: Callable[..., _T], kind: type, read: Callable[[Any, Parameter, int], Any]) -> Callable[..., _T]:
    """A function of a node, and of positions of its first inputs if these are exchanged, from one of what its parameters name.

    Args:
        kind: of the node, which the first parameter may be.
        read: gives the input at a position as a parameter asks for it.
    """
    parameters = inspect.signature(function, eval_str=True).parameters.values()
    first = [parameter for parameter in parameters if parameter.annotation is kind]
    inputs = [parameter for parameter in parameters if parameter.kind is Parameter.POSITIONAL_OR_KEYWORD][len(first) :]
    takes_all = any(parameter.kind is Parameter.VAR_POSITIONAL for parameter in parameters)
    names = {parameter.name for parameter in parameters if parameter.kind is Parameter.KEYWORD_ONLY}

    def call(m: Any, *exchanged: int) -> _T:
        positions = (*exchanged, *range(len(exchanged), len(inputs)))
        values = [read(m, parameter, position) for parameter, position in zip(inputs, positions, strict=False)]
        others = filter(None, m.node.inputs[len(inputs) :]) if takes_all else ()
        return function(*[m] * len(first), *values, *others, **{name: m.attrs[name] for name in names & m.attrs.keys()})

    return call


def _bind_rule(function: Callable[..., Result], commutes: bool) -> Callable[[Match], Result]:
    """A rule over a match from one over what a match has (``standard``)."""
    rewrite = bind_function(function, Match, _read_parameter)
    return (lambda m: attempt(rewrite, m, 0, 1) or rewrite(m, 1, 0)) if commutes else rewrite


def _read_parameter(m: Match, parameter: Parameter, position: int) -> Any:
    """An input as a rule asks for it."""
    tensor = m.input(position)
    if tensor is None:
        require(parameter.default is not Parameter.empty)
        return parameter.default
    return need(tensor.data if parameter.annotation is np.ndarray else tensor.number if parameter.annotation in (int, float) else tensor)


@dataclass(frozen=True)
class Pass:
    """A named list of rules."""

    name: str
    rules: tuple[Rule, ...]

    def __call__(self, graph: Graph) -> Graph:
        """The graph in which no rule applies any more.

        Raises:
            ModelError: a rule cannot compute with the shapes, constants or attributes of a node; or rules undo each other for ever.
        """
        for _ in range(2 * len(graph.nodes) + 10):
            after = _RewriteSweep(graph).over(self._by_op)
            if after is graph:
                return graph
            graph = after
        raise ModelError(f"pass {self.name} does not end on this graph", "report this model: a rewrite undoes another one")

    @cached_property
    def _by_op(self) -> dict[str, list[Rule]]:
        by_op: dict[str, list[Rule]] = {}
        for rule in self.rules:
            for op in rule.ops:
                by_op.setdefault(op, []).append(rule)
        return by_op


def rewrite_graph(graph: Graph, passes: Iterable[Callable[[Graph], Graph]]) -> Graph:
    """The graph behind some passes, one after the other."""
    return reduce(lambda values, step: step(values), passes, graph)


class _RewriteSweep:
    """One walk over a graph: what stands in for its tensors, and how often that is read."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.outputs = set(graph.outputs)
        self.published = set(graph.nodes)  # nodes that have their places
        self._replaced: set[Tensor] = set()
        self._reading: Reading | None = None
        self._stand_ins: dict[Tensor, Tensor] = {}
        # By what stands in, the tensors of the graph whose readers read it; a tensor that is not in here stands for itself.
        self._origins: dict[Tensor, list[Tensor]] = {}

    @cached_property
    def reads(self) -> Counter[Tensor]:
        """How many nodes read each tensor of the graph."""
        return Counter({tensor: len(readers) for tensor, readers in self.graph.readers.items()})

    @cached_property
    def names(self) -> set[str]:
        """The names of all tensors of the graph."""
        nodes = self.graph.nodes
        return {tensor.name for node in nodes for tensor in (*node.operands, *node.outputs)} | {t.name for t in self.graph.inputs}

    def over(self, by_op: Mapping[str, Sequence[Rule]]) -> Graph:
        """The graph behind the walk; the same one where no rule applied, or no node has one of the operators."""
        if by_op.keys().isdisjoint(self.graph.operators):
            return self.graph
        for node in self.graph.nodes:
            if not self._replaced.issuperset(node.outputs):
                self._rewrite(self.now(node), by_op.get(node.op, ()))
            if self._reading is not None:
                for each in self.graph.nodes:
                    self.now(each)
                break
        outputs, next_states = (tuple(map(self.of, tensors)) for tensors in (self.graph.outputs, self.graph.next_states))
        is_new = self._replaced or self._reading is not None
        return replace(self.graph, outputs=outputs, next_states=next_states) if is_new else self.graph

    def _rewrite(self, node: Node, rules: Sequence[Rule]) -> None:
        for rule in rules:
            if rule.is_lowered != node.is_lowered or not rule.fits(node):
                continue
            match = Match(self, node, rule.domain)
            stand_in = _apply_rule(rule, match)
            if isinstance(stand_in, Reading):
                if not self._replaced:  # else what stands in for other nodes reads the old tensor: the next walk finds this again
                    match.publish(stand_in.new)
                    self._reading = stand_in
                return
            if stand_in is not None:
                match.accept(stand_in if isinstance(stand_in, Mapping) else {match.y: stand_in.reshape(match.y.shape)})
                return

    def of(self, tensor: Tensor) -> Tensor:
        """What stands in for a tensor: itself, where nothing does."""
        while tensor in self._stand_ins:
            tensor = self._stand_ins[tensor]
        return tensor

    def now(self, node: Node) -> Node:
        """A node of the graph, as it reads what stands in for its inputs."""
        if not self._stand_ins and self._reading is None:
            return node
        inputs = tuple(None if tensor is None else self.of(tensor) for tensor in node.inputs)
        if self._reading is not None and node in self._reading.readers:
            inputs = tuple(self._reading.new if tensor is self._reading.old else tensor for tensor in inputs)
        current = self.of(node.outputs[0]).maker if node.outputs[0] not in self._replaced else None
        if current is not None and all(a is b for a, b in zip(inputs, current.inputs, strict=True)):
            return current
        made = node.another(inputs=inputs)
        self.published.add(made)
        for old, new in zip(node.outputs, made.outputs, strict=True):
            if old not in self._replaced:
                self._let_stand(self.of(old), new)
        return made

    def readers(self, tensor: Tensor) -> list[Node]:
        """The nodes that read a tensor, as they are now; those are left out that something else stands in for."""
        reading_nodes = (node for origin in self._origins.get(tensor, [tensor]) for node in self.graph.readers.get(origin, ()))
        return [self.now(node) for node in reading_nodes if not self._replaced.issuperset(node.outputs)]

    def replace(self, old: Tensor, new: Tensor) -> None:
        """Let the readers of one tensor read another one."""
        self._replaced.update(self._origins.get(old, [old]))
        self._let_stand(old, new)

    def _let_stand(self, old: Tensor, new: Tensor) -> None:
        own = [new] if new in self.graph.readers else []
        self._origins[new] = [*self._origins.get(new, own), *self._origins.get(old, [old])]
        self._stand_ins[old] = new
        self.reads[new] += self.reads[old]
        if old in self.outputs:
            self.outputs.add(new)


def _apply_rule(rule: Rule, match: Match) -> Result:
    try:
        return attempt(rule.rewrite, match)
    except (IndexError, KeyError, ValueError, TypeError, ArithmeticError, MemoryError) as error:
        reason = shorten(f"{type(error).__name__}: {error}".splitlines()[0], 200)
        raise ModelError(
            f"{match.node} cannot be rewritten by {rule.name}: {reason}",
            "Its shapes, constants or attributes do not fit each other: correct them, or report the model; --debug shows where it fails.",
        ) from error


class Match:
    """A node that a rule looks at, and what the rule makes for it.

    Attributes:
        node: the node.
        op: its operator.
        attrs: its attributes.
        inputs: its inputs that are there.
        y: its first result.
        title: the name of the node that computes what the rule returns.
        domain: of what the rule makes where that says no other one: operators of ONNX become some of the integer form.
    """

    def __init__(self, sweep: _RewriteSweep, node: Node, domain: str) -> None:
        self._sweep, self.node, self.domain, self.y, self.title = sweep, node, domain, node.outputs[0], node.name
        self.op, self.attrs, self.inputs = node.op, node.attrs, node.operands

    @property
    def x(self) -> Tensor:
        """The first input of the node that the rule looks at."""
        return self.inputs[0]

    def input(self, position: int) -> Tensor | None:
        """The input of the node at a position; None where it is absent."""
        return self.node.inputs[position] if position < len(self.node.inputs) else None

    def value(self, position: int, absent: np.ndarray | None = None) -> np.ndarray | None:
        """The value of an input, ``absent`` where it is absent; None where it is not constant."""
        tensor = self.input(position)
        return absent if tensor is None else tensor.data

    def source(self, tensor: Tensor, *ops: str) -> Node | None:
        """The node, lowered as the matched one is or not, that computes a tensor; None where it has none of ``ops``, if any are given."""
        node = tensor.maker
        fits = node is not None and node.is_lowered == self.node.is_lowered and (not ops or node.op in ops)
        return node if fits else None

    def only_source(self, tensor: Tensor, *ops: str) -> Node | None:
        """The node that computes a tensor, if it is as ``source`` wants it, has one reader, and is no output of the network."""
        return self.source(tensor, *ops) if self._sweep.reads[tensor] == 1 and not self.is_output(tensor) else None

    def views(self, tensor: Tensor, is_shared: bool = False) -> tuple[list[Node], Tensor]:
        """The Reshapes and Transposes that end in a tensor, first to last, and what they start from.

        Args:
            is_shared: the result of each may have other readers.
        """
        views, find = list[Node](), self.source if is_shared else self.only_source
        while view := find(tensor, "Reshape", "Transpose"):
            views, tensor = [view, *views], view.operands[0]
        return views, tensor

    def is_input(self, tensor: Tensor) -> bool:
        """Whether a tensor is an input of the network."""
        return tensor in self._sweep.graph.inputs

    def is_output(self, tensor: Tensor) -> bool:
        """Whether a tensor is an output of the network."""
        return tensor in self._sweep.outputs

    def is_read_twice(self, tensor: Tensor) -> bool:
        """Whether a tensor is read by more than one node, or more than once."""
        return self._sweep.reads[tensor] > 1

    def constants(self) -> list[Tensor]:
        """The constants of the network, in the order in which they are read."""
        return [tensor for tensor in self._sweep.reads if tensor.data is not None]

    def readers(self, tensor: Tensor) -> list[Node]:
        """The nodes that read a tensor, one that reads it twice twice."""
        return self._sweep.readers(tensor)

    def replace(self, op: str, *inputs: Tensor | None, **attributes: Any) -> Tensor:
        """The result of a new node, of the shape and type of the matched one's."""
        return compute(op, *inputs, shape=self.y.shape, dtype=self.y.dtype, **attributes)

    def fuse(self, front: Node, *operands: Tensor, leading: int | None = None, **attributes: Any) -> Tensor:
        """The result of a node in front, which computes what the matched one does as well.

        Args:
            operands: behind the first ``leading`` inputs of the node in front, or behind all of them.
            attributes: that it gets; ``even`` is one of its requantisation, and goes with the former one.
        """
        former = {name: value for name, value in front.attrs.items() if name != "even" or "shift" not in attributes}
        result = Tensor("", self.y.shape, self.y.dtype, label="fused")
        return front.another(inputs=(*front.inputs[:leading], *operands), outputs=(result,), attrs={**former, **attributes}).outputs[0]

    def accept(self, replacements: Mapping[Tensor, Tensor]) -> None:
        """Let what the rule returned stand in for tensors; an output of the network that was there before is a Reshape.

        What is new is called after the result, and what stands in for a tensor gets the name of that one.
        """
        for old, new in replacements.items():
            if not self._is_new(new.maker) and self.is_output(old):
                new = compute("Reshape", new, shape=old.shape, dtype=old.dtype)
            if new.maker is not None and self._is_new(new.maker):
                set_name(new, old.name)
                if old is self.y:
                    self._name_last(new.maker)
            self.publish(new)
            self._sweep.replace(old, new)
        self._sweep.reads.subtract(self.node.operands)

    def _is_new(self, node: Node | None) -> bool:
        return node is not None and node not in self._sweep.published

    def _name_last(self, node: Node) -> None:
        """Give the node that computes the result the name of the matched one: the last that does not only reorder or quantise."""
        named = last = node
        while last.op in _FOLLOWING and (before := last.operands[0].maker) is not None and self._is_new(before):
            last = before
            named = named if last.op in _FOLLOWING else last
        if not named.name:
            set_name(named, self.title)
            self.title = ""  # other results have nodes of their own

    def publish(self, result: Tensor) -> None:
        """Give all that is new a name, and count what it reads."""
        made = list_makers(result, self._is_new)
        for node in made:
            object.__setattr__(node, "domain", node.domain or self.domain)
            for tensor in (*node.operands, *node.outputs):
                self._call(tensor)
            if not node.name:
                set_name(node, node.outputs[0].name)
            self._sweep.reads.update(node.operands)
        self._call(result)
        self._sweep.published.update(made)

    def _call(self, tensor: Tensor) -> None:
        if not tensor.name and tensor.label:
            set_name(tensor, name_part(self.y.name, tensor.label, self._sweep.names))
