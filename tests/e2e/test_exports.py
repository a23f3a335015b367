"""Transformers of Hugging Face, exported and quantised with nothing special: what comes out compiles and computes the same."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import deeploy
from deeploy.driver.verify import verify_compiled
from deeploy.errors import ModelError
from deeploy.quantization.losses import signal_to_noise
from deeploy.quantization.static import quantize_model
from tests.e2e import exports

MISSING = [name for name in ("torch", "transformers", "onnxscript", "onnxruntime") if importlib.util.find_spec(name) is None]

pytestmark = [
    pytest.mark.hf,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(bool(MISSING), reason=f"{', '.join(MISSING)} not installed (pip install '.[hf]')"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("exports")


def quantised(name: str, dynamo: bool, folder: Path, by_deeploy: bool = False) -> Path:
    """A family's network in QDQ, made once; the float one lies beside it."""
    path = folder / f"{name}_{dynamo}_{by_deeploy}.onnx"
    if not path.exists():
        from onnxruntime.quantization import QuantType

        exports.export(name, float_network(path), dynamo)
        samples = exports.samples(exports.FAMILIES[name], 8)
        if by_deeploy:
            np.savez(folder / "samples.npz", x=np.stack(samples))
            quantize_model(float_network(path), folder / "samples.npz", path)
        else:
            kind = QuantType.QInt8 if name == "gpt2" else QuantType.QUInt8
            options = {"activation_type": kind, "per_channel": name != "bert"}
            exports.quantise(float_network(path), path, [{"x": x} for x in samples], **options)
        np.savez(path.with_suffix(".npz"), x=exports.samples(exports.FAMILIES[name], 1, seed=11)[0])
    return path


def float_network(path: Path) -> Path:
    return path.with_name(f"{path.stem}_float.onnx")


@pytest.mark.parametrize("target", ["generic", "siracusa"])
@pytest.mark.parametrize(("name", "dynamo"), [*((name, True) for name in exports.FAMILIES), ("bert", False), ("vit", False)])
def test_exports_compile_and_verify(name: str, dynamo: bool, target: str, folder: Path) -> None:
    """The C is the interpreter's every bit, and onnxruntime's but for a step in a hundredth of the elements.

    The mask of GPT-2 is beyond onnxruntime's quantiser (``test_masks``).
    """
    path = quantised(name, dynamo, folder, by_deeploy=name == "gpt2")
    inputs = path.with_suffix(".npz")
    compiled = deeploy.compile(path, target, inputs=inputs)
    verdict = verify_compiled(compiled, path, inputs)
    assert [against for against, _ in verdict.comparisons] == ["interpreter", "onnxruntime"], verdict.notes
    for against, comparison in verdict.comparisons:
        assert comparison.passed, f"{against}: {comparison}"


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_masks(name: str, folder: Path) -> None:
    """Masks of -3.4e38 leave nothing of the scores, or give an infinite scale, which is said; ``deeploy quantize`` keeps the scores."""
    import onnxruntime

    poor = quantised(name, True, folder)
    if name == "gpt2":
        with pytest.raises(ModelError, match="which is inf") as raised:
            deeploy.compile(poor)
        assert "deeploy quantize" in raised.value.remedy
    else:
        assert any("deeploy quantize bounds masks" in note for note in deeploy.compile(poor).network.notes)
    path = quantised(name, True, folder, by_deeploy=True)
    (x,) = np.load(path.with_suffix(".npz")).values()
    (wanted,) = onnxruntime.InferenceSession(float_network(path)).run(None, {"x": x})
    assert signal_to_noise(deeploy.compile(path).interpret([x]), [wanted]) > 15  # 4 with what onnxruntime's quantiser makes of llama


@pytest.mark.parametrize("target", ["generic", "siracusa"])
@pytest.mark.parametrize(
    ("rows", "has_positions", "mask", "dynamo"),
    [
        *((1, True, "", True), (1, False, "", True), (4, True, "", True), (1, True, "2d", True), (4, True, "2d", True)),
        *((1, False, "4d", True), (4, True, "4d", True), (1, False, "4d", False), (4, True, "4d", False)),
    ],
)
def test_decoders_with_caches(target: str, rows: int, has_positions: bool, mask: str, dynamo: bool, folder: Path) -> None:
    """A sequence of a whole context; caches that are plain are found, and the network writes."""
    path, context = folder / f"cached_{has_positions}{mask}_{dynamo}.onnx", 2 * exports.LENGTH
    if not path.exists():
        exports.export_cached(path, has_positions, mask, dynamo)
    compiled = deeploy.compile(path, target, context=context, dims={"rows": rows})
    dynamic_length = compiled.network.program.dynamic_length
    assert dynamic_length is not None and len(dynamic_length.states) == 4
    ids = np.random.default_rng(2).integers(0, exports.WORDS, (context // rows, 1, rows))
    places = {"position_ids": np.arange(context).reshape(-1, 1, rows)} if has_positions else {}
    seen = np.arange(context).reshape(-1, 1, 1, rows, 1) >= np.arange(context)
    masks = {"2d": np.ones((context // rows, 1, context), np.int64), "4d": np.where(seen, 0, -1e9).astype(np.float32)}
    places |= {"attention_mask": masks[mask]} if mask else {}
    np.savez(folder / "steps.npz", input_ids=ids, **places)
    verdict = verify_compiled(compiled, path, folder / "steps.npz", sequence=True)
    assert [(against, comparison.passed) for against, comparison in verdict.comparisons] == [("interpreter", True), ("onnxruntime", True)]
    assert any(name.endswith("_generate.c") for name in compiled.files()) == (rows == 1)
