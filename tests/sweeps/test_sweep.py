"""Sweeps: the same table whatever runs the cells, goes on where it stopped, and has a row for what fails."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from onnx import helper, numpy_helper

import deeploy
from deeploy.errors import UsageError
from deeploy.jobs import workers
from deeploy.sweeps import matrix, table
from deeploy.sweeps.run import run_sweep
from tests.models import save_graph
from tests.report.browser import shown

ROOT = Path(__file__).resolve().parents[2]
TABLES = ("table.json", "table.csv", "table.parquet", "sweep.html")
SWEEP = """
[models.small]
file = "small.onnx"
[models.absent]
file = "absent.onnx"
[[matrix]]
target = ["siracusa"]
l1 = ["64k", 100, 4]
chips = [1, 2]
[[matrix]]
target = ["generic"]
objective = ["cycles", "ram"]
"""


def save_product(path: Path, columns: int = 8) -> np.ndarray:
    """A float product with a matrix, which is returned."""
    weight = np.random.default_rng(0).normal(size=(4, columns)).astype(np.float32)
    node = helper.make_node("MatMul", ["x", "w"], ["y"], "product")
    ends = [helper.make_tensor_value_info(name, 1, [1, size]) for name, size in (("x", 4), ("y", columns))]
    graph = helper.make_graph([node], "g", ends[:1], ends[1:], [numpy_helper.from_array(weight, "w")])
    save_graph(graph, path)
    return weight


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a sweep's file and networks, with the result of one process in ``one``."""
    found = tmp_path_factory.mktemp("sweep")
    save_product(found / "small.onnx")
    (found / "sweep.toml").write_text(SWEEP)
    run_sweep(found / "sweep.toml", found / "one")
    return found


def tables(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in TABLES}


def test_two_processes_make_the_same_table(folder: Path, tmp_path: Path) -> None:
    with workers(2):
        rows = run_sweep(folder / "sweep.toml", tmp_path / "two")
    assert tables(tmp_path / "two") == tables(folder / "one")
    assert sorted(p.name for p in (tmp_path / "two" / "cells").iterdir()) == sorted(p.name for p in (folder / "one" / "cells").iterdir())
    assert json.loads((folder / "one" / "table.json").read_text())["rows"] == rows


def test_a_cluster_makes_the_same_table_though_a_worker_is_killed(folder: Path, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed", reason="the extra cluster is not installed")
    killed: list[int] = []
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster:

        def kill(text: str) -> None:
            if not text.startswith("0 of") and not killed:
                killed.append(cluster.workers[0].process.pid)
                os.kill(killed[0], signal.SIGKILL)

        with workers(scheduler=cluster.scheduler_address):
            run_sweep(folder / "sweep.toml", tmp_path / "dask", on_progress=kill)
    assert len(killed) == 1
    assert tables(tmp_path / "dask") == tables(folder / "one")


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGKILL])
def test_a_sweep_goes_on_where_it_was_stopped(number: signal.Signals, folder: Path, tmp_path: Path) -> None:
    out, cells = tmp_path / "out", tmp_path / "out" / "cells"
    code = "import signal; from deeploy.cli import main; signal.signal(signal.SIGINT, signal.default_int_handler); main()"
    command = [sys.executable, "-c", code, "sweep", str(folder / "sweep.toml"), "-o", str(out), "--jobs", "2"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        end = time.monotonic() + 120
        while not list(cells.glob("*.json")) and process.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        os.killpg(process.pid, number) if number == signal.SIGINT else process.kill()
        _, errors = process.communicate(timeout=60)
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    assert number != signal.SIGINT or errors == "stopped by SIGINT\n"
    whole = {path: path.stat().st_mtime_ns for path in cells.glob("*.json")}
    assert 0 < len(whole) < 16
    assert {json.loads(path.read_text())["status"] for path in whole} <= {"ok", "does not fit", "refused"}
    run_sweep(folder / "sweep.toml", out)
    assert tables(out) == tables(folder / "one")
    assert {path: path.stat().st_mtime_ns for path in whole} == whole


def test_what_fails_is_a_row(folder: Path) -> None:
    rows = json.loads((folder / "one" / "table.json").read_text())["rows"]
    assert [row["model"] for row in rows] == ["small"] * 8 + ["absent"] * 8
    of = {(row["model"], row["l1"], row["chips"], row["objective"]): row for row in rows}
    assert {row["status"] for row in rows[8:]} == {"refused"} and "there is no file" in rows[8]["message"]
    assert of["small", "4", "1", ""]["status"] == "does not fit" and of["small", "4", "1", ""]["report"] is None
    near, far = of["small", "100", "1", ""], of["small", "64k", "1", ""]
    assert near["cycles"] > far["cycles"] and near["ram"] < far["ram"]
    assert (folder / "one" / far["report"]).read_text().startswith("<!DOCTYPE html>")
    frame = pandas.read_csv(folder / "one" / "table.csv", keep_default_na=False)
    assert list(frame.columns) == list(rows[0])
    assert frame["cycles"].tolist()[0] == str(far["cycles"])


def test_parquet_holds_the_same(folder: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="the extra parquet is not installed")
    assert (
        parquet.read_table(folder / "one" / "table.parquet").to_pylist() == json.loads((folder / "one" / "table.json").read_text())["rows"]
    )


def test_what_decides_a_cell_is_looked_at(folder: Path, tmp_path: Path) -> None:
    """Another network of the same name is computed again, and what was changed by somebody; anything else is not."""
    save_product(tmp_path / "small.onnx")
    given = {
        "models": {"small": {"file": str(tmp_path / "small.onnx")}},
        "matrix": [{"target": ["generic"], "objective": ["cycles", "ram"]}],
    }
    out = tmp_path / "out"
    run_sweep(given, out)
    files = sorted((out / "cells").glob("*.json"))
    files[0].write_text('{"status": "ok"}')
    files[1].write_text(json.dumps({**json.loads(files[1].read_text()), "message": "kept"}))
    assert sorted(row["message"] for row in run_sweep(given, out)) == ["", "kept"]
    save_product(tmp_path / "small.onnx", 16)
    assert sorted(row["message"] for row in run_sweep(given, out)) == ["", ""]
    assert len(list((out / "cells").glob("*.json"))) == 4


def test_a_sweep_beside_another_one(folder: Path, tmp_path: Path) -> None:
    save_product(tmp_path / "small.onnx", 64)
    given = {**tomllib.loads(SWEEP), "models": {"small": {"file": str(tmp_path / "small.onnx")}}, "base": str(folder / "one")}
    rows = deeploy.sweep(given, tmp_path / "out").to_dict("records")
    before = json.loads((folder / "one" / "table.json").read_text())["rows"]
    first, old = rows[0], before[0]
    assert first["status_before"] == "ok" and first["cycles_change"] == first["cycles"] - old["cycles"] > 0
    assert json.loads((tmp_path / "out" / "table.json").read_text())["rows"][0]["flash_change"] == first["flash"] - old["flash"] > 0
    twice = [{**row, "l1": "64k"} for row in before[:2]]
    assert [row["status_before"] for row in table.compare_rows(twice, folder / "one", ["model", "form", "target", "l1"])] == [None, None]


def test_float_networks_are_quantised_once_for_each_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    weight = save_product(tmp_path / "small.onnx")
    inputs = np.random.default_rng(1).normal(size=(32, 1, 4)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=inputs)
    np.savez(tmp_path / "labels.npz", labels=(inputs[:, 0] @ weight).argmax(1))
    model = {"file": "small.onnx", "calibrate": "x.npz", "inputs": "x.npz", "labels": "labels.npz"}
    given = {"models": {"small": model}, "forms": {"int8": {}, "w4": {"weights": 4}}, "verify": True, "reports": False}
    monkeypatch.chdir(tmp_path)
    rows = run_sweep(given, tmp_path / "out")
    assert [(row["form"], row["status"], row["report"]) for row in rows] == [("int8", "ok", None), ("w4", "ok", None)]
    assert all(row["accuracy"] > 0.8 and row["verified"] in ("equal", "explained") for row in rows)
    assert len(list((tmp_path / "out" / "models").glob("*/small.onnx"))) == 2
    assert run_sweep(given, tmp_path / "out") == rows


def test_without_pandas_the_table_is_a_list(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    rows = deeploy.sweep(folder / "sweep.toml", folder / "one")
    assert rows == json.loads((folder / "one" / "table.json").read_text())["rows"]


def test_the_page_filters_and_shows_fronts(folder: Path, tmp_path: Path) -> None:
    page = (folder / "one" / "sweep.html").read_text()
    script = "document.querySelector('#count').dataset.told = document.querySelector('#count').textContent;"
    found = shown(page, tmp_path, script)
    assert [p.attributes["data-told"] for p in found.find("p", "data-told")] == ["16 of 16 cells, 5 on Pareto fronts"]
    assert len(found.find("circle", "cx")) == 4 and len(found.find("circle", "class")) == 3
    choose = "const s = document.querySelector('select[name=l1]'); s.value = '100'; s.dispatchEvent(new Event('change'));"
    found = shown(page, tmp_path, choose + script)
    assert [p.attributes["data-told"] for p in found.find("p", "data-told")] == ["4 of 16 cells, 2 on Pareto fronts"]


def test_texts_of_a_model_are_not_run() -> None:
    rows = [{"model": "</script><script>alert(1)</script>", "form": "", "status": "ok", "cycles": 1, "report": None}]
    assert "</script><script>alert" not in table.table_page(rows, ["model"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"matrix": [{"l1": [True]}]}, "the sweep: l1 is true, not a text"),
        ({"matrix": [{"speed": [1]}]}, "the sweep: speed is not a field"),
        ({"forms": {"x": {"weights": 5}}}, "forms.x.weights is 5, not one of 4, 8"),
        ({"models": {}}, "models has 0 entries"),
        ({"options": {"chips": 2.5}}, "chips is 2.5, not a text"),
        ({"matrix": [{"l1": [*range(2000)], "cores": [*range(2000)]}]}, "the sweep has 4000000 cells"),
        ({"matrix": [{"target": ["nowhere"]}]}, "there is no target nowhere"),
        ({"base": "nowhere"}, "there is no table of a sweep nowhere/table.json"),
    ],
)
def test_files_that_are_wrong(change: Mapping[str, Any], message: str, tmp_path: Path) -> None:
    given = {"models": {"small": {"file": "small.onnx"}}, **change}
    with pytest.raises(UsageError) as found:
        run_sweep(given, tmp_path / "out")
    assert message in found.value.what
    assert not (tmp_path / "out" / "table.json").exists()


def test_a_folder_of_something_else_is_left_alone(folder: Path) -> None:
    with pytest.raises(UsageError, match="holds no sweep"):
        run_sweep(folder / "sweep.toml", folder)
    assert len(matrix.read_matrix(folder / "sweep.toml").cells) == 16
