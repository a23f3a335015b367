"""A seeded sample of random graphs and damaged files, the cases that failed once, and the machinery itself."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

pytest.importorskip("onnxruntime")

import deeploy
from deeploy.execution.runners.runner import Result
from deeploy.planning.planner.machine import machine_of
from tests.models import model_of
from tests.random import cases, check, files, memories, tasks
from tests.random.choices import Choices, shrink
from tests.random.forms import Case, make
from tests.random.oracle import Invalid
from tests.random.pool import MEMORY, Worker

# Seeds; a case takes about five seconds of a processor, all of them three minutes.
SIZES = ((80, 8), (12, 2), (80, 4), (1500, 75))
GRAPHS, WINDOWS, MEMORIES, FILES = ([range(at, at + count) for at in range(0, end, count)] for end, count in SIZES)
NODES = [range(at, at + 100) for at in range(0, 1000, 100)]  # at the border: a quarter of a second each
COMPILED = [range(at, at + 25) for at in range(1000, 1400, 25)]
REGRESSIONS = sorted((Path(__file__).parent / "regressions").glob("*.onnx"))
DAMAGED = sorted((Path(__file__).parent / "regressions/damaged").glob("*.onnx"))


def _span(seeds: range) -> str:
    return f"{seeds.start}-{seeds.stop}"


@pytest.fixture(scope="module")
def graphs() -> Iterator[Worker]:
    worker = Worker(tasks.check_random_graph)
    yield worker
    worker.stop()


def failures(worker: Worker, seeds: range, **more: Any) -> list[str]:
    found = {seed: worker({"seed": seed, **more}) for seed in seeds}
    died = [f"seed {seed}: {result}" for seed, result in found.items() if isinstance(result, str)]
    return died + [f"seed {s}: {r['reason']}\n{r['detail']}" for s, r in found.items() if isinstance(r, dict) and r["kind"] == "failed"]


@pytest.mark.share(0.05)
@pytest.mark.parametrize("seeds", GRAPHS, ids=_span)
def test_random_graphs(seeds: range, graphs: Worker) -> None:
    """Longer ranges: make fuzz."""
    assert failures(graphs, seeds) == []


@pytest.mark.share(0.05)
@pytest.mark.parametrize("seeds", WINDOWS, ids=_span)
def test_random_windows(seeds: range) -> None:
    worker = Worker(tasks.windows)
    try:
        assert failures(worker, seeds) == []
    finally:
        worker.stop()


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(check.MACHINES)), ids=check.MACHINES)
def test_random_graphs_on_other_machines(number: int) -> None:
    """Microcontrollers, under their emulators where these are installed, and two chips; two graphs each."""
    worker = Worker(tasks.machines)
    try:
        assert failures(worker, range(number, number + 2 * len(check.MACHINES), len(check.MACHINES))) == []
    finally:
        worker.stop()


@pytest.mark.share(0.05)
@pytest.mark.parametrize("seeds", MEMORIES, ids=_span)
def test_random_memories(seeds: range) -> None:
    worker = Worker(tasks.memories)
    try:
        assert failures(worker, seeds, given=False) == []
    finally:
        worker.stop()


@pytest.mark.parametrize("name", [name for _, name in memories.MACHINES])
def test_random_machines_exist(name: str) -> None:
    """Whatever the fuzzer of memories draws: a refusal would be no result."""
    target = memories.machine(name)
    machines = [machine_of(target, memories.random_options(Choices(seed), target)) for seed in range(60)]
    most = max(engine.cores for engine in target.engines)
    assert {machine.cores for machine in machines} == {1, min(3, most), most}


@pytest.mark.slow
@pytest.mark.parametrize("seeds", MEMORIES, ids=_span)
def test_given_networks_in_random_memories(seeds: range, shared_models: Path) -> None:
    worker = Worker(tasks.memories)
    try:
        assert failures(worker, seeds) == []
    finally:
        worker.stop()


@pytest.mark.share(0.05)
@pytest.mark.parametrize("seeds", FILES, ids=_span)
def test_damaged_files(seeds: range) -> None:
    worker = Worker(tasks.file, memory=MEMORY)
    try:
        assert failures(worker, seeds) == []
    finally:
        worker.stop()


def contradictory(seeds: range, how: str) -> list[str]:
    worker = Worker(tasks.node, memory=MEMORY)
    try:
        return failures(worker, seeds, how=how)
    finally:
        worker.stop()


@pytest.mark.share(0.1)
@pytest.mark.parametrize("seeds", NODES, ids=_span)
def test_contradictory_nodes(seeds: range) -> None:
    """Where onnxruntime refuses a node, so does the importer, in two lines; otherwise results agree."""
    assert contradictory(seeds, "border") == []


@pytest.mark.share(0.125)
@pytest.mark.parametrize("seeds", COMPILED, ids=_span)
def test_contradictory_nodes_that_are_compiled(seeds: range) -> None:
    assert contradictory(seeds, "C") == []


@pytest.mark.share(0.125)
@pytest.mark.parametrize("seeds", COMPILED, ids=_span)
def test_contradictory_nodes_with_generated_kernels(seeds: range) -> None:
    pytest.importorskip("emx_onnx_cgen")
    assert contradictory(seeds, "fallback") == []


@pytest.mark.parametrize("path", REGRESSIONS, ids=lambda path: path.stem)
def test_regressions(path: Path) -> None:
    found = check.check(cases.load(path.with_suffix("")))
    assert found.kind == ("refused" if path.stem.startswith("refused_") else "passed"), f"{found.reason}\n{found.detail}"


@pytest.mark.parametrize("path", DAMAGED, ids=lambda path: path.stem)
def test_damaged_models(path: Path, tmp_path: Path) -> None:
    for target in ("generic", "siracusa"):
        output = tmp_path / target
        kind, reason, detail = files.judged(files.Attempt(["compile", str(path), "-t", target, "-o", str(output)], path, output))
        assert kind == ("passed" if path.stem.startswith("taken_") else "refused"), f"{reason}\n{detail}"


# The machinery: that it would find what it looks for.


def small(**plan: Any) -> Case:
    """A sum of two floats."""
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "small", ports[:1], ports[1:])
    model = model_of(graph, 13)
    return Case("float", model, {"x": np.arange(6, dtype=np.float32).reshape(2, 3)}, {}, {}, plan)


def test_a_case_is_the_same_again_from_its_seed_from_its_record_and_from_its_file(tmp_path: Path) -> None:
    for seed in range(8):
        choices = Choices(seed)
        try:
            case = make(choices)
        except Invalid:
            continue
        again = make(Choices(record=choices.record))
        assert again.model == case.model and make(Choices(seed)).model == case.model
        cases.save(case, tmp_path / "case")
        loaded = cases.load(tmp_path / "case")
        assert (loaded.form, loaded.types, loaded.plan) == (case.form, case.types, case.plan)
        assert list(loaded.inputs) == list(case.inputs) and all(np.array_equal(loaded.inputs[n], case.inputs[n]) for n in case.inputs)


def test_forms_and_opsets_occur() -> None:
    found: set[tuple[str, int]] = set()
    for seed in range(120):
        try:
            case = make(Choices(seed))
        except Invalid:
            continue
        found.add((case.form, max(entry.version for entry in case.model.opset_import if not entry.domain)))
    assert {form for form, _ in found} == {"float", "qdq", "qoperator", "dialect"}
    versions = {version for _, version in found}
    assert min(versions) == 7 and len(versions) > 15 and versions <= set(range(7, onnx.defs.onnx_opset_version() + 1))


def test_shrinking_finds_the_smallest_record() -> None:
    record = Choices(3)
    for _ in range(40):
        record.integer(0, 100)
    record.record[17] = 90
    assert shrink(record.record, lambda r: any(v > 77 for v in r), 2000) == [78]


@pytest.mark.parametrize("who", ["C", "interpreter"])
def test_a_wrong_result_is_found(who: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the C, or of the interpreter."""
    run, references = check.host.Host.run, deeploy.Compiled.references

    def wrong(arrays: list[np.ndarray]) -> list[np.ndarray]:
        return [array + np.float32(2e-3) for array in arrays]

    def wrong_run(*args: Any) -> Result:
        found = run(*args)
        return replace(found, outputs=wrong(found.outputs))

    if who == "C":
        monkeypatch.setattr(check.host.Host, "run", wrong_run)
    else:
        monkeypatch.setattr(deeploy.Compiled, "references", lambda *args: [wrong(one) for one in references(*args)])
    found = check.check(small())
    assert found.kind == "failed" and "C against interpreter" in found.reason


def test_a_result_that_only_onnxruntime_has_otherwise_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    run = check.oracle.run
    monkeypatch.setattr(check.oracle, "run", lambda *args: [array + np.float32(2e-3) for array in run(*args) or []])
    monkeypatch.setattr(check, "envelope", lambda *args: ({"y": np.zeros((2, 3))}, {"y": 0.0}))
    found = check.check(small())
    assert found.kind == "failed" and "against onnxruntime" in found.reason


def test_one_step_is_allowed_and_no_more() -> None:
    """A quantised sum: what its own rounding may change is one step of its output."""
    steps = helper.make_tensor("s", TensorProto.FLOAT, [], [0.5])
    nodes = [
        helper.make_node("Add", ["x", "x"], ["a"]),
        helper.make_node("QuantizeLinear", ["a", "s"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s"], ["y"]),
    ]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xy"]
    model = model_of(helper.make_graph(nodes, "sum", ports[:1], ports[1:], [steps]), 13)
    _, allowed = check.envelope(model, {"x": np.arange(6, dtype=np.float32).reshape(2, 3)})
    assert allowed["q"] == 1 and allowed["y"] == pytest.approx(0.5, abs=1e-3)


def _slow(argument: Mapping[str, Any]) -> int:
    if argument["what"] == "hang":
        time.sleep(60)
    if argument["what"] == "work":
        while True:
            pass
    if argument["what"] == "crash":
        os.abort()
    return 7


@pytest.mark.slow
def test_a_worker_outlives_hangs_and_crashes() -> None:
    worker = Worker(_slow, seconds=0.5)
    assert worker({"what": "hang"}) == "more than 0.5 s"
    assert worker({"what": "work"}) == "more than 0.5 s"
    assert worker({"what": "crash"}) == "the process died with status -6"
    assert worker({"what": "nothing"}) == 7
    worker.stop()
