"""One operator on GVSoC: compiled as a network of one layer, built for bare metal, simulated, its result compared.

What is measured is what the team of cores does with data in L1: ``main.c`` counts the cycles from fork to join.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from deeploy.api import Compiled, Network
from deeploy.backend import layers
from deeploy.errors import UsageError
from deeploy.execution.runners import gvsoc
from deeploy.frontend.io import describe_ports
from deeploy.ir import epilogue
from deeploy.ir.nodes import Node, Tensor
from deeploy.ir.types import DType
from deeploy.ir.values import Graph
from deeploy.options import Options
from deeploy.planning.binding.assemble import assemble_program
from deeploy.planning.binding.kernels import operand_names
from deeploy.planning.planner.machine import machine_of
from deeploy.planning.planner.network import make_plan
from deeploy.target import Target, load

ROOT = Path(__file__).resolve().parents[2]
HAL = ROOT / "kernels" / "hal"
STACKS = 16 * 1024  # for portable kernels
SECONDS = 300


_INSTANCE = re.compile(r"^typedef const struct network_instance instance;.*\n", re.MULTILINE)
TILE = "struct tile {\n    instance *self;\n    int32_t t;\n};\n"
FORKED = "static void forked_{name}(void *argument) {{\n    const struct tile *const tile = argument;\n    {name}(tile->self{tile});\n}}\n"
_TILE_CALL = re.compile(r"^( +)((?:body|second)_(\w+))\(self(?:, (.+))?\);$", re.MULTILINE)
_TILE_BODY = re.compile(r"^static void ((?:body|second)_\w+)\(instance \*self(, int32_t t)?\) \{\n.*?^\}\n", re.MULTILINE | re.DOTALL)


class SimulationError(Exception):
    """The program was not built, did not end well, or gave another result than the references."""


@dataclass(frozen=True)
class Case:
    """An operator of the integer form.

    Attributes:
        variables: the operands that are inputs of the network, in order; they come first in ``operands``.
        operands: arrays of all operands in node order, as the graph has them.
        y: short name of the output's type.
        further: shapes and short names of types of outputs beyond the first.
        narrow: types of fewer bits that constants are read in, by operand.
    """

    name: str
    op: str
    variables: tuple[str, ...]
    operands: Mapping[str, np.ndarray]
    y: str
    attrs: Mapping[str, Any] = field(default_factory=dict)
    further: Mapping[str, tuple[tuple[int, ...], str]] = field(default_factory=dict)
    narrow: Mapping[str, DType] = field(default_factory=dict)

    def tensors(self, suffix: str = "") -> dict[str, Tensor]:
        """All operands as tensors, by name; constants with their values."""
        found = {}
        for name, array in self.operands.items():
            narrow = (self.narrow[name],) if name in self.narrow else ()
            data = None if name in self.variables else array
            found[name] = Tensor(f"{name}{suffix}", array.shape, DType.of(array.dtype), data, narrow)
        return found


@dataclass(frozen=True)
class Measured:
    """Cycles of the team with warm and with cold instruction caches, multiply-accumulates, the kernel's name, bytes of code."""

    kernel: str
    macs: int
    outputs: int
    cycles: int
    cold: int


def node(case: Case, shape: tuple[int, ...] = ()) -> Node:
    return Node("layer", case.op, tuple(case.tensors().values()), (Tensor("y", shape, DType(case.y)),), case.attrs)


def expected(case: Case, target: Target) -> np.ndarray:
    """What the kernel's reference and the epilogue give as the first output."""
    untyped = node(case)
    kernel = next(k for k in target.kernels if k.op == case.op and operand_names(k, untyped) is not None)
    stages = epilogue.stage_operands(untyped.epilogue)
    body = [array for name, array in case.operands.items() if name not in stages]
    found = kernel.reference(untyped, *body)
    value = epilogue.apply_stages(untyped, np.asarray(found[0] if isinstance(found, tuple) else found), dict(case.operands))
    return np.asarray(value.astype(DType(case.y).numpy))


def l1_bytes(target: Target) -> int:
    """What programs of this folder may use of L1."""
    return target.memory("L1").capacity - STACKS


def runtime(target: Target) -> dict[str, Path]:
    """The folders of the runtime, by the variables of its bare.mk.

    Raises:
        UsageError: the target does not run on the simulator.
    """
    found = {}
    for variable, file in (("BARE", "bare.mk"), ("SOC", "soc.mk"), ("SIMULATED", "program.mk")):
        places = [entry / "bare" for entry in target.runtime if (entry / "bare" / file).is_file()]
        if not places:
            raise UsageError(f"target {target.name} does not run on GVSoC", f"Name a target whose runtime has bare/{file}.")
        found[variable] = places[-1]
    return found


def compiled(case: Case, target: Target, shape: tuple[int, ...], cores: int) -> Compiled:
    """The case as a project of one layer."""
    tensors = case.tensors()
    node = Node("layer", case.op, tuple(tensors.values()), (Tensor("y", shape, DType(case.y)),), case.attrs)
    graph = Graph("network", tuple(tensors[n] for n in case.variables), node.outputs)
    options = Options(memory={"l1": l1_bytes(target)}, cores=cores, buffering="single")
    machine = machine_of(target, options)
    assert machine is not None, "the target has scratchpad memories"
    program = assemble_program("network", graph, [kernel for kernel in target.kernels if kernel.engine == "cluster"])
    plan = make_plan(program, target, machine, options.seconds)
    sources, results = describe_ports(graph, True, {})
    return Compiled({"network": Network(plan, case.name, tuple(sources), tuple(results), True, ())}, {})


def build(
    project: Path,
    folder: Path,
    target: Target,
    flags: str = "",
    compiler: str = "gcc",
    l2_bytes: int = 512 * 1024,
    main: str = "main.c",
    wrapped: Sequence[str] = ("rt_fork",),
) -> Path:
    """Build the project with the bare-metal runtime and a main of this folder, which stands before some functions of the runtime."""
    sources = [Path(__file__).parent / main, *(f for d in ("src", "src/kernels", "runtime") for f in sorted((project / d).glob("*.c")))]
    includes = [project / "include", project / "runtime", *(project / "kernels").iterdir()]
    flags = f"-O3 -mno-relax {flags}"
    libraries = " ".join(f"-Wl,--wrap={name}" for name in wrapped)
    return make(sources, includes, folder, target, CFLAGS=flags, COMPILER=compiler, LIBRARIES=libraries, L2_ARENA_BYTES=l2_bytes)


def make(sources: Sequence[Path], includes: Sequence[Path], folder: Path, target: Target, **variables: object) -> Path:
    """Build sources with the bare-metal runtime; ``variables`` are those of its bare.mk.

    Raises:
        SimulationError: the compiler refuses, or is not there.
    """
    values: dict[str, object] = {**runtime(target), "BUILD": folder}
    values |= {"SOURCES": " ".join(map(str, sources)), "INCLUDES": " ".join(map(str, includes))}
    values |= {"L1_RESERVED_BYTES": STACKS, **variables}
    command = ["make", "-s", "-j2", "-f", str(runtime(target)["BARE"] / "bare.mk"), *(f"{name}={value}" for name, value in values.items())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SimulationError(done.stderr)
    return folder / "application.elf"


def write_forked(project: Compiled, folder: Path) -> None:
    """Write a project in which every tile of a call has a fork of its own, and no barriers, where main.c and probe.c measure."""
    given = layers._is_function
    layers._is_function = lambda layer: True
    try:
        project.write(folder)
    finally:
        layers._is_function = given
    source = folder / "src" / "network.c"
    text = source.read_text().replace("rt_barrier();", "")
    cores = next(iter(re.findall(r"rt_fork\((\d+), team_", text)), "1")
    alone = {*re.findall(r"^ +LAYER\(\d+, (\w+)\);", text, re.MULTILINE)}
    text = re.sub(r"rt_fork\(\d+, (team_\d+), ", r"\1(", text)
    text = _TILE_CALL.sub(
        lambda m: f"{m[1]}rt_fork({1 if m[3] in alone else cores}, forked_{m[2]}, &(struct tile){{self, {m[4] or 0}}});", text
    )
    text = _TILE_BODY.sub(lambda m: m[0] + FORKED.format(name=m[1], tile=", tile->t" * bool(m[2])), text)
    text, count = _INSTANCE.subn(lambda m: m[0] + TILE, text, count=1)
    assert count == 1, "the type of the layers' argument stands alone in its line"
    source.write_text(text)


def launcher() -> str | None:
    """The simulator's launcher: the environment's GVSOC, else what is in PATH."""
    return os.environ.get("GVSOC") or shutil.which("gvsoc")


def simulate(program: Path, folder: Path, target: Target) -> list[str]:
    """Run a program of the target's chip with ``folder`` as the working directory; returns the lines that it prints."""
    found = launcher()
    if found is None:
        raise SimulationError("no GVSoC: build github.com/gvsoc/gvsoc for the chip, then set GVSOC to its launcher or add it to PATH")
    chip = gvsoc.chip_name(runtime(target)["SOC"])
    command = [found, f"--target={chip}", f"--work-dir={folder}", f"--binary={program}", "image", "flash", "run"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder, start_new_session=True)
    try:
        said, complaints = running.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(running.pid, signal.SIGKILL)  # the launcher leaves the simulator behind
        running.communicate()
        raise SimulationError(f"no end after {SECONDS} seconds: {' '.join(command)}") from None
    if running.returncode:
        raise SimulationError(said + complaints)
    return said.splitlines()


def check_and_measure(
    case: Case, cores: int = 8, flags: str = "", compiler: str = "gcc", target: Target | None = None, keep: Path | None = None
) -> Measured:
    """Simulate the case twice in one run and compare both results, bit for bit.

    Raises:
        SimulationError: no simulator, or a result that differs.
    """
    target = target or load("siracusa")
    wanted = expected(case, target)
    layer = compiled(case, target, wanted.shape, cores)
    call = next(c for c in layer.networks["network"].plan.program.calls if c.node.op == case.op)
    with tempfile.TemporaryDirectory(prefix="deeploy-gvsoc-") as scratch:
        folder = keep or Path(scratch)
        project, work = folder / "project", folder / "work"
        write_forked(layer, project)
        program = build(project, work, target, flags, compiler)
        sample = b"".join(case.operands[name].tobytes() for name in case.variables)
        (work / "inputs.bin").write_bytes(2 * sample)
        (work / "weights.bin").write_bytes((project / "network_weights.bin").read_bytes())
        lines = simulate(program, work, target)
        got = np.frombuffer((work / "outputs.bin").read_bytes(), wanted.dtype).reshape(2, *wanted.shape)
    for result in got:
        if not np.array_equal(result, wanted):
            raise SimulationError(f"{case.name} on {cores} cores: {np.count_nonzero(result != wanted)} of {wanted.size} outputs differ")
    cycles = [int(line.split()[2]) for line in lines if line.startswith("fork ")]
    return Measured(call.kernel.name, call.geometry.macs(), wanted.size, cycles[1], cycles[0])
