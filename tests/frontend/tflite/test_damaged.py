"""Damaged and foreign files: two lines that say so, and what is not handled is refused by name."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from deeploy.errors import DeeployError, ModelError, UnsupportedError
from deeploy.frontend import import_model
from tests.frontend.tflite import files
from tests.frontend.tflite.writer import Op, Spec, write_file

NAMES = ("residual_network", "divided", "transposed_same", "move_strided_slice1", "mean_i1", "lstm_i1")


def refused(tmp_path: Path, content: bytes) -> str:
    """The message for a file, of two lines."""
    path = tmp_path / "model.tflite"
    path.write_bytes(content)
    with pytest.raises(DeeployError) as caught:
        import_model(path)
    assert len(str(caught.value).splitlines()) == 2 and caught.value.exit_status == 2
    return str(caught.value)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_cut_off_is_damaged(tmp_path: Path, name: str) -> None:
    content, _ = files.build_case(name)
    path = tmp_path / "model.tflite"
    for length in range(8, len(content), max(1, len(content) // 40)):
        path.write_bytes(content[:length])
        with pytest.raises(ModelError, match="damaged TensorFlow Lite file"):
            import_model(path)


@pytest.mark.parametrize("name", NAMES)
def test_changed_bytes_are_no_traceback(tmp_path: Path, name: str) -> None:
    content, _ = files.build_case(name)
    rng, path = random.Random(name), tmp_path / "model.tflite"
    kinds = set()
    for _ in range(120):
        damaged = bytearray(content)
        for _ in range(rng.choice((1, 1, 2, 5))):
            at = rng.randrange(8, len(content))
            damaged[at] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))
        path.write_bytes(damaged)
        try:
            import_model(path)
            kinds.add(None)
        except DeeployError as error:
            assert len(str(error).splitlines()) == 2
            kinds.add(type(error))
    assert {None, ModelError} <= kinds


def test_many_references_to_one_table_are_no_model(tmp_path: Path) -> None:
    """A file of some kilobytes that says it has very many tables."""
    content = bytearray(write_file([Spec((2,), name=f"t{i}") for i in range(600)], [], [0], [0]))
    text = bytes(content)
    path = tmp_path / "model.tflite"
    for at in range(8, len(text), 4):
        damaged = bytearray(text)
        damaged[at : at + 4] = (2**28).to_bytes(4, "little")
        path.write_bytes(damaged)
        if at % 97 == 0:
            try:
                import_model(path)
            except DeeployError:
                continue


def test_hybrid_operators_are_refused_with_a_reason(tmp_path: Path) -> None:
    w = np.ones((3, 4), np.int8)
    tensors = [Spec((1, 4), "f4"), Spec((3, 4), "i1", [0.1], [0], w), Spec((1, 3), "f4")]
    text = refused(tmp_path, write_file(tensors, [Op("FULLY_CONNECTED", [0, 1, -1], [2])], [0], [2]))
    assert "is hybrid" in text and "full integer" in text


def test_scales_that_differ_are_refused_where_elements_only_move(tmp_path: Path) -> None:
    tensors = [Spec((2, 3), "i1", [0.1], [0]), Spec((3, 2), "i1", [0.2], [0])]
    assert "different scales" in refused(tmp_path, write_file(tensors, [Op("RESHAPE", [0], [1])], [0], [1]))


def test_operators_that_nobody_handles_are_named_with_their_node(tmp_path: Path) -> None:
    tensors = [Spec((2, 3), "f4"), Spec((2, 3), "f4", name="scores")]
    content = write_file(tensors, [Op("FLOOR", [0], [1])], [0], [1])
    changed = content.replace(bytes([8]), bytes([24]))  # an operator with a state of its own
    assert content != changed
    path = tmp_path / "model.tflite"
    path.write_bytes(changed)
    with pytest.raises(DeeployError) as caught:
        import_model(path)
    assert isinstance(caught.value, UnsupportedError | ModelError)
