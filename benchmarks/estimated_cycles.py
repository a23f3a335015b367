"""Cycles of microcontrollers without a board: every layer's instructions under QEMU, by kind, times the cycles that manuals give them.

    make bench NAME="estimated_cycles cortex_m4 rv32imc --write"

A layer's estimate becomes rates of kernels as a board's cycles do (``deeploy calibrate``); ``--write`` puts them into the target's
``timing.toml``. With every network stands what the rates of the others predict for it. What manuals leave out is left out: wait states of
flash, caches, conflicts on buses. Programs are built at -O2.
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.common import MODELS, ROOT, record, replace_table, table
from deeploy.api import Compiled, Network
from deeploy.backend.project import read_manifest, select_network
from deeploy.bringup.cases import draw_cases
from deeploy.bringup.rates import Observed, fit_rates, observe_layers, predict_layer, write_rates
from deeploy.driver.compile import compile_networks, load_target
from deeploy.driver.verify import random_samples
from deeploy.errors import DeeployError
from deeploy.execution.runners.qemu import PROFILED
from deeploy.execution.runners.runner import write_samples
from deeploy.frontend.io import describe_ports
from deeploy.ir.kernel import Kernel
from deeploy.ir.nodes import Node, Tensor
from deeploy.ir.target import Target
from deeploy.ir.values import Graph
from deeploy.options import Options
from deeploy.planning.binding.assemble import assemble_program
from deeploy.planning.planner.machine import machine_of
from deeploy.planning.planner.network import make_plan

_KINDS = "plain load behind store multiple register multiply high added divide float_added float_divide taken"
KINDS = _KINDS.split()  # of qemu/count.c
# Arm: Cortex-M4 Technical Reference Manual, tables 3-1 and 7-1: a load takes 2 cycles, 1 behind another load or store; several
# registers 1 and 1 each; a branch that is taken 2 more (1 to 3); a division 2 to 12. RISC-V: the Ibex core's documentation, with the
# multiplier of three cycles: a load or store 2, MULH 4, a division 37, a branch that is taken 2 more.
CYCLES: Mapping[str, Mapping[str, float]] = {
    "cortex_m4": {"load": 2, "register": 1, "added": 2, "divide": 7, "float_added": 3, "float_divide": 14, "taken": 2},
    "rv32imc": {"load": 2, "behind": 2, "store": 2, "register": 0, "multiply": 3, "high": 4, "divide": 37, "taken": 2},
}
CLOCKS = {"cortex_m4": (120, "an STM32L4R5 (MLPerf Tiny's reference board)"), "rv32imc": (160, "an ESP32-C3")}
CASES = 6  # random nodes of a kernel, beside those of its declaration
PAGE = Path(__file__).with_suffix(".md")
NETWORKS = ("mlperf_tiny", "shapes", "real", "dialect/Models")


def list_models() -> list[Path]:
    """Every network of the folders of NETWORKS."""
    return [path for folder in NETWORKS for path in sorted((MODELS / folder).rglob("network.onnx"))]


def count_layers(project: Path, plugin: Path) -> list[list[int]]:
    """Executed instructions by kind of every layer, in the order of execution."""
    folder = project / "build" / "count"
    options = ["QEMU_BUILD=build/count", f"DEFINES={PROFILED}"]
    subprocess.run(["make", "-s", "-C", str(project), *options, "qemu"], check=True)
    (board,) = re.findall(r"^QEMU_RUN := (.*)$", (project / "Makefile").read_text(), re.MULTILINE)
    quiet = ["-display", "none", "-monitor", "none", "-serial", "none", "-semihosting-config", "enable=on,target=native"]
    count = ["-plugin", f"{plugin},mark=deeploy_profile", "-d", "plugin", "-D", "counts"]
    command = [*shlex.split(board), *quiet, "-kernel", "application.elf", *count]
    subprocess.run(command, cwd=folder, check=True, timeout=600)
    marks = [[int(n) for n in line.split()[1:]] for line in (folder / "counts").read_text().splitlines() if line.startswith("MARK")]
    pairs = zip(marks[::2], marks[1::2], strict=True)
    return [[after - before for before, after in zip(begin, end, strict=True)] for begin, end in pairs]


def estimate_project(compiled: Compiled, target: str, plugin: Path, sample: Sequence[np.ndarray] | None = None) -> list[Observed]:
    """The estimated cycles of the layers of a network, for this sample, or for a random one."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "project"
        compiled.write(folder)
        entry = select_network(read_manifest(folder))
        (folder / "build" / "count").mkdir(parents=True)
        samples = [sample] if sample is not None else random_samples(entry["inputs"])[0][:1]
        write_samples(folder / "build" / "count" / "inputs.bin", entry, samples)
        counts = count_layers(folder, plugin)
    cycles = CYCLES[target]
    weights = [cycles.get(kind, float(kind not in ("register", "taken"))) for kind in KINDS]
    layers = [round(sum(w * n for w, n in zip(weights, layer, strict=True))) for layer in counts]
    names = [call.name for call in compiled.plan.program.calls]
    return observe_layers(compiled.plan, list(zip(names, layers, strict=True)))


def build_cases(kernel: Kernel, target: Target) -> tuple[Compiled, list[np.ndarray]]:
    """A network with one layer for every random node that the kernel accepts, and its inputs."""
    inputs: dict[Tensor, np.ndarray] = {}
    outputs: list[Tensor] = []
    for number, case in enumerate(draw_cases(kernel, CASES)):
        tensors = tuple(t and Tensor(f"{t.name}_{number}", t.shape, t.dtype, t.data, t.narrow) for t in case.node.inputs)
        results = tuple(Tensor(f"{t.name}_{number}", t.shape, t.dtype) for t in case.node.outputs)
        node = Node(f"case_{number}", case.node.op, tensors, results, case.node.attrs)
        inputs |= {t: value for t, value in zip(node.operands, case.inputs.values(), strict=True) if t.data is None}
        outputs += node.outputs
    graph = Graph("network", tuple(inputs), tuple(outputs))
    machine = machine_of(target, Options())
    plan = make_plan(assemble_program("network", graph, [kernel]), target, machine)
    sources, results = describe_ports(graph, True, {})
    return Compiled({"network": Network(plan, kernel.name, tuple(sources), tuple(results), True, ())}, {}), list(inputs.values())


def estimate_target(name: str, plugin: Path, only: str) -> dict[str, list[Observed]]:
    """The layers of every network that compiles for the target, and of random nodes for the kernels that no network has."""
    target, networks = replace(load_target(name), timing=None), dict[str, list[Observed]]()

    def add(of: str, make: Callable[[], tuple[Compiled, Sequence[np.ndarray] | None]]) -> None:
        try:
            compiled, sample = make()
            networks[of] = estimate_project(compiled, name, plugin, sample)
        except (DeeployError, subprocess.SubprocessError) as error:
            print(f"left out: {of}: {str(error).splitlines()[0]}", flush=True)

    for model in list_models():
        of = str(model.parent.relative_to(MODELS))
        if only in of:
            add(of, lambda model=model: (compile_networks({"network": model}, target, Options()), None))
    seen = {layer.kernel for layers in networks.values() for layer in layers}
    for kernel in () if only else target.kernels:
        if kernel.name not in seen:
            add(f"kernel {kernel.name}", lambda kernel=kernel: build_cases(kernel, target))
    return networks


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", default=list(CYCLES), help=", ".join(CYCLES))
    parser.add_argument("--write", action="store_true", help="put the rates into the target's timing.toml")
    parser.add_argument("--only", default="", metavar="TEXT", help="networks whose path has this text")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        plugin = Path(scratch) / "count.so"
        subprocess.run(["gcc", "-O2", "-shared", "-fPIC", str(ROOT / "benchmarks/qemu/count.c"), "-o", str(plugin)], check=True)
        for target in options.targets:
            networks = estimate_target(target, plugin, options.only)
            rows, rates = [], fit_rates([layer for layers in networks.values() for layer in layers])
            for name, layers in networks.items():
                others = [layer for other, some in networks.items() if other != name for layer in some]
                is_known = {layer.kernel for layer in layers} <= {layer.kernel for layer in others}
                cycles = max(1, sum(layer.cycles for layer in layers))
                errors = [f"{sum(predict_layer(r, layer) for layer in layers) / cycles - 1:+.1%}" for r in (rates, fit_rates(others))]
                rows.append((name, f"{cycles:,}".replace(",", " "), errors[0], errors[1] if is_known else "-"))
            heads = (target, "cycles", "by all rates", "by those of the others")
            print("\n".join(table(heads, rows)), flush=True)
            record(**{target: {name: sum(layer.cycles for layer in layers) for name, layers in networks.items()}})
            if options.write:
                clock, whose = CLOCKS[target]
                place = f"instructions under QEMU times the cycles of the manual, at the clock of {whose}"
                text = write_rates(load_target(target), rates, place, clock, is_estimate=True)
                (ROOT / "targets" / target / "timing.toml").write_text(text)
                replace_table(PAGE, target, table(heads, [row for row in rows if not row[0].startswith("kernel ")]))
