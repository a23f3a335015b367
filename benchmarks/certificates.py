"""Certificates of all networks of a folder, for `generic`, and for 1, 2 and 8 chips of Siracusa: what they hold, and how long they take.

A row has what was proved: elements of outputs, layers of which all integers are known to fit, and those that are not; then CPU seconds of
everything, and the share of the proof. The folder is shared/models beside the repository unless another one is given.

    make bench NAME='certificates [--only TEXT] [--each N] [FOLDER]'
    make bench NAME='certificates --cost REPEATS'

The second command compares `deeploy compile` of three networks with `--no-certify`: the least CPU seconds of so many new processes.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path

import deeploy
from benchmarks.common import MODELS, Table
from benchmarks.compile_time import Case, measured, stored_model
from benchmarks.models import settings
from deeploy.certify import CertificateError
from deeploy.errors import DeeployError
from deeploy.schemas import CERTIFICATE

MACHINES = (("generic", 1), ("siracusa", 1), ("siracusa", 2), ("siracusa", 8))
COSTS = (("mlperf_tiny/kws_int8_qdq_pc", "siracusa"), ("mlperf_tiny/ic_int8_qdq_pc", "generic"), ("hf/bert_tiny_int8", "siracusa"))
ADDED = 0.15  # seconds that a certificate may add at most, or a tenth
_WHOLE = 60  # letters of a reason


def certify(folder: Path, target: str, chips: int) -> list[str]:
    """The cells of a row."""
    (dims, pins), inputs = settings(folder), folder / "inputs.npz"
    options = {"dims": dims, "pins": pins} | ({"inputs": inputs} if inputs.exists() else {})
    start, seconds = time.process_time(), dict[str, float]()
    try:
        model = folder / "network.onnx"
        made = deeploy.compile(model, target, **options) if chips == 1 else deeploy.chips.compile(model, target, chips=chips, **options)
        told = json.loads(made.files(seconds)[CERTIFICATE])
    except CertificateError as error:
        return [f"FAILED: {error}"[:_WHOLE], "", "", "", ""]
    except DeeployError as error:
        return [str(error).splitlines()[0][:_WHOLE], "", "", "", ""]
    layers = told["arithmetic"]["layers"]
    unknown = sum("failure" in layer for layer in layers)
    took = time.process_time() - start
    elements = f"{told['counts']['elements']} elements"
    return [elements, str(len(layers) - unknown), str(unknown), f"{took:.2f}", f"{seconds['certify'] / took:.1%}"]


def measure_costs(repeats: int) -> int:
    """Print what certificates add to the time of the command; how often that is more than a tenth and more than ``ADDED`` seconds."""
    rows = Table("{:<34} {:<9} {:>9} {:>11} {:>7}", "network", "target", "CPU s", "without", "added")
    late = 0
    for path, target in COSTS:
        case = Case(path, stored_model(path), target, "", None)
        whole, without = (measured(case, repeats, 120, *options).seconds for options in ((), ("--no-certify",)))
        assert whole is not None and without is not None
        late += whole - without > max(ADDED, without / 10)
        rows.add(path, target, f"{whole:.2f}", f"{without:.2f}", f"{whole - without:.2f}")
    return late


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, default=MODELS)
    parser.add_argument("--only", default="", metavar="TEXT", help="networks whose path has this")
    parser.add_argument("--each", type=int, default=1, metavar="N", help="each N-th network")
    parser.add_argument("--cost", type=int, metavar="REPEATS", help="measure what certificates add to compile time instead")
    given = parser.parse_args(words)
    if given.cost:
        return int(measure_costs(given.cost) > 0)
    found = sorted(path.parent for path in given.folder.rglob("network.onnx") if given.only in str(path.parent.relative_to(given.folder)))
    rows = Table(
        "{:<48} {:<9} {:>5}  {:<60} {:>6} {:>6} {:>7} {:>6}", "network", "target", "chips", "certified", "fit", "others", "CPU s", "proof"
    )
    failed = 0
    for folder in found[:: given.each]:
        for target, chips in MACHINES:
            cells = certify(folder, target, chips)
            failed += cells[0].startswith("FAILED")
            rows.add(str(folder.relative_to(given.folder)), target, str(chips), *cells)
    return int(failed > 0)
