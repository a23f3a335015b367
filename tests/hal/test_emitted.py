"""The digits network as it is emitted for memories of 2 000 and 12 000 bytes: right on the host machine model, and no mutant is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from deeploy import api
from deeploy.options import Options
from deeploy.quantization.static import quantize_model
from deeploy.resources import resource
from tests.hal import mutate
from tests.hal.equivalent import Equivalence
from tests.hal.mutants import Verdict, drawn, judge, subject_of
from tests.hal.subject import ASAN, PLAIN, THREADS, Flavour, Subject

MODEL = resource("kernels").parent / "examples" / "digits" / "digits.onnx"
SAMPLES = 12
MEMORIES = {
    "constants in L2": Options(memory={"l1": 2000}, default_memory="L2"),
    "constants in L3": Options(memory={"l1": 2000}, default_memory="L3"),
    "constants and activations in L3": Options(memory={"l1": 2000, "l2": 12000}, default_memory="L3"),
}
SAMPLE = 12  # mutants of each project, in the short run
PARTS = 4  # of the others, each a test


@pytest.fixture(scope="module", params=list(MEMORIES.values()), ids=list(MEMORIES))
def subject(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Subject:
    folder = tmp_path_factory.mktemp("digits")
    images = np.random.default_rng(3).random((16, 1, 8, 8), dtype=np.float32)
    np.savez(folder / "images.npz", image=images)
    np.savez(folder / "inputs.npz", image=images[:SAMPLES, None])
    quantize_model(MODEL, folder / "images.npz", folder / "int8.onnx")
    compiled = api.compile(folder / "int8.onnx", "siracusa", **request.param.given())
    return subject_of(compiled, folder / "project", folder / "inputs.npz")


@pytest.mark.share(0.5)
@pytest.mark.parametrize(
    "flavour",
    [PLAIN, pytest.param(ASAN, marks=pytest.mark.slow), pytest.param(THREADS, marks=pytest.mark.slow)],
    ids=["plain", "address sanitizer", "thread sanitizer"],
)
def test_it_is_right_whatever_the_adversary_does(subject: Subject, flavour: Flavour) -> None:
    assert subject.killed(subject.sources(), flavour) is None


def left(verdicts: list[Verdict]) -> list[str]:
    return [verdict.mutant.name for verdict in verdicts if not verdict.is_explained]


def survivors(verdicts: list[Verdict]) -> list[str]:
    return [verdict.mutant.name for verdict in verdicts if verdict.killed is None]


@pytest.mark.share(0.25)
def test_no_mutant_of_a_sample_survives(subject: Subject) -> None:
    found = list(mutate.mutants(subject.sources(), "AT_"))
    assert {mutant.kind for mutant in found} >= {"wait dropped", "transfer dropped", "offset shifted", "ends a step early"}
    assert survivors(judge(subject, drawn(found, SAMPLE, 5))) == []


@pytest.mark.share(0.25)
def test_a_trace_is_the_same_in_every_run_and_counts_garbage(subject: Subject, tmp_path: Path) -> None:
    copied = subject.copied(tmp_path / "project")
    equivalence = Equivalence(Subject.of(copied.folder, copied.samples[:1]))  # every load is an event
    sources = subject.sources()
    trace = equivalence.traces(sources)
    assert equivalence.traces(sources) == trace
    short = {path: text.replace("self->inputs[0], 256)", "self->inputs[0], 252)") for path, text in sources.items()}
    assert short != sources
    found = equivalence.traces(short)
    assert found.events != trace.events and found.garbage > trace.garbage


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_no_mutant_survives(subject: Subject, part: int) -> None:
    assert survivors(judge(subject, list(mutate.mutants(subject.sources(), "AT_"))[part::PARTS])) == []


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_survivors_of_all_kinds_are_equivalent(subject: Subject, part: int) -> None:
    assert left(judge(subject, drawn(mutate.every_mutant(subject.sources()), 200, 1)[part::PARTS])) == []
