"""The algorithm that adds partial sums up, and whether anything may take the place of that, as the user or a topology file says."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import onnx
import pytest

from benchmarks.transformer_models import Shape
from deeploy.errors import TargetError
from deeploy.ir.topology import AUTO, COLLECTIVES, load_topology
from deeploy.operators.residual import RESIDUAL_SUM
from deeploy.partition.collectives import Costs
from deeploy.partition.joins import join_residuals
from tests.command import deeploy_cli
from tests.models import Net, quantised, weights
from tests.partition.cuts import synchronisations
from tests.partition.test_tensor import TOPOLOGY, cut, declare, is_equal, perceptron, transformer


def saved(path: Path, *widths: int) -> Path:
    net = Net()
    x = quantised(net, net.x(3, widths[0]))
    for before, after in pairwise(widths):
        x = quantised(net, net.Relu(quantised(net, net.MatMul(x, weights(net, before, after)), 0.1)))
    onnx.save(net.model([x]), path)
    return path


@pytest.mark.share(0.4)
@pytest.mark.parametrize("name", COLLECTIVES)
@pytest.mark.parametrize("count", [3, 8])
def test_sums_and_copies_move_as_is_asked(name: str, count: int, tmp_path: Path) -> None:
    assert TOPOLOGY is not None
    graph = perceptron(tmp_path, 64, 96, 64, 96, 32)
    found = cut(graph, count, replace(TOPOLOGY, collective=name))
    moved = {one.algorithm for one in found.collectives if one.kind in ("reduce", "broadcast")}
    assert moved and (name == AUTO or moved <= {name if count == 8 or name != "flat" else "hierarchical"})
    assert is_equal(graph, found)


def test_a_topology_file_says_how_sums_move(tmp_path: Path) -> None:
    file = tmp_path / "topology.toml"
    file.write_text('[collectives]\nalgorithm = "ring"\ngathers = false\n')
    found = load_topology(file, TOPOLOGY)
    assert TOPOLOGY is not None and (found.collective, found.has_gathers, found.group) == ("ring", False, TOPOLOGY.group)
    file.write_text('[collectives]\nalgorithm = "star"\n')
    with pytest.raises(TargetError, match="collectives"):
        load_topology(file, TOPOLOGY)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--chips", "4", "--collective", "star"], "--collective star is unknown"),
        (["--no-gathers"], "--no-gathers without --chips"),
        (["--chips", "2", "--partition", "pipeline", "--collective", "ring"], "--collective with --partition pipeline"),
        (["--chips", "2", "--partition", "pipeline", "--no-gathers"], "--no-gathers with --partition pipeline"),
    ],
)
def test_what_is_no_algorithm_is_refused(options: list[str], expected: str, tmp_path: Path) -> None:
    model = saved(tmp_path / "model.onnx", 16, 32, 16)
    found = deeploy_cli("compile", model, "-t", "siracusa", "-o", tmp_path / "out", *options)
    assert found.returncode == 2 and expected in found.stderr and len(found.stderr.strip().splitlines()) == 2


def test_without_gathers_all_partial_sums_are_added_up(tmp_path: Path) -> None:
    """Messages from chip to chip are those of sums and copies alone; the result is the same."""
    model, sent = saved(tmp_path / "model.onnx", 256, 512, 256), []
    for options in ((), ("--no-gathers", "--collective", "flat")):
        out = tmp_path / f"out{len(sent)}"
        made = deeploy_cli("compile", model, "-t", "siracusa", "-o", out, "--chips", 8, *options)
        assert made.returncode == 0, made.stderr
        sent.append({(one["from"], one["to"]) for one in json.loads((out / "deploy.json").read_text())["messages"]})
    assert sent[0] != sent[1] and all(0 in pair for pair in sent[1])


@pytest.mark.share(0.5)
@pytest.mark.parametrize("count", [2, 4, 8])
@pytest.mark.parametrize(("rows", "is_decoder"), [(1, True), (6, False)])
def test_the_scheme_of_the_paper_synchronises_twice_in_a_block(rows: int, is_decoder: bool, count: int, tmp_path: Path) -> None:
    """Hierarchical sums alone: one sum and one copy for attention, and one of each for the feed-forward block. The residual connection
    joins the sum, norms are computed on one chip, and no constant is on two. An encoder has fewer heads here than there are chips.
    """
    assert TOPOLOGY is not None
    blocks = 2
    shape = Shape(64, 128, 16 if is_decoder else 4, blocks, rows, rows == 1)
    found = cut(transformer(tmp_path, shape, is_decoder), count, replace(TOPOLOGY, collective="hierarchical", has_gathers=False), Costs())
    assert sorted(synchronisations(found).values()) == [1] * (2 * blocks)
    moved = Counter(c.kind for c in found.collectives if c.kind != "broadcast" or c.bytes == (len(c.chips) - 1) * rows * shape.width)
    assert moved == {"reduce": 2 * blocks, "broadcast": 2 * blocks}
    assert {c.algorithm for c in found.collectives} == {"hierarchical"}
    joined = join_residuals(found.system, lambda node: any(declare(node)))
    first, *others = [Counter(node.op for node in graph.nodes) for graph in joined.chips]
    norm = "IntegerRMSNorm" if is_decoder else "IntegerLayerNorm"
    assert first[RESIDUAL_SUM.name] == first[norm] == 2 * blocks
    assert not any(own[RESIDUAL_SUM.name] or own[norm] for own in others)
