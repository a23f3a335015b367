"""Training steps as a whole: optimisers, what is trained, several steps in C, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from typer.testing import CliRunner

import deeploy
from deeploy import cli
from deeploy.errors import DeeployError, UnsupportedError, UsageError
from deeploy.planning.program import Role
from deeploy.training.step import TrainOptions, make_step
from tests.frontend.gradients.test_gradients import Arrays, assert_gradients, build_step, evaluator, gradients, values_of
from tests.models import Net, conv, quantised, save_model, weights
from tests.planning.packing.test_order import peak
from tests.training.networks import NETWORKS

ROOT = Path(__file__).resolve().parents[2]
RATE, STEPS = 0.05, 3


def run_steps(model: onnx.ModelProto, count: int) -> list[Arrays]:
    """The states behind every step, in 64 bits, each with other samples."""
    run, (_, states), every = evaluator(model), values_of(model), list[Arrays]()
    for step in range(count):
        results = run({**values_of(model, 3 + step)[0], **states, "learning_rate": np.array([RATE])})
        states = {name: results[f"{name}.next"] for name in states}
        every.append(states)
    return every


def gradients_at(model: onnx.ModelProto, states: Arrays, seed: int) -> Arrays:
    """The gradients of a step of plain descent, at some weights."""
    feeds, first = values_of(model, seed)
    return gradients(evaluator(model), feeds, {name: states[name] for name in first})


def _descend(w: np.ndarray, g: np.ndarray, memory: dict[str, np.ndarray], step: int) -> np.ndarray:
    return w - RATE * g


def _momentum(w: np.ndarray, g: np.ndarray, memory: dict[str, np.ndarray], step: int) -> np.ndarray:
    memory["v"] = 0.9 * memory.get("v", 0) + g
    return w - RATE * memory["v"]


def _adam(w: np.ndarray, g: np.ndarray, memory: dict[str, np.ndarray], step: int) -> np.ndarray:
    memory["m"] = 0.9 * memory.get("m", 0) + 0.1 * g
    memory["s"] = 0.999 * memory.get("s", 0) + 0.001 * g * g
    mean, square = memory["m"] / (1 - 0.9**step), memory["s"] / (1 - 0.999**step)
    return w - RATE * mean / (np.sqrt(square) + 1e-8)


OPTIMIZERS: dict[str, Callable[..., np.ndarray]] = {"sgd": _descend, "momentum": _momentum, "adam": _adam}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_optimisers_follow_their_formulas(tmp_path: Path, optimizer: str) -> None:
    """Those that PyTorch documents for torch.optim.SGD and Adam."""
    plain, model = build_step(tmp_path, "attention"), build_step(tmp_path, "attention", optimizer=optimizer)
    behind = run_steps(model, STEPS)
    _, states = values_of(plain)
    memory: dict[str, dict[str, np.ndarray]] = {name: {} for name in states}
    for step in range(STEPS):
        found = gradients_at(plain, states, 3 + step)
        states = {name: OPTIMIZERS[optimizer](w, found[name], memory[name], step + 1) for name, w in states.items()}
        for name, w in states.items():
            np.testing.assert_allclose(behind[step][name], w, rtol=1e-6, atol=1e-7)  # betas have 32 bits


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_optimisers_are_those_of_pytorch(tmp_path: Path, optimizer: str) -> None:
    torch = pytest.importorskip("torch")
    plain, model = build_step(tmp_path, "convolution"), build_step(tmp_path, "convolution", optimizer=optimizer)
    behind, (_, states) = run_steps(model, STEPS), values_of(plain)
    parameters = {name: torch.nn.Parameter(torch.from_numpy(w.copy())) for name, w in states.items()}
    kinds = {"sgd": (torch.optim.SGD, {}), "momentum": (torch.optim.SGD, {"momentum": 0.9}), "adam": (torch.optim.Adam, {})}
    kind, more = kinds[optimizer]
    optimiser = kind(parameters.values(), lr=RATE, **more)
    for step in range(STEPS):
        found = gradients_at(plain, {name: p.detach().numpy() for name, p in parameters.items()}, 3 + step)
        for name, parameter in parameters.items():
            parameter.grad = torch.from_numpy(found[name])
        optimiser.step()
        for name, parameter in parameters.items():
            np.testing.assert_allclose(behind[step][name], parameter.detach().numpy(), rtol=1e-5, atol=1e-7)


def test_gradients_that_are_accumulated_are_those_of_all_steps_together(tmp_path: Path) -> None:
    plain, model = build_step(tmp_path, "convolution"), build_step(tmp_path, "convolution", accumulate=2)
    (_, states), behind = values_of(plain), run_steps(model, 2)
    found = [gradients_at(plain, states, 3 + step) for step in range(2)]
    for name, w in states.items():
        np.testing.assert_array_equal(behind[0][name], w)
        np.testing.assert_allclose(behind[1][name], w - RATE * (found[0][name] + found[1][name]) / 2, rtol=1e-6, atol=1e-7)
        assert not behind[1][f"{name}.gradient"].any()


def test_a_batch_is_the_mean_of_its_samples(tmp_path: Path) -> None:
    one, two = build_step(tmp_path, "Softmax", "cross_entropy", batch=1), build_step(tmp_path, "Softmax", "cross_entropy", batch=2)
    feeds, states = values_of(two)
    rows = [{name: array if name == "learning_rate" else array[at : at + 1] for name, array in feeds.items()} for at in range(2)]
    first, second = (evaluator(one)({**row, **states}) for row in rows)
    for name, together in evaluator(two)({**feeds, **states}).items():
        np.testing.assert_allclose(together, (first[name] + second[name]) / 2, rtol=1e-12)


@pytest.mark.parametrize("name", ["residual", "Gelu", "norm", "frozen norm", "attention", "largest", "moves"])
def test_what_is_computed_again_is_the_same(tmp_path: Path, name: str) -> None:
    plain, again = build_step(tmp_path, name), build_step(tmp_path, name, recompute=True)
    feeds, states = values_of(plain)
    for output, value in evaluator(plain)({**feeds, **states}).items():
        np.testing.assert_allclose(evaluator(again)({**feeds, **states})[output], value, rtol=1e-10, atol=1e-12)


def test_computing_again_takes_less_memory(tmp_path: Path) -> None:
    n = Net()
    x = n.x(1, 1, 12, 12)
    for channels in (1, 4, 4):
        x = n.Gelu(conv(n, x, channels, 4))
    path = n.save(tmp_path / "m.onnx", n.MatMul(n.Flatten(x), n.w(576, 2)), opset=20)
    options = [TrainOptions("mse"), TrainOptions("mse", recompute=True), TrainOptions("mse", objective="ram")]
    plain, again, least = (deeploy.compile(make_step(path, each)).memory["arena"].peak for each in options)
    assert least <= again < 0.95 * plain


@pytest.mark.parametrize("name", ["residual", "wide", "largest", "frozen norm"])
def test_activations_in_bytes_change_gradients_by_a_hundredth(tmp_path: Path, name: str) -> None:
    """Of every weight, the length of the difference by that of the gradient, as onnxruntime computes both; C is the interpreter's."""
    runtime, found = pytest.importorskip("onnxruntime"), list[Arrays]()
    for activations in ("float32", "int8"):
        model = build_step(tmp_path, name, activations=activations)
        feeds, states = values_of(model)
        session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        given = {key: array if array.dtype == np.int32 else array.astype(np.float32) for key, array in feeds.items()}
        results = session.run([f"{key}.next" for key in states], {**given, "learning_rate": np.ones(1, np.float32)})
        found.append({key: array - after for (key, array), after in zip(states.items(), results, strict=True)})
    errors = {key: np.linalg.norm(found[1][key] - wanted) / np.linalg.norm(wanted) for key, wanted in found[0].items()}
    assert 0 < max(errors.values()) < 0.02, errors
    verdict = deeploy.compile(model).verify(samples_of(model), sequence=True)
    assert verdict.comparisons[0][1].equal == 1


def test_checkpoints_of_attention_take_less_memory_and_compute_the_same(tmp_path: Path) -> None:
    n = Net()
    x = n.x(1, 24, 8)
    for _ in range(3):
        q, k, v = (n.MatMul(x, n.c(n.random.standard_normal((8, 8)) * 0.3)) for _ in range(3))
        x = n.Add(x, n.MatMul(n.Softmax(n.MatMul(q, n.Transpose(k, perm=[0, 2, 1])), axis=-1), v))
    path = n.save(tmp_path / "m.onnx", n.MatMul(x, n.w(8, 2)))
    plain, least = (make_step(path, TrainOptions("mse", objective=objective)) for objective in ("cycles", "ram"))
    assert len(least.graph.node) > len(plain.graph.node)
    assert deeploy.compile(least).memory["arena"].peak < 0.85 * deeploy.compile(plain).memory["arena"].peak
    feeds, states = values_of(plain)
    for output, value in evaluator(plain)({**feeds, **states}).items():
        np.testing.assert_allclose(evaluator(least)({**feeds, **states})[output], value, rtol=1e-10, atol=1e-12)
    assert_learns_in_c(least, "generic")


def test_places_of_windows_are_there_for_one_convolution_at_a_time(tmp_path: Path) -> None:
    """Nothing waits for the way back but what layers computed: copies that products by weights read are made right before them."""
    n = Net()
    x = conv(n, n.x(1, 1, 8, 8), 1, 8)
    for _ in range(3):
        x = n.Add(x, conv(n, n.Relu(conv(n, x, 8, 8)), 8, 8))
    path = n.save(tmp_path / "m.onnx", n.MatMul(n.Flatten(x), n.w(512, 2)))
    program = deeploy.compile(make_step(path, TrainOptions("mse"))).plan.program
    image, activations, places = 8 * 8 * 8 * 4, 14, 9
    assert peak(program) - sum(buffer.bytes for buffer in program.buffers.values() if buffer.role is Role.STATE) < image * (
        activations + 2 * places
    )


@pytest.mark.parametrize("name", ["residual", "attention", "wide", "norm", "largest, overlapping"])
def test_the_peak_of_a_step_is_close_to_the_bound_of_its_order(tmp_path: Path, name: str) -> None:
    use = deeploy.compile(build_step(tmp_path, name)).memory["arena"]
    assert use.peak <= 1.1 * use.lower_bound


def states_of(model: onnx.ModelProto) -> dict[str, list[int]]:
    names = {value.name for value in model.graph.input}
    return {tensor.name: list(tensor.dims) for tensor in model.graph.initializer if tensor.name in names}


@pytest.mark.parametrize(
    ("train", "shapes"),
    [
        ("all", [[4, 4, 1, 1], [4], [4, 1, 3, 3], [4], [4, 4, 1, 1], [4], [36, 3], [3]]),
        ("last:1", [[36, 3], [3]]),
        ("last:2", [[4, 4, 1, 1], [4], [36, 3], [3]]),
        ("bias", [[4], [4], [4], [3]]),
        ("lora:2", [[36, 2], [2, 3]]),
        ("MatMul_7,Conv_3", [[4, 4, 1, 1], [4], [36, 3]]),
    ],
)
def test_what_is_trained_is_what_train_names(tmp_path: Path, train: str, shapes: list[list[int]]) -> None:
    model = build_step(tmp_path, "residual", train=train)
    assert sorted(states_of(model).values()) == sorted(shapes)
    assert_gradients(model, *values_of(model))


def test_norms_alone_are_trained(tmp_path: Path) -> None:
    model = build_step(tmp_path, "norm", train="norms")
    assert list(states_of(model).values()) == [[6], [6]]
    assert_gradients(model, *values_of(model))


def test_an_update_of_low_rank_changes_nothing_at_first(tmp_path: Path) -> None:
    losses: list[np.ndarray] = []
    for train in ("all", "lora:1"):
        model = build_step(tmp_path, "attention", train=train)
        feeds, states = values_of(model)
        losses.append(evaluator(model)({**feeds, **states})["loss"])
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-12)


def quantised_network() -> tuple[Net, str]:
    """Two layers, each between quantisations."""
    n = Net()
    hidden = quantised(n, n.Relu(n.Add(n.MatMul(quantised(n, n.x(2, 6)), weights(n, 6, 5)), n.w(5))), 0.02)
    return n, quantised(n, n.Add(n.MatMul(hidden, weights(n, 5, 3)), n.w(3)))


def test_layers_behind_what_is_trained_are_in_floats_and_those_in_front_of_it_stay_quantised(tmp_path: Path) -> None:
    n, last = quantised_network()
    model = make_step(n.save(tmp_path / "m.onnx", last), TrainOptions("cross_entropy", "last:1"))
    ops = [node.op_type for node in model.graph.node]
    assert (ops.count("QuantizeLinear"), sorted(states_of(model).values())) == (2, [[3], [5, 3]])
    assert_learns_in_c(model, "generic")


def samples_of(model: onnx.ModelProto) -> Arrays:
    """Stacked samples of a sequence of steps."""
    every = [values_of(model, seed)[0] for seed in range(STEPS)]
    stacked = {name: np.stack([feeds[name] for feeds in every]) for name in every[0]}
    stacked["learning_rate"] = np.full((STEPS, 1), RATE)
    return {name: array if array.dtype == np.int32 else array.astype(np.float32) for name, array in stacked.items()}


def assert_learns_in_c(model: onnx.ModelProto, target: str, **options: Any) -> deeploy.Verdict:
    """Several steps in C equal the interpreter's and onnxruntime's."""
    verdict = deeploy.compile(model, target=target, **options).verify(samples_of(model), sequence=True)
    assert verdict.passed, verdict
    assert [against for against, _ in verdict.comparisons][:1] == ["interpreter"]
    return verdict


@pytest.mark.parametrize(
    "name",
    [
        *("Relu", "Clip", "convolution", "strides", "groups", "depthwise", "transposed", "average", "residual", "wide"),
        *("attention", "Gelu", "Gelu by tanh", "Elu", "Softplus", "LogSoftmax"),
    ],
)
def test_steps_in_c_are_the_interpreters_to_the_last_bit(tmp_path: Path, name: str) -> None:
    verdict = assert_learns_in_c(build_step(tmp_path, name), "generic")
    assert {comparison.rule for against, comparison in verdict.comparisons if against == "interpreter"} == {"every bit"}


def test_bytes_behind_exponentials_are_those_of_the_interpreter(tmp_path: Path) -> None:
    """One bit of an exponential would be a whole step of what is stored in 8 bits."""
    n = Net()
    hidden = n.MatMul(n.Softmax(n.MatMul(n.x(1, 64, 16), n.w(16, 64)), axis=-1), n.w(64, 64))
    path = n.save(tmp_path / "m.onnx", n.MatMul(n.Gelu(n.MatMul(n.Gelu(hidden), n.w(64, 16))), n.w(16, 2)), opset=20)
    verdict = assert_learns_in_c(make_step(path, TrainOptions("mse", activations="int8")), "generic")
    assert verdict.comparisons[0][1].rule == "every bit"


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_optimisers_in_c(tmp_path: Path, optimizer: str) -> None:
    assert_learns_in_c(build_step(tmp_path, "attention", optimizer=optimizer, accumulate=2), "generic")


@pytest.mark.parametrize("name", ["largest, overlapping", "norm", "residual", "wide, dilated and strided"])
def test_steps_on_a_machine_with_scratchpad_memories(tmp_path: Path, name: str) -> None:
    assert_learns_in_c(build_step(tmp_path, name), "siracusa")


def test_states_begin_with_their_values_in_the_file(tmp_path: Path) -> None:
    """The loss of the first step is that of the model, and falls."""
    model = build_step(tmp_path, "convolution")
    samples = {name: np.repeat(array[:1], STEPS, 0) for name, array in samples_of(model).items()}
    outputs = deeploy.compile(model).verify(samples, sequence=True).outputs[0].ravel()
    first = evaluator(model)({**{name: array[0].astype(np.float64) for name, array in samples.items()}, **values_of(model)[1]})
    np.testing.assert_allclose(outputs[0], first["loss"].item(), rtol=1e-6)
    assert outputs[0] > outputs[1] > outputs[2]


def test_the_command_writes_a_step(tmp_path: Path) -> None:
    net = Net()
    path = net.save(tmp_path / "m.onnx", NETWORKS["residual"](net))
    given = [str(path), "--loss", "cross_entropy", "--train", "last:1", "--optimizer", "adam", "-o", str(tmp_path / "step.onnx")]
    done = CliRunner().invoke(cli.app, ["train-graph", *given])
    assert done.exit_code == 0, done.output
    assert "8 states of 335 elements" in done.output
    written = onnx.load(tmp_path / "step.onnx")
    assert written == deeploy.train_graph(path, "cross_entropy", "last:1", "adam")
    assert [value.name for value in written.graph.input][:3] == ["x0", "label", "learning_rate"]
    assert numpy_helper.to_array(written.graph.initializer[0]).shape == (1,)


@pytest.mark.parametrize(
    ("name", "options", "what"),
    [
        ("Relu", {"loss": "mean"}, "--loss mean is unknown"),
        ("Relu", {"optimizer": "adamw"}, "--optimizer adamw is unknown"),
        ("Relu", {"activations": "int4"}, "--activations int4 is unknown"),
        ("Relu", {"objective": "flash"}, "--objective flash is unknown"),
        ("Relu", {"train": "last:0"}, "0 is no number above 0"),
        ("Relu", {"train": "MatMul_7"}, "there is no node MatMul_7 with weights"),
        ("Relu", {"train": "norms"}, "the model has no such weights"),
        ("Relu", {"accumulate": 0}, "numbers above 0"),
        ("Relu", {"train": "lora:9"}, "the model has no such weights"),
    ],
)
def test_what_cannot_be_trained_is_said(tmp_path: Path, name: str, options: dict[str, Any], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        build_step(tmp_path, name, **options)


def test_names_of_weights_are_never_those_of_the_step(tmp_path: Path) -> None:
    """Weights called like an input of the step, and nodes without names."""
    values = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)
    nodes = [onnx.helper.make_node("MatMul", [a, b], [y]) for a, b, y in (("x", "label", "h"), ("h", "loss", "y"))]
    path = save_model(tmp_path / "m.onnx", nodes, {"x": [2, 4]}, {"y": [2, 4]}, {"label": values, "loss": values})
    for train in ("all", "lora:1"):
        model = make_step(path, TrainOptions("mse", train))
        onnx.checker.check_model(model, full_check=True)
        assert len(states_of(model)) == (2 if train == "all" else 4)
        assert_gradients(model, *values_of(model))
    renamed = [onnx.helper.make_node("MatMul", ["x", "w"], ["loss"])]
    with pytest.raises(UsageError, match="called loss"):
        make_step(save_model(tmp_path / "o.onnx", renamed, {"x": [2, 4]}, {"loss": [2, 4]}, {"w": values}), TrainOptions("mse"))


def test_an_operator_without_a_gradient_is_named(tmp_path: Path) -> None:
    n = Net()
    path = n.save(tmp_path / "m.onnx", n.CumSum(n.MatMul(n.x(2, 3), n.w(3, 4)), n.c(np.int64(1))))
    with pytest.raises(UnsupportedError, match=r"CumSum.*no gradient"):
        make_step(path, TrainOptions("mse"))
    with pytest.raises(DeeployError):
        deeploy.train_graph(path, "mse", "last:1")


def test_the_commands_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    n, last = quantised_network()
    model = n.save(tmp_path / "model.onnx", last)
    np.savez(tmp_path / "steps.npz", **samples_of(make_step(model, TrainOptions("cross_entropy", "last:1"))), allow_pickle=False)
    blocks = (ROOT / "docs" / "training.md").read_text().split("```")[1::2]
    for line in "".join(blocks).strip().splitlines():
        done = CliRunner().invoke(cli.app, line.split()[1:])
        assert done.exit_code == 0, f"{line}\n{done.output}"
