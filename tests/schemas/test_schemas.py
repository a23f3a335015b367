"""The schemas accept every file of the tree and every project; every field that is damaged in any way is refused, and named."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import deeploy
from deeploy.backend.project import read_manifest
from deeploy.bringup import new
from deeploy.cli import app
from deeploy.documents import check_document, read_document
from deeploy.errors import DeeployError, TargetError, UsageError
from deeploy.execution.runners.runner import gather_outputs, project_parts
from deeploy.schemas import KINDS, MANIFEST, PLAN, REASONS, SCHEMAS
from deeploy.schemas.agree import value_agrees

ROOT = Path(__file__).resolve().parents[2]
FILES = {
    "timing.toml": sorted((*ROOT.glob("targets/*/*timing.toml"), *ROOT.glob("examples/targets/*/*/timing.toml"))),
    "topology.toml": sorted(ROOT.glob("targets/*/topology.toml")),
    "device.toml": sorted(ROOT.glob("targets/*/device.toml")),
    "hardware.toml": sorted((*ROOT.glob("examples/hardware/*.toml"), ROOT / "tests/targets/unrolled/hardware.toml")),
    "array.toml": [ROOT / "tests/targets/unrolled/array.toml"],
    "layers.json": sorted(ROOT.glob("examples/layers/*.json")),
}
PAIRS = '[[pair]]\nchips = [0, 1]\nlink = "memory"\n[[chip]]\nchip = 1\nmemory = { L2 = 4096 }\ncores = 2\nengines = ["cluster"]\n'

Place = tuple[str | int, ...]


@pytest.mark.parametrize("kind", ["timing.toml", "topology.toml", "device.toml"])
def test_files_of_targets_agree_with_their_schemas_at_once(kind: str) -> None:
    """Without ``jsonschema``, whose import a compilation need not pay; what is damaged (below) is shown to it."""
    schema = SCHEMAS[kind]
    for file in FILES[kind]:
        text = file.read_text("utf-8")
        assert value_agrees(json.loads(text) if file.suffix == ".json" else tomllib.loads(text), schema, schema), file


@pytest.mark.slow
def test_targets_are_loaded_without_jsonschema() -> None:
    code = "import sys; from deeploy.driver.compile import load_target; load_target('siracusa'); sys.exit('jsonschema' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("value", "schema"),
    [
        (1, {"const": True}),
        (True, {"type": "integer"}),
        (True, {"type": "number"}),
        ([1], {"items": {"type": "string"}}),
        ({"a": 1}, {"dependentRequired": {"a": ["b"]}}),
        ([1, 1], {"prefixItems": [{"type": "string"}, {"type": "integer"}]}),
        (["a", 1, 2], {"prefixItems": [{"type": "string"}, {"type": "integer"}], "items": False}),
        ({"a": 1}, {"additionalProperties": False}),
        ({"a": 1}, {"properties": {"a": {"maximum": 0}}}),
        ({"a": 1}, {"if": {"required": ["a"]}, "then": {"required": ["b"]}}),
        ({"b": 1}, {"if": {"required": ["a"]}, "else": {"required": ["c"]}}),
        ([1, 1], {"uniqueItems": True}),  # a word that is not known: jsonschema decides
    ],
)
def test_what_may_be_wrong_does_not_agree_at_once(value: object, schema: dict[str, object]) -> None:
    assert not value_agrees(value, schema, schema)


@pytest.mark.parametrize("kind", FILES)
def test_files_of_the_tree(kind: str) -> None:
    assert FILES[kind]
    for path in FILES[kind]:
        assert read_document(path, kind)


@pytest.fixture(scope="module")
def projects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of every kind: flat, managed, several networks, chips, and a plan."""
    folder = tmp_path_factory.mktemp("projects")
    new.write_skeleton(folder / "mychip")
    model = folder / "mychip" / "model.onnx"
    deeploy.compile(model, "generic").write(folder / "flat")
    deeploy.compile(model, "siracusa").write(folder / "managed")
    deeploy.compile({"one": model, "two": model}, "siracusa").write(folder / "two")
    for name, target, more in (("chips", "siracusa", []), ("plan", "edgetpu", ["--balance", "parameters"])):
        arguments = ["compile", str(model), "-t", target, "-o", str(folder / name), "--chips", "2", "--partition", "pipeline", *more]
        assert CliRunner().invoke(app, arguments).exit_code == 0
    return folder


def test_projects(projects: Path) -> None:
    for name in ("flat", "managed", "two", "chips"):
        assert read_document(projects / name / MANIFEST, MANIFEST)
        assert value_agrees(json.loads((projects / name / MANIFEST).read_text("utf-8")), SCHEMAS[MANIFEST], SCHEMAS[MANIFEST]), name
        if name != "flat":
            assert read_document(projects / name / REASONS, REASONS)
    assert read_document(projects / "plan" / PLAN, PLAN)


def places(value: Any, schema: Any, root: Any, path: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Every place in a document with the schema that is about it, one entry of each list and table of alike entries."""
    while "$ref" in schema or "if" in schema:
        part = schema
        if "if" in schema:
            holds = all(name in value for name in schema["if"]["required"]) and len(value) <= schema["if"].get("maxProperties", len(value))
            part = schema["then" if holds else "else"]
            if not part or ("properties" in schema and "additionalProperties" in schema):
                break
        schema = root["$defs"][part["$ref"].rpartition("/")[2]] if "$ref" in part else part
    yield path, schema
    rest = schema.get("additionalProperties")
    if isinstance(value, dict):
        alike = [name for name in value if name not in schema.get("properties", {})][:1] if isinstance(rest, dict) else []
        for name in [*(name for name in value if name in schema.get("properties", {})), *alike]:
            yield from places(value[name], schema.get("properties", {}).get(name, rest), root, (*path, name))
    if isinstance(value, list) and value and "items" in schema:
        yield from places(value[0], schema["items"], root, (*path, 0))


def put(data: Any, path: Place, value: Any) -> Any:
    result = copy.deepcopy(data)
    inner = result
    for part in path[:-1]:
        inner = inner[part]
    inner[path[-1]] = value
    return result


def kinds_of(schema: Any) -> set[str]:
    kind = schema.get("type", [])
    if "const" in schema:
        return {"string" if isinstance(schema["const"], str) else "integer"}
    return {kind} if isinstance(kind, str) else set(kind)


WRONG: dict[str, Any] = {
    "string": "a text",
    "integer": -(10**40),
    "number": 0.5,
    "boolean": True,
    "array": [[]],
    "object": {"strange": {}},
    "null": None,
}


def damaged(data: Any, schema: Any) -> Iterator[tuple[Place, Any]]:
    """Documents with one place that the schema of the whole must refuse."""
    for path, part in places(data, schema, schema):
        if not path:
            continue
        kinds = kinds_of(part)
        assert kinds, path
        for name, value in WRONG.items():
            if name not in kinds and not (name == "integer" and "number" in kinds):
                yield path, put(data, path, value)
        if kinds & {"integer", "number"} and "const" not in part:
            for number in (
                part["maximum"] * 2 + 1,
                part.get("minimum", part.get("exclusiveMinimum")) - 1,
                float("inf"),
                float("nan"),
                1e300,
            ):
                yield path, put(data, path, number if "number" in kinds or not float(number).is_integer() else int(number))
        if kinds & {"object"}:
            assert part.get("additionalProperties") is not None, path
            if part["additionalProperties"] is False:
                for strange in ("strange", "\x1b[31m", "\udcff", "__proto__"):
                    yield (*path, strange), put(data, (*path, strange), 1)
            for name in part.get("required", ()):
                broken = put(data, path, {key: value for key, value in lookup(data, path).items() if key != name})
                yield (*path, name), broken
        if kinds & {"array"}:
            assert "maxItems" in part, path
    for name in data.keys() & set(schema.get("required", ())):
        yield (name,), {key: value for key, value in data.items() if key != name}
    yield ("strange",), {**data, "strange": 1}


def lookup(data: Any, path: Place) -> Any:
    for part in path:
        data = data[part]
    return data


def documents(projects: Path | None = None) -> list[tuple[str, Any]]:
    found = [(kind, read_document(files[0], kind)) for kind, files in FILES.items()]
    found.append(("topology.toml", tomllib.loads(FILES["topology.toml"][0].read_text() + PAIRS)))
    if projects is not None:
        found += [(MANIFEST, json.loads((projects / name / MANIFEST).read_text())) for name in ("managed", "two", "chips")]
        found += [(PLAN, json.loads((projects / "plan" / PLAN).read_text()))]
        found += [(REASONS, json.loads((projects / "managed" / REASONS).read_text()))]
    return found


def shortened(data: Any) -> Any:
    """A document with two entries of every list."""
    if isinstance(data, dict):
        return {name: shortened(value) for name, value in data.items()}
    return [shortened(value) for value in data[:2]] if isinstance(data, list) else data


def test_every_damaged_field_is_refused_and_named(projects: Path) -> None:
    tried = 0
    for kind, data in documents(projects):
        small = shortened(data)
        check_document(small, kind, "FILE")
        for path, broken in damaged(small, SCHEMAS[kind]):
            with pytest.raises(UsageError) as raised:
                check_document(broken, kind, "FILE")
            lines = str(raised.value).splitlines()
            assert len(lines) == 2 and lines[1] == KINDS[kind].remedy, (kind, path)
            assert lines[0].startswith("FILE: ") and lines[0].isprintable() and len(lines[0]) < 600, (kind, path)
            named = [str(part) for part in path[:6] if isinstance(part, str) and part.isidentifier()]
            assert not named or any(name in lines[0] for name in named[-2:]), (kind, path, lines[0])
            tried += 1
    assert tried > 3000


def share_out(folder: Path) -> None:
    """What a runner does with the ports of a project's chips before and after it runs them; refused where the file is."""
    try:
        manifest = read_manifest(folder)
    except UsageError:
        return
    sample = [np.zeros(()) for _ in manifest["inputs"]]
    shared = project_parts(folder, manifest, [sample])
    outputs = [[np.zeros(()) for _ in part.entry["outputs"]] for part in shared]
    assert len(gather_outputs(manifest, outputs)) == len(manifest["outputs"])


@pytest.mark.slow
def test_every_damaged_field_of_a_project_ends_in_two_lines(projects: Path, tmp_path: Path) -> None:
    """What the schema lets pass, as other names and other numbers in their range, is no reason for a traceback either."""
    runner = CliRunner()
    for name in ("managed", "chips"):
        whole = json.loads((projects / name / MANIFEST).read_text())
        data = shortened(whole)
        for path, part in places(data, SCHEMAS[MANIFEST], SCHEMAS[MANIFEST]):
            kinds = kinds_of(part) & {"string", "integer", "number", "null", "array", "object"}
            values = {"string": "strange", "integer": part.get("minimum"), "number": part.get("maximum"), "array": [], "object": {}}
            for kind in sorted(kinds) if path else ():
                (tmp_path / MANIFEST).write_text(json.dumps(put(data, path, values.get(kind))))
                (tmp_path / REASONS).write_text((projects / name / REASONS).read_text())
                for command in (["report", str(tmp_path)], ["explain", str(tmp_path), "nothing"]):
                    result = runner.invoke(app, command)
                    failure = result.exception
                    assert failure is None or isinstance(failure, DeeployError | SystemExit), (name, path, kind, command, failure)
                share_out(tmp_path)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (b"\xff\xfe[system]", "is not UTF-8 text (byte 0)"),
        (b"a = " + b"[" * 5000 + b"]" * 5000, "nests tables or lists more than 32 deep"),
        (b"a = " + b"[" * 100 + b"]" * 100, "nests tables or lists more than 32 deep"),
        (b"a = " + b"{b = " * 90 + b"1" + b"}" * 90, "nests tables or lists more than 32 deep"),
        (b".".join([b"a"] * 100_000) + b" = 1", ":1: the line has more than 200 dots"),
        (b"[" + b".".join([b"a"] * 100_000) + b"]", ":1: the line has more than 200 dots"),
        (b"a = 1\n" * 400_000, "has more than 1048576 bytes"),
        (b"a = 1\na = 2", "is not valid TOML"),
        (b"a = " + b"9" * 5000, "is not valid TOML"),
        (b"[system]\nports = 1e9", "system.ports is 1000000000.0, not a whole number"),
        (b"[system]\nports = 1000000000", "system.ports is 1000000000, more than 64"),
        (b"[system]\nqueue = inf", "system.queue is inf, not a finite number"),
        (b"[system]\nmhz = nan", "system.mhz is nan, not a finite number"),
        (b"[system]\nmhz = 2020-01-01", "system.mhz is a date or time, which no field is"),
        (b"\n\n[system]\nspeed = 4", ":3: system.speed is not a field; fields here: mhz, ports, queue, provenance"),
        (b"[strange]\nx = 4", ":1: strange is not a field; fields here: system, collectives, link, groups, pair, chip"),
        (
            b"[[pair]]\nchips = [0, 1]\nlink = 'a'\n[[pair]]\nchips = [0, 99999]\nlink = 'a'",
            ":4: pair[1].chips[1] is 99999, more than 4095",
        ),
    ],
)
def test_damaged_toml(tmp_path: Path, text: bytes, what: str) -> None:
    (tmp_path / "topology.toml").write_bytes(text)
    with pytest.raises(TargetError) as raised:
        read_document(tmp_path / "topology.toml", "topology.toml", TargetError)
    lines = str(raised.value).splitlines()
    assert len(lines) == 2 and f"{tmp_path}/topology.toml" in lines[0] and what in lines[0]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (b"[" * 5000 + b"]" * 5000, "nests tables or lists more than 32 deep"),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, "nests tables or lists more than 32 deep"),
        (b"[1]", "holds a list, not a table"),
        (b"", "is not valid JSON"),
        (b'{"schema": NaN}', "schema is nan, not a finite number"),
        (b'{"schema": 1e999}', "schema is inf, not a finite number"),
        (b'{"version": "\\ud800"}', "version is not Unicode text"),
        (b'{"\\ud800": 1}', "has the field \\ud800, which is not Unicode text"),
        (b'{"schema": ' + b"1" * 5000 + b"}", "is not valid JSON"),
    ],
)
def test_damaged_json(tmp_path: Path, text: bytes, what: str) -> None:
    (tmp_path / MANIFEST).write_bytes(text)
    with pytest.raises(UsageError) as raised:
        read_document(tmp_path / MANIFEST, MANIFEST)
    lines = str(raised.value).splitlines()
    assert len(lines) == 2 and lines[0].startswith(str(tmp_path / MANIFEST)) and what in lines[0]
