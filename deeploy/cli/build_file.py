"""``deeploy.toml``: the models and options of a compilation, which ``deeploy compile --config`` repeats; every project holds its own."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

from deeploy.cli.options import Choices
from deeploy.documents import Document, digest_of, read_document
from deeploy.schemas import BUILD
from deeploy.version import VERSION

_PATHS = ("inputs", "topology", "timing")


def write_build_file(models: Mapping[str, Path], choices: Choices, folder: Path) -> str:
    """The file's text, for a project in ``folder``; paths are relative to that."""
    lines = ["# Written by deeploy compile; deeploy compile --config FILE -o OUT does the same again.", f"version = {json.dumps(VERSION)}"]
    for f in fields(choices):
        value = getattr(choices, f.name)
        if value != f.default:
            lines.append(f"{f.name} = {json.dumps(_relative_path(value, folder) if isinstance(value, Path) else value)}")
    if Path(choices.target).is_dir():
        lines = [line for line in lines if not line.startswith("target =")]
        lines.append(f"target = {json.dumps(_relative_path(Path(choices.target), folder))}")
    lines += ["", "[models]", *(f"{prefix} = {json.dumps(_relative_path(path, folder))}" for prefix, path in models.items())]
    lines += ["", "[sha256]", *(f"{prefix} = {json.dumps(digest_of(path))}" for prefix, path in models.items())]
    return "\n".join(lines) + "\n"


def _relative_path(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix()


def read_build_file(file: Path) -> tuple[dict[str, Path], Choices, list[str]]:
    """The models and options of a file, and notes on models that are not what they were.

    Raises:
        UsageError: it cannot be read, or is not what its schema says.
    """
    build_file = read_document(file, BUILD)
    models = {prefix: file.parent / path for prefix, path in build_file["models"].items()}
    values = {name: value for name, value in build_file.items() if name not in ("models", "sha256", "version")}
    version = build_file.get("version", VERSION)
    notes = [] if version == VERSION else [f"{file.name} was written by version {version}, this is {VERSION}"]
    for prefix, digest in build_file.get("sha256", {}).items():
        if prefix in models and models[prefix].is_file() and digest_of(models[prefix]) != digest:
            notes.append(f"{models[prefix].name} is not the file that {file.name} was written for")
    return models, choices_of(values, file.parent), notes


def choices_of(values: Document, around: Path) -> Choices:
    """Options as such a file has them; their paths are relative to a folder."""
    given = {**values, **{name: around / values[name] for name in _PATHS if name in values}}
    if (around / given.get("target", "")).is_dir() and "/" in given.get("target", ""):
        given["target"] = str(around / given["target"])
    return Choices(**given)
