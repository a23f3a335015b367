"""What contradicts itself in a target, or is missing, as far as its data show: names, limits, addresses, files."""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from deeploy.ir.epilogue import OPERANDS
from deeploy.ir.kernel import Kernel
from deeploy.ir.target import Memory, Target

_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
_DEFINITION = re.compile(r"\bKERNEL\s*\(\s*(?:const\s+)?(?:struct\s+)?(\w+)")


@dataclass(frozen=True)
class Problem:
    """What is wrong where (``FILE:LINE``, or empty where no line says it), and what to do about it."""

    where: str
    what: str
    remedy: str


def problems(target: Target, folder: Path) -> list[Problem]:
    """Everything that contradicts itself or is missing; ``folder`` holds the Python files in which lines are looked up.

    >>> from deeploy.target import load, origin
    >>> problems(load("generic"), origin("generic"))
    []
    """
    return [
        *_memory_problems(target, folder),
        *_path_problems(target, folder),
        *_engine_problems(target, folder),
        *_kernel_problems(target, folder),
        *_remaining_problems(target, folder),
    ]


def _find_line(folder: Path, name: str, *kinds: str) -> str:
    """Where a call of one of ``kinds`` with the name is written, else where the name is."""
    texts = []
    for path in sorted(folder.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in kinds:
                values = [*node.args, *(keyword.value for keyword in node.keywords)]
                if any(isinstance(value, ast.Constant) and value.value == name for value in values):
                    return f"{path}:{node.lineno}"
            if isinstance(node, ast.Constant) and node.value == name:
                texts.append(f"{path}:{node.lineno}")
    return texts[0] if texts else str(folder / "target.py")


def _repeated_names(names: Iterable[str]) -> list[str]:
    listed = list(names)
    return sorted({name for name in listed if listed.count(name) > 1})


def _memory_problems(target: Target, folder: Path) -> Iterator[Problem]:
    def problem(memory: str, what: str, remedy: str) -> Problem:
        return Problem(_find_line(folder, memory, "Memory"), what, remedy)

    if not target.memories:
        yield Problem(str(folder / "target.py"), "the target has no memory", "List at least one Memory.")
    for name in _repeated_names(m.name for m in target.memories):
        yield problem(name, f"two memories have the name {name}", "Give every memory a name of its own.")
    for m in target.memories:
        if m.alignment < 1 or m.alignment & (m.alignment - 1):
            yield problem(m.name, f"the alignment {m.alignment} of memory {m.name} is no power of two", "Use 1, 2, 4, 8 ...")
        if m.capacity is not None and not 0 <= m.reserved < m.capacity:
            yield problem(m.name, f"{m.reserved} of the {m.capacity} bytes of memory {m.name} are reserved", "Leave room for an arena.")
        if m.base is not None and (m.base < 0 or m.base % m.alignment or m.capacity is None):
            yield problem(m.name, f"memory {m.name} cannot begin at {m.base:#x}", "A base is aligned, and a capacity goes with it.")
    placed = sorted((m for m in target.memories if m.base is not None and m.capacity is not None), key=lambda m: m.base or 0)
    for first, second in pairwise(placed):
        if _memory_end(first) > (second.base or 0):
            ranges = " and ".join(f"{m.name} ({m.base:#x} to {_memory_end(m):#x})" for m in (first, second))
            yield problem(second.name, f"the memories {ranges} overlap", "Correct a base or a capacity.")


def _memory_end(memory: Memory) -> int:
    return (memory.base or 0) + (memory.capacity or 0)


def _path_problems(target: Target, folder: Path) -> Iterator[Problem]:
    known = {m.name for m in target.memories}
    for name in _repeated_names(p.name for p in target.paths):
        yield Problem(_find_line(folder, name, "DmaPath"), f"two paths have the name {name}", "Give every path a name of its own.")
    for p in target.paths:
        problems = []
        if p.near == p.far or not {p.near, p.far} <= known:
            problems.append((f"path {p.name} connects {p.near} and {p.far}", f"Name two of the memories {', '.join(sorted(known))}."))
        if min(p.limits.values()) < 1:
            problems.append(
                (f"a limit of path {p.name} is below 1", "Limits count bytes, rows, tickets and outstanding transfers from 1 on.")
            )
        elif p.tickets < 4:
            problems.append((f"path {p.name} has {p.tickets} tickets", "Generated code keeps 4 of them open."))
        for what, remedy in problems:
            yield Problem(_find_line(folder, p.name, "DmaPath"), what, remedy)
    for first in sorted(known):
        seen: set[str] = set()
        level: str | None = first
        while level is not None and level not in seen:
            seen.add(level)
            level = next((p.far for p in target.paths if p.near == level), None)
        if level is not None:
            where = str(folder / "target.py")
            yield Problem(where, f"the paths from memory {first} lead in a circle", "Let every path lead outwards.")
            return


def _engine_problems(target: Target, folder: Path) -> Iterator[Problem]:
    known = {m.name for m in target.memories}
    where = str(folder / "target.py")
    if target.paths and not target.engines:
        yield Problem(where, "the target has paths and no engine", "List an Engine that works in the innermost memory.")
        return
    for name in _repeated_names(e.name for e in target.engines):
        yield Problem(_find_line(folder, name, "Engine"), f"two engines have the name {name}", "Give every engine a name of its own.")
    for e in target.engines:
        for memory in [e.memory, *([e.weights] if e.weights else [])]:
            if memory not in known:
                what = f"engine {e.name} works in {memory or 'no memory'}"
                yield Problem(_find_line(folder, e.name, "Engine"), what, f"Name one of the memories {', '.join(sorted(known))}.")
        if e.cores < 1:
            yield Problem(_find_line(folder, e.name, "Engine"), f"engine {e.name} has {e.cores} cores", "An engine has at least one core.")
    outer = [p.far for p in target.paths] if target.engines else []
    if target.paths and target.default_memory not in outer:
        yield Problem(where, f"default_memory is {target.default_memory!r}", f"Name one of {', '.join(outer)}: constants lie there.")


def _kernel_problems(target: Target, folder: Path) -> Iterator[Problem]:
    engines = {e.name for e in target.engines}
    files: dict[tuple[str, str, str], list[tuple[str, str, str]]] = {}
    for kernel in target.kernels:
        key = kernel.source, kernel.argument, kernel.call
        if key not in files:
            files[key] = list(_file_problems(kernel, target))
        problems = [*_operand_problems(kernel), *([] if kernel.link else files[key])]  # the runtime sends and receives
        if target.paths and kernel.engine not in engines:
            problems.append(("", f"it runs on {kernel.engine}", f"Name one of the engines {', '.join(sorted(engines))}."))
        for where, what, remedy in problems:
            yield Problem(where or _find_line(folder, kernel.name, "kernel", "variant"), f"kernel {kernel.name}: {what}", remedy)


def _operand_problems(kernel: Kernel) -> Iterator[tuple[str, str, str]]:
    own = [name.rstrip("?") for name in kernel.inputs] + list(kernel.outputs)
    known = {*own, *(name for names in OPERANDS.values() for name in names)}
    pairs = [name for pair in kernel.overwrites for name in pair]
    for part, mentioned in (
        ("types", kernel.types),
        ("constants", kernel.constants),
        ("layouts", kernel.layouts),
        ("strided", kernel.strided),
        ("overwrites", pairs),
        ("resident", kernel.resident),
    ):
        for name in sorted(set(mentioned) - known):
            yield "", f"{part} names the operand {name}", f"Its operands are {', '.join(own)}."
    for stage in sorted({stage for stages in kernel.epilogues for stage in stages} - set(OPERANDS)):
        yield "", f"there is no epilogue {stage}", f"Stages are {', '.join(OPERANDS)}."


def _file_problems(kernel: Kernel, target: Target) -> Iterator[tuple[str, str, str]]:
    source = _find_file(target.kernel_folders, kernel.source)
    if source is None:
        yield "", f"there is no C file {kernel.source}", f"Put it under one of {', '.join(map(str, target.kernel_folders))}."
    else:
        yield from _definition_problems(kernel, source, target.kernel_folders)
    if _find_file(target.template_folders, kernel.call) is None:
        yield "", f"there is no template {kernel.call}", f"Put it under one of {', '.join(map(str, target.template_folders))}."


def _definition_problems(kernel: Kernel, source: Path, folders: tuple[Path, ...]) -> Iterator[tuple[str, str, str]]:
    """Whether the C file, or one that it includes, defines the function with the argument that the declaration says."""
    struct = kernel.argument
    names = [posixpath.normpath(f"{Path(kernel.source).parent}/{name}") for name in _INCLUDE.findall(source.read_text(encoding="utf-8"))]
    included = [path for name in names if (path := _find_file(folders, name)) is not None]
    for path in (source, *included):
        text = path.read_text(encoding="utf-8")
        match = _DEFINITION.search(text)
        if match is not None:
            if match[1] != struct:
                line = text.count("\n", 0, match.start()) + 1
                takes = f"KERNEL takes {match[1]}, the declaration says struct {struct}"
                yield f"{path}:{line}", takes, f'Define void KERNEL(const struct {struct} *k), or say struct="{match[1]}".'
            break
    else:
        yield f"{source}:1", "the file defines no function KERNEL", f"Define void KERNEL(const struct {struct} *k)."
    further = [path.parent / name for path in included for name in _INCLUDE.findall(path.read_text(encoding="utf-8"))]
    if f"{struct}.h" not in {path.name for path in (*included, *further)}:
        yield f"{source}:1", f"no header {struct}.h is included", f"Declare struct {struct} in {struct}.h beside it, and include that."


def _find_file(folders: tuple[Path, ...], name: str) -> Path | None:
    return next((folder / name for folder in folders if (folder / name).is_file()), None)


def _remaining_problems(target: Target, folder: Path) -> Iterator[Problem]:
    where = str(folder / "target.py")
    if _find_file(target.template_folders, target.build) is None:
        at = _find_line(folder, target.build, "Target")
        folders = ", ".join(map(str, target.template_folders))
        yield Problem(at, f"there is no template {target.build} of a Makefile", f"Put it under {folders}.")
    for path in target.runtime:
        if not path.exists():
            yield Problem(where, f"the runtime {path} does not exist", "Name folders, or single files.")
    if not target.passes:
        yield Problem(where, "the target has no lowering passes", "Use deeploy.target.passes().")
    timing = target.timing
    if timing is None:
        return
    engines, paths = {e.name for e in target.engines}, {p.name for p in target.paths}
    memories = {m.name for m in target.memories[1:]} if target.is_flat else set()
    for what, names, known in (("engine", timing.fork, engines), ("path", timing.paths, paths), ("memory", timing.memories, memories)):
        for name in sorted(set(names) - known):
            yield Problem(where, f"the timing names the {what} {name}", f"The target has {', '.join(sorted(known)) or 'none'}.")
    for name in sorted(paths - set(timing.paths)):
        yield Problem(where, f"the timing lacks path {name}", f"Add [path.{name}] with its provenance.")
