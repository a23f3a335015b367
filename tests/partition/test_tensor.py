"""Tensor parallelism: what several chips compute is what one does, bit for bit, and no constant is on two of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from benchmarks.transformer_models import Shape, decoder, encoder
from deeploy.driver.partition import costs_of
from deeploy.errors import ModelError, UsageError
from deeploy.execution.simulation import chips
from deeploy.ir.nodes import Node, Tensor, constant
from deeploy.ir.types import DType
from deeploy.ir.values import Graph
from deeploy.options import Options
from deeploy.partition import collectives
from deeploy.partition.collectives import Algorithm, Costs, Effort
from deeploy.partition.dependence import read_dependence
from deeploy.partition.proof import prove_partition
from deeploy.partition.system import check_system, constants_by_chip, system_of_one
from deeploy.partition.tensor import Partition, partition_by_tensor
from deeploy.planning.binding.kernels import kernel_declarations
from deeploy.target import Link, Topology, load
from tests.e2e import decoders
from tests.models import Net, conv, quantised, weights
from tests.partition.cuts import lower_for_target, lowered_file, synchronisations

SIRACUSA = load("siracusa")
CLUSTER = tuple(kernel for kernel in SIRACUSA.kernels if kernel.engine in ("cluster", "link"))
TOPOLOGY = SIRACUSA.topology
assert TOPOLOGY is not None
LINK = Link("wire", 1e9, 1e-6, 1.0)


def declare(node: Node) -> Any:
    return kernel_declarations(CLUSTER, node)


def random_inputs(graph: Graph, seed: int) -> dict[str, np.ndarray]:
    """Values of all of the model's inputs over half of their types' ranges."""
    numbers = np.random.default_rng(seed)
    values = {}
    for tensor in graph.inputs:
        dtype = tensor.dtype.numpy
        if tensor.name.startswith("position"):
            continue
        if dtype.kind == "f":
            values[tensor.name] = numbers.standard_normal(tensor.shape).astype(dtype)
        else:
            low = 0 if dtype.kind == "u" or dtype.itemsize > 4 else -60
            values[tensor.name] = numbers.integers(low, 40, tensor.shape).astype(dtype)
    return values


def is_equal(graph: Graph, found: Partition, steps: int = 1) -> bool:
    """Whether the chips compute what one does, over a sequence of inferences, and outputs are no constants."""
    runs = []
    inputs = [random_inputs(graph, seed) for seed in range(steps)]
    for system in (system_of_one(graph), found.system):
        programs, states = chips.chip_programs(system, replace(SIRACUSA, kernels=CLUSTER)), chips.States()
        runs.append([chips.system_outputs(system, programs, sample, states) for sample in inputs])
    assert all(np.unique(array).size > 5 for array in runs[0][-1])
    return all(np.array_equal(a, b) for one, other in zip(*runs, strict=True) for a, b in zip(one, other, strict=True))


def cut(graph: Graph, count: int, topology: Topology = TOPOLOGY, costs: Costs | None = None) -> Partition:
    costs = costs or costs_of(SIRACUSA, Options(engines=("cluster",)))
    found = partition_by_tensor(graph, count, topology, declare, costs)
    check_system(found.system, topology)
    prove_partition(graph, declare, found)
    return found


def transformer(folder: Path, shape: Shape, is_decoder: bool) -> Graph:
    """A network of the benchmarks, lowered; caches hold 16 rows."""
    path = folder / "transformer.onnx"
    onnx.save((decoder if is_decoder else encoder)(shape), path)
    return lowered_file(path, replace(SIRACUSA, kernels=CLUSTER), dialect="integer", context=16 if shape.past else None)


def perceptron(folder: Path, *widths: int) -> Graph:
    net = Net()
    x = quantised(net, net.x(3, widths[0]))
    for before, after in pairwise(widths):
        x = quantised(net, net.Relu(quantised(net, net.MatMul(x, weights(net, before, after)), 0.1)))
    return lower_for_target(net.model([x]), folder, SIRACUSA)


def images(folder: Path) -> Graph:
    """A dense convolution, a depthwise one and a residual block with its own convolution on the skip."""
    net = Net()

    def filtered(x: str, k: int, c: int, f: int, **attrs: Any) -> str:
        w = weights(net, k, c, f, f)
        return quantised(net, net.Relu(net.Conv(x, w, pads=[f // 2] * 4, **attrs)), 0.1)

    x = filtered(quantised(net, net.x(1, 3, 9, 9)), 12, 3, 3)
    x = filtered(x, 12, 1, 3, group=12)
    inner = filtered(filtered(x, 20, 12, 1, strides=[2, 2]), 12, 20, 3)
    x = quantised(net, net.Add(inner, filtered(x, 12, 12, 1, strides=[2, 2])), 0.2)
    x = quantised(net, net.GlobalAveragePool(x))
    y = net.MatMul(net.Flatten(x), weights(net, 12, 10))
    return lower_for_target(net.model([quantised(net, y, 0.02)]), folder, SIRACUSA)


@pytest.mark.share(0.25)
@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("has_caches", [True, False])
def test_decoders(tmp_path: Path, count: int, has_caches: bool) -> None:
    shape = Shape(56, 96, 7, 2, 1 if has_caches else 5, has_caches)
    graph = transformer(tmp_path, shape, True)
    found = cut(graph, count)
    assert is_equal(graph, found, steps=3)
    if count > 1:
        assert sorted(synchronisations(found).values()) == [1] * (2 * shape.layers)  # heads, and the inner width
        kinds = Counter(c.kind for c in found.collectives)
        assert kinds["reduce"] == 2 * shape.layers and kinds["gather"] == 0
        own = constants_by_chip(found.system)
        assert max(own[chip] for chip in range(1, count)) < 1.25 * constants_by_chip(system_of_one(graph))[0] / count + 2048


@pytest.mark.parametrize("count", [2, 4, 5])
def test_encoders_synchronise_twice_in_a_block(tmp_path: Path, count: int) -> None:
    shape = Shape(40, 64, 5, 2, 6)
    graph = transformer(tmp_path, shape, False)
    found = cut(graph, count)
    assert is_equal(graph, found)
    assert sorted(synchronisations(found).values()) == [1] * (2 * shape.layers)
    assert Counter(c.kind for c in found.collectives) == {"reduce": 4, "broadcast": 4}


def test_columns_that_cores_share_are_not_cut() -> None:
    """A norm of one row, whose cores divide the columns, is one atom as that of many rows is."""
    x, weight = Tensor("x", (1, 64), DType.INT8), constant(np.arange(64, dtype=np.int32))
    norm = Node("norm", "IntegerRMSNorm", (x, weight), (replace(x, name="y"),), {"shift": 1})
    (y,) = norm.outputs
    found = read_dependence(Graph("", (x,), (y,)), lambda node: kernel_declarations(load("siracusa").kernels, node))
    assert {loop.name: loop.group for loop in found.loops[norm]} == {"d0": -1, "k": -1, "c": -1}
    assert found.classes(y) == found.classes(x) == (-1, -1) and found.classes(weight) == (-1,)


def test_norms_and_residuals_are_on_the_first_chip(tmp_path: Path) -> None:
    found = cut(transformer(tmp_path, Shape(32, 64, 4, 2, 4), False), 4)
    first, *others = (Counter(node.op for node in graph.nodes) for graph in found.system.chips)
    assert first["IntegerLayerNorm"] == 4
    assert all(count["IntegerLayerNorm"] == 0 for count in others)
    adding = ("Add", "ReduceSum")
    sums = [[node.attrs.get("epilogue") for node in graph.nodes if node.op in adding] for graph in found.system.chips]
    assert sums[0].count(("requantise",)) >= 8  # skip connections, and the last sum of every chunk of partial ones
    assert all(("requantise",) not in chip for chip in sums[1:])


@pytest.mark.parametrize(("widths", "sums", "gathers"), [((24, 40, 16, 32, 8), 2, 0), ((24, 40, 16, 10), 1, 1), ((24, 40), 0, 1)])
@pytest.mark.parametrize("count", [2, 3, 8])
def test_perceptrons(tmp_path: Path, widths: tuple[int, ...], sums: int, gathers: int, count: int) -> None:
    graph = perceptron(tmp_path, *widths)
    found = cut(graph, count)
    kinds = Counter(c.kind for c in found.collectives)
    assert (kinds["reduce"], kinds["gather"]) == (sums, gathers)
    assert is_equal(graph, found)


@pytest.mark.parametrize("count", [2, 3, 5, 10])
def test_images_by_channels(tmp_path: Path, count: int) -> None:
    graph = images(tmp_path)
    found = cut(graph, count)
    assert is_equal(graph, found)
    convolutions = [node.name for node in graph.nodes if node.op == "Conv"]
    assert len(convolutions) == 5
    assert set(convolutions) <= found.cut.keys()
    assert sum(constants_by_chip(found.system).values()) < 1.1 * constants_by_chip(system_of_one(graph))[0] + 64 * count


def test_floats_are_cut_along_outputs_alone(tmp_path: Path) -> None:
    net = Net()
    x = net.x(1, 3, 8, 8)
    y = net.Relu(conv(net, net.Relu(conv(net, x, 3, 8)), 8, 12))
    graph = lower_for_target(net.model([net.Softmax(net.Gemm(net.Flatten(y), net.w(768, 10), net.w(10)))]), tmp_path, SIRACUSA)
    found = cut(graph, 3)
    assert Counter(c.kind for c in found.collectives)["reduce"] == 0
    assert len(found.cut) >= 3
    assert is_equal(graph, found)


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 4])
def test_several_queries_to_a_key(tmp_path: Path, count: int) -> None:
    """Caches of half as many heads: more chips than these have work of the inner width alone."""
    path = Path(__file__).parents[2] / "examples" / "story" / "story_int8.onnx"
    graph = lowered_file(path, replace(SIRACUSA, kernels=CLUSTER), rows=1, context=32)
    found = cut(graph, count)
    assert is_equal(graph, found, steps=3)
    assert Counter(c.kind for c in found.collectives)["reduce"] == 8
    assert Counter(c.kind for c in found.collectives)["gather"] == 1
    assert any("fewer parts" in note for note in found.system.notes) == (count > 2)


def test_masks_that_slide_are_computed_again(tmp_path: Path) -> None:
    graph = lowered_file(decoders.writer(tmp_path), replace(SIRACUSA, kernels=CLUSTER), rows=3, context=16)
    assert any(node.op == "Slide" for node in graph.nodes)
    found = cut(graph, 2)
    assert all(any(node.op == "Slide" for node in part.nodes) for part in found.system.chips)
    assert is_equal(graph, found, steps=3)


# ---- topologies


WIRES = {(a, b): "wire" for a in range(6) for b in range(a + 1, 6)}


@pytest.mark.parametrize(
    ("topology", "algorithms"),
    [
        (Topology({"wire": LINK}, 4, "wire"), {"hierarchical", "ring"}),
        (Topology({"wire": replace(LINK, latency=1.0)}, 4, "wire"), {"hierarchical"}),
        (Topology({"wire": replace(LINK, latency=1.0)}, 0, "", WIRES, ports=8), {"flat"}),
        (Topology({"wire": replace(LINK, bytes_per_second=1e6, latency=0.0)}, 0, "", WIRES), {"ring"}),
    ],
)
def test_the_topology_decides_how_chips_add_up(tmp_path: Path, topology: Topology, algorithms: set[str]) -> None:
    graph = transformer(tmp_path, Shape(48, 96, 6, 1, 64), False)
    found = cut(graph, 6, topology, Costs())
    chosen = {c.algorithm for c in found.collectives if c.kind == "reduce"}
    assert chosen <= algorithms and all(re.search(rf"2 reduce \([^)]*{algorithm}", found.system.notes[0]) for algorithm in chosen)
    assert is_equal(graph, found)
    assert sum(c.bytes for c in found.collectives) == sum(m.bytes for m in found.system.messages)


@pytest.mark.share(0.25)
@pytest.mark.parametrize("count", [3, 4, 5, 16])
@pytest.mark.parametrize("rows", [1, 5])
def test_every_way_adds_up_to_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, rows: int) -> None:
    """Each algorithm in turn, in one chunk and in several, also where groups are incomplete."""
    graph = transformer(tmp_path, Shape(64, 96, 16, 1, rows), True)
    seen = set()
    for wanted in ("hierarchical", "flat", "ring"):
        for largest in (65536, 64):

            def pick(algorithms: Iterator[Algorithm], *_: object, kind: str = wanted) -> tuple[Algorithm, float]:
                offered = list(algorithms)
                return next((algorithm for algorithm in offered if algorithm.name == kind), offered[0]), 0.0

            monkeypatch.setattr(collectives, "LARGEST", largest)
            monkeypatch.setattr(collectives, "SMALLEST", 1)
            monkeypatch.setattr(collectives, "fastest_algorithm", pick)
            found = cut(graph, count)
            seen |= {c.algorithm for c in found.collectives if c.kind == "reduce"}
            assert is_equal(graph, found)
    assert seen == {"hierarchical", "ring"} | ({"flat"} if count > 5 else set())


def test_what_arrives_at_once_is_added_at_once(tmp_path: Path) -> None:
    graph = transformer(tmp_path, Shape(48, 96, 8, 1, 1, True), True)
    slow = Topology({"wire": replace(LINK, latency=1.0)}, 4, "wire")  # few messages are best
    first, *others = (Counter(node.op for node in part.nodes) for part in cut(graph, 8, slow).system.chips)
    assert (first["ReduceSum"], others[3]["ReduceSum"]) == (2, 2)  # of a group each, for heads and for the inner width
    assert first["Add"] == 2  # skip connections
    assert all(count["Add"] == 0 for count in others)


def by_hand(product: float, call: float) -> Costs:
    """Products that take so many seconds as a whole, and so many at the least; sums take nothing."""
    return Costs(0.0, lambda graph: Effort(product, call) if graph.nodes[0].op != "ReduceSum" else Effort())


def kinds(graph: Graph) -> list[str]:
    """Sends, Recvs and what sums products of a constant with no epilogue, in order."""
    partial = [node for node in graph.nodes if node.op in ("Conv", "MatMul") and node.outputs[0].dtype is DType.INT32]
    names = {node: "product" for node in partial if node.variables != list(node.operands)}
    listed = [names.get(node, node.op) for node in graph.nodes]
    return [name for name in listed if name in ("product", "Send", "Recv", "ReduceSum")]


def test_partial_sums_are_sent_while_the_next_ones_are_computed(tmp_path: Path) -> None:
    """A link that takes as long as the product: a sender computes a chunk and sends it, a receiver computes one ahead."""
    graph = perceptron(tmp_path, 64, 96, 512)
    wire = Topology({"wire": replace(LINK, latency=0.0)}, 4, "wire")
    found = cut(graph, 3, wire, by_hand(3 * 3 * 512 * 4e-9, 1e-8))
    assert is_equal(graph, found)
    sender, first = kinds(found.system.chips[2]), kinds(found.system.chips[0])
    begin = sender.index("product")
    chunks = sender.count("product")
    assert chunks > 2 and sender[begin:] == ["product", "Send"] * chunks
    every = first[first.index("product") :]
    assert every[:5] == ["product", "product", "Recv", "Recv", "ReduceSum"]
    assert every[5:] == ["product", "Recv", "Recv", "ReduceSum"] * (chunks - 2) + ["Recv", "Recv", "ReduceSum"]


@pytest.mark.parametrize(
    ("product", "call", "is_divided"), [(0.0, 0.0, True), (1e-4, 1e-6, True), (1e-4, 1e-4, False), (1e-2, 5e-5, False)]
)
def test_products_are_divided_where_that_is_faster(tmp_path: Path, product: float, call: float, is_divided: bool) -> None:
    """The message of 6 144 bytes takes 6 microseconds, and as long again on the algorithm up; calls that are too long are not repeated."""
    graph = perceptron(tmp_path, 64, 96, 512)
    wire = Topology({"wire": replace(LINK, latency=0.0)}, 4, "wire")
    found = cut(graph, 4, wire, by_hand(product, call))
    assert (kinds(found.system.chips[1]).count("product") > 1) == is_divided
    assert is_equal(graph, found)


def test_pieces_of_convolutions_are_output_channels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No byte of a constant is read twice; bias and multipliers of a channel are where its last sum is."""
    graph = images(tmp_path)
    monkeypatch.setattr(collectives, "LARGEST", 128)
    monkeypatch.setattr(collectives, "SMALLEST", 1)
    found = cut(graph, 3)
    assert is_equal(graph, found)
    divided = [node for node in found.system.chips[1].nodes if node.op == "Conv" and node.outputs[0].dtype is DType.INT32]
    assert len(divided) > len({node.name for node in divided})
    assert all(node.operands[1].shape[0] < 12 for node in divided)
    assert sum(constants_by_chip(found.system).values()) < 1.1 * constants_by_chip(system_of_one(graph))[0] + 64 * 3


def test_inputs_of_cut_nodes_are_given_to_all_chips(tmp_path: Path) -> None:
    found = cut(transformer(tmp_path, Shape(32, 64, 4, 1, 4), True), 4)
    assert found.system.given("x") == (0,)
    assert found.system.given("cosines") == found.system.given("sines") == (0, 1, 2, 3)


# ---- bad input, and mutants


def test_more_chips_than_parts(tmp_path: Path) -> None:
    graph = perceptron(tmp_path, 24, 40, 8)
    assert is_equal(graph, cut(graph, 40))
    with pytest.raises(UsageError, match=r"--chips 41: 1 chips would have nothing to do: .* more than 40 parts\nUse at most --chips 40."):
        cut(graph, 41)


def test_nothing_to_cut(tmp_path: Path) -> None:
    net = Net()
    graph = lower_for_target(net.model([net.Relu(net.x(4, 4))]), tmp_path, SIRACUSA)
    with pytest.raises(UsageError, match=r"nothing that can be cut across chips.*\n.*--partition pipeline"):
        cut(graph, 2)


def test_the_proof_finds_constants_on_two_chips(tmp_path: Path) -> None:
    graph = perceptron(tmp_path, 24, 40, 8)
    found = cut(graph, 2)
    matrix = next(shard for shard in found.shards if shard.chip == 1 and shard.values.ndim == 2)
    doubled = replace(found, shards=(*found.shards, replace(matrix, chip=0)))
    with pytest.raises(ModelError, match="is on chip 0 and on another one"):
        prove_partition(graph, declare, doubled)
    with pytest.raises(ModelError, match=r"elements of constant .* are on no chip"):
        prove_partition(graph, declare, replace(found, shards=tuple(shard for shard in found.shards if shard is not matrix)))
    with pytest.raises(ModelError, match="other values"):
        prove_partition(graph, declare, replace(found, shards=(*found.shards, replace(matrix, values=matrix.values + 1))))
    first, chip = found.system.chips
    foreign = [
        node.another(inputs=(node.inputs[0], replace(node.operands[1], name="foreign", data=np.ones(node.operands[1].shape, np.int8))))
        if node.op == "MatMul"
        else node
        for node in chip.nodes
    ]
    other = replace(found.system, chips=(first, replace(chip, order=tuple(foreign))))
    with pytest.raises(ModelError, match="constant foreign is no part of it"):
        prove_partition(graph, declare, replace(found, system=other))


# ---- real networks


@pytest.mark.parametrize("count", [2, 4, 8, 16])
def test_a_real_language_model(shared_models: Path, count: int) -> None:
    folder = shared_models / "dialect" / "Models" / "microLlama" / "INT8" / "microLlama1"
    graph = lowered_file(folder / "network.onnx", replace(SIRACUSA, kernels=CLUSTER), inputs=folder / "inputs.npz")
    found = cut(graph, count)
    assert is_equal(graph, found)
    assert Counter(c.kind for c in found.collectives)["reduce"] == 16  # of 8 blocks
    own = constants_by_chip(found.system)
    assert max(own[chip] for chip in range(1, count)) * count < 1.4 * constants_by_chip(system_of_one(graph))[0]


@pytest.mark.parametrize(
    ("name", "counts"),
    [("CCT/Int/ICCT", (2, 8)), ("MLPerf/ImageClassification", (4, 16)), ("MLPerf/KeywordSpotting", (3,)), ("Transformer_DeepQuant", (2,))],
)
def test_real_networks(shared_models: Path, name: str, counts: tuple[int, ...]) -> None:
    folder = shared_models / "dialect" / "Models" / name
    graph = lowered_file(folder / "network.onnx", replace(SIRACUSA, kernels=CLUSTER), inputs=folder / "inputs.npz")
    for count in counts:
        found = cut(graph, count)
        assert is_equal(graph, found)
        assert len(found.cut) > 3
