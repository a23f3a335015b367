"""Seeded defects of planner, schedule and emitter: which of them the certificate of a compile notices.

    python -m tests.certify.seeded [--count 300] [--seed 1] [--file REGEX]

A defect is one change of one expression of the compiler: a constant one larger or smaller, a comparison with the border on its other side,
a sum for a difference, operands exchanged, a condition that always holds or never, a minimum for a maximum. It is made in a process of its
own, which compiles small networks with it. Only lines that these networks reach are changed. A network
that is certified although its C is another one is built and run, on the host machine model in all modes: it has to compute the outputs that
the original does. Exit status: 0; 1 where a defect is missed.
"""

from __future__ import annotations

import argparse
import ast
import copy
import gc
import hashlib
import json
import multiprocessing
import random
import re
import resource
import sys
import tempfile
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import deeploy
from deeploy.certify import CertificateError
from deeploy.errors import UsageError
from tests.certify.networks import NETWORKS
from tests.hal.equivalent import unwatched
from tests.hal.subject import PLAIN, Subject

ROOT = Path(__file__).resolve().parents[2]
PLANNING = (
    "tiling/loops",
    "tiling/fused_group",
    "packing/addresses",
    "packing/lifetimes",
    "binding/assemble",
    "groups/layer_fusion",
    "program",
)
FILES = (
    *(f"deeploy/schedule/{name}.py" for name in ("build", "fused_group", "ir", "team", "unroll")),
    *(f"deeploy/backend/{name}.py" for name in ("layers", "network")),
    *(f"deeploy/planning/{name}.py" for name in PLANNING),
)
SECONDS = 60  # of CPU time, after which a compile counts as one that does not end
MEMORY = 6 << 30  # bytes that it may use
UNBUILT = "who reads the project, or compiles its C, refuses it"
_WATCHED = re.compile(r"\bRT_(?:REGION|STEP)\w*\([^;]*;")  # what only the model of the machine is told
_COMPARED = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
_COMPUTED = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult}
_NAMED = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Seed:
    """One change of one expression: ``old`` at a line and column of a file became ``new``."""

    kind: str
    file: str
    line: int
    column: int
    old: str
    new: str

    def applied(self, source: str) -> str:
        """The source with the defect."""
        lines = source.splitlines(keepends=True)
        at = sum(map(len, lines[: self.line - 1])) + len(lines[self.line - 1].encode()[: self.column].decode())
        assert source[at:].startswith(self.old), self
        return source[:at] + self.new + source[at + len(self.old) :]

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.kind}: {' '.join(self.old.split())[:70]} -> {' '.join(self.new.split())[:70]}"


def seeds(file: str, source: str) -> Iterator[Seed]:
    """Every defect of a source."""
    tree = ast.parse(source)
    left_out = {id(inner) for node in ast.walk(tree) for outer in _no_code(node) for inner in ast.walk(outer)}
    for node in ast.walk(tree):
        if id(node) in left_out:
            continue
        for kind, place, new in _changes(node):
            old = ast.get_source_segment(source, place)
            text = ast.unparse(new)
            if old is not None and text != old:
                text = text if isinstance(new, ast.Constant | ast.Name) else f"({text})"
                yield Seed(kind, file, place.lineno, place.col_offset, old, text)


def _no_code(node: ast.AST) -> Iterator[ast.AST]:
    """Parts that a defect does not change: annotations, messages."""
    if isinstance(node, ast.AnnAssign | ast.arg) and node.annotation is not None:
        yield node.annotation
    if isinstance(node, ast.FunctionDef) and node.returns is not None:
        yield node.returns
    if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom):
        yield node


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.expr, ast.expr]]:
    """What is done to a node: the kind, the expression, and the one in its place."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        yield "constant raised", node, ast.Constant(node.value + 1)
        yield "constant lowered", node, ast.Constant(node.value - 1)
    elif isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARED:
        yield "comparison changed", node, _with(node, ops=[_COMPARED[type(node.ops[0])]()])
    elif isinstance(node, ast.BinOp):
        if type(node.op) in _COMPUTED and not any(
            isinstance(side, ast.List | ast.Tuple | ast.JoinedStr) for side in (node.left, node.right)
        ):
            yield "operator exchanged", node, _with(node, op=_COMPUTED[type(node.op)]())
        if isinstance(node.op, ast.Sub | ast.FloorDiv | ast.Mod):
            yield "operands swapped", node, _with(node, left=node.right, right=node.left)
    elif isinstance(node, ast.BoolOp):
        for index in range(len(node.values)):
            left = [value for at, value in enumerate(node.values) if at != index]
            yield "condition dropped", node, left[0] if len(left) == 1 else _with(node, values=left)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _NAMED:
        yield "limit exchanged", node.func, ast.Name(_NAMED[node.func.id])
    if isinstance(node, ast.If | ast.IfExp):
        yield "always", node.test, ast.Constant(True)
        yield "never", node.test, ast.Constant(False)
    if isinstance(node, ast.comprehension):
        for test in node.ifs:
            yield "always", test, ast.Constant(True)


def _with(node: ast.expr, **changed: Any) -> ast.expr:
    new = copy.copy(node)
    for name, value in changed.items():
        setattr(new, name, value)
    return new


# ---- in a process of its own


def plant(seed: Seed) -> None:
    """Let the functions of a module that was imported do what its source says with a defect.

    Raises:
        ValueError: a function then has other names of functions around it.
    """
    path = str(ROOT / seed.file)
    code = compile(seed.applied(Path(path).read_text(encoding="utf-8")), path, "exec")
    found = {each.co_qualname: each for each in _codes(code)}
    for function in gc.get_objects():
        if isinstance(function, FunctionType) and function.__code__.co_filename == path and function.__qualname__ in found:
            function.__code__ = found[function.__qualname__]


def _codes(code: CodeType) -> Iterator[CodeType]:
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield inner
            yield from _codes(inner)


def _compile(folder: Path, seed: Seed | None) -> None:
    """Compile all networks, write their projects, and what became of each."""
    verdicts: dict[str, tuple[str, str]] = {}
    if seed is not None:
        plant(seed)
    for name, make in NETWORKS.items():
        own = folder / name
        own.mkdir()
        verdicts[name] = _outcome(make, own)
        if verdicts[name][0] in ("killed", "stumbled"):
            break
    (folder / "verdicts.json").write_text(json.dumps(verdicts))


def _outcome(make: Callable[[Path], deeploy.Compiled], folder: Path) -> tuple[str, str]:
    try:
        compiled = make(folder)
        files = compiled.sources()
    except Exception as error:
        return "refused", f"{type(error).__name__}: {str(error)[:200]}"
    try:
        compiled.certify(files)
    except CertificateError as error:
        return "killed", str(error)[:300]
    except Exception:
        return "stumbled", traceback.format_exc()[-600:]
    for path, content in files.items():
        (folder / "project" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "project" / path).write_bytes(content if isinstance(content, bytes) else content.encode())
    shown = [path for path in sorted(files) if Path(path).suffix in (".c", ".h", ".bin") and not path.endswith("_checks.h")]
    texts = [f"{path}\0{files[path]!r}" for path in shown]
    digest = hashlib.sha256(_WATCHED.sub("", "\0".join(texts)).encode()).hexdigest()
    return "certified", digest


# ---- from outside


@dataclass(frozen=True)
class Fate:
    """What became of a defect: ``refused``, ``killed``, ``equivalent``, ``another plan``, ``missed``, ``stumbled``; and what was said."""

    seed: Seed
    fate: str
    said: str


class Bench:
    """The networks as they are, and what they compute."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.original = self._run("original", None)
        self.certified = self.verdicts(self.original)
        assert all(kind == "certified" for kind, _ in self.certified.values()), self.certified
        self.lines = self._reached()

    @cached_property
    def outputs(self) -> Mapping[str, str]:
        """What every network computes."""
        return {name: _outputs(self.original / name / "project") for name in self.certified}

    def verdicts(self, folder: Path) -> Mapping[str, tuple[str, str]]:
        """What became of each network, and what was said: of one that is certified, what tells its C from another one.

        The table of lifetimes, which only the model of the machine reads, is no part of it.
        """
        found: dict[str, tuple[str, str]] = json.loads((folder / "verdicts.json").read_text())
        return found

    def _run(self, name: str, seed: Seed | None) -> Path:
        own = self.folder / name
        own.mkdir()
        _apart(_compile, own, seed)
        return own

    def _reached(self) -> Mapping[str, set[int]]:
        """The lines of the files that compiling the networks reaches."""
        folder = self.folder / "reached"
        folder.mkdir()
        _apart(_traced, folder)
        return {file: set(lines) for file, lines in json.loads((folder / "lines.json").read_text()).items()}

    def judge(self, seed: Seed, name: str) -> Fate:
        """What becomes of a defect."""
        folder = self._run(name, seed)
        if not (folder / "verdicts.json").is_file():
            return Fate(seed, "refused", "it does not end, or needs too much memory")
        verdicts = self.verdicts(folder)
        for kind in ("killed", "stumbled"):
            for one, (found, said) in verdicts.items():
                if found == kind:
                    return Fate(seed, kind, f"{one}: {said}")
        changed = [one for one, found in verdicts.items() if found[0] == "certified" and found != self.certified[one]]
        for one in changed:
            wrong = self._wrong(folder / one / "project", one)
            if wrong:
                return Fate(seed, "missed", f"{one}: {wrong}")
        refused = [f"{one}: {said}" for one, (kind, said) in verdicts.items() if kind == "refused"]
        if changed:
            return Fate(seed, "another plan", ", ".join(changed))
        return Fate(seed, "refused" if refused else "equivalent", "; ".join(refused)[:300])

    def _wrong(self, project: Path, name: str) -> str | None:
        """What is wrong with C that is certified; None where it computes the same outputs in all modes of the model of the machine."""
        expected = self.outputs[name]
        built = self.original / name / "project"  # where nothing is built twice
        before: dict[Path, bytes | None] = {}
        for path in filter(Path.is_file, project.rglob("*")):
            place = built / path.relative_to(project)
            before[place] = place.read_bytes() if place.is_file() else None
            _put(place, path.read_bytes())
        found = _outputs(built)
        table = built / "src" / "network_checks.h"
        if found.startswith("stopped") and table.is_file():
            table.write_text(unwatched(table.read_text()))
            found = _outputs(built)
        for place, content in before.items():
            _put(place, content)
        return None if found in (expected, UNBUILT) else f"outputs differ: {found[:200]}"


def _put(place: Path, content: bytes | None) -> None:
    """Write a file, or remove it, where it is another one."""
    if content is None:
        place.unlink()
    elif not place.is_file() or place.read_bytes() != content:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)


def _apart(work: Callable[..., object], *arguments: object) -> None:
    """Do something in a process of its own, which a defect does not outlive; the system ends one that does not end."""
    process = multiprocessing.get_context("fork").Process(target=_quietly, args=(work, arguments))
    process.start()
    process.join()


def _quietly(work: Callable[..., object], arguments: Sequence[object]) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    work(*arguments)


def _outputs(project: Path) -> str:
    """What a project computes, as one number; or what stopped it."""
    said = project / "said.txt"
    said.write_text("stopped: it does not end")
    _apart(_execute, project, said)
    return said.read_text()


def _execute(project: Path, said: Path) -> None:
    try:
        subject = Subject.of(project)
    except UsageError:
        said.write_text(UNBUILT)
        return
    if subject.make(PLAIN) is not None:
        said.write_text(UNBUILT)
        return
    try:
        said.write_text(hashlib.sha256(subject.outputs).hexdigest())
    except AssertionError as error:
        said.write_text(f"stopped: {error}")


def drawn(found: Sequence[Seed], count: int, seed: int) -> list[Seed]:
    """So many defects, of all files equally many as long as there are any."""
    generator = random.Random(seed)
    files: dict[str, list[Seed]] = {}
    for each in found:
        files.setdefault(each.file, []).append(each)
    for row in files.values():
        generator.shuffle(row)
    rounds = max(map(len, files.values()), default=0)
    return [row[index] for index in range(rounds) for row in files.values() if index < len(row)][:count]


def reached(bench: Bench, pattern: str = "") -> list[Seed]:
    """The defects of lines that the networks reach."""
    found = []
    for file in FILES:
        if re.search(pattern, file):
            source = (ROOT / file).read_text(encoding="utf-8")
            found += [seed for seed in seeds(file, source) if seed.line in bench.lines.get(file, ())]
    return found


def _traced(folder: Path) -> None:
    """Compile with every line of the files noted."""
    wanted = {str(ROOT / file): file for file in FILES}
    lines: dict[str, set[int]] = {file: set() for file in FILES}

    def local(frame: FrameType, event: str, argument: object) -> Any:
        lines[wanted[frame.f_code.co_filename]].add(frame.f_lineno)
        return local

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_filename in wanted and frame.f_code.co_name != "<module>":
            return local(frame, event, argument)
        return None

    sys.settrace(trace)
    threading.settrace(trace)
    _compile(folder, None)
    sys.settrace(None)
    (folder / "lines.json").write_text(json.dumps({file: sorted(found) for file, found in lines.items()}))


def main(words: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.certify.seeded", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--file", default="", help="only files whose path matches this regular expression")
    given = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="deeploy-seeded-") as scratch:
        bench = Bench(Path(scratch))
        every = reached(bench, given.file)
        chosen = drawn(every, given.count, given.seed)
        print(f"{len(chosen)} of {len(every)} defects, seed {given.seed}", flush=True)
        fates = []
        for number, seed in enumerate(chosen):
            fates.append(fate := bench.judge(seed, str(number)))
            print(f"{fate.fate}: {fate.seed}\n    {' '.join(fate.said.split())}", flush=True)
    print(dict(Counter(fate.fate for fate in fates)))
    return int(any(fate.fate in ("missed", "stumbled") for fate in fates))


if __name__ == "__main__":
    sys.exit(main())
