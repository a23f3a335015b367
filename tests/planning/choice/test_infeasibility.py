"""When nothing fits: status 3, and a message whose smallest capacity is the smallest, found by trying."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import deeploy
from deeploy.errors import FitError
from deeploy.options import Options
from deeploy.planning.plan import Buffering, Machine, Plan
from deeploy.planning.planner import network as planner
from deeploy.planning.planner.network import make_plan
from deeploy.target import load
from tests.advice.test_advise import one_convolution
from tests.command import deeploy_cli
from tests.execution.simulation import nets
from tests.models import save_graph

BUILDERS: dict[str, Callable[[Path, Options], deeploy.Compiled]] = {
    "convolutions": nets.convolutions,
    "perceptron": nets.perceptron,
    "transposed": nets.transposed,
}


def replan(whole: deeploy.Compiled, l1: int, l2: int | None = None, buffering: Buffering = "auto") -> Plan:
    machine = whole.plan.machine
    assert machine is not None
    capacities = {**machine.capacities, "L1": l1} | ({} if l2 is None else {"L2": l2})
    return make_plan(whole.network.program, whole.plan.target, Machine(capacities, machine.cores, buffering, machine.default_memory))


def stated(error: FitError, level: str) -> int:
    found = re.search(rf"{level.lower()}[ =](\d+)", error.remedy)
    assert found, error.remedy
    return int(found[1])


@pytest.mark.parametrize("buffering", ["auto", "single", "double"])
@pytest.mark.parametrize("name", BUILDERS)
def test_the_stated_smallest_l1_is_the_smallest(name: str, buffering: Buffering, tmp_path: Path) -> None:
    whole = BUILDERS[name](tmp_path, Options())
    with pytest.raises(FitError) as error:
        replan(whole, 32, buffering=buffering)
    assert error.value.exit_status == 3
    what = r"node \S+ \(\w+\) needs (\d+) bytes of L1 for its smallest tile \(largest: operand \w+, \d+ bytes\), 32 are there"
    found = re.fullmatch(what, error.value.what)
    assert found, error.value.what
    smallest = stated(error.value, "L1")
    assert int(found[1]) == smallest
    assert ("--buffering single" in error.value.remedy) == (buffering == "double")
    for left in re.findall(r"--buffering single, (\d+) bytes then", error.value.remedy):
        assert replan(whole, int(left), buffering="single").memory["L1"].peak <= int(left) < smallest
    assert replan(whole, smallest, buffering=buffering).memory["L1"].peak <= smallest
    with pytest.raises(FitError) as below:
        replan(whole, smallest - 1, buffering=buffering)
    assert stated(below.value, "L1") == smallest


@pytest.mark.share(0.25)
@pytest.mark.parametrize(("name", "l1"), [("perceptron", 4000), ("convolutions", 6000), ("transposed", 8000)])
@pytest.mark.parametrize("memory", ["L2", "L3"])
def test_the_stated_smallest_l2_is_the_smallest(name: str, l1: int, memory: str, tmp_path: Path) -> None:
    """With constants beside the arena, and with constants and activations that may stay in L3."""
    whole = BUILDERS[name](tmp_path, Options(default_memory=memory))
    try:
        replan(whole, l1, 8)
    except FitError as error:
        smallest = stated(error, "L2")
        at_once = r"node \S+ \(\w+\) needs \d+ bytes at once( beside \d+ bytes of constants)?, 8 are there; largest buffers then: .*"
        found = re.fullmatch(rf"L2 is too small: ({at_once}|the constants take \d+ bytes, 8 are there)", error.what)
        assert found, error.what
        assert memory == "L2" or "--default-memory" not in error.remedy
    else:
        assert memory == "L3"
        return  # everything stays in L1 or is streamed past L2
    assert replan(whole, l1, smallest).memory["L2"].peak <= smallest
    with pytest.raises(FitError):
        replan(whole, l1, smallest - 8)


@pytest.mark.slow
def test_no_capacity_is_asked_for_that_the_target_does_not_have(tmp_path: Path) -> None:
    """L2 does not hold input, output and two activations; the message asks for no more of it than there is."""
    nodes = [nets.node("Neg", "x", "a"), nets.node("Softmax", "a", "b", axis=1), nets.node("Add", "a b", "y")]
    for size, fits_far in ((400, True), (600, False)):
        shapes = {"x": [1, size, size]}, {"y": [1, size, size]}
        with pytest.raises(FitError) as error:
            nets.compile_nodes(tmp_path, nodes, *shapes, {}, Options())
        assert f"and {8 * size * size} of inputs and outputs" in error.value.what
        assert ("siracusa has no more than" if fits_far else "siracusa is full of inputs and outputs") in error.value.remedy
        assert ('default_memory="L3"' in error.value.remedy) == fits_far, "only what helps is advised"
        if fits_far:
            memory = load("siracusa").memory("L2")
            assert memory.capacity is not None and memory.reserved > 0
            most = memory.capacity - memory.reserved - 8 * size * size
            assert f"has no more than {most} bytes" in error.value.remedy, "what is left beside reserved bytes and the caller's"
            plan = nets.compile_nodes(tmp_path, nodes, *shapes, {}, Options(memory={"l2": 200_000}, default_memory="L3")).plan
            assert plan.memory["L2"].peak <= 200_000


def squares(folder: Path, options: Options) -> deeploy.Compiled:
    """Two tensors of 16384 bytes at once."""
    nodes = [nets.node("Neg", "x", "a"), nets.node("Softmax", "a", "b", axis=1), nets.node("Add", "a b", "y")]
    return nets.compile_nodes(folder, nodes, {"x": [1, 64, 64]}, {"y": [1, 64, 64]}, {}, options)


CERTAIN: list[tuple[Callable[[Path, Options], deeploy.Compiled], dict[str, int], str]] = [
    (nets.perceptron, {"l2": 1000}, r"L2 is too small: the constants take \d+ bytes, 1000 are there"),
    (nets.convolutions, {"l1": 32}, r"node \S+ \(\w+\) needs \d+ bytes of L1 for its smallest tile .*, 32 are there"),
    (squares, {"l1": 4000, "l2": 20000}, r"L2 is too small: node .+ \(\w+\) needs 32768 bytes at once, 20000 are there; largest .*"),
]


@pytest.mark.parametrize(("network", "sizes", "told"), CERTAIN)
def test_what_is_certain_is_said_without_planning(
    network: Callable[[Path, Options], deeploy.Compiled], sizes: dict[str, int], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Constants, activations of one step, the smallest tile of a call: nothing is chosen to find that they are too large."""
    monkeypatch.setattr(planner.reduce, "cheapest_choice", None)
    with pytest.raises(FitError) as error:
        network(tmp_path, Options(memory=sizes))
    assert re.fullmatch(told, error.value.what), error.value.what


def test_integers_at_the_edges_leave_the_bytes_that_are_told(tmp_path: Path) -> None:
    shape, ends = [1, 8, 180, 180], [numpy_helper.from_array(np.float32(0.1), "s"), numpy_helper.from_array(np.int8(0), "z")]
    ways = (("QuantizeLinear", "x", "a"), ("DequantizeLinear", "a", "b"), ("QuantizeLinear", "c", "d"), ("DequantizeLinear", "d", "y"))
    nodes = [nets.node(op, f"{source} s z", result) for op, source, result in ways]
    nodes.insert(2, nets.node("Add", "b b", "c"))
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy"]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], ends)
    save_graph(graph, tmp_path / "m.onnx")
    with pytest.raises(FitError) as error:
        deeploy.compile(tmp_path / "m.onnx", "siracusa")
    found = re.search(r"quantised_io=True, (\d+) bytes of inputs and outputs then", error.value.remedy)
    assert found, error.value.remedy
    assert deeploy.compile(tmp_path / "m.onnx", "siracusa", quantised_io=True).memory["L2"].io == int(found[1])


def test_the_command_line_ends_with_status_3(tmp_path: Path) -> None:
    nets.perceptron(tmp_path, Options())
    done = deeploy_cli("compile", tmp_path / "model.onnx", "-t", "siracusa", "-o", tmp_path / "out", "--l1", "100")
    assert done.returncode == 3
    assert "needs" in done.stderr
    assert "--l1" in done.stderr


ORDER = (
    r"int8 \(deeploy quantize",
    r"weights of 4 bits",
    r"--[a-z-]+|[a-z_]+=",
    r"smaller inputs",
    r"a larger memory|a chip with more|another target",
)
MEMORIES = [("cortex_m4", "RAM"), ("rv32imc", "RAM"), ("rv32imc", "FLASH"), ("siracusa", "L1"), ("siracusa", "L2")]


def advised(error: FitError) -> list[str]:
    """What a misfit says that one should try, each by its place in ``ORDER``, which it keeps."""
    items = re.sub(r"^Try(, in this order:)? ", "", error.remedy).removesuffix(".").split("; ")
    places = [next(place for place, words in enumerate(ORDER) if re.match(words, item)) for item in items]
    assert places == sorted(places) and len(set(places) - {2}) == len([place for place in places if place != 2]), error.remedy
    assert places[-1] == len(ORDER) - 1
    return items


@pytest.mark.share(0.3)
@pytest.mark.parametrize("is_float", [True, False])
@pytest.mark.parametrize(("target", "memory"), MEMORIES)
def test_what_a_misfit_advises_can_be_done_and_helps(target: str, memory: str, is_float: bool, tmp_path: Path) -> None:
    """Int8 to floats alone, few bits and smaller inputs where these are what fills the memory, options that make it fit, more memory."""
    nets.filters(tmp_path, Options())
    path = tmp_path / "model.onnx" if is_float else one_convolution(tmp_path, 128)

    def fit(size: int, **more: str) -> deeploy.Compiled:
        return deeploy.compile(path, target, memory={memory.lower(): size}, **more)

    with pytest.raises(FitError) as error:
        fit(160)
    items = advised(error.value)
    assert any(item.startswith("int8") for item in items) == is_float
    assert memory in ("FLASH", "L1", "L2") or not any(item.startswith("weights") for item in items), "constants lie in flash"
    assert memory != "FLASH" or "smaller inputs" not in items, "the size of inputs changes no constant"
    for item in items:
        found = re.fullmatch(r'default_memory="(\w+)", about (\d+) bytes then', item)
        assert (found is not None) == item.startswith("default_memory")
        if found is not None:
            assert fit(160, default_memory=found[1]).memory[memory].peak <= 160
            assert fit(int(found[2]), default_memory=found[1]).memory[memory].peak <= int(found[2])
    (size,) = re.findall(r'(?:memory={"\w+": |l[12]=)(\d+)', items[-1])
    largest = fit(int(size))
    assert memory not in largest.memory or largest.memory[memory].peak <= int(size)
    with pytest.raises(FitError):
        fit(int(size) - 16)


def test_bits_of_weights_that_change_nothing_are_told(tmp_path: Path) -> None:
    note = "--weight-bits 4 changes nothing"
    path = one_convolution(tmp_path, 128)
    plain, packed = (deeploy.compile(path, "rv32imc", weight_bits=bits) for bits in (None, 4))
    constants = [sum(b.bytes for b in one.network.program.buffers.values() if b.data is not None) for one in (plain, packed)]
    assert constants[0] == constants[1] and [note in " ".join(one.notes) for one in (plain, packed)] == [False, True]
    model = onnx.load(path)
    for tensor in model.graph.initializer:
        if tensor.name == "w":
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) % 8 + 124, "w"))
    onnx.save(model, path)
    assert note not in " ".join(deeploy.compile(path, "rv32imc", weight_bits=4).notes)
