"""Networks of independent nodes of the integer form, compiled for Siracusa with chosen kernels, and run on the host machine model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from deeploy.api import Compiled, Network
from deeploy.backend.project import select_network
from deeploy.execution.runners import host
from deeploy.frontend.io import describe_ports
from deeploy.ir.nodes import Node, Tensor
from deeploy.ir.types import DType
from deeploy.ir.values import Graph
from deeploy.operators import conv, matmul
from deeploy.options import Options
from deeploy.planning.binding.assemble import assemble_program
from deeploy.planning.planner.machine import machine_of
from deeploy.planning.planner.network import make_plan
from deeploy.planning.program import choose_variants
from deeploy.target import Kernel, Target

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Layer:
    """A convolution or a product: what it reads, its constants in node order, and the type of its output."""

    op: str
    x: Array
    constants: tuple[Array, ...]
    y: str
    attrs: Mapping[str, Any] = field(default_factory=dict)

    def node(self) -> Node:
        """The node, with the shape of its output."""
        shape = self._sums().shape
        tensors = (Tensor(f"c{i}", a.shape, DType.of(a.dtype), a) for i, a in enumerate(self.constants))
        return Node(
            "layer",
            self.op,
            (Tensor("x", self.x.shape, DType.of(self.x.dtype)), *tensors),
            (Tensor("y", shape, DType(self.y)),),
            self.attrs,
        )

    def _sums(self) -> Array:
        first = Tensor("x", self.x.shape, DType.of(self.x.dtype))
        weights = Tensor("w", self.constants[0].shape, DType.of(self.constants[0].dtype), self.constants[0])
        node = Node("layer", self.op, (first, weights), (), self.attrs)
        reference = conv.reference if self.op == "Conv" else matmul.reference
        return np.asarray(reference(node, self.x, self.constants[0]))


def graph_of(layers: Sequence[Layer]) -> Graph:
    """One network in which every layer has an input and an output of its own."""
    inputs, outputs = list[Tensor](), list[Tensor]()
    for number, layer in enumerate(layers):
        inputs.append(Tensor(f"x{number}", layer.x.shape, DType.of(layer.x.dtype)))
        constants = (Tensor(f"c{number}_{i}", a.shape, DType.of(a.dtype), a) for i, a in enumerate(layer.constants))
        y = Tensor(f"y{number}", layer.node().outputs[0].shape, DType(layer.y))
        outputs += Node(f"layer{number}", layer.op, (inputs[-1], *constants), (y,), layer.attrs).outputs
    return Graph("network", tuple(inputs), tuple(outputs))


def compile_layers(layers: Sequence[Layer] | Graph, target: Target, options: Options) -> Compiled:
    """The network of layers, or one that was made of them, each run by the first kernel that fits."""
    graph = layers if isinstance(layers, Graph) else graph_of(layers)
    machine = machine_of(target, options)
    assert machine is not None, "siracusa has scratchpad memories"
    program = assemble_program("network", graph, target.kernels)
    plan = make_plan(choose_variants(program, [0] * len(program.calls)), target, machine, options.seconds)
    sources, results = describe_ports(graph, True, {})
    return Compiled({"network": Network(plan, "layers", tuple(sources), tuple(results), "declared", ())}, {})


def kernels_of(made: Compiled) -> list[Kernel]:
    """The kernel of every call."""
    return [call.kernel for call in made.plan.program.calls]


def check(made: Compiled, layers: Sequence[Layer], folder: Path, sanitize: bool = False) -> None:
    """Assert that every output is what the references give, whatever the machine does that it does not promise."""
    made.write(folder)
    entry = select_network(json.loads((folder / "deploy.json").read_text()))
    sample = [layer.x for layer in layers]
    got = host.Host(sanitize=sanitize).run(folder, entry, [sample]).outputs
    for number, (have, want) in enumerate(zip(got, made.interpret(sample), strict=True)):
        np.testing.assert_array_equal(have[0], want, err_msg=f"layer {number}: {layers[number].op} of {layers[number].x.shape}")
