"""JSON Schemas of every file that is read or written by hand: timing, topologies, devices and accelerators in TOML, and ``deploy.json``.

Editors take them by path, from the folder of this module. The loaders say more than a schema can.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MANIFEST = "deploy.json"
_FILES = {MANIFEST: "deploy", "timing.toml": "timing", "topology.toml": "topology", "hardware.toml": "hardware", "device.toml": "device"}

SCHEMAS: Mapping[str, Mapping[str, Any]] = {
    name: json.loads((Path(__file__).parent / f"{stem}.schema.json").read_text()) for name, stem in _FILES.items()
}
