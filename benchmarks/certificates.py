"""Certificates of all networks of a folder, for `generic`, and for 1, 2 and 8 chips of Siracusa: what they hold, and how long they take.

A row has what was proved: elements of outputs, layers of which all integers are known to fit, and those that are not; then seconds of
everything, and of the proof. Two tables follow: networks by what became of them, and what is not proved, with how many layers.
The folder is shared/models beside the repository unless another one is given.

    make bench NAME='certificates [--only TEXT] [--each N] [--write] [FOLDER]'
    make bench NAME='certificates --cost REPEATS'

The second command compares `deeploy compile` of three networks with `--no-certify`: the least CPU seconds of so many new processes.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import deeploy
from benchmarks.common import MODELS, ROOT, Table, replace_table, table
from benchmarks.compile_time import Case, measured, stored_model
from benchmarks.models import settings
from deeploy.certify import CertificateError
from deeploy.errors import DeeployError
from deeploy.schemas import CERTIFICATE

PAGE = ROOT / "docs" / "trust.md"
MACHINES = (("generic", 1), ("siracusa", 1), ("siracusa", 2), ("siracusa", 8))
COSTS = (("mlperf_tiny/kws_int8_qdq_pc", "siracusa"), ("mlperf_tiny/ic_int8_qdq_pc", "generic"), ("hf/bert_tiny_int8", "siracusa"))
ADDED = 0.15  # seconds that a certificate may add at most, or a tenth
HEADS = (
    "target",
    "chips",
    "networks",
    "certified",
    "all integers fit",
    "refused by the compiler",
    "failed",
    "layers",
    "not proved",
    "late",
)
_WHOLE = 60  # letters of a reason
_NUMBER = re.compile(r"-?\d+")


@dataclass(frozen=True)
class Row:
    """What became of a network on a machine.

    Attributes:
        elements: of outputs that are proved; None without a certificate, for the ``reason``.
        layers: of integers; ``failures`` are reasons why some are not proved, ``others`` operators of floats and moves.
        seconds: for all, and for the certificate.
    """

    target: str
    chips: int
    reason: str = ""
    elements: int | None = None
    layers: int = 0
    failures: Sequence[str] = ()
    others: Sequence[str] = ()
    seconds: tuple[float, float] = (0, 0)

    @property
    def is_failed(self) -> bool:
        return self.reason.startswith("FAILED")

    @property
    def is_late(self) -> bool:
        """Whether the certificate takes more than a tenth, and more than ``ADDED`` seconds."""
        whole, proof = self.seconds
        return proof > max(ADDED, (whole - proof) / 10)

    @property
    def cells(self) -> list[str]:
        if self.elements is None:
            return [self.reason[:_WHOLE], "", "", "", ""]
        whole, proof = self.seconds
        proved = str(self.layers - len(self.failures))
        return [f"{self.elements} elements", proved, str(len(self.failures)), f"{whole:.2f}", f"{proof:.2f}"]


def certify(folder: Path, target: str, chips: int) -> Row:
    """Compile a network, and read its certificate."""
    (dims, pins), inputs = settings(folder), folder / "inputs.npz"
    options = {"dims": dims, "pins": pins} | ({"inputs": inputs} if inputs.exists() else {})
    start, seconds = time.perf_counter(), dict[str, float]()
    try:
        model = folder / "network.onnx"
        made = deeploy.compile(model, target, **options) if chips == 1 else deeploy.chips.compile(model, target, chips=chips, **options)
        told = json.loads(made.files(seconds)[CERTIFICATE])
    except CertificateError as error:
        return Row(target, chips, f"FAILED: {error}")
    except DeeployError as error:
        return Row(target, chips, str(error).splitlines()[0])
    layers, others = told["arithmetic"]["layers"], told["arithmetic"]["others"]
    failures = [_NUMBER.sub("N", layer["failure"]) for layer in layers if "failure" in layer]
    took = time.perf_counter() - start, seconds["certify"]
    return Row(target, chips, "", told["counts"]["elements"], len(layers), failures, others, took)


def summarise(rows: Sequence[Row], target: str, chips: int) -> list[str]:
    """The cells of a machine: how many networks, and layers, became what."""
    own = [row for row in rows if (row.target, row.chips) == (target, chips)]
    held = [row for row in own if row.elements is not None]
    failed = sum(row.is_failed for row in own)
    counts = [len(own), len(held), sum(not row.failures for row in held), len(own) - len(held) - failed, failed]
    counts += [sum(row.layers for row in held), sum(len(row.failures) for row in held), sum(row.is_late for row in held)]
    return [target, str(chips), *map(str, counts)]


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
    parser.add_argument("--write", action="store_true", help="put the table of machines into docs/trust.md")
    parser.add_argument("--cost", type=int, metavar="REPEATS", help="measure what certificates add to compile time instead")
    given = parser.parse_args(words)
    if given.cost:
        return int(measure_costs(given.cost) > 0)
    found = sorted(path.parent for path in given.folder.rglob("network.onnx") if given.only in str(path.parent.relative_to(given.folder)))
    layout = "{:<48} {:<9} {:>5}  {:<60} {:>6} {:>6} {:>7} {:>6}"
    printed, rows = Table(layout, "network", "target", "chips", "certified", "fit", "others", "s", "proof"), list[Row]()
    for folder in found[:: given.each]:
        for target, chips in MACHINES:
            rows.append(row := certify(folder, target, chips))
            printed.add(str(folder.relative_to(given.folder)), target, str(chips), *row.cells)
    print()
    summary = [summarise(rows, *machine) for machine in MACHINES]
    machines = Table("{:<9} {:>5} {:>8} {:>9} {:>16} {:>23} {:>6} {:>6} {:>10} {:>4}", *HEADS)
    for cells in summary:
        machines.add(*cells)
    print()
    reasons = Table("{:>6}  {}", "layers", "what is not proved, for which reason")
    for reason, count in Counter(failure for row in rows for failure in row.failures).most_common():
        reasons.add(str(count), reason)
    print("\nwithout integers that are computed:", ", ".join(sorted({name for row in rows for name in row.others})))
    if given.write:
        replace_table(PAGE, "certificates", table(HEADS, summary))
    return int(any(row.is_failed for row in rows))
