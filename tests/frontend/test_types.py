"""Element types of a dialect graph's inputs, and arrays from npz files."""

from __future__ import annotations

import pickle
import resource
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deeploy.errors import UsageError
from deeploy.frontend.arrays import Expected, load_arrays
from deeploy.frontend.dialect_types import is_dialect, resolve_input_types
from deeploy.ir.nodes import Node, Tensor
from deeploy.ir.types import DType
from deeploy.ir.values import Graph


def graph_of(*dtypes: type[np.generic], op: str = "RequantShift") -> Graph:
    inputs = tuple(Tensor(f"x{i}", (2,), DType.of(dtype)) for i, dtype in enumerate(dtypes))
    return Graph("types", inputs, Node("n", op, inputs, (Tensor("y", (2,), DType.FLOAT32),), domain="").outputs)


def test_is_dialect() -> None:
    assert is_dialect(graph_of(np.float32))
    assert not is_dialect(graph_of(np.float32, op="Conv"))


@pytest.mark.parametrize(
    ("sample", "expected", "words"),
    [
        ([-1, 5], DType.INT8, "from -1 to 5"),
        ([0, 200], DType.UINT8, "from 0 to 200"),
        ([0, 100], DType.INT8, "would be uint8 as well"),
        ([-129, 0], DType.INT16, "int16"),
        ([0, 70000], DType.INT32, "int32"),
        ([0.5, 1.0], DType.FLOAT32, "whole numbers"),
        ([], DType.INT8, "--input-type x0"),
    ],
)
@pytest.mark.parametrize("declared", [np.float32, np.int32])
def test_the_range_of_a_sample_decides(sample: list[float], expected: DType, words: str, declared: type[np.generic]) -> None:
    types, notes = resolve_input_types(graph_of(declared), {}, True, [[np.array(sample, np.float32)]])
    assert types == {"x0": expected}
    assert len(notes) == 1
    assert words in notes[0]


def test_the_order_of_decisions() -> None:
    graph = graph_of(np.float32, np.uint8, np.int64, np.bool_)
    samples = [[np.array([3])] * 4]
    types, notes = resolve_input_types(graph, {"x0": DType.UINT8}, True, samples)
    assert list(types.values()) == [DType.UINT8, DType.UINT8, DType.INT64, DType.BOOL]
    assert notes == []
    assert list(resolve_input_types(graph, {}, False, samples)[0].values()) == [DType.FLOAT32, DType.UINT8, DType.INT64, DType.BOOL]
    types, notes = resolve_input_types(graph_of(np.int32), {}, True)
    assert types == {"x0": DType.INT8} and "is taken as int8" in notes[0]
    assert resolve_input_types(graph_of(np.float32, op="QuantizeLinear"), {}, True)[0] == {"x0": DType.FLOAT32}
    with pytest.raises(UsageError, match="x9"):
        resolve_input_types(graph, {"x9": DType.INT8}, True)


def npz(path: Path, **arrays: object) -> Path:
    np.savez(path, **{name: np.asarray(array) for name, array in arrays.items()})
    return path


A, B = Expected("a", (2,), DType.INT8), Expected("b", (3,), DType.UINT8)
EMPTY = Expected("e", (1, 0, 4), DType.INT8)


def test_by_name_and_by_position(tmp_path: Path) -> None:
    path = tmp_path / "in.npz"
    loaded = load_arrays(npz(path, b=[1, 2, 255], a=[-128, 127], more=[0]), [A, B], "input")
    assert [[x.tolist() for x in sample] for sample in loaded.samples] == [[[-128, 127], [1, 2, 255]]]
    assert [x.dtype for x in loaded.samples[0]] == [np.int8, np.uint8]
    assert (loaded.stacked, loaded.notes) == (False, ())
    loaded = load_arrays(npz(path, arr_0=[1.0, 2.0], arr_1=[4, 5, 6], arr_2=[0], arr_3=[0]), [A, B], "input")
    assert [x.tolist() for x in loaded.samples[0]] == [[1, 2], [4, 5, 6]]
    assert "the last 2 array(s)" in loaded.notes[0]


def test_stacked_samples(tmp_path: Path) -> None:
    loaded = load_arrays(npz(tmp_path / "in.npz", a=[[1, 2], [3, 4]], b=[[1, 2, 3], [4, 5, 6]]), [A, B, EMPTY], "input")
    assert loaded.stacked
    assert [[x.tolist() for x in sample[:2]] for sample in loaded.samples] == [[[1, 2], [1, 2, 3]], [[3, 4], [4, 5, 6]]]
    assert all(sample[2].shape == (1, 0, 4) for sample in loaded.samples)


@pytest.mark.parametrize(
    ("wanted", "array", "samples"),
    [
        ((1, 2), np.arange(6).reshape(3, 2), [[[0, 1]], [[2, 3]], [[4, 5]]]),
        ((1, 2), np.arange(2).reshape(1, 2), [[[0, 1]]]),
        ((2, 1), np.arange(4).reshape(4, 1), [[[0], [1]], [[2], [3]]]),
        ((None, 2), np.arange(4).reshape(2, 2), [[[0, 1]], [[2, 3]]]),
        ((1, None), np.arange(4).reshape(2, 1, 2), [[[0, 1]], [[2, 3]]]),
        ((), np.arange(2), [0, 1]),
    ],
    ids=["first axis", "one", "batches of two", "any batch", "new axis", "numbers"],
)
def test_samples_are_stacked_on_a_new_axis_or_on_the_first(
    wanted: tuple[int | None, ...], array: np.ndarray, samples: list[object], tmp_path: Path
) -> None:
    loaded = load_arrays(npz(tmp_path / "in.npz", a=array), [Expected("a", wanted)], "input")
    assert [sample[0].tolist() for sample in loaded.samples] == samples
    assert loaded.stacked == (array.shape != wanted)


def test_zero_lengths_may_be_absent(tmp_path: Path) -> None:
    loaded = load_arrays(npz(tmp_path / "in.npz", input_0=[1, 2], input_1=[1, 2, 3]), [A, EMPTY, B], "input")
    assert [x.shape for x in loaded.samples[0]] == [(2,), (1, 0, 4), (3,)]


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"arr_0": [1, 2]}, "holds 1 arrays, the model has 2 inputs"),
        ({"a": [1, 2]}, "holds the arrays a; the inputs are a, b"),
        ({"a": [1, 2], "c": [1, 2, 3]}, "holds the arrays a, c; the inputs are a, b"),
        ({"a": [1, 2], "arr_1": [1, 2, 3]}, "holds the arrays a, arr_1; the inputs are a, b"),
        ({"a": [1, 2, 3], "b": [1, 2, 3]}, "'a' has shape [3] instead of [2]"),
        ({"a": [[1, 2]], "b": [[1, 2, 3], [1, 2, 3]]}, "different numbers of samples ('a': 1, 'b': 2)"),
        ({"a": [[1, 2]], "b": [1, 2, 3]}, "different numbers of samples ('a': 1, 'b': not stacked)"),
        ({"a": np.zeros((0, 2)), "b": np.zeros((0, 3))}, "holds no sample"),
        ({"a": [1, 128], "b": [1, 2, 3]}, "values from 1 to 128"),
        ({"a": [1, 2], "b": [-1, 2, 3]}, "its type uint8 holds 0 to 255"),
        ({"a": [1.5, 2], "b": [1, 2, 3]}, "not all whole numbers"),
        ({"a": [1, float("nan")], "b": [1, 2, 3]}, "not all whole numbers"),
        ({"a": ["x", "y"], "b": [1, 2, 3]}, "not numbers"),
        ({"a": [1j, 2], "b": [1, 2, 3]}, "not numbers"),
    ],
)
def test_arrays_that_are_refused(tmp_path: Path, arrays: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_arrays(npz(tmp_path / "in.npz", **arrays), [A, B], "input")
    assert words in caught.value.what
    assert len(str(caught.value).splitlines()) == 2


def test_files_that_are_no_npz(tmp_path: Path) -> None:
    path = tmp_path / "in.npz"
    with pytest.raises(UsageError, match="no file"):
        load_arrays(path, [A], "input")
    whole = npz(path, a=[1, 2]).read_bytes()
    for content in (b"", b"text", whole[: len(whole) // 2], whole[:60] + bytes(60) + whole[120:]):
        path.write_bytes(content)
        with pytest.raises(UsageError):
            load_arrays(path, [A], "input")
    with path.open("wb") as file:
        np.save(file, np.zeros(2))
    with pytest.raises(UsageError, match="single array"):
        load_arrays(path, [A], "input")


def test_arrays_in_the_order_of_columns_keep_their_elements(tmp_path: Path) -> None:
    values = np.arange(24).reshape(2, 3, 4)
    loaded = load_arrays(npz(tmp_path / "in.npz", a=np.asfortranarray(values)), [Expected("a", (3, 4), DType.INT8)], "input")
    assert loaded.stacked and [sample[0].tolist() for sample in loaded.samples] == values.tolist()


def archive(path: Path, members: dict[str, bytes], **options: Any) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name, data in members.items():
            made.writestr(name, data, **options)
    return path


def header(text: str, data: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    return b"\x93NUMPY" + version + len(text).to_bytes(2 if version == b"\x01\x00" else 4, "little") + text.encode() + data


def plain(shape: object, descr: str = "'<f4'", order: object = False) -> str:
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n"


NPZ: dict[str, bytes] = {
    "2^50 elements": header(plain((2**50,))),
    "2^70 elements": header(plain((2**70,))),
    "2^50 samples": header(plain((2**50, 2))),
    "2^50 samples of nothing": header(plain((2**50, 0))),
    "2^33 bytes that are not there": header(plain((2**30, 2))),
    "fewer bytes than stated": header(plain((2,)), bytes(7)),
    "negative": header(plain((-2,))),
    "no shape": header("{'descr': '<f4', 'fortran_order': False}\n"),
    "no literal": header("__import__('os').system('false')\n"),
    "deep": header("(" * 5000 + ")" * 5000),
    "deep lists": header(plain("[" * 3000 + "]" * 3000)),
    "null": header("\0\0\0\n"),
    "objects": header(plain((2,), "'|O'"), pickle.dumps([1, 2])),
    "texts": header(plain((2,), "'<U3'"), bytes(24)),
    "a record": header(plain((2,), "[('a', '<f4'), ('b', '|O')]"), bytes(24)),
    "an unknown version": header(plain((2,)), bytes(8), b"\x09\x00"),
    "an unknown type": header(plain((2,), "'<z9'"), bytes(8)),
    "a wrong order": header(plain((2,), order=7), bytes(8)),
    "no array": b"not an array",
    "nothing": b"",
}


@pytest.mark.parametrize("name", NPZ)
@pytest.mark.parametrize("shape", [(2,), (0,)])
def test_damaged_arrays_are_refused_without_reading_them(name: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    path = archive(tmp_path / "in.npz", {"a.npy": NPZ[name]})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UsageError) as raised:
        load_arrays(path, [Expected("a", shape, DType.FLOAT32)], "input")
    assert len(str(raised.value).splitlines()) == 2 and raised.value.what.isprintable()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kilobytes


def test_a_bomb_that_nobody_wants_is_not_unpacked(tmp_path: Path) -> None:
    good = header(plain((2,)), np.array([1, 2], "<f4").tobytes())
    bomb = header(plain((1 << 28,)), bytes(1 << 28))
    path = archive(tmp_path / "in.npz", {"arr_0.npy": good, "arr_1.npy": bomb, "arr_2.npy": NPZ["objects"]})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    loaded = load_arrays(path, [Expected("p", (2,), DType.FLOAT32)], "input")
    assert loaded.samples[0][0].tolist() == [1, 2] and "the last 2 array(s)" in loaded.notes[0]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


def test_every_truncation_and_flipped_byte_is_an_error_or_the_arrays(tmp_path: Path) -> None:
    path = tmp_path / "in.npz"
    whole = npz(path, a=[1, 2]).read_bytes()
    damaged = [whole[:length] for length in range(0, len(whole), 3)]
    damaged += [whole[:i] + bytes([whole[i] ^ mask]) + whole[i + 1 :] for i in range(len(whole)) for mask in (1, 0x80, 0xFF)]
    refused = 0
    for content in damaged:
        path.write_bytes(content)
        try:
            assert load_arrays(path, [A], "input").samples[0][0].tolist() == [1, 2]
        except UsageError as error:
            refused += 1
            assert len(str(error).splitlines()) == 2
    assert refused > len(damaged) / 2
