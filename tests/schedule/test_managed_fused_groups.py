"""Chains on a machine with several memories: what they save, that they are safe, and that whatever makes one unsafe is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import deeploy
from deeploy.backend import project
from deeploy.documents import Document
from deeploy.errors import UsageError
from deeploy.execution.runners import host
from deeploy.execution.simulation.walk import walk_plan
from deeploy.options import Options
from deeploy.planning.groups import layer_fusion as fuse
from deeploy.planning.groups import layer_pipelining as behind
from deeploy.planning.groups import parallel_branches as beside
from deeploy.planning.groups.layer_fusion import place_addresses
from deeploy.planning.plan import Objective, Plan
from deeploy.planning.tiling.fused_group import FusedGroup
from deeploy.schedule import build_schedule
from deeploy.schedule.ir import Compute, Do, Finish, Guard, Loop, Node, PostProcess, Schedule, ShiftRows, Wait
from deeploy.schedule.unroll import Unrolled
from tests.models import save_graph
from tests.schedule.proofs import prove, refuse, refuse_schedules, verdicts
from tests.schedule.test_fused_groups import mutants

L1, L2 = 26000, 24000
ENGINES = {"cores": ("cluster",), "both engines": ("cluster", "npu")}
CASES = (*ENGINES, *(f"{name}, L3" for name in ENGINES))  # with constants in L3, and what does not fit into L2


class Quantised:
    """An int8 network, layer by layer."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.random = np.random.default_rng(20)

    def node(self, op: str, *inputs: str, **attributes: object) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def constant(self, value: object, dtype: object = np.float32) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def read(self, x: str) -> str:
        return self.node("DequantizeLinear", x, self.constant(0.05), self.constant(-128, np.int8))

    def stored(self, x: str) -> str:
        return self.node("QuantizeLinear", x, self.constant(0.05), self.constant(-128, np.int8))

    def conv(self, x: str, channels: int, outputs: int, size: int, stride: int = 1, group: int = 1) -> str:
        shape = outputs, channels // group, size, size
        scale = self.constant(np.full(outputs, 0.01 / np.sqrt(np.prod(shape[1:]))))
        zero = self.constant(np.zeros(outputs), np.int8)
        weights = self.constant(self.random.integers(-127, 128, shape), np.int8)
        w = self.node("DequantizeLinear", weights, scale, zero, axis=0)
        sizes = {"kernel_shape": [size] * 2, "strides": [stride] * 2, "pads": [size // 2] * 4}
        y = self.node("Conv", self.read(x), w, group=group, **sizes)
        return self.stored(self.node("Relu", y))

    def block(self, x: str, channels: int, stride: int = 1) -> str:
        """An inverted residual: wider, each channel alone, narrower; added to what it began with where sizes agree."""
        y = self.conv(self.conv(x, channels, 6 * channels, 1), 6 * channels, 6 * channels, 3, stride, 6 * channels)
        y = self.conv(y, 6 * channels, channels, 1)
        return y if stride > 1 else self.stored(self.node("Add", self.read(x), self.read(y)))

    def save(self, path: Path, y: str, inputs: list[int], outputs: list[int]) -> Path:
        self.nodes.append(helper.make_node("Identity", [y], ["y"]))
        ends = [helper.make_tensor_value_info(n, TensorProto.INT8, s) for n, s in (("x", inputs), ("y", outputs))]
        graph = helper.make_graph(self.nodes, "network", ends[:1], ends[1:], self.constants)
        return save_graph(graph, path)


@pytest.fixture(scope="module")
def blocks_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    one = Quantised()
    y = one.block(one.block(one.conv("x", 3, 8, 3, 2), 8), 8, 2)
    return one.save(tmp_path_factory.mktemp("model") / "model.onnx", y, [1, 3, 56, 40], [1, 8, 14, 10])


@cache
def compile_group(model: Path, name: str, objective: Objective = "traffic", fusion: bool = True, l2: int = L2) -> deeploy.Compiled:
    options = Options(memory={"l1": L1}, engines=ENGINES[name.removesuffix(", L3")], objective=objective, fusion=fusion)
    if name.endswith("L3"):
        options = replace(options, memory={"l1": L1, "l2": l2}, default_memory="L3")
    return deeploy.compile(model, target="siracusa", **options.given())


@pytest.fixture(scope="module", params=CASES)
def fused(blocks_model: Path, request: pytest.FixtureRequest) -> tuple[str, deeploy.Compiled]:
    return request.param, compile_group(blocks_model, request.param)


def moved(one: deeploy.Compiled) -> int:
    return sum(traffic.bytes for traffic in walk_plan(one.plan).traffic.values())


@pytest.mark.share(0.25)
def test_chains_move_fewer_bytes_and_compute_the_same(fused: tuple[str, deeploy.Compiled], blocks_model: Path, tmp_path: Path) -> None:
    name, one = fused
    assert one.plan.fused_groups and any(chain.line_buffers for chain in one.plan.fused_groups)
    assert moved(one) < 0.95 * moved(compile_group(blocks_model, name, "cycles", fusion=False))
    one.write(tmp_path / "out")
    entry = project.select_network(project.read_manifest(tmp_path / "out"))
    assert [(c["first"], c["last"]) for c in entry["fused_groups"]] == [(c.first, c.last) for c in one.plan.fused_groups]
    sample = [np.random.default_rng(3).integers(-128, 128, entry["inputs"][0]["shape"]).astype(np.int8)]
    (outputs,) = host.Host(sanitize=True).run(tmp_path / "out", entry, [sample]).outputs
    np.testing.assert_array_equal(outputs[0], one.interpret(sample)[0])


@pytest.mark.share(0.25)
@pytest.mark.parametrize(("name", "l2"), [("cores", 9000), ("both engines", 16000)])
def test_what_lies_in_l3_comes_through_l2(name: str, l2: int, blocks_model: Path, tmp_path: Path) -> None:
    """Constants that are fetched whole and activations that go out to L3 are in chains as well, and the same is computed."""
    one = compile_group(blocks_model, f"{name}, L3", l2=l2)
    inside = {step for chain in one.plan.fused_groups for step in range(chain.first, chain.last + 1)}
    assert any(max(one.plan.calls[step].distances) > 1 for step in inside) or inside & set(one.plan.first_uses.values())
    assert one.plan.memory["L2"].peak <= l2
    prove(one)
    one.write(tmp_path / "out")
    entry = project.select_network(project.read_manifest(tmp_path / "out"))
    sample = [np.random.default_rng(3).integers(-128, 128, entry["inputs"][0]["shape"]).astype(np.int8)]
    (outputs,) = host.Host(sanitize=True).run(tmp_path / "out", entry, [sample]).outputs
    np.testing.assert_array_equal(outputs[0], one.interpret(sample)[0])


def test_what_its_calls_take_adds_up(fused: tuple[str, deeploy.Compiled]) -> None:
    """The calls of a chain run side by side; their cycles follow each other, and are those of the chain together."""
    run = walk_plan(fused[1].plan)
    assert run.calls[0].start == 0 and abs(run.calls[-1].end - run.cycles) < 1e-6
    for before, after in zip(run.calls[:-1], run.calls[1:], strict=True):
        assert abs(before.end - after.start) < 1e-6
    for call in run.calls:
        assert abs(call.cycles - (call.compute + call.overhead + call.issue + call.stalled)) < 1e-6


@pytest.mark.share(0.25)
def test_what_was_considered_is_recorded(fused: tuple[str, deeploy.Compiled], blocks_model: Path) -> None:
    """Every chain that is taken, and of neighbouring calls of which none is, why."""
    plan = fused[1].plan
    taken = [choice for choice in plan.fusion_choices if choice.is_taken]
    assert [(choice.first, choice.last) for choice in taken] == [(chain.first, chain.last) for chain in plan.fused_groups]
    for choice in taken:
        assert sum(choice.bytes_fused.values()) < sum(choice.bytes_apart.values())
        assert choice.peak_fused is not None and choice.peak_fused <= L1 and 0 < choice.peak_apart <= L1
    for choice in plan.fusion_choices:
        assert (choice.cycles_apart is None) == (choice.cycles_fused is None)
        assert (choice.tiles == 0) == (choice.cycles_apart is None)
        assert choice.reason != "no room" or (choice.peak_fused is not None and choice.peak_fused > L1)
    chained = {step for choice in taken for step in range(choice.first, choice.last)}
    known = {choice.first for choice in plan.fusion_choices if choice.last == choice.first + 1}
    calls = plan.program.calls
    for step in range(len(calls) - 1):
        written = calls[step].operands[calls[step].writes[0]].buffer
        if any(operand.buffer == written for operand in calls[step + 1].operands.values()):
            assert step in chained | known
    assert not compile_group(blocks_model, fused[0], "cycles", fusion=False).plan.fusion_choices
    by_cycles = compile_group(blocks_model, fused[0], "cycles").plan.fusion_choices
    assert by_cycles and {choice.reason for choice in by_cycles} & {"slower", "less saved", "no room", "cannot be cut"}


@pytest.mark.parametrize("name", CASES)
def test_fewer_cycles_are_never_more(name: str, blocks_model: Path) -> None:
    alone, one = compile_group(blocks_model, name, "cycles", fusion=False), compile_group(blocks_model, name, "cycles")
    assert not alone.plan.fused_groups
    assert walk_plan(one.plan).cycles <= walk_plan(alone.plan).cycles


@pytest.mark.parametrize("name", ENGINES)
def test_the_estimate_of_a_chain_is_what_the_walk_finds(name: str, blocks_model: Path) -> None:
    """Where all windows arrive in time: with all of L1, every tenth chain that there could be."""
    plan = deeploy.compile(blocks_model, target="siracusa", engines=ENGINES[name], fusion=False).plan
    fuser = fuse.FusionSearch(plan, plan.program)
    every = [*fuser.list_candidates(lambda *_: True), *beside.parallel_groups(fuser), *behind.pipelined_groups(fuser)][::10]
    assert len(every) > 3
    for one in every:
        run = walk_plan(fuse.apply_groups(plan, [one], fuser.buffers))
        assert abs(sum(run.calls[step].cycles for step in one.steps) / one.cycles - 1) < 0.05, one.fused_group


def test_jobs_run_while_cores_compute(blocks_model: Path) -> None:
    """Between the start of a job and the wait for it, cores compute another call."""
    plan = compile_group(blocks_model, "both engines").plan
    unrolled, beside = Unrolled(build_schedule(plan), {}), 0
    for chain in plan.fused_groups:
        running: int | None = None
        for event in unrolled.events(chain.last):
            node = event.node
            if isinstance(node, Compute) and event.table.layer.accelerator:
                assert running is None, "there is one accelerator"
                running = node.step
            elif isinstance(node, Finish):
                running = None
            elif isinstance(node, Compute | PostProcess) and running is not None:
                beside += node.step != running
    assert beside > 10


def later(one: Node) -> Node | None:
    """What computes, or moves, the next tile instead."""
    if isinstance(one, Compute | PostProcess):
        return replace(one, tile=one.tile + 1)
    return replace(one, tile=one.tile + 1) if isinstance(one, Do) and not isinstance(one.tile, int) else None


CHANGES: dict[str, Callable[[Node], Node | None]] = {
    "a move of rows is left out": lambda n: n if isinstance(n, ShiftRows) else None,
    "a move of rows begins early": lambda n: replace(n, begin=n.begin - 8) if isinstance(n, ShiftRows) else None,
    "a move of rows is too short": lambda n: replace(n, bytes=n.bytes - 8) if isinstance(n, ShiftRows) else None,
    "transfers or a tile are left out": lambda n: n if isinstance(n, Do | Compute | PostProcess) else None,
    "another tile is moved or computed": later,
    "nobody waits for a job": lambda n: n if isinstance(n, Finish) else None,
    "nobody waits for transfers": lambda n: n if isinstance(n, Wait) else None,
}


def of_chains(schedule: Schedule, chains: tuple[FusedGroup, ...], change: Callable[[Node], Node | None]) -> Callable[[Node], Node | None]:
    """The change, to nodes that only programs of chains have."""
    found = set[int]()

    def collect(nodes: tuple[Node, ...]) -> None:
        for one in nodes:
            found.add(id(one))
            collect(getattr(one, "body", ()))

    for chain in chains:
        collect(schedule.layers[chain.last].body)
    return lambda one: change(one) if id(one) in found else None


def unsafe(one: deeploy.Compiled, what: str) -> int:
    """In how many nodes of a plan's chains a change gives other C; with any of them changed, that is not certified."""
    schedule = build_schedule(one.plan)
    return refuse_schedules(one, mutants(schedule, of_chains(schedule, one.plan.fused_groups, CHANGES[what])))


def equal_on_the_host(one: deeploy.Compiled, folder: Path) -> Document:
    """The network's entry in ``deploy.json``; its C computes on the model of the machine what the interpreter does."""
    one.write(folder)
    entry = project.select_network(project.read_manifest(folder))
    sample = [np.random.default_rng(3).integers(-128, 128, entry["inputs"][0]["shape"]).astype(np.int8)]
    (outputs,) = host.Host(sanitize=True).run(folder, entry, [sample]).outputs
    np.testing.assert_array_equal(outputs[0], one.interpret(sample)[0])
    return entry


@pytest.mark.share(0.3)
@pytest.mark.parametrize("what", CHANGES)
def test_what_makes_a_chain_unsafe_is_found(what: str, fused: tuple[str, deeploy.Compiled]) -> None:
    one = fused[1]
    schedule = build_schedule(one.plan)
    found = verdicts(one, mutants(schedule, of_chains(schedule, one.plan.fused_groups, CHANGES[what])))
    assert found or fused[0].startswith("cores")
    # A later call's first tile waits for its constants once more, where the wait of an earlier call has covered them: that changes nothing.
    waits = [*mutants(schedule, of_chains(schedule, one.plan.fused_groups, first_waits))] if what == "nobody waits for transfers" else []
    assert sum(found) <= len(waits) and (sum(found) < len(found) or not found)


def first_waits(node: Node) -> Node | None:
    """What waits in the first tile of a call alone."""
    is_first = isinstance(node, Guard) and any(one.relation == "==" for one in node.conditions)
    return node if is_first and isinstance(node, Guard) and all(isinstance(one, Wait) for one in node.body) else None


def test_no_call_could_begin_earlier_and_no_ring_be_smaller(fused: tuple[str, deeploy.Compiled]) -> None:
    one = fused[1]
    plan = one.plan
    plans = list[Plan]()
    for position, chain in enumerate(plan.fused_groups):
        others = [
            replace(chain, members=tuple(replace(m, start=m.start - 1) if m is member else m for m in chain.members))
            for member in chain.members
            if member.start
        ]
        for name, ring in chain.line_buffers.items():
            rows = chain.member(ring.producer).rows
            if ring.rows > rows and ring.tiles == 1:
                others.append(replace(chain, line_buffers={**chain.line_buffers, name: replace(ring, rows=ring.rows - rows)}))
        plans += [
            replace(plan, fused_groups=(*plan.fused_groups[:position], other, *plan.fused_groups[position + 1 :])) for other in others
        ]
    assert refuse(one, plans)


def test_the_loop_over_clocks_is_one_loop(fused: tuple[str, deeploy.Compiled]) -> None:
    plan = fused[1].plan
    layers = build_schedule(plan).layers
    for chain in plan.fused_groups:
        assert sum(isinstance(node, Loop) for node in layers[chain.last].body) == 1
        assert not any(layers[step].body for step in range(chain.first, chain.last))


@pytest.mark.parametrize(
    ("options", "message"), [(Options(objective="traffic"), 'objective="traffic"'), (Options(fusion=False), "fusion=False")]
)
def test_options_of_machines_with_several_memories(options: Options, message: str, blocks_model: Path) -> None:
    with pytest.raises(UsageError, match=f"{message}: target generic has one flat memory"):
        deeploy.compile(blocks_model, target="generic", **options.given())


def test_cores_and_the_accelerator_beside_each_other_are_faster(tmp_path: Path) -> None:
    """By default, a copy of the caller's image and the convolution behind it are computed together: both take about as long."""
    one = Quantised()
    y = one.stored(one.node("MaxPool", one.read(one.conv("x", 32, 32, 3)), kernel_shape=[3, 3], pads=[1] * 4))
    model = one.save(tmp_path / "pooled.onnx", y, [1, 32, 64, 64], [1, 32, 64, 64])
    np.savez(tmp_path / "inputs.npz", x=np.random.default_rng(0).integers(-128, 128, (1, 32, 64, 64)).astype(np.int8))
    runs = []
    for chains in (True, False):
        options = Options(fusion=chains)
        found = deeploy.compile(model, "siracusa", inputs=tmp_path / "inputs.npz", requantise="engine", **options.given())
        assert [(chain.first, chain.last) for chain in found.plan.fused_groups] == [(0, 1)] * chains
        runs.append(walk_plan(found.plan).cycles)
    assert runs[0] < 0.96 * runs[1]


HEADS = 8, 96, 16  # of attention: rows of each, and columns
ATTENTION = Options(memory={"l1": 60_000}, engines=("cluster",), objective="traffic")


def attention(path: Path) -> Path:
    """Scores, softmax and values of some heads."""
    heads, rows, width = HEADS
    one = Quantised()
    scores = one.stored(one.node("MatMul", one.read("q"), one.read("k")))
    shares = one.node("QuantizeLinear", one.node("Softmax", one.read(scores), axis=-1), one.constant(1 / 255), one.constant(-128, np.int8))
    shares = one.node("DequantizeLinear", shares, one.constant(1 / 255), one.constant(-128, np.int8))
    one.nodes.append(helper.make_node("Identity", [one.stored(one.node("MatMul", shares, one.read("v")))], ["y"]))
    shapes = {"q": [heads, rows, width], "k": [heads, width, rows], "v": [heads, rows, width], "y": [heads, rows, width]}
    ports = [helper.make_tensor_value_info(name, TensorProto.INT8, shape) for name, shape in shapes.items()]
    graph = helper.make_graph(one.nodes, "attention", ports[:3], ports[3:], one.constants)
    return save_graph(graph, path)


def test_attention_needs_no_scores_of_all_heads(tmp_path: Path) -> None:
    """Scores, softmax and values are computed head by head; in L1 lie the scores of one head, and none leave it."""
    heads, rows, width = HEADS
    model = attention(tmp_path / "attention.onnx")
    found, alone = (deeploy.compile(model, "siracusa", **o.given()) for o in (ATTENTION, replace(ATTENTION, fusion=False)))
    (chain,) = found.plan.fused_groups
    assert (chain.first, chain.last) == (0, 2) and all(ring.rows * ring.pitch == rows * rows for ring in chain.line_buffers.values())
    assert moved(found) == 4 * heads * rows * width
    assert moved(alone) > moved(found) + 2 * heads * rows * rows
    found.write(tmp_path / "out")
    entry = project.select_network(project.read_manifest(tmp_path / "out"))
    sample = [np.random.default_rng(3).integers(-128, 128, port["shape"]).astype(np.int8) for port in entry["inputs"]]
    (outputs,) = host.Host(sanitize=True).run(tmp_path / "out", entry, [sample]).outputs
    np.testing.assert_array_equal(outputs[0], found.interpret(sample)[0])


def test_what_makes_a_chain_of_attention_unsafe_is_found(tmp_path: Path) -> None:
    one = deeploy.compile(attention(tmp_path / "attention.onnx"), "siracusa", **ATTENTION.given())
    (chain,) = one.plan.fused_groups
    for what in CHANGES:
        absent = ("a move of rows", "nobody waits for a job")  # a ring holds one head, and cores compute alone
        assert bool(unsafe(one, what)) is not what.startswith(absent), what
    others = [
        replace(chain, line_buffers={**chain.line_buffers, name: replace(ring, rows=ring.rows - 1)})
        for name, ring in chain.line_buffers.items()
    ]
    others += [
        replace(chain, members=tuple(replace(m, start=m.start - 1) if m is member else m for m in chain.members))
        for member in chain.members
        if member.start
    ]
    assert chain.line_buffers
    assert refuse(one, (place_addresses(replace(one.plan, fused_groups=(other,))) for other in others))
