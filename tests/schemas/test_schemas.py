"""The schemas accept every file of the tree and refuse what is wrong; projects that are compiled agree with the one of ``deploy.json``."""

from __future__ import annotations

import copy
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import deeploy
from deeploy.bringup import new
from deeploy.schemas import MANIFEST, SCHEMAS

ROOT = Path(__file__).resolve().parents[2]
FILES = {
    "timing.toml": [p for p in (*ROOT.glob("targets/*/timing.toml"), *ROOT.glob("examples/targets/*/*/timing.toml")) if p.is_file()],
    "topology.toml": sorted(ROOT.glob("targets/*/topology.toml")),
    "device.toml": sorted(ROOT.glob("targets/*/device.toml")),
    "hardware.toml": [p for p in sorted(ROOT.glob("examples/hardware/*.toml")) if "memory" in tomllib.loads(p.read_text())],
}
_TYPES: Mapping[str, Any] = {
    **{"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)},
    **{"integer": int, "number": (int, float)},
}


def is_type(value: Any, name: str) -> bool:
    return isinstance(value, _TYPES[name]) and not (isinstance(value, bool) and name in ("integer", "number"))


def errors(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any], where: str = "") -> list[str]:
    """What is wrong with a value, for the part of JSON Schema that the files here use; any other word is an error of the schema."""
    known = {"$schema", "title", "description", "type", "properties", "required", "additionalProperties", "items", "minItems", "maxItems"}
    known |= {"minimum", "exclusiveMinimum", "minLength", "enum", "const", "if", "then", "else", "$ref", "$defs", "anyOf"}
    assert not schema.keys() - known, schema.keys() - known
    if "$ref" in schema:
        return errors(value, root["$defs"][schema["$ref"].rpartition("/")[2]], root, where)
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(is_type(value, kind) for kind in kinds):
        return [f"{where}: {value!r} is no {' or '.join(kinds)}"]
    found = [f"{where}: {value!r}"] * (("const" in schema and value != schema["const"]) or value not in schema.get("enum", [value]))
    found += [f"{where}: no {name}" for name in schema.get("required", ()) if name not in value]
    if isinstance(value, dict):
        rest = schema.get("additionalProperties", True)
        for name, inner in value.items():
            part = schema.get("properties", {}).get(name, rest)
            found += [f"{where}: {name} is unknown"] * (part is False)
            found += errors(inner, part, root, f"{where}.{name}") if isinstance(part, dict) else []
    if isinstance(value, list):
        found += [f"{where}: length"] * (not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)))
        found += [text for i, inner in enumerate(value) for text in errors(inner, schema.get("items", {}), root, f"{where}[{i}]")]
    if is_type(value, "number"):
        found += [f"{where}: {value} is too small"] * (
            value < schema.get("minimum", value) or value <= schema.get("exclusiveMinimum", value - 1)
        )
    found += [f"{where}: empty"] * (isinstance(value, str) and len(value) < schema.get("minLength", 0))
    if "if" in schema:
        holds = any(not errors(value, part, root, where) for part in schema["if"]["anyOf"])
        found += errors(value, schema["then" if holds else "else"], root, where)
    return found


@pytest.mark.parametrize("name", FILES)
def test_files_of_the_tree(name: str) -> None:
    assert FILES[name]
    for path in FILES[name]:
        assert errors(tomllib.loads(path.read_text()), SCHEMAS[name], SCHEMAS[name]) == [], path


@pytest.mark.parametrize("target", ["generic", "siracusa"])
def test_projects(target: str, tmp_path: Path) -> None:
    new.write(tmp_path / "mychip")
    model = tmp_path / "mychip" / "model.onnx"
    manifest = json.loads(str(deeploy.compile(model, target).files()[MANIFEST]))
    assert errors(manifest, SCHEMAS[MANIFEST], SCHEMAS[MANIFEST]) == []
    both = json.loads(str(deeploy.compile({"one": model, "two": model}, target).files()[MANIFEST]))
    assert len(both["networks"]) == 2 and errors(both, SCHEMAS[MANIFEST], SCHEMAS[MANIFEST]) == []
    for change in ({"cycles": "many"}, {"calls": None}, {"generator": "another"}, {"memory": {"L1": {}}}):
        assert errors({**manifest, **change}, SCHEMAS[MANIFEST], SCHEMAS[MANIFEST])


def test_what_is_refused() -> None:
    path = ROOT / "targets" / "siracusa" / "timing.toml"
    data = tomllib.loads(path.read_text())
    schema = SCHEMAS["timing.toml"]
    for table in ("engine", "path", "kernel"):
        broken = copy.deepcopy(data)
        next(iter(broken[table].values())).pop("provenance")
        assert [text for text in errors(broken, schema, schema) if "no provenance" in text]
    assert errors({**data, "machin": {}}, schema, schema)
    topology = SCHEMAS["topology.toml"]
    assert errors({"chip": [{"chip": 1, "memory": {"L2": 5}}]}, topology, topology) == []
    assert errors({"chip": [{"chip": 1, "speed": 5}]}, topology, topology) and errors({}, topology, topology)
    assert errors({**data, "path": {"L2_L1": {"issue": -1}}}, schema, schema)
