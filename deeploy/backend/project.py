"""Projects on disk: written whole or not at all, and never over a folder that is not ours."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deeploy.backend.describe import GENERATOR
from deeploy.errors import UsageError

MANIFEST = "deploy.json"


def check_destination(folder: Path) -> None:
    """Raise UsageError unless ``folder`` is absent, empty, or a project of ours."""
    if not folder.exists():
        ancestor = next(p for p in folder.resolve().parents if p.exists())
        if not ancestor.is_dir():
            raise UsageError(f"{folder} cannot be created: {ancestor} is not a folder", "Name another output folder (-o).")
        return
    if not folder.is_dir():
        raise UsageError(f"{folder} exists and is not a folder", "Name another output folder (-o).")
    if any(folder.iterdir()) and not _is_ours(folder):
        raise UsageError(f"{folder} exists and was not written by {GENERATOR}", "Name another output folder (-o), or empty this one.")


def _is_ours(folder: Path) -> bool:
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
    except (OSError, ValueError):
        return False
    return isinstance(manifest, dict) and manifest.get("generator") == GENERATOR


def write(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Put ``files`` in place of whatever project ``folder`` held before; a failure leaves the old one untouched."""
    check_destination(folder)
    folder = folder.resolve()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name[:40]}.", dir=folder.parent) as scratch:
        fresh = Path(scratch) / "new"
        for name, content in files.items():
            path = fresh / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        if folder.exists():
            folder.rename(Path(scratch) / "old")
        try:
            fresh.rename(folder)
        except OSError:
            if (Path(scratch) / "old").exists():
                (Path(scratch) / "old").rename(folder)
            raise


def read_manifest(folder: Path) -> dict[str, Any]:
    """The parsed ``deploy.json`` of a project.

    Raises:
        UsageError: ``folder`` is no project of ours.
    """
    if not folder.is_dir() or not _is_ours(folder):
        raise UsageError(
            f"{folder} is not a project written by {GENERATOR} (no usable {MANIFEST})", "Compile one first: deeploy compile ... -o OUT"
        )
    result: dict[str, Any] = json.loads((folder / MANIFEST).read_text())
    return result
