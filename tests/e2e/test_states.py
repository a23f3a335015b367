"""Networks with states: C against the interpreter, onnxruntime with growing caches, and networks of fixed length."""

from __future__ import annotations

import ctypes
import json
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

import deeploy
from deeploy.backend import project
from deeploy.cli import app
from deeploy.driver.samples import read_sample
from deeploy.driver.verify import verify_compiled
from deeploy.errors import DeeployError, UsageError
from deeploy.execution.runners import host
from deeploy.execution.simulation.interpreter import StateRows, network_outputs
from deeploy.execution.simulation.walk import walk_plan
from tests.e2e import decoders

SHARED = Path(__file__).parents[3] / "shared" / "models" / "dialect" / "Models" / "microLlama" / "INT8"
CONTEXT = 24

TARGETS = {
    "generic": ("generic", deeploy.Options()),
    "siracusa": ("siracusa", deeploy.Options()),
    "tight": ("siracusa", deeploy.Options(memory={"l1": 1300})),
    "far": ("siracusa", deeploy.Options(memory={"l1": 2500, "l2": 4500}, default_memory="L3")),
}


@pytest.mark.share(0.25)
@pytest.mark.parametrize("where", TARGETS)
@pytest.mark.parametrize(("is_quantised", "rows"), [(False, 1), (False, 3), (True, 1), (True, 2)])
def test_every_position_is_what_growing_caches_give(tmp_path: Path, where: str, is_quantised: bool, rows: int) -> None:
    target, options = TARGETS[where]
    model = decoders.decoder(tmp_path, rows=rows, layers=2, is_quantised=is_quantised)
    compiled = deeploy.compile(model, target, context=CONTEXT, **options.given())
    inputs = decoders.stacked(tmp_path / "in.npz", decoders.steps(CONTEXT // rows, rows, CONTEXT))
    verdict = verify_compiled(compiled, model, inputs, tolerance=0.26, sequence=True, sanitize=where == "tight")
    assert [against for against, _ in verdict.comparisons] == ["interpreter", "onnxruntime"]
    for against, comparison in verdict.comparisons:
        assert comparison.passed, f"{against}: {comparison}"
    interpreter, runtime = (comparison for _, comparison in verdict.comparisons)
    assert interpreter.worst < 1e-4
    assert is_quantised or runtime.worst < 1e-4
    assert verdict.samples == CONTEXT // rows


def test_states_are_the_networks_of_every_fixed_length(tmp_path: Path) -> None:
    """Step by step equal to the model that was exported with as many rows, whose caches the caller carries."""
    compiled = deeploy.compile(decoders.decoder(tmp_path, is_quantised=True), context=8)
    steps = decoders.steps(8, 1, 8)
    got = compiled.interpret_sequence(steps)
    caches: dict[str, np.ndarray] = {}
    for past, step in enumerate(steps):
        if past:
            fixed = deeploy.compile(decoders.decoder(tmp_path, is_quantised=True, past=past))
            want = fixed.interpret({**step, "mask": step["mask"][..., : past + 1], **caches})
            np.testing.assert_array_equal(got[past][0], want[0])
        else:
            growing = deeploy.compile(decoders.decoder(tmp_path, is_quantised=True), dims={"past": 1, "total": 2})
            want = growing.interpret({**step, "mask": np.float32([[[[-100, 0]]]]), **{n: np.zeros((1, 2, 1, 8)) for n in _caches(growing)}})
            want = [want[0], *(array[:, :, 1:] for array in want[1:])]
        caches = dict(zip(_caches(fixed if past else growing), want[1:], strict=True))


def _caches(compiled: deeploy.Compiled) -> list[str]:
    return [port.name for port in compiled.network.inputs if port.name.startswith("past")]


def test_bytes_moved_grow_with_the_position(tmp_path: Path) -> None:
    compiled = deeploy.compile(decoders.decoder(tmp_path), "siracusa", context=128, memory={"l1": 2500})
    folder = tmp_path / "project"
    compiled.write(folder)
    entry = project.read_manifest(folder)
    assert {state["level"] for state in entry["states"]} == {"L2"}
    application = host.build_application(folder)
    steps = decoders.steps(60, 1, 128)
    samples = [[step[port["name"]] for port in entry["inputs"]] for step in steps]
    moved = []
    for count in (20, 40, 60):
        counters = tmp_path / "counters.json"
        host.execute_application(application, folder, entry, samples[:count], ["--sequence", "1", "--counters", str(counters)])
        counted = json.loads(counters.read_text())["engines"]["L2_L1"]
        traffic = walk_plan(compiled.plan, count - 1).traffic["L2_L1"]
        assert (traffic.bytes_in, traffic.bytes_out) == (counted["bytes_to_near"], counted["bytes_to_far"])
        assert (traffic.transfers, traffic.rows) == (counted["transfers"], counted["rows"])
        moved.append(counted["bytes_to_near"])
    # Of keys and values 2 heads of 8 floats per row, of the mask one float, and of the scores as often as they move.
    assert moved[1] - moved[0] == moved[2] - moved[1]
    assert moved[1] - moved[0] >= 20 * (2 * 2 * 8 * 4 + 4)
    assert moved[0] < moved[2] / 1.5
    cycles = [walk_plan(compiled.plan, past).cycles for past in (0, 64, 127)]
    assert cycles[0] < cycles[1] < cycles[2] == walk_plan(compiled.plan).cycles
    with pytest.raises(UsageError, match="position 128"):
        walk_plan(compiled.plan, 128)


def library(folder: Path, *flags: str) -> ctypes.CDLL:
    """The networks of a project for the generic target, with static arenas."""
    sources = [*folder.glob("src/*.c"), *folder.glob("src/kernels/*.c")]
    target = folder / "network.so"
    includes = [f"-I{path}" for path in (folder / "include", *{p.parent for p in folder.glob("kernels/**/*.h")})]
    command = [
        "gcc",
        "-std=c11",
        "-O1",
        "-shared",
        "-fPIC",
        "-DDEEPLOY_STATIC_ARENA",
        *flags,
        *includes,
        *map(str, sources),
        "-lm",
        "-o",
        str(target),
    ]
    subprocess.run(command, check=True, capture_output=True)
    return ctypes.CDLL(str(target))


def test_a_position_beyond_the_context_leaves_the_caches_intact(tmp_path: Path) -> None:
    compiled = deeploy.compile(decoders.decoder(tmp_path), context=4)
    compiled.write(tmp_path / "project")
    shared = library(tmp_path / "project")
    steps = decoders.steps(5, 1, 4)
    y = np.zeros((1, 1, decoders.MODEL), np.float32)

    def run(step: dict[str, np.ndarray]) -> int:
        arrays = [np.ascontiguousarray(step[port.name]) for port in compiled.network.inputs]
        inputs = (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))
        return int(shared.network_run(inputs, (ctypes.c_void_p * 1)(y.ctypes.data)))

    assert run(steps[0]) == 1  # before init
    assert shared.network_init(None, ctypes.c_size_t(0)) == 0
    assert shared.network_seek(1) == 4
    for count in range(4):
        assert shared.network_position() == count
        assert run(steps[count]) == 0
    last = y.copy()
    assert run(steps[4]) == 4
    assert shared.network_position() == 4
    assert shared.network_seek(5) == 4
    assert np.array_equal(y, last)
    assert shared.network_seek(3) == 0
    assert run(steps[3]) == 0
    assert np.array_equal(y, last)
    np.testing.assert_allclose(y, compiled.interpret_sequence(steps[:4])[3][0], atol=1e-5)
    with pytest.raises(UsageError, match="position 4"):
        compiled.interpret_sequence(steps)


def _invoke(*arguments: object) -> tuple[int, str, str]:
    """Exit status and both lines of an error, as ``main`` prints them."""
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    if isinstance(result.exception, DeeployError):
        return result.exception.exit_status, result.exception.what, result.exception.remedy
    return result.exit_code, result.output, ""


def test_sequences_on_the_command_line(tmp_path: Path) -> None:
    model = decoders.decoder(tmp_path)
    pairs = [f"--state=past_key_values.0.{kind}=present.0.{kind}" for kind in ("key", "value")]
    status, output, _ = _invoke("compile", model, "-o", tmp_path / "out", "--context", 6, *pairs)
    assert status == 0, output
    manifest = project.read_manifest(tmp_path / "out")
    assert (manifest["context"], manifest["rows"]) == (6, 1)
    assert [state["past"] for state in manifest["states"]] == ["past_key_values.0.key", "past_key_values.0.value"]
    assert {port["name"]: port["dynamic_axes"] for port in manifest["inputs"]} == {"x": [], "cos": [], "sin": [], "mask": [3]}
    steps = decoders.steps(6, 1, 6)
    inputs = decoders.stacked(tmp_path / "in.npz", steps)
    assert _invoke("run", tmp_path / "out", "--inputs", inputs, "--sequence", "--save", tmp_path / "got.npz")[0] == 0
    compiled = deeploy.compile(model, context=6)
    want = [y[0] for y in compiled.interpret_sequence(steps)]
    np.testing.assert_allclose(np.load(tmp_path / "got.npz")["y"], want, atol=1e-5)
    assert _invoke("run", tmp_path / "out", "--inputs", inputs, "--save", tmp_path / "alone.npz")[0] == 0
    alone = [compiled.interpret(step)[0] for step in steps]
    np.testing.assert_allclose(np.load(tmp_path / "alone.npz")["y"], alone, atol=1e-5)
    assert np.abs(np.stack(alone) - np.stack(want)).max() > 1e-3
    status, what, remedy = _invoke("run", tmp_path / "out", "--sequence", "--inputs", decoders.stacked(inputs, decoders.steps(7, 1, 6)))
    assert status == 2 and "context of 6 rows" in what and "--context" in remedy


def test_steps_of_several_rows_count_by_their_rows(tmp_path: Path) -> None:
    compiled = deeploy.compile(decoders.decoder(tmp_path, rows=2), context=6)
    compiled.write(tmp_path / "out")
    for count, status in ((3, 0), (4, 2)):
        inputs = decoders.stacked(tmp_path / "in.npz", decoders.steps(count, 2, 6))
        got, said, _ = _invoke("run", tmp_path / "out", "--sequence", "--inputs", inputs)
        assert got == status and ("context of 6 rows" in said) is bool(status), said


KEY = "--state=past_key_values.0.key=present.0.key"


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ([], "how many rows they hold at most"),
        (["--context", 1], "--context 1: that is not a whole number from 2 to"),
        (["--context", 8, "--state=nothing=present.0.key"], "the model has no input nothing"),
        (["--context", 8, "--state=x=nothing"], "the model has no output nothing"),
        (["--context", 8, KEY, "--dim", "total=5"], "does not fit its inputs"),
        (["--dim", "past=3", "--dim", "total=4", KEY, "--context", 9], "exported with caches of 4 rows"),
        (["--dim", "past=3", "--dim", "total=4", KEY, "--context", 3], "exported with caches of 4 rows"),
        (["--dim", "past=3", "--dim", "total=4", "--state=past_key_values.0.key=y"], "differ by more than new rows"),
        (["--dim", "past=3", "--dim", "total=4", "--context", 4], "the model has no caches"),
        (["--dim", "past=3", "--dim", "total=4", "--state=past_key_values.0.key=present.0.value"], "not the input followed by new rows"),
    ],
)
def test_wrong_declarations(tmp_path: Path, options: list[object], what: str) -> None:
    status, first, second = _invoke("compile", decoders.decoder(tmp_path), "-o", tmp_path / "out", *options)
    assert status == 2
    assert what in first and second
    assert not (tmp_path / "out").exists()


def test_caches_behind_a_concat_of_one_tensor(tmp_path: Path) -> None:
    """As exports write a cache that is put into an empty list."""
    model = onnx.load(decoders.decoder(tmp_path))
    cache = "past_key_values.0.key"
    for node in model.graph.node:
        node.input[:] = ["alone" if name == cache else name for name in node.input]
    model.graph.node.insert(0, onnx.helper.make_node("Concat", [cache], ["alone"], axis=2))
    onnx.save(model, tmp_path / "alone.onnx")
    steps = decoders.steps(4, 1, 4)
    found = [deeploy.compile(tmp_path / f"{name}.onnx", context=4).interpret_sequence(steps) for name in ("alone", "decoder")]
    assert all(np.array_equal(a[0], b[0]) for a, b in zip(*found, strict=True))


@pytest.mark.parametrize("target", ["generic", "siracusa"])
def test_what_depends_on_the_position_is_looked_up(tmp_path: Path, target: str) -> None:
    """A model that adds the cosine of the number of rows before the inference to its result."""
    model = onnx.load(decoders.decoder(tmp_path))
    make = onnx.helper.make_node
    model.graph.node[-1].output[0] = "inner"
    model.graph.node.extend(
        [
            make("Shape", ["past_key_values.0.key"], ["shape"], start=2, end=3),
            make("Cast", ["shape"], ["length"], to=onnx.TensorProto.FLOAT),
            make("Cos", ["length"], ["turn"]),
            make("Add", ["inner", "turn"], ["y"]),
        ]
    )
    path = tmp_path / "position.onnx"
    onnx.save(model, path)
    compiled = deeploy.compile(path, target, context=8)
    assert [port.name for port in compiled.network.inputs] == ["x", "cos", "sin", "mask"]
    verdict = verify_compiled(compiled, path, decoders.stacked(tmp_path / "in.npz", decoders.steps(8, 1, 8)), sequence=True)
    assert [(against, comparison.passed) for against, comparison in verdict.comparisons] == [("interpreter", True), ("onnxruntime", True)]


@pytest.mark.parametrize("where", ["generic", "siracusa", "far"])
def test_masks_that_the_model_computes_slide(tmp_path: Path, where: str) -> None:
    """A causal mask of three rows, from the length of a cache."""
    model = onnx.load(decoders.decoder(tmp_path, rows=3))
    make = onnx.helper.make_node
    numbers = {
        "none": np.int64(0),
        "two": np.int64(2),
        "three": np.int64(3),
        "one": np.int64(1),
        "last": np.array([1]),
        "far": np.float32(-9),
    }
    model.graph.initializer.extend(onnx.numpy_helper.from_array(value, name) for name, value in numbers.items())
    nodes = [
        make("Shape", ["past_key_values.0.key"], ["shape"]),
        make("Gather", ["shape", "two"], ["length"]),
        make("Add", ["length", "three"], ["all"]),
        make("Range", ["none", "all", "one"], ["columns"]),
        make("Range", ["length", "all", "one"], ["own"]),
        make("Unsqueeze", ["own", "last"], ["below"]),
        make("Greater", ["columns", "below"], ["later"]),
        make("Cast", ["later"], ["hidden"], to=onnx.TensorProto.FLOAT),
        make("Mul", ["hidden", "far"], ["mask"]),
    ]
    model.graph.node.extend(nodes)
    del model.graph.input[next(i for i, v in enumerate(model.graph.input) if v.name == "mask")]
    path = tmp_path / "masked.onnx"
    onnx.save(model, path)
    target, options = TARGETS[where]
    compiled = deeploy.compile(path, target, context=CONTEXT, **options.given())
    assert [port.name for port in compiled.network.inputs] == ["x", "cos", "sin"]
    steps = [{name: array for name, array in step.items() if name != "mask"} for step in decoders.steps(CONTEXT // 3, 3, CONTEXT)]
    verdict = verify_compiled(compiled, path, decoders.stacked(tmp_path / "in.npz", steps), sequence=True)
    assert [(against, comparison.passed) for against, comparison in verdict.comparisons] == [("interpreter", True), ("onnxruntime", True)]


def test_what_follows_the_position_otherwise_is_refused(tmp_path: Path) -> None:
    """A mask input that is cut at the position: the slice begins elsewhere in every step."""
    model = onnx.load(decoders.decoder(tmp_path))
    make = onnx.helper.make_node
    model.graph.initializer.extend(onnx.numpy_helper.from_array(np.array([v]), n) for n, v in (("axis", 3), ("end", 1 << 40)))
    adder = next(node for node in model.graph.node if "mask" in node.input)
    adder.input[list(adder.input).index("mask")] = "own"
    model.graph.node.extend(
        [make("Shape", ["past_key_values.0.key"], ["shape"], start=2, end=3), make("Slice", ["mask", "shape", "end", "axis"], ["own"])]
    )
    onnx.save(model, tmp_path / "cut.onnx")
    with pytest.raises(DeeployError, match="depends on the position"):
        deeploy.compile(tmp_path / "cut.onnx", context=8)


def test_a_cache_that_fits_no_memory(tmp_path: Path) -> None:
    options = deeploy.Options(memory={"l1": 1500, "l2": 4000})
    with pytest.raises(DeeployError) as error:
        deeploy.compile(decoders.decoder(tmp_path), "siracusa", context=64, **options.given())
    assert error.value.exit_status == 3
    assert "L2 is too small" in error.value.what and "l2=" in error.value.remedy and "context" in error.value.remedy


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared models are not here")
@pytest.mark.parametrize(("name", "target"), [("microLlama1", "generic"), ("microLlama64", "generic"), ("microLlama1", "siracusa")])
def test_dialect_network_with_declared_states(tmp_path: Path, name: str, target: str) -> None:
    """The last position of a sequence is what the network computes that gets all rows from its caller."""
    path, sample = SHARED / name / "network.onnx", SHARED / name / "inputs.npz"
    fixed = deeploy.compile(path, inputs=sample)
    types = {port.name: buffer.dtype for port, buffer in _typed(fixed)}
    states = _dialect_pairs(path)
    compiled = deeploy.compile(path, target, input_types=types, states=states)
    dynamic_length = compiled.network.program.dynamic_length
    assert dynamic_length is not None and (dynamic_length.rows, len(dynamic_length.states)) == (1, 16)
    generator = np.random.default_rng(5)
    given = dict(zip((port.name for port in fixed.network.inputs), np.load(sample).values(), strict=False))
    arrays = {port.name: given[port.name] for port in compiled.network.inputs}
    steps = [{**arrays, "input": generator.integers(-100, 100, given["input"].shape)} for _ in range(dynamic_length.context)]
    rows = StateRows()
    for step in steps[:-1]:
        network_outputs(compiled.network.program, read_sample(compiled.wanted, step), rows)
    caches = {state.past: rows.memory[state.buffer].reshape(state.shape)[:, :, :-1] for state in dynamic_length.states}
    want = fixed.interpret({**steps[-1], **caches})[0]
    assert np.array_equal(network_outputs(compiled.network.program, read_sample(compiled.wanted, steps[-1]), rows)[0], want)
    verdict = verify_compiled(compiled, path, decoders.stacked(tmp_path / "in.npz", steps), sequence=True)
    assert all(comparison.passed and comparison.rule == "every bit" for _, comparison in verdict.comparisons)
    assert np.array_equal(verdict.outputs[0][-1], want)


def _typed(compiled: deeploy.Compiled) -> list[tuple]:
    program = compiled.network.program
    return [(port, program.buffers[name]) for port, name in zip(compiled.network.inputs, program.inputs, strict=True)]


def _dialect_pairs(path: Path) -> dict[str, str]:
    """Outputs behind a Concat of an input, by that input."""
    graph = onnx.load(path).graph
    makers = {name: node for node in graph.node for name in node.output}
    result = {}
    for output in graph.output:
        node = makers[output.name]
        while node.op_type == "RequantShift" and node.input[0] in makers:
            node = makers[node.input[0]]
        if node.op_type == "Concat":
            result[node.input[0]] = output.name
    return result
