"""Transformers of Hugging Face, exported and quantised with nothing special: what comes out compiles and computes the same."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import deeploy
from deeploy.verify import verify
from tests.e2e import exports

MISSING = [name for name in ("torch", "transformers", "onnxscript", "onnxruntime") if importlib.util.find_spec(name) is None]

pytestmark = [
    pytest.mark.hf,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(bool(MISSING), reason=f"{', '.join(MISSING)} not installed (pip install 'deeploy-compiler[hf]')"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("exports")


def quantised(name: str, dynamo: bool, folder: Path) -> Path:
    """A family's network in QDQ, made once."""
    path = folder / f"{name}_{dynamo}.onnx"
    if not path.exists():
        from onnxruntime.quantization import QuantType

        exports.export(name, folder / f"{path.stem}_float.onnx", dynamo)
        calibration = [{"x": x} for x in exports.samples(exports.FAMILIES[name], 8)]
        kind = QuantType.QInt8 if name == "gpt2" else QuantType.QUInt8
        exports.quantise(folder / f"{path.stem}_float.onnx", path, calibration, activation_type=kind, per_channel=name != "bert")
        np.savez(path.with_suffix(".npz"), x=exports.samples(exports.FAMILIES[name], 1, seed=11)[0])
    return path


@pytest.mark.parametrize("target", ["generic", "siracusa"])
@pytest.mark.parametrize(("name", "dynamo"), [*((name, True) for name in exports.FAMILIES), ("bert", False), ("vit", False)])
def test_exports_compile_and_verify(name: str, dynamo: bool, target: str, folder: Path) -> None:
    """The C is the interpreter's every bit, and onnxruntime's but for a step in a hundredth of the elements."""
    path = quantised(name, dynamo, folder)
    inputs = path.with_suffix(".npz")
    compiled = deeploy.compile(path, target, inputs=inputs)
    verdict = verify(compiled, path, inputs)
    assert [against for against, _ in verdict.comparisons] == ["interpreter", "onnxruntime"], verdict.notes
    for against, comparison in verdict.comparisons:
        assert comparison.passed, f"{against}: {comparison}"


@pytest.mark.parametrize("target", ["generic", "siracusa"])
@pytest.mark.parametrize(
    ("rows", "has_positions", "mask"),
    [(1, True, ""), (1, False, ""), (4, True, ""), (1, True, "2d"), (4, True, "2d"), (1, False, "4d"), (4, True, "4d")],
)
def test_decoders_with_caches(target: str, rows: int, has_positions: bool, mask: str, folder: Path) -> None:
    """A sequence of a whole context; caches that are plain are found, and the network writes."""
    path, context = folder / f"cached_{has_positions}{mask}.onnx", 2 * exports.LENGTH
    if not path.exists():
        exports.export_cached(path, has_positions, mask)
    compiled = deeploy.compile(path, target, context=context, dims={"rows": rows})
    growth = compiled.network.program.growth
    assert growth is not None and len(growth.states) == 4
    ids = np.random.default_rng(2).integers(0, exports.WORDS, (context // rows, 1, rows))
    places = {"position_ids": np.arange(context).reshape(-1, 1, rows)} if has_positions else {}
    seen = np.arange(context).reshape(-1, 1, 1, rows, 1) >= np.arange(context)
    masks = {"2d": np.ones((context // rows, 1, context), np.int64), "4d": np.where(seen, 0, -1e9).astype(np.float32)}
    places |= {"attention_mask": masks[mask]} if mask else {}
    np.savez(folder / "steps.npz", input_ids=ids, **places)
    verdict = verify(compiled, path, folder / "steps.npz", sequence=True)
    assert [(against, comparison.passed) for against, comparison in verdict.comparisons] == [("interpreter", True), ("onnxruntime", True)]
    assert any(name.endswith("_generate.c") for name in compiled.files()) == (rows == 1)
