"""Certificates of all networks of a folder, for `generic`, and for 1, 2 and 8 chips of Siracusa: what they hold, and how long they take.

A row has what was proved: elements of outputs, layers of which all integers are known to fit, and those that are not; then CPU seconds of
everything, and the share of the proof. The folder is shared/models beside the repository unless another one is given.

    make bench NAME='certificates [--only TEXT] [--each N] [FOLDER]'
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path

import deeploy
from benchmarks.common import MODELS, Table
from benchmarks.models import settings
from deeploy.certify import CertificateError
from deeploy.errors import DeeployError
from deeploy.schemas import CERTIFICATE

MACHINES = (("generic", 1), ("siracusa", 1), ("siracusa", 2), ("siracusa", 8))
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


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, default=MODELS)
    parser.add_argument("--only", default="", metavar="TEXT", help="networks whose path has this")
    parser.add_argument("--each", type=int, default=1, metavar="N", help="each N-th network")
    given = parser.parse_args(words)
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
