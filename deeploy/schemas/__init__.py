"""JSON Schemas of every file that is read: timing, topologies, devices, accelerators and their engines in TOML, lists of layers, and what
projects say of themselves in JSON.

``deeploy.documents`` validates with them, and editors take them by path, from the folder of this module.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GENERATOR = "deeploy"  # what projects say of who wrote them
SCHEMA = 1  # version of what projects say of themselves
MANIFEST = "deploy.json"
PLAN = "plan.json"  # of targets for which no code is made
REASONS = "explain.json"
CERTIFICATE = "certificate.json"
BUILD = "deeploy.toml"
SELF_TEST_END = re.compile(r"deeploy-test \w+ (?:end [^\r\n]+|failed \d+)\r?\n")  # the last line that a self-test prints on a device


@dataclass(frozen=True)
class FileKind:
    """A kind of file: what messages call it, and where to read on about it."""

    called: str
    remedy: str


_AGAIN = "Compile the project again: the file is written with it."

KINDS: Mapping[str, FileKind] = {
    MANIFEST: FileKind("project file", _AGAIN),
    PLAN: FileKind("plan", _AGAIN),
    REASONS: FileKind("file of explanations", _AGAIN),
    CERTIFICATE: FileKind("certificate", _AGAIN),
    BUILD: FileKind("build file", "docs/getting-started.md shows such a file; every project holds its own."),
    "timing.toml": FileKind("timing file", "Complete or correct the file; docs/targets.md lists what it holds."),
    "topology.toml": FileKind("topology file", "Correct the file; docs/chips.md lists what it holds."),
    "hardware.toml": FileKind("hardware file", "docs/exploration.md lists the fields; examples/hardware holds complete files."),
    "device.toml": FileKind("device file", "docs/segmentation.md lists what a device's file holds."),
    "array.toml": FileKind("engine description", "Write the file with: deeploy explore MODEL --hardware HW.toml --write-engine FILE"),
    "study.json": FileKind("result of a sweep", "Delete the file: the sweep computes it again."),
    "sweep.toml": FileKind("file of a sweep", "docs/sweep.md lists what it holds."),
    "cell.json": FileKind("cell of a sweep", "Delete the file: the sweep computes it again."),
    "table.json": FileKind("table of a sweep", "Name the folder (-o) of a sweep that has ended."),
    "layers.json": FileKind("list of layers", "Write the list again with benchmarks/exploration.py, or explore the ONNX model."),
}

SCHEMAS: Mapping[str, Mapping[str, Any]] = {
    name: json.loads((Path(__file__).parent / f"{name.partition('.')[0]}.schema.json").read_text("utf-8")) for name in KINDS
}
