"""The paper's four scenarios and what lies between them, as options: every output is right on the host model and on GVSoC.

Networks are those of benchmarks/gvsoc/dialect.py, which every checkout can make.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.gvsoc import dialect
from deeploy import api
from deeploy.backend.project import read_manifest, select_network
from deeploy.driver.verify import run_project
from deeploy.errors import DeeployError
from deeploy.execution.runners import gvsoc
from deeploy.options import Options

from .conftest import Simulate

FULL = 60_000  # bytes of the weight memory that not all weights fit into
SCENARIOS = {
    "one core": Options(engines=("cluster",), cores=1),
    "eight cores": Options(engines=("cluster",)),
    "N-EUREKA without its memory": Options(memory={"wm": 0}),
    "N-EUREKA, its memory full": Options(memory={"wm": FULL}),
    "N-EUREKA": Options(),
}
NETWORKS = ("EEGFormer", "AnomalyDetection")


def _compiled(name: str, folder: Path, options: Options) -> api.Compiled:
    dialect.NETWORKS[name](folder)
    compiled = api.compile(folder / "network.onnx", "siracusa", inputs=folder / "inputs.npz", **options.given())
    compiled.write(folder / "project")
    return compiled


def _check(name: str, folder: Path, options: Options, on: str) -> api.Compiled:
    compiled = _compiled(name, folder, options)
    verdict = run_project(folder / "project", folder / "inputs.npz", on=on)
    with np.load(folder / "inputs.npz") as inputs:
        wanted = compiled.interpret(list(inputs.values()))
    for got, expected in zip(verdict.outputs, wanted, strict=True):
        np.testing.assert_array_equal(got[0], expected)
    return compiled


def _engines(compiled: api.Compiled) -> dict[str, int]:
    """How many calls each engine has, and how many read weights from their own memory."""
    calls = compiled.plan.program.calls
    count = {name: sum(call.kernel.engine == name for call in calls) for name in ("cluster", "npu")}
    return {**count, "resident": sum(bool(call.kernel.resident) for call in calls)}


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("name", NETWORKS)
def test_on_the_host_model(tmp_path: Path, name: str, scenario: str) -> None:
    compiled = _check(name, tmp_path, SCENARIOS[scenario], "host")
    found, used = _engines(compiled), compiled.plan.memory["WM"].peak
    if "core" in scenario:
        assert (found["npu"], used) == (0, 0)
    elif scenario == "N-EUREKA without its memory":
        assert (found["resident"], used) == (0, 0)
    elif scenario == "N-EUREKA":
        assert found["npu"] >= found["resident"] >= 2
    else:
        assert found["resident"] > 0 and used <= FULL


def _with_and_without(name: str, folder: Path) -> dict[str, api.Compiled]:
    """The network for N-EUREKA without its memory and for the cluster alone."""
    found = {}
    for scenario in ("N-EUREKA without its memory", "eight cores"):
        (folder / scenario).mkdir()
        found[scenario] = _compiled(name, folder / scenario, SCENARIOS[scenario])
    return found


@pytest.mark.parametrize("name", NETWORKS)
def test_without_its_memory_n_eureka_is_used_where_it_pays(tmp_path: Path, name: str) -> None:
    """Products of a matrix are faster on it. A product of one row waits for its weights on either engine."""
    both = list(_with_and_without(name, tmp_path).values())
    runs = [one.network.predicted for one in both]
    assert runs[0] is not None and runs[1] is not None
    if name == "EEGFormer":
        assert _engines(both[0])["npu"] >= 4 and runs[0].cycles < 0.9 * runs[1].cycles
    else:
        assert runs[0].cycles < 1.01 * runs[1].cycles


@pytest.mark.share(0.25)
@pytest.mark.parametrize(
    "options", [Options(memory={"wm": 0}), Options(memory={"wm": 0, "l1": 32_000}), Options(memory={"wm": 0}, default_memory="L3")], ids=str
)
@pytest.mark.parametrize("name", [*NETWORKS, "VisualWakeWords"])
def test_the_planner_compares_engines_by_what_the_walk_finds(tmp_path: Path, name: str, options: Options) -> None:
    """Instructions that are cached, windows that an accelerator hides, constants that are kept: all within 3 %."""
    dialect.NETWORKS[name](tmp_path)
    found = api.compile(tmp_path / "network.onnx", "siracusa", inputs=tmp_path / "inputs.npz", **options.given()).network
    assert found.plan.prediction is not None and found.predicted is not None
    assert found.plan.prediction.cycles == pytest.approx(found.predicted.cycles, rel=0.03)


def test_a_full_weight_memory_holds_some_layers(tmp_path: Path) -> None:
    """Weights of all ten layers are 264 192 bytes."""
    found = _engines(_compiled("AnomalyDetection", tmp_path, SCENARIOS["N-EUREKA, its memory full"]))
    assert 0 < found["resident"] < 10


@pytest.mark.parametrize(("name", "macs"), [("VisualWakeWords", 7_489_664), ("AnomalyDetection", 264_192), ("EEGFormer", 196_672)])
def test_shapes_are_the_published_ones(tmp_path: Path, name: str, macs: int) -> None:
    """Of the transformer only about: 206 976 multiply-accumulates are published. Outputs say something about all layers."""
    compiled = _compiled(name, tmp_path, Options(engines=("cluster",)))
    assert sum(call.geometry.macs() for call in compiled.plan.program.calls) == macs
    with np.load(tmp_path / "inputs.npz") as inputs:
        (y,) = compiled.interpret(list(inputs.values()))
    assert np.unique(y).size > 1


def test_engines_that_cannot_run_all_of_a_network(tmp_path: Path) -> None:
    with pytest.raises(DeeployError) as raised:
        _compiled("EEGFormer", tmp_path, Options(engines=("npu",)))
    assert raised.value.exit_status == 2 and "only cluster could run it, which engines leaves out" in str(raised.value)


@pytest.mark.gvsoc
@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("name", [*NETWORKS, "VisualWakeWords"])
def test_on_the_simulator(simulate: Simulate, tmp_path: Path, name: str, scenario: str) -> None:
    _check(name, tmp_path, SCENARIOS[scenario], "gvsoc")


@pytest.mark.gvsoc
@pytest.mark.parametrize("name", NETWORKS)
def test_n_eureka_without_its_memory_is_not_slower_than_the_cluster(simulate: Simulate, tmp_path: Path, name: str) -> None:
    cycles: list[int] = []
    for scenario, compiled in _with_and_without(name, tmp_path).items():
        project = tmp_path / scenario / "project"
        with np.load(tmp_path / scenario / "inputs.npz") as inputs:
            sample = list(inputs.values())
        run = gvsoc.Gvsoc(has_layers=False).run(project, select_network(read_manifest(project)), [sample])
        np.testing.assert_array_equal(run.outputs[0][0], compiled.interpret(sample)[0])
        cycles += run.cycles
    assert cycles[0] < (0.9 if name == "EEGFormer" else 1.01) * cycles[1]
