"""``certificate.json``: what it says of projects, and that ``deeploy certify`` names every file that is another one."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import deeploy
from deeploy.bringup import new
from deeploy.certify import ProofCounts
from deeploy.cli import app
from deeploy.documents import read_document
from deeploy.driver.certificate import ASSUMPTIONS, STATEMENT
from deeploy.schemas import CERTIFICATE, SCHEMAS
from deeploy.schemas.agree import value_agrees
from tests.certify.networks import NETWORKS
from tests.hal import hand_written

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def skeleton_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "mychip"
    new.write_skeleton(folder)
    return folder / "model.onnx"


def compile_project(model: Path, out: Path, *options: str) -> None:
    done = CliRunner().invoke(app, ["compile", str(model), "-t", "siracusa", "-o", str(out), *options])
    assert done.exit_code == 0, done.output


def certify(out: Path) -> tuple[int, dict[str, Any]]:
    done = CliRunner().invoke(app, ["certify", str(out), "--json"])
    return done.exit_code, json.loads(done.stdout)


def plain(text: str) -> str:
    """The words of a page without links and marks."""
    return " ".join(re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text).replace("`", "").split())


def test_the_page_says_what_certificates_say() -> None:
    page = plain((ROOT / "docs/trust.md").read_text("utf-8"))
    listed = page.partition("What is assumed")[2]
    assert [item.strip() for item in listed.split("* ")[1:]] == list(ASSUMPTIONS)
    assert STATEMENT[0].lower() + STATEMENT[1:] in page


@pytest.mark.parametrize("options", [[], ["--chips", "2", "--partition", "pipeline"]], ids=["one chip", "two chips"])
def test_a_certificate_is_checked_and_not_rewritten(options: list[str], skeleton_model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    compile_project(skeleton_model, out, *options)
    assert value_agrees(json.loads((out / CERTIFICATE).read_text("utf-8")), SCHEMAS[CERTIFICATE], SCHEMAS[CERTIFICATE])
    told = read_document(out / CERTIFICATE, CERTIFICATE)
    assert all(hashlib.sha256((out / path).read_bytes()).hexdigest() == digest for path, digest in told["files"].items())
    assert {Path(path).suffix for path in told["files"]} >= {".c", ".h"}
    assert set(told["models"].values()) == {hashlib.sha256(skeleton_model.read_bytes()).hexdigest()}
    assert told["counts"]["networks"] == (2 if options else 1)
    assert told["counts"].keys() == {"networks", *(field.name for field in fields(ProofCounts))}
    assert min(told["counts"].values()) > 0
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert certify(out) == (0, {"certified": True, "failure": None, "changed": []})
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_what_was_changed_is_named(skeleton_model: Path, tmp_path: Path) -> None:
    own, out = tmp_path / "model.onnx", tmp_path / "out"
    own.write_bytes(skeleton_model.read_bytes())
    compile_project(own, out)
    files = json.loads((out / CERTIFICATE).read_text("utf-8"))["files"]
    for path in (next(p for p in files if p.startswith("kernels/")), "src/network.c"):
        content = (out / path).read_bytes()
        (out / path).write_bytes(content + b"\n")  # which means the same
        status, found = certify(out)
        assert (status, found["certified"], found["changed"]) == (1, False, [path])
        assert found["failure"].endswith(path), "nothing else is wrong"
        (out / path).write_bytes(content)
    own.write_bytes(own.read_bytes() + b"\x42\x00")  # an empty documentation string
    assert certify(out)[1]["changed"] == ["model.onnx of network"]


def test_without_certificate_there_is_no_file_and_the_proof_alone(skeleton_model: Path, tmp_path: Path) -> None:
    compile_project(skeleton_model, tmp_path / "out", "--no-certify")
    assert not (tmp_path / "out" / CERTIFICATE).exists()
    assert certify(tmp_path / "out") == (0, {"certified": True, "failure": None, "changed": []})


@pytest.mark.parametrize(
    ("name", "kernel", "reason"),
    [("sums", None, ""), ("staged", None, ""), ("attention", "pulp_softmax", "divides"), ("doubled", "unary", "floats")],
)
def test_kernels_whose_time_depends_on_data_are_listed(name: str, kernel: str | None, reason: str, tmp_path: Path) -> None:
    compiled = {**NETWORKS, **hand_written.NETWORKS}[name](tmp_path)
    time = json.loads(compiled.files()[CERTIFICATE])["time"]
    assert time["is_constant"] == (not time["kernels"])
    found = {each["kernel"]: each for each in time["kernels"]}
    assert (kernel in found) == (kernel is not None)
    if kernel is None:
        assert time["is_constant"]
    else:
        assert reason in found[kernel]["reason"]
        assert set(found[kernel]["layers"]) == {call.name for call in compiled.network.program.calls if call.kernel.name == kernel}


@pytest.mark.parametrize(("target", "is_estimate"), [("siracusa", False), ("cortex_m4", True), ("generic", None)])
def test_time_has_the_predicted_cycles_and_their_origin(target: str, is_estimate: bool | None, skeleton_model: Path) -> None:
    files = deeploy.compile(skeleton_model, target).files()
    told, manifest = json.loads(files[CERTIFICATE]), json.loads(files["deploy.json"])
    predictions = told["time"]["predictions"]
    assert [(each["network"], each["cycles"], each["is_estimate"]) for each in predictions] == (
        [("network", manifest["cycles"], is_estimate)] if is_estimate is not None else []
    )
    assert all(each["provenance"].startswith("estimate") == is_estimate for each in predictions)
    assert ("sizes" in told) == ("sizes" in manifest)
    assert all(manifest["sizes"][name] == size for name, size in told.get("sizes", {}).items())
    assert value_agrees(told, SCHEMAS[CERTIFICATE], SCHEMAS[CERTIFICATE])


def test_certificates_of_equal_projects_are_equal(skeleton_model: Path, tmp_path: Path) -> None:
    texts = [deeploy.compile({"one": skeleton_model, "two": skeleton_model}, "siracusa").files()[CERTIFICATE] for _ in range(2)]
    assert texts[0] == texts[1]
    assert json.loads(texts[0])["counts"]["networks"] == 2
    assert len(json.loads(texts[0])["models"]) == 2
