"""One damaged file given to the command line, in this process: it ends with an exit status and a few lines, never with a traceback."""

from __future__ import annotations

import contextlib
import io
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
import onnx

from deeploy.errors import DeeployError
from tests.random import damage, damaged_files
from tests.random.choices import Choices
from tests.random.forms import Case, make
from tests.random.oracle import Invalid

ROOT = Path(__file__).resolve().parents[2]
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
    if status == 0 or (status == 1 and attempt.arguments[0] in ("run", "verify")):
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


@cache
def base(seed: int) -> Case:
    """A small model that damage starts from."""
    while True:
        try:
            case = make(Choices(f"base {seed}"))
        except Invalid:
            seed += 100_000
            continue
        if len(case.model.graph.node) <= 12:
            return case
        seed += 100_000


def chosen(c: Choices, form: str | None = None) -> Case:
    seed = c.integer(0, BASES - 1)
    while form is not None and base(seed).form != form:
        seed = (seed + 1) % BASES
    return base(seed)


def types_of(case: Case) -> list[str]:
    return [part for name, kind in case.types.items() for part in ("--input-type", f"{name}={kind}")]


def model_file(c: Choices, folder: Path) -> Attempt:
    """A damaged ONNX file, for any command that reads models."""
    case = chosen(c)
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
    case = chosen(c, "dialect")
    path = folder / "sample.npz"
    if c.chance(2):
        path.write_bytes(damaged_files.of_npz(c, case.inputs))
        (folder / "model.onnx").write_bytes(case.model.SerializeToString())
        output = folder / "out"
        return Attempt(["compile", str(folder / "model.onnx"), "-o", str(output), "--inputs", str(path)], path, output)
    found, good = built(c.integer(0, 3))
    if c.chance(3):
        path.write_bytes(damaged_files.of_npz(c, {"y": np.zeros(3, np.float32)}))
        return Attempt(["run", str(found), "--inputs", str(good), "--expect", str(path)], path)
    with np.load(good) as stored:
        path.write_bytes(damaged_files.of_npz(c, dict(stored)))
    return Attempt(["run", str(found), "--inputs", str(path)], path)


@cache
def built(number: int) -> tuple[Path, Path]:
    """A project that is built already, and its inputs."""
    import deeploy
    from deeploy.backend import host

    folder = Path(tempfile.mkdtemp(prefix="deeploy-fuzz-"))
    seed = 1000 * (number + 1)
    while True:
        case = base(seed)
        path = folder / "model.onnx"
        path.write_bytes(case.model.SerializeToString())
        try:
            compiled = deeploy.compile(path, "generic", input_types=case.types, dialect="integer" if case.form == "dialect" else None)
        except DeeployError:
            seed += 1
            continue
        compiled.write(folder / "project")
        host.build(folder / "project")
        np.savez(folder / "inputs.npz", allow_pickle=False, **{f"x{i}": a for i, a in enumerate(case.inputs.values())})
        return folder / "project", folder / "inputs.npz"


def manifest(c: Choices, folder: Path) -> Attempt:
    """A project with a damaged deploy.json or explain.json."""
    source, inputs = built(c.integer(0, 3))
    project = folder / "project"
    shutil.copytree(source, project, symlinks=True)
    path = project / c.pick(["deploy.json", "deploy.json", "deploy.json", "explain.json"])
    if not path.exists():
        path = project / "deploy.json"
    path.write_bytes(damaged_files.of_json(c, path.read_text()))
    commands = [
        ["report", str(project)],
        ["report", str(project), "--json"],
        ["explain", str(project), "x"],
        ["run", str(project), "--inputs", str(inputs)],
    ]
    return Attempt(c.pick(commands), path)


def topology(c: Choices, folder: Path) -> Attempt:
    """A damaged topology, for a model that is cut over chips."""
    path = folder / "topology.toml"
    texts = [(ROOT / "targets" / name / "topology.toml").read_text() for name in ("generic", "siracusa")]
    texts.append('[[chip]]\nchip = 1\ncores = 2\nengines = ["cluster"]\nmemory = { L2 = 100000 }\n')
    path.write_bytes(damaged_files.of_toml(c, c.pick(texts)))
    (folder / "model.onnx").write_bytes(chain().SerializeToString())
    output = folder / "out"
    partition = c.pick(["tensor", "pipeline"])
    arguments = ["compile", str(folder / "model.onnx"), "-t", "generic", "--chips", "2", "--partition", partition, "--topology", str(path)]
    return Attempt([*arguments, "-o", str(output)], path, output)


@cache
def chain() -> onnx.ModelProto:
    """Two matrix products with a function between them."""
    from onnx import TensorProto, helper, numpy_helper

    weights = [numpy_helper.from_array(np.eye(8, dtype=np.float32) * k, f"w{k}") for k in (1, 2)]
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "w2"], ["y"]),
    ]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 8]) for name in "xy"]
    graph = helper.make_graph(nodes, "chain", ports[:1], ports[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def hardware(c: Choices, folder: Path) -> Attempt:
    """A damaged hardware file, for an exploration."""
    path = folder / "hardware.toml"
    path.write_bytes(damaged_files.of_toml(c, c.pick(sorted((ROOT / "examples/hardware").glob("*.toml"))).read_text()))
    (folder / "model.onnx").write_bytes(chain().SerializeToString())
    return Attempt(["explore", str(folder / "model.onnx"), "--hardware", str(path)], path)


def timing(c: Choices, folder: Path) -> Attempt:
    """A target whose timing, topology or device description is damaged."""
    name = c.pick(["siracusa", "siracusa", "edgetpu"])
    target = folder / name
    shutil.copytree(ROOT / "targets" / name, target, ignore=shutil.ignore_patterns("__pycache__"))
    path = c.pick(sorted(target.glob("*.toml")))
    path.write_bytes(damaged_files.of_toml(c, path.read_text()))
    (folder / "model.onnx").write_bytes(chain().SerializeToString())
    output = folder / "out"
    more = ["--chips", "2", "--partition", "pipeline"] if name == "edgetpu" else []
    return Attempt(["compile", str(folder / "model.onnx"), "-t", str(target), "-o", str(output), *more], path, output)


ATTEMPTS: tuple[tuple[int, Callable[[Choices, Path], Attempt]], ...] = (
    (12, model_file),
    (3, sample_file),
    (2, manifest),
    (2, topology),
    (2, hardware),
    (1, timing),
)
