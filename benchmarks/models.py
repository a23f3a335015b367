"""Real models, each as it is and, where it is of floats, in 8 bits: whether they compile and agree, how fast they are, what they need.

A model is a folder with ``network.onnx``, stacked samples ``inputs.npz`` and, where they apply, ``dims.json`` (extents of symbolic
dimensions), ``pin.json`` (values of inputs) and ``calib.npz`` (samples to quantise with). What is compared is the C on the host with the
interpreter, every bit, and with onnxruntime. What does not fit Siracusa's L2 is tried with its constants in L3.

    make bench NAME='models [--write benchmarks/models.md] [FOLDER ...]'
"""

from __future__ import annotations

import argparse
import json
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import deeploy
from benchmarks.common import MODELS
from deeploy.driver.verify import verify_compiled
from deeploy.errors import DeeployError, FitError
from deeploy.jobs import in_order
from deeploy.planning.program import Role
from deeploy.quantization.static import quantize_model
from deeploy.report.text import format_number

HEAD = """# Real models

Written by `make bench NAME='models --write benchmarks/models.md'` from the models of a folder; not edited by hand.

Models from published packages and from five exporters, with two samples each. *agrees*: the C on the host equals the interpreter in every
bit, and onnxruntime by the rule of `deeploy verify`; *equals the interpreter*: onnxruntime cannot run the model. Cycles are predicted,
of one inference on Siracusa with N-EUREKA; memory is what the plan needs at most at one time, with the constants that lie there. On
`generic` constants are part of the program. Models of floats are quantised by `deeploy quantize` as well, with its defaults.
"""


@dataclass(frozen=True)
class Outcome:
    """What became of a model on a target.

    Attributes:
        status: a word of the page, or why it was refused.
        cycles: predicted; 0 where the target has no timing.
        memory: bytes by memory.
    """

    status: str
    cycles: int = 0
    memory: Mapping[str, int] | None = None


def settings(folder: Path) -> tuple[dict[str, int], dict[str, float]]:
    """Extents of symbolic dimensions, and values of inputs."""
    dims, pins = (json.loads(path.read_text()) if path.exists() else {} for path in (folder / "dims.json", folder / "pin.json"))
    return dims, pins


def tried(model: Path, folder: Path, target: str, dims: Mapping[str, int], pins: Mapping[str, float]) -> Outcome:
    """Compile a model, and compare its C on the samples."""
    where = ""
    try:
        try:
            compiled = deeploy.compile(model, target, dims=dims, pins=pins)
        except FitError:
            compiled = deeploy.compile(model, target, dims=dims, pins=pins, default_memory="L3")
            where = ", constants in L3"
        verdict = verify_compiled(compiled, model, folder / "inputs.npz")
    except DeeployError as error:
        return Outcome(f"refused: {error.what}")
    is_beside = any(against == "onnxruntime" for against, _ in verdict.comparisons)
    status = ("agrees" if is_beside else "equals the interpreter") if verdict.passed else "differs"
    network = compiled.network
    memory = {name: use.peak for name, use in network.plan.memory.items()}
    if target == "generic":
        memory["constants"] = sum(buffer.bytes for buffer in network.program.buffers.values() if buffer.role is Role.CONSTANT)
    return Outcome(status + where, round(network.predicted.cycles) if network.predicted is not None else 0, memory)


def forms(folder: Path, scratch: Path) -> dict[str, tuple[Path, bool]]:
    """The model as it is, and in 8 bits where there are samples to quantise it with; and whether it still has its dimensions."""
    found = {"as it is": (folder / "network.onnx", True)}
    if (folder / "calib.npz").exists():
        dims, pins = settings(folder)
        output = scratch / f"{folder.name}.onnx"
        quantize_model(folder / "network.onnx", folder / "calib.npz", output, dims=dims, pins=pins)
        found["int8"] = (output, False)
    return found


def rows(task: tuple[Path, Path]) -> list[str]:
    """The rows of a model: its folder, and one for files."""
    folder, scratch = task
    warnings.simplefilter("ignore")
    dims, pins = settings(folder)
    found = []
    for form, (model, is_open) in forms(folder, scratch).items():
        given = (dims, pins) if is_open else ({}, {})
        found.append(row(folder.name, form, {target: tried(model, folder, target, *given) for target in ("generic", "siracusa")}))
    return found


def row(name: str, form: str, outcomes: Mapping[str, Outcome]) -> str:
    generic, siracusa = outcomes["generic"], outcomes["siracusa"]
    sizes = [
        ", ".join(f"{level} {format_number(size)}" for level, size in (each.memory or {}).items() if size) for each in (generic, siracusa)
    ]
    cycles = format_number(siracusa.cycles) if siracusa.cycles else ""
    cells = (name, form, generic.status, sizes[0], siracusa.status, cycles, sizes[1])
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, help="file for the page that is published")
    parser.add_argument("folders", nargs="*", type=Path, help="of models; all that are shared by default")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    folders = options.folders or sorted(path for path in (MODELS / "real").iterdir() if path.is_dir())
    lines = [HEAD, "| model | form | generic | bytes | siracusa | cycles | bytes |", "|---|---|---|---|---|---|---|"]
    with tempfile.TemporaryDirectory() as scratch:
        for found in in_order(rows, [(folder, Path(scratch)) for folder in folders]):
            lines += found
            print("\n".join(found), flush=True)
    if options.write:
        options.write.write_text("\n".join(lines) + "\n")
