"""Networks of sensors that stream: products, cycles and instructions of a call beside those of the window (docs/streams.md).

    make bench NAME='streams [--write] [--simulate]'

Networks have published structures, random weights of int8, and a hop of about a tenth of their window. Cycles are predicted for
Siracusa; instructions are counted on a Cortex-M4 under QEMU, where outputs have to equal the interpreter's. With ``--simulate``, cycles are
those of GVSoC instead, beside the predicted ones.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx

import deeploy
from benchmarks.common import MODELS, ROOT, record, replace_table, table
from benchmarks.microcontrollers import counted
from deeploy.backend.project import read_manifest
from deeploy.execution.runners.gvsoc import Gvsoc
from deeploy.execution.runners.runner import write_samples
from deeploy.execution.simulation.walk import walk_round
from deeploy.frontend.streaming import StreamedOutput
from deeploy.ir.types import DType
from tests.models import Net
from tests.streamed_networks import crnn, ecg, matchboxnet, quantise_network, silero, tc_resnet, wake_word

WAKE_WORD = deeploy.AudioFeatures(length=1024, step=512, points=1024, mels=40)  # of MLPerf Tiny: 64 ms of sound every 32
KEYWORDS = MODELS / "mlperf_tiny" / "kws_int8_qdq_pc" / "network.onnx"
HEADS = (
    *("network", "window", "hop", "lag", "products of a call", "of the least", "of the window"),
    *("Siracusa, cycles", "window", "ratio", "Cortex-M4, instructions", "window", "ratio", "RAM, bytes", "states", "and at once", "window"),
)
SIMULATED = ("network", "cycles of a call on GVSoC", "predicted", "of the window", "predicted", "ratio")


def list_networks(folder: Path) -> dict[str, tuple[Path, str]]:
    """Models in int8 by name, and what streams."""
    networks: dict[str, Callable[[Net], list[str]]] = {
        "TC-ResNet8": lambda n: tc_resnet(n, 40, 100, (16, 24, 32, 48)),
        "MatchboxNet 3x1x64": lambda n: matchboxnet(n, 64, 128, 64, (13, 15, 17)),
        "ECG, dilated": lambda n: ecg(n, 256, 32, (1, 2, 4, 8)),
        "TC-ResNet8, each column": lambda n: tc_resnet(n, 40, 100, (16, 24, 32, 48)),
        "CRNN": lambda n: crnn(n, 40, 100, 32, 64),
        "Voice detector, as Silero's": lambda n: silero(n, 5120, 256, 64, 64),
    }
    hops = {"TC-ResNet8": 8, "MatchboxNet 3x1x64": 12, "ECG, dilated": 24, "TC-ResNet8, each column": 1, "CRNN": 10}
    hops["Voice detector, as Silero's"] = 512
    found = {"DS-CNN (MLPerf Tiny)": (KEYWORDS, "input_1.1=4")} if KEYWORDS.is_file() else {}
    for name, build in networks.items():
        n, path = Net(), folder / f"{name.replace(' ', '_')}.onnx"
        quantised = quantise_network(n.save(path, *build(n)), path.with_suffix(".int8.onnx"))
        found[name] = quantised, f"x0.2={hops[name]}"
    n, path = Net(), folder / "wake_word.onnx"
    words = quantise_network(n.save(path, *wake_word(n, 40, (128, 128, 128, 32))), folder / "wake_word.int8.onnx")
    onnx.save(deeploy.frontend_audio(words, WAKE_WORD), path)
    return {**found, "Wake word (MLPerf Tiny)": (words, "x0.2=1"), "Wake word, from sound": (path, f"audio.1={WAKE_WORD.step}")}


def count_instructions(compiled: deeploy.Compiled, folder: Path, plugin: Path, calls: int, last: int = 1) -> int:
    """Instructions of an inference in the mean of the ``last`` ones of so many in a sequence under QEMU.

    Raises:
        AssertionError: their outputs differ from the interpreter's.
    """
    compiled.write(folder)
    manifest, rng = read_manifest(folder), np.random.default_rng(0)
    samples = [[rng.normal(size=port["shape"]).astype(np.float32) for port in manifest["inputs"]] for _ in range(calls)]
    work, totals = folder / "build" / "count", list[int]()
    work.mkdir(parents=True)
    for given in (samples, samples[:-last]) if calls > 1 else (samples,):
        write_samples(work / "inputs.bin", manifest, given)
        totals.append(sum(count for count, _ in counted(folder, plugin, "-DSEQUENCE" if calls > 1 else "")))
        outputs = [y for call in compiled.references(given, calls > 1) for y in zip(call, manifest["outputs"], strict=True)]
        expected = b"".join(np.asarray(y, DType(port["type"]).numpy).tobytes() for y, port in outputs)
        assert (work / "outputs.bin").read_bytes() == expected, folder.name
    return round((totals[0] - sum(totals[1:])) / last)


def measure_network(name: str, model: Path, stream: str, folder: Path, plugin: Path) -> tuple[str, ...]:
    """A row of the table."""
    cycles, instructions, arenas, states, at_once = list[float](), list[int](), list[int](), 0, 0
    facts = None
    for kind, given in (("call", stream), ("window", None)):
        cycles.append(walk_round(deeploy.compile(model, "siracusa", stream=given, certify=False).plan)[0])
        compiled, calls, last = deeploy.compile(model, "cortex_m4", stream=given, certify=False), 1, 1
        if compiled.network.streamed is not None:
            program, facts = compiled.network.program, compiled.network.streamed.stream
            states = sum(program.buffers[state.buffer].bytes for state in program.states)
            at_once, last = compiled.memory["RAM"].lower_bound - states, program.period
            calls = last + -(-(1 + max(output.delay for output in facts.outputs) // facts.hop) // last) * last
        instructions.append(count_instructions(compiled, folder / f"{model.stem}_{kind}", plugin, calls, last))
        arenas.append(compiled.memory["RAM"].peak)
    assert facts is not None
    lag = max(output.delay for output in facts.outputs)
    least, window = facts.products / facts.least_products, facts.window_products / facts.products
    record(**{name: {"cycles": cycles, "instructions": instructions, "arena": arenas, "states": states, "products": facts.products}})
    sizes = (facts.window, facts.hop, lag, facts.products)
    figures = (*(round(c) for c in cycles), f"{cycles[1] / cycles[0]:.1f}", *instructions, f"{instructions[1] / instructions[0]:.1f}")
    cells = (*sizes, f"{least:.2f}", f"1 / {window:.1f}", *figures, arenas[0], states, at_once, arenas[1])
    return (name, *(f"{cell:,}".replace(",", " ") if isinstance(cell, int) else str(cell) for cell in cells))


def streamed_outputs(compiled: deeploy.Compiled) -> Sequence[StreamedOutput]:
    """How the outputs of a network follow its stream."""
    assert compiled.network.streamed is not None
    return compiled.network.streamed.stream.outputs


def simulate_network(name: str, model: Path, stream: str, folder: Path) -> tuple[str, ...]:
    """A row of the table of simulated cycles: means of calls behind the first ones.

    Raises:
        AssertionError: outputs differ from the interpreter's.
    """
    cycles, rng = list[float](), np.random.default_rng(0)
    for kind, given in (("call", stream), ("window", None)):
        compiled, project = deeploy.compile(model, "siracusa", stream=given, certify=False), folder / f"{model.stem}_{kind}"
        compiled.write(project)
        program, manifest = compiled.network.program, read_manifest(project)
        calls = program.period + max(call.first or 1 for call in program.calls)
        samples = [[rng.normal(size=port["shape"]).astype(np.float32) for port in manifest["inputs"]] for _ in range(calls)]
        ran, expected = Gvsoc(has_layers=False).run(project, manifest, samples, sequence=True), compiled.references(samples, True)
        new = 0 if given is None else max(output.calls for output in streamed_outputs(compiled)) - 1  # before that nothing is written
        assert all(np.array_equal(got[new:], np.stack([y[i] for y in expected[new:]])) for i, got in enumerate(ran.outputs)), name
        cycles += [float(np.mean(ran.cycles[-program.period :])), walk_round(compiled.plan)[0]]
    record(**{name: {"simulated": cycles[::2], "predicted": cycles[1::2]}})
    return (name, *(f"{round(count):,}".replace(",", " ") for count in cycles), f"{cycles[2] / cycles[0]:.1f}")


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help="networks whose names begin with this")
    parser.add_argument("--write", action="store_true", help="put the table into benchmarks/README.md")
    parser.add_argument("--simulate", action="store_true", help="cycles of GVSoC")
    given = parser.parse_args(arguments)
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        plugin = Path(scratch) / "count.so"
        subprocess.run(["gcc", "-O2", "-shared", "-fPIC", str(ROOT / "benchmarks" / "qemu" / "count.c"), "-o", str(plugin)], check=True)
        networks = {name: found for name, found in list_networks(Path(scratch)).items() if name.startswith(given.only or "")}
        for name, (model, stream) in networks.items():
            if given.simulate:
                rows.append(simulate_network(name, model, stream, Path(scratch)))
            else:
                rows.append(measure_network(name, model, stream, Path(scratch), plugin))
            print(*rows[-1], sep=" | ", flush=True)
    if given.write and not given.only:
        kind, heads = ("simulated-streams", SIMULATED) if given.simulate else ("streams", HEADS)
        replace_table(ROOT / "benchmarks" / "README.md", kind, table(heads, rows))
