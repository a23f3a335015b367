"""A graph under construction: every node is computed as it is added, so that shapes and values are known and a node that is not valid is
dropped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.random import oracle
from tests.random.choices import Choices
from tests.random.oracle import Invalid

LARGEST = 4096  # elements of a tensor
FAR = 64.0  # magnitude beyond which values are scaled down
EXACT = "exact"  # key of a model's metadata: tensors whose float values are computed without rounding, one name a line
STYLES = ("v{}", "layer/{}", "a b.{}:0", "größe{}")


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor of the graph and its value for the sample.

    Attributes:
        exact: computed without rounding, so that a function with jumps may be applied to it.
        step: of the quantisation that it went through last, 0.0 for none.
    """

    name: str
    array: np.ndarray
    exact: bool = False
    step: float = 0.0

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape)

    @property
    def rank(self) -> int:
        return int(self.array.ndim)

    @property
    def is_float(self) -> bool:
        return self.array.dtype == np.float32


@dataclass
class Builder:
    """What has been made so far; ``pool`` holds the values that further nodes may read."""

    choices: Choices
    opset: int
    form: str
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    inputs: dict[str, Value] = field(default_factory=dict)
    pool: list[Value] = field(default_factory=list)
    exact: set[str] = field(default_factory=set)
    seen: list[Value] = field(default_factory=list)
    golden: dict[str, np.ndarray] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    scales: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    steps: dict[str, np.ndarray] = field(default_factory=dict)
    style: str = STYLES[0]
    counter: int = 0

    def name(self) -> str:
        self.counter += 1
        return self.style.format(self.counter)

    # Values that nodes read.

    def extent(self) -> int:
        low, high = self.choices.weighted([(3, (2, 8)), (1, (1, 1)), (1, (9, 24))])
        return self.choices.integer(low, high)

    def shape(self, rank: int, limit: int = LARGEST) -> tuple[int, ...]:
        shape = [self.extent() for _ in range(rank)]
        while np.prod(shape, dtype=np.int64) > limit:
            shape[int(np.argmax(shape))] = 2
        return tuple(shape)

    def floats(self, shape: Sequence[int], exact: bool = False) -> np.ndarray:
        random = self.choices.generator()
        if exact:
            return np.asarray(random.integers(-24, 25, tuple(shape)) / 8, np.float32)
        return np.asarray(random.normal(size=tuple(shape)), np.float32)

    def constant(self, array: np.ndarray) -> Value:
        """A constant; sometimes one that the graph has already, of the same shape and type."""
        array = np.asarray(array)
        same = [n for n, a in self.constants.items() if a.dtype == array.dtype and a.shape == array.shape and a.dtype.kind == "f"]
        if array.ndim and same and self.choices.chance(4):
            shared = self.choices.pick(same)
            if not self.choices.chance(3):
                return Value(shared, self.constants[shared], False)
            array = self.constants[shared]  # the same bytes under another name
        name = self.name()
        self.constants[name] = array
        return Value(name, array, bool(array.dtype.kind != "f" or np.array_equal(array * 8, np.rint(array * 8))))

    def ints(self, values: Sequence[int] | int) -> Value:
        return self.constant(np.asarray(values, np.int64))

    def source(self, array: np.ndarray, exact: bool = True, kind: str | None = None) -> Value:
        """A new input of the graph; ``kind`` is its element type in a dialect graph, whose file says float."""
        value = Value(self.name(), array, exact)
        self.inputs[value.name] = value
        if kind is not None:
            self.types[value.name] = kind
        return value

    # Nodes.

    def node(
        self,
        op: str,
        inputs: Sequence[Value | None],
        outputs: int = 1,
        domain: str = "",
        exact: bool = False,
        arrays: Sequence[np.ndarray] | None = None,
        **attributes: object,
    ) -> list[Value]:
        """Add a node and return its outputs; ``arrays`` are their values where no evaluator knows the operator.

        Raises:
            Invalid: the node cannot be computed, its result is too large, or not finite.
        """
        names = [value.name if value is not None else "" for value in inputs]
        while names and not names[-1]:
            names.pop()
        results = [self.name() for _ in range(outputs)]
        attributes = {key: value for key, value in attributes.items() if value is not None}
        made = helper.make_node(op, names, results, name=f"{op} {self.counter}", domain=domain, **attributes)
        if arrays is None:
            values = {value.name: value.array for value in inputs if value is not None}
            arrays = oracle.evaluate(made, values, [n for n in values if n in self.constants], self.opset)
        if any(array.size > LARGEST or not array.size for array in arrays):
            raise Invalid
        self.nodes.append(made)
        exact = exact and all(value.exact for value in inputs if value is not None)
        found = []
        for name, array in zip(results, arrays, strict=True):
            is_exact = array.dtype.kind != "f" or (exact and float(np.abs(array).max()) < 4096)
            found.append(Value(name, np.asarray(array), is_exact))
            self.seen.append(found[-1])
            if is_exact and array.dtype.kind == "f":
                self.exact.add(name)
        return found

    def one(self, op: str, *inputs: Value | None, exact: bool = False, **attributes: object) -> Value:
        """As ``node``, of one output."""
        return self.node(op, inputs, exact=exact, **attributes)[0]

    def pick(self, fits: Callable[[Value], bool]) -> Value | None:
        """One of the values made so far, late ones more often; None where none fits."""
        found = [value for value in self.pool if fits(value)]
        if not found:
            return None
        if not self.choices.chance(3):
            return found[-1]
        return self.choices.pick(found)

    def attempt(self, step: Callable[[Builder], Sequence[Value]]) -> bool:
        """Let ``step`` add nodes; what it leaves behind when it fails is taken back."""
        nodes, constants, inputs = len(self.nodes), set(self.constants), set(self.inputs)
        try:
            self.pool.extend(step(self))
        except Invalid:
            del self.nodes[nodes:]
            for name in set(self.constants) - constants:
                del self.constants[name]
            for name in set(self.inputs) - inputs:
                del self.inputs[name]
                self.types.pop(name, None)
            return False
        return True

    # The finished model.

    def finish(self) -> onnx.ModelProto:
        """The model: outputs are all values that nobody reads, and sometimes others."""
        read = {name for node in self.nodes for name in node.input}
        made = {name: node for node in self.nodes for name in node.output}
        kept = [v for v in self.pool if v.name in made and (v.name not in read or self.choices.chance(8))]
        kept = list({v.name: v for v in kept}.values())
        if not kept:
            raise Invalid
        outputs = [helper.make_tensor_value_info(v.name, self._type(v.array), v.shape) for v in kept]
        needed = self._needed([v.name for v in kept])
        nodes = [node for node in self.nodes if set(node.output) & needed]
        graph = helper.make_graph(
            nodes,
            "random",
            [helper.make_tensor_value_info(n, self._type(v.array), v.shape) for n, v in self.inputs.items()],
            outputs,
            [numpy_helper.from_array(a, n) for n, a in self.constants.items() if n in needed],
        )
        if self.choices.chance(3):
            inner = {v.name: v for v in self.seen if v.name in needed and v not in kept}
            graph.value_info.extend(helper.make_tensor_value_info(n, self._type(v.array), v.shape) for n, v in inner.items())
        domains = {node.domain for node in nodes} - {""}
        opsets = [helper.make_opsetid("", self.opset), *(helper.make_opsetid(domain, 1) for domain in sorted(domains))]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8, producer_name="deeploy-random")
        model.metadata_props.add(key=EXACT, value="\n".join(sorted(self.exact)))
        self.golden = {v.name: v.array for v in kept} if self.form == "dialect" else {}
        return model

    def sizes(self) -> tuple[int, int]:
        """Bytes of the largest node's tensors, and of all tensors."""
        arrays = {**self.constants, **{v.name: v.array for v in (*self.seen, *self.inputs.values())}}
        each = {name: array.size if self.form == "dialect" else array.nbytes for name, array in arrays.items()}
        nodes = [sum(each.get(name, 0) for name in (*node.input, *node.output)) for node in self.nodes]
        return max(nodes, default=0), sum(each.values())

    def _type(self, array: np.ndarray) -> int:
        return int(helper.np_dtype_to_tensor_dtype(array.dtype))

    def _needed(self, outputs: Sequence[str]) -> set[str]:
        needed = set(outputs)
        for node in reversed(self.nodes):
            if set(node.output) & needed:
                needed.update(node.input)
        return needed
