"""Networks that read a prompt and write behind it: one project, one set of weights, one set of caches, and text written in C."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

import deeploy
from deeploy.backend import project
from deeploy.backend.project import select_network
from deeploy.cli import app
from deeploy.errors import DeeployError, FitError, ModelError, UsageError
from deeploy.execution.runners import host
from tests.e2e import decoders
from tests.e2e.test_states import library

CONTEXT, ROWS, TOKENS = 24, 4, 40

DEFAULTS = deeploy.Options()
TARGETS = {
    "generic": ("generic", DEFAULTS),
    "siracusa": ("siracusa", DEFAULTS),
    "tight": ("siracusa", deeploy.Options(memory={"l1": 1700})),
    "far": ("siracusa", deeploy.Options(memory={"l1": 3000, "l2": 12000}, default_memory="L3")),
}
PROMPT = [7, 3, 39, 0, 21, 5, 16, 12, 12, 30]
DIMS = {"prompt:rows": ROWS, "step:rows": 1}


def _together(path: Path, target: str = "generic", options: deeploy.Options = DEFAULTS) -> deeploy.Compiled:
    return deeploy.compile({"prompt": path, "step": path}, target, dims=DIMS, context=CONTEXT, **options.given())


def _written(folder: Path, network: str, prompt: Sequence[int], *arguments: int) -> list[int]:
    """Tokens that the application of a project writes: most, end, temperature, top_p, seed."""
    np.array(prompt, np.int32).tofile(folder / "prompt.bin")
    entry = select_network(project.read_manifest(folder), network)
    command = [
        str(host.build_application(folder)),
        network,
        "--generate",
        str(folder / "prompt.bin"),
        str(folder / "tokens.bin"),
        *map(str, arguments),
    ]
    if entry["machine"] is not None and entry["machine"]["constants"] is not None:
        command += ["--constants", str(folder / entry["machine"]["constants"])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return np.fromfile(folder / "tokens.bin", np.int32).tolist()


def _scores(path: Path, tokens: Sequence[int]) -> np.ndarray:
    """Scores behind every token of a text, by the interpreter, step by step."""
    compiled = deeploy.compile(path, dims={"rows": 1}, context=CONTEXT)
    return np.stack([y[0].ravel() for y in compiled.interpret_sequence([{"ids": np.array([[token]])} for token in tokens])])


@pytest.mark.slow
@pytest.mark.parametrize("where", TARGETS)
def test_a_prompt_and_its_continuation(tmp_path: Path, where: str) -> None:
    """Every token is the best one behind all before it, whether the prompt came in one piece or token by token."""
    path = decoders.writer(tmp_path)
    _together(path, *TARGETS[where]).write(tmp_path / "project")
    text = _written(tmp_path / "project", "step", PROMPT, 99, -1, 0, 0, 0)
    assert len(text) == CONTEXT - len(PROMPT) + 1
    assert text == _scores(path, PROMPT + text[:-1])[len(PROMPT) - 1 :].argmax(axis=1).tolist()
    prompt, step = project.read_manifest(tmp_path / "project")["networks"]
    places = [{b["name"]: (b["level"], b["offset"], b["bytes"]) for b in n["buffers"] if b["kind"] == "state"} for n in (prompt, step)]
    assert len(places[0]) == 4 and places[0] == places[1]
    assert all(use["lower_bound"] <= use["peak"] for network in (prompt, step) for use in network["memory"].values())
    assert [state["past"] for state in prompt["states"]] == [state["past"] for state in step["states"]]


@pytest.mark.slow
def test_a_network_that_scores_its_last_row_only(tmp_path: Path) -> None:
    path = decoders.writer(tmp_path, last_only=True)
    _together(path).write(tmp_path / "project")
    text = _written(tmp_path / "project", "step", PROMPT, 6, -1, 0, 0, 0)
    assert text == _scores(path, PROMPT + text[:-1])[len(PROMPT) - 1 :].argmax(axis=1).tolist()


@pytest.mark.share(0.25)
@pytest.mark.parametrize("where", ["generic", "siracusa"])
@pytest.mark.parametrize("begins", [False, True])
@pytest.mark.parametrize("extra", ["has_places", "has_mask"])
def test_positions_and_masks_that_are_inputs(tmp_path: Path, where: str, begins: bool, extra: str) -> None:
    """The C gives itself the positions of the new rows, and a mask: one that shows every row, or floats that are added to scores."""
    path = decoders.writer(tmp_path, **{extra: True})
    first = decoders.writer(tmp_path, **{extra: True}, begins=True, name="first") if begins else path
    compiled = deeploy.compile({"prompt": first, "step": path}, where, dims=DIMS, context=CONTEXT)
    assert "append_many" in str(compiled.files()["src/step_generate.c"])
    compiled.write(tmp_path / "project")
    text = _written(tmp_path / "project", "step", PROMPT, 99, -1, 0, 0, 0)
    assert len(text) == CONTEXT - len(PROMPT) + 1
    alone = deeploy.compile(path, dims={"rows": 1}, context=CONTEXT)
    steps = []
    for place, token in enumerate(PROMPT + text[:-1]):
        mask = np.where(np.arange(CONTEXT) <= place, 0, -100).astype(np.float32).reshape(1, 1, 1, CONTEXT)
        more = {"seen": np.ones((1, CONTEXT), np.int64), "places": np.array([[place]]), "mask": mask}
        steps.append({"ids": np.array([[token]]), **{port.name: more[port.name] for port in alone.network.inputs[1:]}})
    scores = np.stack([y[0].ravel() for y in alone.interpret_sequence(steps)])
    assert text == scores[len(PROMPT) - 1 :].argmax(axis=1).tolist()


def test_masks_that_are_not_added_are_not_given(tmp_path: Path) -> None:
    """A mask of floats that scores are multiplied with: what shows a row is not known."""
    model = onnx.load(decoders.writer(tmp_path, has_mask=True))
    for node in model.graph.node:
        if "mask" in node.input:
            node.op_type = "Mul"
    onnx.save(model, tmp_path / "product.onnx")
    for name, writes in (("writer", True), ("product", False)):
        files = deeploy.compile(tmp_path / f"{name}.onnx", dims={"rows": 1}, context=CONTEXT).files()
        assert ("src/network_generate.c" in files) == writes


@pytest.mark.slow
@pytest.mark.parametrize("where", TARGETS)
@pytest.mark.parametrize("cache_step", [0.03, 0.04])
def test_a_prompt_network_without_caches_for_inputs(tmp_path: Path, where: str, cache_step: float) -> None:
    """It writes the first rows of the other network's caches, in their scale; where there are rows already, it is not called."""
    step = decoders.writer(tmp_path)
    first = decoders.writer(tmp_path, begins=True, name="first", cache_step=cache_step)
    target, options = TARGETS[where]
    compiled = deeploy.compile({"prompt": first, "step": step}, target, dims=DIMS, context=CONTEXT, **options.given())
    assert any("writes rows 0 to 3 of past_key_values.0.key and 3 more" in note for note in compiled.notes)
    compiled.write(tmp_path / "project")
    text = _written(tmp_path / "project", "step", PROMPT, 99, -1, 0, 0, 0)
    assert len(text) == CONTEXT - len(PROMPT) + 1
    assert text == _scores(step, PROMPT + text[:-1])[len(PROMPT) - 1 :].argmax(axis=1).tolist()
    states = [{s["past"]: s["buffer"] for s in n["states"]} for n in project.read_manifest(tmp_path / "project")["networks"]]
    assert states[0].keys() == states[1].keys() and len(states[0]) == 4


def test_a_network_that_begins_runs_at_no_other_position(tmp_path: Path) -> None:
    paths = {"prompt": decoders.writer(tmp_path, begins=True, name="first"), "step": decoders.writer(tmp_path)}
    compiled = deeploy.compile(paths, dims=DIMS, context=CONTEXT)
    compiled.write(tmp_path / "project")
    shared = library(tmp_path / "project")
    assert shared.prompt_init(None, ctypes.c_size_t(0)) == shared.step_init(None, ctypes.c_size_t(0)) == 0
    ids, scores = np.array([PROMPT[:ROWS]]), np.zeros((1, ROWS, TOKENS), np.float32)
    arguments = (ctypes.c_void_p * 1)(ids.ctypes.data), (ctypes.c_void_p * 1)(scores.ctypes.data)
    assert shared.prompt_run(*arguments) == 0 and shared.step_position() == ROWS
    np.testing.assert_array_equal(scores[0], _scores(paths["step"], PROMPT[:ROWS]))
    kept = scores.copy()
    assert shared.prompt_run(*arguments) == 4 and shared.step_position() == ROWS
    np.testing.assert_array_equal(scores, kept)
    assert shared.step_seek(0) == 0 and shared.prompt_run(*arguments) == 0
    with pytest.raises(UsageError, match="position 4: the network begins sequences"):
        compiled.interpret_sequence([{"ids": ids}, {"ids": ids}])


@pytest.mark.slow
def test_first_rows_that_do_not_fit_the_caches(tmp_path: Path) -> None:
    paths = {"prompt": decoders.writer(tmp_path, begins=True, name="first"), "step": decoders.writer(tmp_path)}
    with pytest.raises(UsageError, match=r"present.0.key has 30 rows, the caches hold 24"):
        deeploy.compile(paths, dims={"prompt:rows": 30, "step:rows": 1}, context=CONTEXT)
    model = onnx.load(paths["prompt"])
    kept = [output for output in model.graph.output if output.name != "present.1.key"]
    del model.graph.output[:]
    model.graph.output.extend(kept)
    onnx.save(model, tmp_path / "less.onnx")
    with pytest.raises(UsageError, match=r"share the cache past_key_values.0.key, but only one of them has past_key_values.1.key"):
        deeploy.compile({**paths, "prompt": tmp_path / "less.onnx"}, dims=DIMS, context=CONTEXT)
    model = onnx.load(paths["prompt"])
    model.graph.node.append(onnx.helper.make_node("Transpose", ["present.0.key"], ["turned"], perm=[0, 2, 1, 3]))
    model.graph.output[1].name = "turned"
    for node in model.graph.node:
        for names in (node.input, node.output):
            names[:] = [{"present.0.key": "inner", "turned": "present.0.key"}.get(name, name) for name in names]
    model.graph.output[1].CopyFrom(onnx.helper.make_tensor_value_info("present.0.key", 1, [1, "rows", decoders.HEADS, decoders.WIDTH]))
    onnx.save(model, tmp_path / "turned.onnx")
    with pytest.raises(ModelError, match=r"present.0.key \[1, 4, 2, 8\] differs by more than the number of rows"):
        deeploy.compile({**paths, "prompt": tmp_path / "turned.onnx"}, dims=DIMS, context=CONTEXT)


@pytest.mark.parametrize("target", ["generic", "siracusa"])
def test_weights_are_stored_once(tmp_path: Path, target: str) -> None:
    """By calls of one engine: N-EUREKA has encodings of its own."""
    path = decoders.writer(tmp_path)
    options = deeploy.Options(engines=("cluster",)) if target == "siracusa" else DEFAULTS
    compiled = _together(path, target, options)
    files = compiled.files()
    step = deeploy.compile(path, target, dims={"rows": 1}, context=CONTEXT, **options.given())
    whole = sum(-(-b.bytes // 16) * 16 for b in step.network.program.buffers.values() if b.data is not None)
    assert len(files["prompt_weights.bin"]) > 2000
    assert len(files["step_weights.bin"]) < whole / 4
    assert "#define step_" in str(files["src/step_weights.h"])
    if target == "siracusa":
        use = [network.plan.memory["L2"] for network in compiled.networks.values()]
        assert use[0].constants == use[1].constants < whole * 1.5
    assert compiled.networks["step"].notes[-1] == "network step shares the caches of network prompt"


@pytest.mark.slow
def test_the_graphs_of_several_networks_are_saved_apart(tmp_path: Path) -> None:
    model, out = str(decoders.writer(tmp_path)), str(tmp_path / "out")
    dims = [f"--dim={name}={value}" for name, value in DIMS.items()]
    command = ["compile", f"prompt={model}", f"step={model}", "-o", out, "--context", str(CONTEXT), *dims, "--save-after", "siblings"]
    assert CliRunner().invoke(app, command).exit_code == 0
    saved = {path.name: onnx.load(path).graph.input[0] for path in tmp_path.glob("out.*")}
    rows = {name: [d.dim_value for d in ids.type.tensor_type.shape.dim] for name, ids in saved.items()}
    assert rows == {"out.siblings.prompt.onnx": [1, ROWS], "out.siblings.step.onnx": [1, 1]}


@pytest.mark.slow
def test_the_binary_weights_of_networks(tmp_path: Path) -> None:
    """Both files are needed, each by its own network's pointer."""
    _together(decoders.writer(tmp_path)).write(tmp_path / "project")
    shared = library(tmp_path / "project", "-DDEEPLOY_BINARY_WEIGHTS")
    kept = []
    ids, scores = np.zeros((1, 1), np.int64), np.zeros(TOKENS, np.float32)
    arguments = (ctypes.c_void_p * 1)(ids.ctypes.data), (ctypes.c_void_p * 1)(scores.ctypes.data)
    for name in ("step", "prompt"):
        assert (shared.step_init(None, ctypes.c_size_t(0)), shared.step_run(*arguments)) == (3, 1)
        kept.append(np.frombuffer((tmp_path / "project" / f"{name}_weights.bin").read_bytes() + bytes(32), np.uint8))
        ctypes.c_void_p.in_dll(shared, f"{name}_weights").value = kept[-1].ctypes.data
    assert shared.prompt_init(None, ctypes.c_size_t(0)) == shared.step_init(None, ctypes.c_size_t(0)) == shared.step_run(*arguments) == 0


class _Generation(ctypes.Structure):
    CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_void_p)
    _fields_ = (
        ("prompt", ctypes.c_void_p),
        ("prompt_tokens", ctypes.c_uint32),
        ("most", ctypes.c_uint32),
        ("end", ctypes.c_int32),
        ("temperature", ctypes.c_uint32),
        ("top_p", ctypes.c_uint32),
        ("seed", ctypes.c_uint64),
        ("tokens", ctypes.c_void_p),
        ("on_token", CALLBACK),
        ("user", ctypes.c_void_p),
        ("count", ctypes.c_uint32),
    )


@pytest.mark.slow
def test_what_ends_a_text_and_what_is_refused(tmp_path: Path) -> None:
    path = decoders.writer(tmp_path)
    _together(path).write(tmp_path / "project")
    shared = library(tmp_path / "project")
    tokens = np.full(64, -1, np.int32)

    def generate(prompt: Sequence[int], **fields: object) -> tuple[int, list[int]]:
        array = np.array(prompt, np.int32)
        g = _Generation(prompt=array.ctypes.data, prompt_tokens=len(array), most=64, end=-1, tokens=tokens.ctypes.data)
        for name, value in fields.items():
            setattr(g, name, value)
        return int(shared.step_generate(ctypes.byref(g))), tokens[: g.count].tolist()

    assert generate(PROMPT)[0] == 1  # before init
    assert shared.prompt_init(None, ctypes.c_size_t(0)) == shared.step_init(None, ctypes.c_size_t(0)) == 0
    status, text = generate(PROMPT)
    assert (status, len(text), shared.step_position()) == (0, 15, CONTEXT)
    assert generate(PROMPT[:1]) == (4, []) and shared.step_position() == CONTEXT
    assert shared.step_seek(0) == 0 and shared.prompt_position() == 0
    assert generate(PROMPT, most=3) == (0, text[:3]) and shared.step_position() == len(PROMPT) + 2
    assert generate([text[2]], most=4) == (0, text[3:7])  # goes on where it was
    assert generate([1] * (CONTEXT - shared.step_position() + 1)) == (4, [])
    assert generate([-1], prompt_tokens=2**32 - 1) == (4, [])  # before any token is read
    assert generate([TOKENS]) == generate([-1]) == generate([]) == (5, [])
    assert shared.step_generate(None) == shared.step_generate(ctypes.byref(_Generation())) == 3
    assert generate([text[6]], most=1) == (0, [text[7]])  # refused prompts have changed nothing
    assert shared.step_seek(0) == 0
    end = text.index(text[5])
    assert generate(PROMPT, end=text[5]) == (0, text[: end + 1])
    assert shared.step_seek(0) == 0
    seen: list[int] = []
    stop = _Generation.CALLBACK(lambda token, user: seen.append(token) or len(seen) == 4)
    assert generate(PROMPT, tokens=None, on_token=stop)[0] == 0
    assert seen == text[:4]
    assert shared.prompt_seek(CONTEXT) == 4


def _random_number(state: int) -> tuple[int, int]:
    """splitmix64: the number and the next state."""
    mask = 2**64 - 1
    state = z = (state + 0x9E3779B97F4A7C15) & mask
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
    z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
    return z ^ z >> 31, state


@pytest.mark.share(0.25)
@pytest.mark.parametrize(("temperature", "top_p"), [(1000, 0), (1500, 700), (700, 950)])
def test_tokens_are_drawn_from_the_most_probable_ones(tmp_path: Path, temperature: int, top_p: int) -> None:
    """Each token is the one where the random number falls, among those that together have the share, in real arithmetic."""
    path = decoders.writer(tmp_path)
    _together(path).write(tmp_path / "project")
    state, texts = 5, set()
    text = _written(tmp_path / "project", "step", PROMPT, 99, -1, temperature, top_p, state)
    for token, scores in zip(text, _scores(path, PROMPT + text[:-1])[len(PROMPT) - 1 :].astype(np.float64), strict=True):
        octaves = (scores.max() - scores) / np.log(2) * 1000 / temperature
        shares, buckets = 2.0**-octaves, np.floor(octaves * 8)
        wanted = shares.sum() * (top_p or 1000) / 1000
        last = next(b for b in np.unique(buckets) if shares[buckets <= b].sum() >= wanted * (1 - 1e-9))
        shares[buckets > last] = 0
        number, state = _random_number(state)
        ends = np.cumsum(shares) / shares.sum()
        drawn = (number >> 32) / 2**32
        assert token in {int(np.searchsorted(ends, drawn + d, "right")) for d in (-1e-3, 0, 1e-3)}
        texts.add(token)
    assert len(texts) > 3


@pytest.mark.slow
def test_caches_of_one_name_that_differ(tmp_path: Path) -> None:
    path = decoders.writer(tmp_path)
    model = onnx.load(path)
    steps = {i.name: i for i in model.graph.initializer}
    quantise = next(n for n in model.graph.node if "past_key_values.0.key" in n.input and n.op_type == "QuantizeLinear")
    steps[quantise.input[1]].CopyFrom(onnx.numpy_helper.from_array(np.float32(0.04), quantise.input[1]))
    onnx.save(model, tmp_path / "other.onnx")
    with pytest.raises(UsageError, match=r"past_key_values.0.key is .*scale 0.03 in network prompt and .*scale 0.04 in network step"):
        deeploy.compile({"prompt": path, "step": tmp_path / "other.onnx"}, dims=DIMS, context=CONTEXT)
    small = decoders.writer(tmp_path, layers=1, name="small")
    with pytest.raises(UsageError, match=r"share the cache past_key_values.0.key, but only one of them has past_key_values.1.key"):
        deeploy.compile({"prompt": path, "step": small}, dims=DIMS, context=CONTEXT)


@pytest.mark.slow
def test_networks_that_do_not_fit_together(tmp_path: Path) -> None:
    """Each has room for itself, and not for the weights of the other."""
    paths = {name: decoders.writer(tmp_path, layers=1, name=name, tokens=tokens) for name, tokens in (("a", 64), ("b", 65))}
    dims, options = {"rows": 1}, deeploy.Options(memory={"l1": 4000, "l2": 6500})
    for path in paths.values():
        deeploy.compile(path, "siracusa", dims=dims, context=8, **options.given())
    with pytest.raises(FitError, match="L2"):
        deeploy.compile(paths, "siracusa", dims=dims, context=8, **options.given())


@pytest.mark.slow
def test_several_networks_on_the_command_line(tmp_path: Path) -> None:
    path = decoders.writer(tmp_path)
    dims = ["--dim", f"prompt:rows={ROWS}", "--dim", "step:rows=1"]
    arguments = ["compile", f"prompt={path}", f"step={path}", "-o", str(tmp_path / "out"), "--context", str(CONTEXT), *dims]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert [n["name"] for n in project.read_manifest(tmp_path / "out")["networks"]] == ["prompt", "step"]
    ids = np.array(PROMPT[: 2 * ROWS]).reshape(2, 1, ROWS)
    np.savez(tmp_path / "in.npz", ids=ids)
    run = ["run", str(tmp_path / "out"), "--network", "prompt", "--sequence", "--inputs", str(tmp_path / "in.npz")]
    result = CliRunner().invoke(app, [*run, "--save", str(tmp_path / "got.npz")])
    assert result.exit_code == 0, result.output
    np.testing.assert_array_equal(np.load(tmp_path / "got.npz")["scores"].reshape(2 * ROWS, TOKENS), _scores(path, PROMPT[: 2 * ROWS]))
    for wrong in ([f"1st={path}", f"step={path}"], [str(path), str(path)], [f"step={path}", f"step={path}"]):
        result = CliRunner().invoke(app, ["compile", *wrong, "-o", str(tmp_path / "wrong")])
        assert isinstance(result.exception, DeeployError) and "NAME=MODEL.onnx" in result.exception.what
