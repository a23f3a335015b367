"""One damaged file given to the command line, in this process: it ends with an exit status and a few lines, never with a traceback."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from tests.random import damage, damaged_files, projects
from tests.random.choices import Choices
from tests.random.forms import Case
from tests.random.warm import ROOT

BASES = 120  # models that damage starts from
LINES = 24  # of an error; a list of nodes without kernels has one line for each
WIDTH = 1000  # characters of one line


@dataclass(frozen=True)
class Attempt:
    """What is given to the command line: arguments, and the damaged file among them; ``output`` must not exist after an error."""

    arguments: list[str]
    damaged: Path
    output: Path | None = None


def check(c: Choices, keep: Path | None = None) -> tuple[str, str, str]:
    """Kind (``passed``, ``refused``, ``failed``), reason and detail; the damaged file is copied to the folder ``keep``."""
    with tempfile.TemporaryDirectory() as scratch:
        attempt = c.weighted(ATTEMPTS)(c, Path(scratch))
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
            shutil.copy(attempt.damaged, keep / attempt.damaged.name)
            (keep / "arguments.txt").write_text("\n".join(attempt.arguments))
        return judged(attempt)


def judged(attempt: Attempt) -> tuple[str, str, str]:
    """Run the command line and say whether it keeps to its contract."""
    label = f"{attempt.damaged.name.rpartition('.')[2]}: {attempt.arguments[0]}"
    status, error, crash = run(attempt.arguments)
    if crash is not None:
        frames = [f for f in traceback.extract_tb(crash.__traceback__) if "/deeploy/" in f.filename or "/targets/" in f.filename]
        place = f"{Path(frames[-1].filename).name}:{frames[-1].name}" if frames else "?"
        return "failed", f"{type(crash).__name__} in {place}", "".join(traceback.format_exception(crash))
    lines = [line for line in error.splitlines() if not line.startswith("note: ")]
    if status == 0 or (status == 1 and attempt.arguments[0] in ("run", "verify", "evaluate")):
        return "passed", label, ""
    problems = [
        (status not in (2, 3), f"exit status {status}"),
        (not 1 <= len(lines) <= LINES, f"{len(lines)} lines on stderr"),
        (any(len(line) > WIDTH for line in lines), "a line without end"),
        (not any("error" in line.lower() for line in lines), "no line says error"),
        (any(ord(ch) < 32 and ch != "\n" for ch in error), "control characters on stderr"),
        (attempt.output is not None and attempt.output.exists(), "an output in spite of the error"),
    ]
    wrong = [what for is_wrong, what in problems if is_wrong]
    if wrong:
        return "failed", f"{label}: {wrong[0]}", error[:4000]
    return "refused", f"{label}: {plain(lines[0])}", ""


_HIDDEN = re.compile(r"'[^']*'|/\S+|\d[\d.e+-]*")


def plain(line: str) -> str:
    return _HIDDEN.sub("#", line)[:70]


def run(arguments: list[str]) -> tuple[int, str, BaseException | None]:
    """Exit status, what is on stderr, and the exception that left the command line, if any."""
    from deeploy import cli

    out, error = io.StringIO(), io.StringIO()
    before = sys.argv
    sys.argv = ["deeploy", *arguments]
    status = 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
            cli.main()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException as crash:  # what a user would see as a traceback
        return -1, error.getvalue(), crash
    finally:
        sys.argv = before
    return status, error.getvalue(), None


def types_of(case: Case) -> list[str]:
    return [part for name, kind in case.types.items() for part in ("--input-type", f"{name}={kind}")]


def model_file(c: Choices, folder: Path) -> Attempt:
    """A damaged ONNX file, for any command that reads models."""
    case = projects.chosen(c)
    path = folder / "model.onnx"
    if c.chance(4):
        path.write_bytes(damage.of_bytes(c, case.model.SerializeToString()))
    else:
        path.write_bytes(damage.of_model(c, case.model))
    output = folder / "out"
    more = types_of(case) if c.chance(2) else []
    command = c.weighted([(12, "generic"), (2, "siracusa"), (2, "inspect"), (1, "chips"), (1, "io"), (1, "explore")])
    if command == "inspect":
        return Attempt(["inspect", str(path)], path)
    if command == "explore":
        return Attempt(["explore", str(path), "--hardware", str(ROOT / "examples/hardware/table3.toml")], path)
    arguments = ["compile", str(path), "-t", "siracusa" if command == "siracusa" else "generic", "-o", str(output), *more]
    arguments += {"chips": ["--chips", "2"], "io": ["--quantised-io"]}.get(command, [])
    return Attempt(arguments, path, output)


def sample_file(c: Choices, folder: Path) -> Attempt:
    """A damaged npz: as the sample that decides types, as inputs of a run, as what is expected of it."""
    case = projects.chosen(c, "dialect")
    path = folder / "sample.npz"
    if c.chance(2):
        path.write_bytes(damaged_files.of_npz(c, case.inputs))
        (folder / "model.onnx").write_bytes(case.model.SerializeToString())
        output = folder / "out"
        return Attempt(["compile", str(folder / "model.onnx"), "-o", str(output), "--inputs", str(path)], path, output)
    made = projects.built(c.pick(["flat", "managed"]), c.integer(0, 3))
    if c.chance(3):
        path.write_bytes(damaged_files.of_npz(c, {"y": np.zeros(3, np.float32)}))
        return Attempt(["run", str(made.folder), "--inputs", str(made.inputs), "--expect", str(path)], path)
    with np.load(made.inputs) as stored:
        path.write_bytes(damaged_files.of_npz(c, dict(stored)))
    return Attempt(["run", str(made.folder), "--inputs", str(path)], path)


def manifest(c: Choices, folder: Path) -> Attempt:
    """A project with a damaged deploy.json, plan.json or explain.json."""
    kind = c.pick(projects.KINDS)
    made = projects.built(kind, c.integer(0, 3) if kind in ("flat", "managed") else 0)
    project = folder / "project"
    shutil.copytree(made.folder, project, symlinks=True)
    path = project / ("plan.json" if kind == "plan" else c.pick(["deploy.json", "deploy.json", "deploy.json", "explain.json"]))
    if not path.exists():
        path = project / "deploy.json"
    path.write_bytes(damaged_files.of_json(c, path.read_text()))
    if path.name == "explain.json" or c.chance(4):
        return Attempt(["explain", str(project), c.pick(made.layers), *made.more], path)
    if c.chance(2):
        return Attempt(["run", str(project), "--inputs", str(made.inputs), "--time-limit", "20", *made.more], path)
    more = ["--json"] if c.chance(4) else made.more if c.chance(2) else ()
    return Attempt(["report", str(project), *more], path)


def topology(c: Choices, folder: Path) -> Attempt:
    """A damaged topology, for a model that is cut over chips."""
    path = folder / "topology.toml"
    texts = [(ROOT / "targets" / name / "topology.toml").read_text() for name in ("generic", "siracusa")]
    texts.append('[[chip]]\nchip = 1\ncores = 2\nengines = ["cluster"]\nmemory = { L2 = 100000 }\n')
    path.write_bytes(damaged_files.of_toml(c, c.pick(texts)))
    write_chain(folder)
    output = folder / "out"
    partition = c.pick(["tensor", "pipeline"])
    arguments = ["compile", str(folder / "model.onnx"), "-t", "generic", "--chips", "2", "--partition", partition, "--topology", str(path)]
    return Attempt([*arguments, "-o", str(output)], path, output)


def hardware(c: Choices, folder: Path) -> Attempt:
    """A damaged hardware file or list of layers, for an exploration."""
    good = c.pick(sorted((ROOT / "examples/hardware").glob("*.toml")))
    if c.chance(4):
        path = folder / "layers.json"
        layers = json.loads((ROOT / "examples/layers/mobilevit_s.json").read_text())
        path.write_bytes(damaged_files.of_json(c, json.dumps(layers | {"layers": layers["layers"][:3]})))
        return Attempt(["explore", str(path), "--hardware", str(good)], path)
    path = folder / "hardware.toml"
    path.write_bytes(damaged_files.of_toml(c, good.read_text()))
    write_chain(folder)
    return Attempt(["explore", str(folder / "model.onnx"), "--hardware", str(path)], path)


def sweep(c: Choices, folder: Path) -> Attempt:
    """A damaged result of a sweep that is resumed."""
    path = folder / "results" / kept_result().name
    path.parent.mkdir()
    path.write_bytes(damaged_files.of_json(c, kept_result().read_text()))
    return Attempt([*SWEEP, str(write_chain(folder)), "--results", str(path.parent)], path)


SWEEP = ("explore", "--hardware", str(ROOT / "examples/hardware/table3.toml"), "--vary", "pes=64", "--jobs", "1")


def write_chain(folder: Path) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(projects.chain().SerializeToString())
    return path


@cache
def kept_result() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="deeploy-fuzz-"))
    status, error, _ = run([*SWEEP, str(write_chain(folder)), "--results", str(folder / "results")])
    assert status == 0, error
    return next((folder / "results").glob("*.json"))


def timing(c: Choices, folder: Path) -> Attempt:
    """A target whose timing, topology, device or engine description is damaged."""
    source = c.pick([*(ROOT / "targets" / name for name in ("siracusa", "siracusa", "edgetpu")), ROOT / "tests/targets/unrolled"])
    target = folder / source.name
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    path = c.pick([path for path in sorted(target.glob("*.toml")) if path.name != "hardware.toml"])
    path.write_bytes(damaged_files.of_toml(c, path.read_text()))
    model, output = write_chain(folder), folder / "out"
    more = ["--chips", "2", "--partition", "pipeline"] if source.name == "edgetpu" else []
    return Attempt(["compile", str(model), "-t", str(target), "-o", str(output), *more], path, output)


def calibration(c: Choices, folder: Path) -> Attempt:
    """A float model or its calibration samples, damaged, for quantisation."""
    model, samples, output = write_chain(folder), folder / "samples.npz", folder / "int8.onnx"
    arrays = {"x": c.generator().normal(size=(3, 4, 8)).astype(np.float32)}
    np.savez(samples, allow_pickle=False, **arrays)
    damaged = model if c.chance(3) else samples
    if damaged == model:
        model.write_bytes(damage.of_model(c, projects.chosen(c, "float").model) if c.chance(2) else damage.of_model(c, projects.chain()))
    else:
        samples.write_bytes(damaged_files.of_npz(c, arrays))
    more = c.pick([[], [], ["--per-tensor"], ["--activations", "uint8"], ["--weights", "4"], ["--method", "entropy"], ["--json"]])
    return Attempt(["quantize", str(model), "--calibrate", str(samples), "-o", str(output), *more], damaged, output)


def labels(c: Choices, folder: Path) -> Attempt:
    """Damaged labels or samples of an evaluation."""
    made = classifier()
    arrays = {"x": c.generator().normal(size=(3, 4, 8)).astype(np.float32)}
    wanted = {"labels": c.generator().integers(0, 8, (3, 4))}
    paths = {name: folder / f"{name}.npz" for name in ("samples", "labels")}
    np.savez(paths["samples"], allow_pickle=False, **arrays)
    np.savez(paths["labels"], allow_pickle=False, **wanted)
    name = "samples" if c.chance(4) else "labels"
    paths[name].write_bytes(damaged_files.of_npz(c, arrays if name == "samples" else wanted))
    metric = c.pick(["top1", "top1", "auc", "mse"])
    files = ["--inputs", str(paths["samples"]), "--labels", str(paths["labels"])]
    return Attempt(["evaluate", str(made), *files, "--metric", metric], paths[name])


@cache
def classifier() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="deeploy-fuzz-"))
    status, error, _ = run(["compile", str(write_chain(folder)), "-o", str(folder / "out")])
    assert status == 0, error
    return folder / "out"


def build_file(c: Choices, folder: Path) -> Attempt:
    """A damaged deeploy.toml, which repeats a compilation."""
    write_chain(folder)
    text = (classifier() / "deeploy.toml").read_text()
    text = re.sub(r"network = .*model.onnx.*", 'network = "model.onnx"', text)
    more = ('target = "siracusa"', 'dim = ["n=4"]', 'memory = ["L2=64k"]', "seconds = 1.5", "cores = 2", "quantised_io = true")
    path, output = folder / "deeploy.toml", folder / "out"
    path.write_bytes(damaged_files.of_toml(c, "\n".join([*c.shuffled(more)[: c.integer(0, 3)], text])))
    return Attempt(["compile", "--config", str(path), "-o", str(output)], path, output)


ATTEMPTS: tuple[tuple[int, Callable[[Choices, Path], Attempt]], ...] = (
    (12, model_file),
    (3, sample_file),
    (3, manifest),
    (2, topology),
    (2, hardware),
    (1, timing),
    (1, sweep),
    (1, calibration),
    (1, labels),
    (1, build_file),
)
