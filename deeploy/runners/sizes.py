"""What a program takes of a microcontroller: flash, static variables and stack, from a build by its cross compiler.

A target whose projects have ``runtime/qemu/qemu.mk`` names its compiler in their Makefile. The linker's map says what every file of the
network takes after unused functions are left out; the compiler's call graphs (``-fcallgraph-info=su``) say by how much every function
lowers the stack pointer, and whom it calls. What reads files under the emulator is not counted, and neither are the stacks of functions of
the C library. What these take of flash is part of the code.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from deeploy.backend.project import write
from deeploy.documents import Contents
from deeploy.errors import BuildError, DeeployError, FitError, UsageError, shorten
from deeploy.runners.processes import make
from deeploy.runners.qemu import FIT, OVERFLOW, compiler_of, require_tools

_MAKEFILE = "runtime/qemu/qemu.mk"
_BUILD = "build/sizes"
_FLAGS = "-O2"
_PLACE = re.compile(r"^ (\S+)\s+0x[0-9a-f]+ +0x([0-9a-f]+) (\S.*)$", re.MULTILINE)  # a long name has a line of its own
_NODE = re.compile(r'^node: \{ title: "([^"]+)" label: "[^"]*?(\d+) bytes \(', re.MULTILINE)
_EDGE = re.compile(r'^edge: \{ sourcename: "([^"]+)" targetname: "([^"]+)"', re.MULTILINE)
_HARNESS = f"{_BUILD}/runtime/"
BUDGETS = {"flash": "--flash", "ram": "--ram", "stack": "--stack"}


@dataclass(frozen=True)
class Sizes:
    """Bytes of a program.

    Attributes:
        compiler: and its flags.
        code: instructions, tables of the code, and the first values of variables; constants of networks apart.
        arena: of all memories but flash; of several networks, the largest. ``states`` are the part of it that outlives an inference.
        static: variables.
        stack: of the deepest path of calls below a function of the network.
    """

    compiler: str
    code: int
    constants: int
    arena: int
    states: int
    static: int
    stack: int

    @property
    def flash(self) -> int:
        return self.code + self.constants

    @property
    def ram(self) -> int:
        return self.arena + self.static + self.stack

    def contents(self) -> Contents:
        """What ``deploy.json`` says."""
        return {**asdict(self), "flash": self.flash, "ram": self.ram}

    def check(self, budgets: Mapping[str, int]) -> None:
        """Raise FitError where the program takes more than a budget: ``flash``, ``ram`` or ``stack``."""
        parts = {
            "flash": f"{self.code} of code and {self.constants} of constants",
            "ram": f"{self.arena} of the arena, {self.static} of variables and {self.stack} of stack",
            "stack": "on the deepest path of calls",
        }
        remedies = {
            "flash": "Give it more, or use a network with fewer or shorter weights (--weight-bits).",
            "ram": f"Give it more, or a smaller arena: --memory RAM={max(0, budgets.get('ram', 0) - self.static - self.stack)}.",
            "stack": "Give it more.",
        }
        for name, most in budgets.items():
            if getattr(self, name) > most:
                raise FitError(f"{BUDGETS[name]} {most}: the program takes {getattr(self, name)} bytes, {parts[name]}", remedies[name])


def measure(files: Mapping[str, str | bytes], arena: int, states: int, budgets: Mapping[str, int]) -> Sizes | None:
    """The sizes of a project's program; None where the target has no cross compiler, or it is not installed, and no budget asks for it.

    Raises:
        UsageError: there are budgets, and the target has no cross compiler.
        BuildError: there are budgets, and the compiler is not installed; or the program does not build.
        FitError: the program is larger than a budget, or than the memories of the target.
    """
    if _MAKEFILE not in files:
        if budgets:
            option = BUDGETS[next(iter(budgets))]
            raise UsageError(f"{option}: the target has no cross compiler that would tell", "Limit a memory: --memory NAME=BYTES.")
        return None
    compiler = compiler_of(str(files["Makefile"]))
    if budgets:
        require_tools([compiler])
    elif shutil.which(compiler) is None or shutil.which("make") is None:
        return None
    with TemporaryDirectory() as scratch:
        project = Path(scratch) / "project"
        write(project, files)
        make(project, [f"QEMU_BUILD={_BUILD}", f"QEMU_CFLAGS={_FLAGS} -fcallgraph-info=su", "qemu"], _failure)
        map_text = (project / _BUILD / "application.map").read_text(encoding="utf-8", errors="replace")
        graphs = [path.read_text(encoding="utf-8") for path in sorted((project / _BUILD).rglob("src/**/*.ci"))]
    code, constants, static = _places(map_text)
    found = Sizes(f"{compiler} {_FLAGS}", code, constants, arena, states, static, deepest("\n".join(graphs)))
    found.check(budgets)
    return found


def _failure(text: str, command: Sequence[str]) -> DeeployError:
    overflow = OVERFLOW.search(text)
    if overflow is not None:
        return FitError(f"the program does not fit the target: {overflow[1]}", FIT)
    said = (text.strip() or "make says nothing").splitlines()[0]
    return BuildError(f"the program does not build for the target: {shorten(said, 300)}", f"See all of it: {' '.join(command)}")


def _places(text: str) -> tuple[int, int, int]:
    """Bytes of code, of constants and of variables, from the linker's map."""
    code = constants = static = 0
    for section, size, file in _PLACE.findall(text.partition("Linker script and memory map")[2]):
        count = int(size, 16)
        is_constant = file.endswith(("_weights.o", "/constants.o"))
        if section.startswith((".text", ".rodata", ".srodata", ".data", ".sdata")) and (is_constant or not file.startswith(_HARNESS)):
            code, constants = (code, constants + count) if is_constant else (code + count, constants)
        if section.startswith((".data", ".sdata", ".bss", ".sbss", "COMMON")) and not file.startswith(_HARNESS):
            static += count
    return code, constants, static


def deepest(graphs: str) -> int:
    """Bytes of the deepest path of calls, from the compiler's call graphs; functions that they do not know count as none.

    >>> deepest('node: { title: "f" label: "f\\\\n8 bytes (static)" }\\nnode: { title: "g" label: "g\\\\n24 bytes (static)" }\\n'
    ...         'edge: { sourcename: "f" targetname: "g" }')
    32
    """
    frames: dict[str, int] = {}
    for name, size in _NODE.findall(graphs):  # functions of a header are in the graphs of several files
        frames[name] = max(int(size), frames.get(name, 0))
    calls: dict[str, set[str]] = {}
    for caller, called in _EDGE.findall(graphs):
        calls.setdefault(caller, set()).add(called)

    @cache
    def below(name: str) -> int:
        return frames.get(name, 0) + max((below(called) for called in calls.get(name, ()) if called != name), default=0)

    return max(map(below, frames), default=0)
