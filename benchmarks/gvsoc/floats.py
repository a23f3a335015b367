"""Share of the peak of a cluster with packed floats that its kernels reach on GVSoC: float32, data in L1, eight cores.

    make bench NAME='gvsoc/floats [--target NAME|FOLDER] [PART OF A NAME ...]'

The peak is one instruction of two floats for every core and cycle. Counted are those that the arithmetic needs: one for two
multiply-accumulates; per pair of a layer norm 7, of a softmax 20. Fork and join are part of the cycles. Printed are the second run
and the fifth: a cache that replaces lines at random does not hold all instructions after one run. Exit
status 1 when a result differs from the references by more than 1e-5 of the largest one, or nothing can be simulated.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.common import Table
from benchmarks.gvsoc import cases
from benchmarks.gvsoc.families import _biased, floats
from benchmarks.gvsoc.layer import Case, SimulationError, build, compiled, expected, simulate, write_forked
from deeploy.target import Target, load

SNITCH = Path(__file__).resolve().parents[2] / "examples" / "targets" / "snitch" / "deeploy_snitch"
CORES, TOLERANCE, RUNS = 8, 1e-5, 5
COLUMNS = "{:<58}{:<26}{:>10}{:>12}{:>10}{:>12}"


def _rows(op: str, shape: tuple[int, int], **attrs: object) -> Case:
    rng = np.random.default_rng(5)
    names = ("scale", "offset") if op == "Normalise" else ()
    operands = {"x": rng.normal(0, 2, shape).astype(np.float32), **{name: rng.normal(size=shape[1]).astype(np.float32) for name in names}}
    return Case(f"{op} {shape[0]}x{shape[1]}", op, ("x",), operands, "f32", attrs)


def figures() -> list[tuple[Case, float]]:
    """Cases, and instructions of two floats per output beside those of multiply-accumulates."""
    matmuls = floats([(64, 64, 64), (64, 256, 64)], lambda shape, form: cases.matmul(*shape, form))
    images = ((18, 18, 16, 32, 3), (16, 16, 32, 32, 1))
    convolutions = floats(images, lambda s, form: cases.conv(s[:3], s[3], (s[4], s[4]), 1, 0, form))
    depthwise = floats([(18, 18, 64)], lambda s, form: cases.conv(s, s[2], (3, 3), 1, 0, form, group=s[2]))
    products = [*matmuls, *convolutions, *(_biased(case) for case in convolutions), *depthwise]
    norm = {"centred": True, "epsilon": 1e-5}
    return [
        *((case, 0.0) for case in products),
        *((_rows("Normalise", shape, **norm), 3.5) for shape in ((64, 128), (64, 256))),
        *((_rows("Softmax", shape), 10.0) for shape in ((64, 128), (64, 256))),
    ]


def measure(case: Case, target: Target) -> tuple[str, list[int], float]:
    """The kernel, cycles of the team in every run, and multiply-accumulates.

    Raises:
        SimulationError: no simulator, or a result that differs.
    """
    wanted = expected(case, target)
    layer = compiled(case, target, wanted.shape, CORES)
    call = next(c for c in layer.networks["network"].plan.program.calls if c.node.op == case.op)
    with tempfile.TemporaryDirectory(prefix="deeploy-gvsoc-") as scratch:
        project, work = Path(scratch) / "project", Path(scratch) / "work"
        write_forked(layer, project)
        program = build(project, work, target)
        (work / "inputs.bin").write_bytes(RUNS * b"".join(case.operands[name].tobytes() for name in case.variables))
        (work / "weights.bin").write_bytes((project / "network_weights.bin").read_bytes())
        lines = simulate(program, work, target)
        got = np.frombuffer((work / "outputs.bin").read_bytes(), wanted.dtype).reshape(RUNS, *wanted.shape)
    if np.abs(got - wanted).max() > TOLERANCE * np.abs(wanted).max():
        raise SimulationError(f"{case.name}: worst difference {np.abs(got - wanted).max():g}")
    cycles = [int(line.split()[2]) for line in lines if line.startswith("fork ")]
    return call.kernel.name, cycles, call.geometry.macs() if case.op in ("MatMul", "Conv") else 0


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--target", default=str(SNITCH), metavar="NAME|FOLDER")
    given = parser.parse_args(arguments)
    target, failed = load(given.target), False
    columns = Table(COLUMNS, "case", "kernel", "second", "of the peak", "fifth", "its share")
    for case, per_output in figures():
        if given.words and not any(word in case.name for word in given.words):
            continue
        try:
            kernel, cycles, macs = measure(case, target)
        except SimulationError as error:
            print(f"{case.name}: {error}", file=sys.stderr)
            failed = True
            continue
        instructions = macs / 2 + per_output * case.operands[case.variables[0]].size
        shares = [f"{instructions / run / CORES:.1%}" for run in cycles]
        columns.add(case.name, kernel, cycles[1], shares[1], cycles[-1], shares[-1])
    return int(failed)
