"""Files of TensorFlow Lite: what is computed of them is what LiteRT computed, whose outputs are stored (``files``)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import deeploy
from deeploy.errors import DeeployError
from deeploy.execution.verification import litert_reference
from deeploy.frontend.tflite import quantised
from deeploy.ir.types import DType
from tests.frontend.tflite import examples, files

Arrays = Sequence[Sequence[np.ndarray]]


def assert_equal(got: Arrays, wanted: Arrays) -> None:
    """Integers are equal; floats as near as other orders of sums leave them."""
    for arrays, stored in zip(got, wanted, strict=True):
        for array, reference in zip(arrays, stored, strict=True):
            assert array.dtype == reference.dtype and array.size == reference.size
            if reference.dtype.kind == "f":
                np.testing.assert_allclose(array.ravel(), reference.ravel(), rtol=1e-5, atol=1e-5)
            else:
                np.testing.assert_array_equal(array.ravel(), reference.ravel())


def compile_content(tmp_path: Path, content: bytes, target: str = "generic") -> deeploy.Compiled:
    path = tmp_path / "model.tflite"
    path.write_bytes(content)
    return deeploy.compile(path, target)


def run_sequence(project: deeploy.Compiled, samples: Arrays) -> Arrays:
    """What the C computes of samples, steps of one sequence."""
    outputs = project.run([np.stack(column) for column in zip(*samples, strict=True)], sequence=True)
    return [[stack[step] for stack in outputs] for step in range(len(samples))]


@pytest.mark.parametrize("name", files.CASES)
def test_references_compute_what_the_reference_kernels_do(tmp_path: Path, name: str) -> None:
    content, samples = files.build_case(name)
    project = compile_content(tmp_path, content)
    assert_equal(project.interpret_sequence(samples), list(files.expected(name)))


@pytest.mark.parametrize("name", ["residual_network", "softmax_wide", "binary_add_row", "svdf_i1", "lstm_i1", "lstm_long"])
def test_the_c_computes_what_the_reference_kernels_do(tmp_path: Path, name: str) -> None:
    content, samples = files.build_case(name)
    project = compile_content(tmp_path, content)
    assert_equal(run_sequence(project, samples), list(files.expected(name)))


@pytest.mark.slow
@pytest.mark.parametrize("name", files.CASES)
def test_the_c_of_all_cases(tmp_path: Path, name: str) -> None:
    content, samples = files.build_case(name)
    project = compile_content(tmp_path, content)
    assert_equal(run_sequence(project, samples), list(files.expected(name)))


@pytest.mark.slow
@pytest.mark.parametrize("name", files.CASES)
def test_litert_computes_the_same_of_other_inputs(tmp_path: Path, name: str) -> None:
    pytest.importorskip("ai_edge_litert", reason="no LiteRT: install the extra tflite-verify")
    content, samples = files.build_case(name, 12)
    project = compile_content(tmp_path, content)
    wanted = files.interpret(content, samples, name not in files.OTHER_KERNELS)
    assert_equal(project.interpret_sequence(samples), wanted)


def test_a_case_is_stored_for_each_file() -> None:
    assert {name for name in vars(examples) if name in files.CASES} == {"hello_world", "micro_speech", "magic_wand", "person_detection"}
    with np.load(files.EXPECTED) as arrays:
        assert {key.split(" ")[0] for key in arrays} == set(files.CASES)


def test_other_targets_compute_the_same(tmp_path: Path) -> None:
    """Sums of bytes are right where a kernel of a target's own computes them, too."""
    content, samples = files.build_case("residual_network")
    project = compile_content(tmp_path, content, "siracusa")
    assert_equal([project.run(sample) for sample in samples], list(files.expected("residual_network")))


def test_verify_compares_with_litert(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert", reason="no LiteRT: install the extra tflite-verify")
    content, samples = files.build_case("residual_network")
    project = compile_content(tmp_path, content)
    verdict = project.verify()
    assert verdict.passed and [(name, c.rule) for name, c in verdict.comparisons] == [
        ("interpreter", "every bit"),
        ("LiteRT", "every bit"),
    ]
    images = {project.report()["inputs"][0]["name"]: np.stack([sample[0] for sample in samples])}
    labels = np.array([scores[0].argmax() for scores in files.expected("residual_network")])
    assert dict(project.evaluate(images, labels, model=tmp_path / "model.tflite").values) == {"quantised, in LiteRT": 1.0, "C": 1.0}


def test_states_begin_anew_with_every_sample_or_go_on(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert", reason="no LiteRT: install the extra tflite-verify")
    project = compile_content(tmp_path, files.build_case("svdf_i1")[0])
    samples = {"t0": np.random.default_rng(0).integers(-128, 128, (4, 1, 12)).astype(np.int8)}
    for sequence in (False, True):
        verdict = project.verify(samples, sequence=sequence)
        assert verdict.passed and ("LiteRT", "every bit") in [(name, c.rule) for name, c in verdict.comparisons]


def test_steps_of_a_recurrent_layer_are_a_loop_where_they_are_many(tmp_path: Path) -> None:
    content, samples = files.build_case("lstm_long")
    loop = compile_content(tmp_path, content)
    many = deeploy.compile(tmp_path / "model.tflite", unroll=20_000)
    assert len(loop.network.program.calls) < 30 < 28 * 20 < len(many.network.program.calls)
    assert_equal(many.interpret_sequence(samples), loop.interpret_sequence(samples))


def test_verify_says_where_litert_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(litert_reference.importlib.util, "find_spec", lambda name: None)
    verdict = compile_content(tmp_path, files.build_case("dense_i1")[0]).verify()
    assert verdict.passed and any("not compared with LiteRT" in note and "pip install" in note for note in verdict.notes)


def test_rounding_once_is_another_choice(tmp_path: Path) -> None:
    """Halves go up then, and nothing else does."""
    draft = files.Draft("conv_ties")
    path = tmp_path / "model.tflite"
    path.write_bytes(draft.content(files.CASES["conv_ties"](draft)))
    (x,), (w, bias) = draft.samples(1)[0], (draft.tensors[at].data for at in (1, 2))
    assert w is not None and bias is not None
    quarters = x.astype(int) @ w[:, 0, 0].T.astype(int) + bias
    (got,) = deeploy.compile(path, "generic", exact="onnx").interpret([x])
    np.testing.assert_array_equal(got, np.clip((quarters + 2) // 4 - 5, -128, 127))
    assert not np.array_equal(got, deeploy.compile(path, "generic").interpret([x])[0])


def test_sums_of_bytes_are_one_operator_where_that_is_exact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content, samples = files.build_case("binary_add_i1")
    project = compile_content(tmp_path, content)
    assert [call.node.op for call in project.network.program.calls] == ["ScaledAdd"]
    monkeypatch.setattr(quantised, "_add_at_once", lambda *operands: False)
    project = compile_content(tmp_path, content)
    assert [call.node.op for call in project.network.program.calls][:2] == ["Lookup", "Lookup"]
    assert_equal([project.interpret(sample) for sample in samples], list(files.expected("binary_add_i1")))


@pytest.mark.slow
def test_files_of_a_folder_compute_what_litert_does(tmp_path: Path) -> None:
    """All that are read of the files in the folder that TFLITE_MODELS names; at least 25 of integers, if there are so many."""
    pytest.importorskip("ai_edge_litert", reason="no LiteRT: install the extra tflite-verify")
    folder = os.environ.get("TFLITE_MODELS")
    if not folder:
        pytest.skip("TFLITE_MODELS names no folder with .tflite files")
    rng, equal = np.random.default_rng(0), 0
    for path in sorted(Path(folder).rglob("*.tflite")):
        try:
            project = deeploy.compile(path, "generic")
            ports = [(DType(port["type"]).numpy, port["shape"]) for port in project.report()["inputs"]]
            samples = [[_draw(rng, kind, shape) for kind, shape in ports] for _ in range(2)]
            wanted = files.interpret(path.read_bytes(), samples)
        except (DeeployError, RuntimeError, ValueError):  # the last two of LiteRT
            continue
        assert_equal([project.run(sample) for sample in samples], wanted)
        equal += all(array.dtype.kind in "iu" for sample in wanted for array in sample)
    assert equal >= 25


def _draw(rng: np.random.Generator, kind: np.dtype[np.generic], shape: Sequence[int]) -> np.ndarray:
    if kind == np.float32:
        return rng.normal(0, 1, shape).astype(np.float32)
    info = np.iinfo(kind)
    return rng.integers(max(info.min, -(2**20)), min(info.max, 2**20) + 1, shape).astype(kind)
