"""``deeploy.toml``: the models and options of a compilation, which ``deeploy compile --config`` repeats; every project holds its own."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from deeploy import schemas
from deeploy.documents import Contents, Document, digest_of, read_document
from deeploy.options import Options, list_options
from deeploy.schemas import BUILD, SCHEMAS
from deeploy.version import VERSION


def write_build_file(models: Mapping[str, Path], options: Options, folder: Path) -> str:
    """The file's text, for a project in ``folder``; paths are relative to that."""
    lines = ["# Written by deeploy compile; deeploy compile --config FILE -o OUT does the same again.", f"version = {json.dumps(VERSION)}"]
    given = options.given()
    for option in (option for option in list_options() if option.field in given):
        is_path = option.kind == "path" or (option.field == "target" and Path(str(options.target)).is_dir())
        value = _relative_path(Path(given[option.field]), folder) if is_path else option.spell(given[option.field])
        lines.append(f"{option.key} = {json.dumps(value)}")
    lines += ["", "[models]", *(f"{prefix} = {json.dumps(_relative_path(path, folder))}" for prefix, path in models.items())]
    lines += ["", "[sha256]", *(f"{prefix} = {json.dumps(digest_of(path))}" for prefix, path in models.items())]
    return "\n".join(lines) + "\n"


def _relative_path(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix()


def read_build_file(file: Path) -> tuple[dict[str, Path], Options, list[str]]:
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
    return models, read_options(values, file.parent), notes


def read_options(values: Document, around: Path) -> Options:
    """Options as such a file has them; their paths are relative to a folder.

    Raises:
        UsageError: a text says no value of its option.
    """
    given = {option.field: option.parse(values[option.key]) for option in list_options() if option.key in values}
    paths = [option.field for option in list_options() if option.kind == "path" and option.key in values]
    if "/" in str(given.get("target", "")) and (around / given["target"]).is_dir():
        given["target"] = str(around / given["target"])
    return Options(**given | {name: around / given[name] for name in paths})


def build_schema() -> Contents:
    """The schema of such files: what is in the one at hand of models, and the options as they are stated now."""
    text: Contents = {"type": "string", "minLength": 1, "maxLength": 4096}
    kinds: Mapping[str, Contents] = {
        "pairs": {"type": "array", "items": text, "maxItems": 4096},
        "switch": {"type": "boolean"},
        "int": {"type": "integer", "minimum": 0, "maximum": 2**62},
        "float": {"type": "number", "minimum": 0, "maximum": 1e9},
    }
    properties = {name: entry for name, entry in SCHEMAS[BUILD]["properties"].items() if name in ("version", "models", "sha256")}
    for option in list_options():
        words: Contents = {"enum": list(option.choices)} if option.choices else {}
        properties[option.key] = {**kinds.get(option.kind, text), **words, "description": option.spelling.help}
    return {**SCHEMAS[BUILD], "properties": properties}


def write_schema() -> None:
    """Write the schema of such files into the package, where options were changed."""
    place = Path(str(schemas.__file__)).parent / "deeploy.schema.json"
    place.write_text(json.dumps(build_schema(), indent=1) + "\n", encoding="utf-8")
