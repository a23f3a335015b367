"""What a program takes of a microcontroller: flash, static variables and stack, from a build by its cross compiler.

A target whose projects have ``runtime/qemu/qemu.mk`` names its compiler in their Makefile. The linker's map says what every file of the
network takes after unused functions are left out. gcc's call graphs (``-fcallgraph-info=su``) say by how much every function lowers the
stack pointer, and whom it calls; of clang ``-fstack-usage`` and the relocations of calls do. What reads files under the emulator is not
counted, and neither are the stacks of functions of the C library. What these take of flash is part of the code.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from deeploy.backend.project import write_project
from deeploy.documents import Contents, Document
from deeploy.errors import BuildError, DeeployError, FitError, UsageError, shorten
from deeploy.execution.runners.processes import run_make
from deeploy.execution.runners.qemu import FIT, OVERFLOW, require_tools, tools_of

_MAKEFILE = "runtime/qemu/qemu.mk"
_BUILD = "build/sizes"
_FLAGS = "-O2"
_PLACE = re.compile(r"^ (\S+)\s+0x[0-9a-f]+ +0x([0-9a-f]+) (\S.*)$", re.MULTILINE)  # a long name has a line of its own
_NODE = re.compile(r'^node: \{ title: "([^"]+)" label: "[^"]*?(\d+) bytes \(', re.MULTILINE)
_EDGE = re.compile(r'^edge: \{ sourcename: "([^"]+)" targetname: "([^"]+)"', re.MULTILINE)
_FRAME = re.compile(r"^.*:(\S+)\t(\d+)\t", re.MULTILINE)  # of clang's .su
_CALLER = re.compile(r"^RELOCATION RECORDS FOR \[\.text\.(\S+)\]:$(.*?)^$", re.MULTILINE | re.DOTALL)
_CALLED = re.compile(r" R_\S*(?:CALL|JUMP|JAL)\S* +([^\s+]+)")
_LAYER = re.compile(r"^static void (?:layer|tile)_(\w+)\(.*?^\}", re.MULTILINE | re.DOTALL)
_KERNEL = re.compile(r"\b(\w+_kernel_\w+)\(")
_HARNESS = f"{_BUILD}/runtime/"
_FLASH = (".text", ".rodata", ".srodata", ".data", ".sdata")
Remedy = Callable[[str, tuple[int, int], str], str]  # of a budget, the bytes taken and those that it has, and how it gets more
BUDGETS = {"flash": "--flash", "ram": "--ram", "stack": "--stack"}


@dataclass(frozen=True)
class CallGraph:
    """Bytes of every function's frame, and whom it calls."""

    frames: Mapping[str, int]
    calls: Mapping[str, set[str]]


@dataclass(frozen=True)
class LayerSize:
    """Bytes of a layer.

    Attributes:
        code: of the kernels that it calls, which other layers may call as well.
        constants: that it reads.
        arena: what lies there while it runs, its scratch memory included.
        stack: of the deepest path of calls, those above the kernels taken as the deepest kernel has them.
    """

    network: str
    name: str
    code: int
    constants: int
    arena: int
    stack: int


@dataclass(frozen=True)
class Sizes:
    """Bytes of a program.

    Attributes:
        compiler: and its flags.
        code: instructions, tables of the code, and the first values of variables; constants of networks apart.
        arena: of all memories but flash; of several networks, the largest. ``states`` are the part of it that outlives an inference.
        io: the caller's arrays, inputs and outputs; of several networks, the largest.
        static: variables.
        stack: of the deepest path of calls below a function of the network.
        layers: in the order of the networks and their layers.
    """

    compiler: str
    code: int
    constants: int
    arena: int
    states: int
    io: int
    static: int
    stack: int
    layers: tuple[LayerSize, ...] = field(default=(), repr=False)

    @property
    def flash(self) -> int:
        return self.code + self.constants

    @property
    def ram(self) -> int:
        return self.arena + self.io + self.static + self.stack

    def contents(self) -> Contents:
        """The bytes of a program as the document that ``deploy.json`` holds under ``sizes``."""
        return {**asdict(self), "layers": [asdict(layer) for layer in self.layers], "flash": self.flash, "ram": self.ram}

    def check(self, budgets: Mapping[str, int], remedy: Remedy) -> None:
        """Raise FitError where the program takes more than a budget: ``flash``, ``ram`` or ``stack``."""
        parts = {
            "flash": f"{self.code} of code and {self.constants} of constants",
            "ram": f"{self.arena} of the arena, {self.io} of inputs and outputs, {self.static} of variables and {self.stack} of stack",
            "stack": "on the deepest path of calls",
        }
        for name, most in budgets.items():
            taken = getattr(self, name)
            if taken > most:
                what = f"{BUDGETS[name]} {most}: the program takes {taken} bytes, {parts[name]}"
                raise FitError(what, remedy(name, (taken, most), f"a chip with more: {BUDGETS[name]} {taken}"))


def measure_sizes(files: Mapping[str, str | bytes], arena: int, states: int, io: int, budgets: Collection[str]) -> Sizes | None:
    """The sizes of a project's program; None where the target has no cross compiler, or it is not installed, and no budget asks for it.

    Raises:
        UsageError: there are budgets, and the target has no cross compiler.
        BuildError: there are budgets, and the compiler is not installed; or the program does not build.
        FitError: the program is larger than the memories of the target.
    """
    if _MAKEFILE not in files:
        if budgets:
            option = BUDGETS[next(iter(budgets))]
            raise UsageError(f"{option}: the target has no cross compiler that would tell", "Limit a memory: --memory NAME=BYTES.")
        return None
    tools = tools_of(str(files["Makefile"]))
    compiler, linker = tools["QEMU_CC"], tools.get("QEMU_LINK", tools["QEMU_CC"])
    if budgets:
        require_tools([compiler, linker])
    elif any(shutil.which(tool) is None for tool in (compiler, linker, "make")):
        return None
    with TemporaryDirectory() as scratch:
        project = Path(scratch) / "project"
        write_project(project, files)
        option = "-fstack-usage" if compiler == "clang" else "-fcallgraph-info=su"
        run_make(project, [f"QEMU_BUILD={_BUILD}", f"QEMU_CFLAGS={_FLAGS} {option}", "qemu"], _explain_failure)
        map_text = (project / _BUILD / "application.map").read_text(encoding="utf-8", errors="replace")
        objects = sorted((project / _BUILD).rglob("src/**/*.o"))
        graph = _of_clang(objects, linker.replace("gcc", "objdump")) if compiler == "clang" else _of_gcc(objects)
    sections = _read_sections(map_text)
    code, constants, static = _sum_sections(sections)
    below = stack_depths(graph)
    layers = tuple(_layer_sizes(files, sections, below))
    return Sizes(f"{compiler} {_FLAGS}", code, constants, arena, states, io, static, max(below.values(), default=0), layers)


def _explain_failure(text: str, command: Sequence[str]) -> DeeployError:
    overflow = OVERFLOW.search(text)
    if overflow is not None:
        return FitError(f"the program does not fit the target: {overflow[1]}", FIT)
    said = (text.strip() or "make says nothing").splitlines()[0]
    return BuildError(f"the program does not build for the target: {shorten(said, 300)}", f"See all of it: {' '.join(command)}")


def _read_sections(text: str) -> list[tuple[str, int, str]]:
    """Every section of the program with its bytes and its file, from the linker's map."""
    sections = _PLACE.findall(text.partition("Linker script and memory map")[2])
    return [(str(section), int(size, 16), str(file)) for section, size, file in sections]


def _sum_sections(sections: Sequence[tuple[str, int, str]]) -> tuple[int, int, int]:
    """Bytes of code, of constants and of variables."""
    code = constants = static = 0
    for section, count, file in sections:
        is_constant = file.endswith(("_weights.o", "/constants.o"))
        if section.startswith(_FLASH) and (is_constant or not file.startswith(_HARNESS)):
            code, constants = (code, constants + count) if is_constant else (code + count, constants)
        if section.startswith((".data", ".sdata", ".bss", ".sbss", "COMMON")) and not file.startswith(_HARNESS):
            static += count
    return code, constants, static


def _layer_sizes(
    files: Mapping[str, str | bytes], sections: Sequence[tuple[str, int, str]], below: Mapping[str, int]
) -> Iterator[LayerSize]:
    manifest: Document = json.loads(files["deploy.json"])
    code: dict[str, int] = {}
    for section, count, file in sections:
        if section.startswith(_FLASH):
            code[Path(file).stem] = code.get(Path(file).stem, 0) + count
    for entry in manifest.get("networks") or [manifest]:
        source = str(files[f"src/{entry['name']}.c"])
        kernels: dict[str, set[str]] = {}
        for match in _LAYER.finditer(source):  # a layer of a fused group is a function of a tile
            kernels.setdefault(match[1], set()).update(_KERNEL.findall(match[0]))
        constants = {one["name"]: one["bytes"] for one in entry["constants"]}
        callers = [depth for name, depth in below.items() if name == f"{entry['name']}_run"]
        deepest_kernel = max((below.get(kernel, 0) for called in kernels.values() for kernel in called), default=0)
        for number, call in enumerate(entry["calls"]):
            called = kernels.get(call["name"], set())
            yield LayerSize(
                entry["name"],
                call["name"],
                sum(code.get(kernel, 0) for kernel in called),
                sum(constants.get(buffer, 0) for buffer in set(call["operands"].values())),
                sum(one["bytes"] for one in entry["buffers"] if one["first"] <= number <= one["last"]),
                max(callers, default=deepest_kernel) - deepest_kernel + max((below.get(kernel, 0) for kernel in called), default=0),
            )


def _of_gcc(objects: Sequence[Path]) -> CallGraph:
    """From the call graphs of gcc beside the objects."""
    return parse_graphs(
        "\n".join(path.with_suffix(".ci").read_text(encoding="utf-8") for path in objects if path.with_suffix(".ci").is_file())
    )


def _of_clang(objects: Sequence[Path], objdump: str) -> CallGraph:
    """From what clang says of frames beside the objects, and the calls that the linker had to complete."""
    frames: dict[str, int] = {}
    calls: dict[str, set[str]] = {}
    for path in objects:
        if not path.with_suffix(".su").is_file():
            continue
        text = path.with_suffix(".su").read_text(encoding="utf-8")
        own = {name: f"{path}:{name}" if name in frames else name for name, _ in _FRAME.findall(text)}  # static ones of a header
        frames |= {own[name]: int(size) for name, size in _FRAME.findall(text)}
        relocations = subprocess.run([objdump, "-r", str(path)], capture_output=True, text=True, check=True).stdout
        for caller, records in _CALLER.findall(relocations):
            calls[own.get(caller, caller)] = {own.get(called, called) for called in _CALLED.findall(records)}
    return CallGraph(frames, calls)


def parse_graphs(graphs: str) -> CallGraph:
    """gcc's call graphs.

    >>> depths(parsed('node: { title: "f" label: "f\\\\n8 bytes (static)" }\\nnode: { title: "g" label: "g\\\\n24 bytes (static)" }\\n'
    ...               'edge: { sourcename: "f" targetname: "g" }'))["f"]
    32
    """
    frames: dict[str, int] = {}
    for name, size in _NODE.findall(graphs):  # functions of a header are in the graphs of several files
        frames[name] = max(int(size), frames.get(name, 0))
    calls: dict[str, set[str]] = {}
    for caller, called in _EDGE.findall(graphs):
        calls.setdefault(caller, set()).add(called)
    return CallGraph(frames, calls)


def stack_depths(graph: CallGraph) -> Mapping[str, int]:
    """Bytes of the deepest path of calls from every function on; functions that a graph does not know count as none."""

    @cache
    def below(name: str) -> int:
        return graph.frames.get(name, 0) + max((below(called) for called in graph.calls.get(name, ()) if called != name), default=0)

    return {name: below(name) for name in graph.frames}
