"""Small models from real exporters and quantisers, as they come: each compiles, and the C computes what onnxruntime does.

Everything is made here; nothing is downloaded. A case skips where its package is not installed (the extra ``exporters``).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import deeploy
from deeploy.driver.verify import verify_compiled
from deeploy.ir.types import DType

pytestmark = [pytest.mark.exporters, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
ROOT = Path(__file__).resolve().parents[2]
SHAPE = (1, 3, 12, 12)
RANDOM = np.random.default_rng(6)


def convolutional() -> Any:
    """Convolutions, one of them depthwise, normalised; a sum; a mean; a product."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)

    class Network(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU())
            self.deep = torch.nn.Sequential(torch.nn.Conv2d(8, 8, 3, padding=1, groups=8), torch.nn.ReLU(), torch.nn.Conv2d(8, 8, 1))
            self.last = torch.nn.Linear(8, 5)

        def forward(self, x: Any) -> Any:
            x = self.first(x)
            return self.last(torch.relu(x + self.deep(x)).mean((2, 3)))

    return Network().eval()


def images(count: int = 8) -> np.ndarray:
    return RANDOM.normal(size=(count, *SHAPE[1:])).astype(np.float32)


def exported(model: Any, path: Path, example: np.ndarray) -> Path:
    """By torch.export."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    torch.onnx.export(model, (torch.from_numpy(example),), path, dynamo=True, external_data=False, input_names=["x"], output_names=["y"])
    return path


def torch_float(folder: Path) -> Path:
    return exported(convolutional(), folder / "m.onnx", images(1))


def torch_recurrent(folder: Path) -> Path:
    torch = pytest.importorskip("torch")

    class Network(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.gru = torch.nn.LSTM(12, 9, batch_first=True, bidirectional=True), torch.nn.GRU(18, 7, batch_first=True)

        def forward(self, x: Any) -> Any:
            return self.gru(self.lstm(x[:, 0])[0])[0][:, -1]

    torch.manual_seed(1)
    return exported(Network().eval(), folder / "m.onnx", images(1))


def torch_pt2e(folder: Path) -> Path:
    """Quantised by torchao's flow on exported programs."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("torchao")
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    example = torch.from_numpy(images(1))
    quantizer = x86.X86InductorQuantizer().set_global(x86.get_default_x86_inductor_quantization_config())
    prepared = prepare_pt2e(torch.export.export(convolutional(), (example,)).module(), quantizer)
    for image in images():
        prepared(torch.from_numpy(image[None]))
    return exported(convert_pt2e(prepared), folder / "m.onnx", images(1))


def brevitas_network(bits: int) -> Any:
    torch = pytest.importorskip("torch")
    nn = pytest.importorskip("brevitas.nn")
    torch.manual_seed(2)
    model = torch.nn.Sequential(
        nn.QuantIdentity(return_quant_tensor=True),
        nn.QuantConv2d(3, 8, 3, weight_bit_width=bits),
        nn.QuantReLU(bit_width=8, return_quant_tensor=True),
        torch.nn.Flatten(),
        nn.QuantLinear(800, 5, bias=True, weight_bit_width=bits),
    )
    for image in images():
        model(torch.from_numpy(image[None]))
    return model.eval()


def brevitas_qcdq(folder: Path) -> Path:
    torch, network = pytest.importorskip("torch"), brevitas_network(4)
    pytest.importorskip("onnxoptimizer")
    export = pytest.importorskip("brevitas.export")
    export.export_onnx_qcdq(network, torch.from_numpy(images(1)), export_path=str(folder / "m.onnx"), opset_version=17)
    return folder / "m.onnx"


def brevitas_qonnx(folder: Path) -> Path:
    torch, network = pytest.importorskip("torch"), brevitas_network(3)
    pytest.importorskip("qonnx")
    pytest.importorskip("onnxoptimizer")
    export = pytest.importorskip("brevitas.export")
    export.export_qonnx(network, torch.from_numpy(images(1)), export_path=str(folder / "m.onnx"), opset_version=17)
    return folder / "m.onnx"


def onnxruntime_quantised(kind: str) -> Callable[[Path], Path]:
    def made(folder: Path) -> Path:
        from onnxruntime import quantization as ort

        source = exported(convolutional(), folder / "float.onnx", images(1))
        ort.quant_pre_process(source, folder / "prepared.onnx", skip_symbolic_shape=True)
        if kind == "dynamic":
            prepared = onnx.load(folder / "prepared.onnx")
            del prepared.graph.value_info[:]  # the quantiser keeps shapes of weights that it transposes
            ort.quantize_dynamic(prepared, folder / "m.onnx")
            return folder / "m.onnx"

        class Reader(ort.CalibrationDataReader):  # type: ignore[misc]
            rest = iter([{"x": image[None]} for image in images()])

            def get_next(self) -> Any:
                return next(self.rest, None)

        form = ort.QuantFormat.QDQ if kind == "qdq" else ort.QuantFormat.QOperator
        ort.quantize_static(folder / "prepared.onnx", folder / "m.onnx", Reader(), quant_format=form, per_channel=kind == "qdq")
        return folder / "m.onnx"

    return made


def sklearn(kind: str) -> Callable[[Path], Path]:
    def made(folder: Path) -> Path:
        skl2onnx = pytest.importorskip("skl2onnx")
        pytest.importorskip("sklearn")
        from sklearn import ensemble, linear_model, neural_network, pipeline, preprocessing, svm

        estimators = {
            "logistic": lambda: linear_model.LogisticRegression(),
            "forest": lambda: ensemble.RandomForestClassifier(5, max_depth=4, random_state=0),
            "boosting": lambda: ensemble.GradientBoostingRegressor(n_estimators=6, random_state=0),
            "perceptron": lambda: neural_network.MLPClassifier((9,), max_iter=40, random_state=0),
            "svm": lambda: svm.SVR(),
            "svm probabilities": lambda: svm.SVC(probability=True, random_state=0),
        }
        x = RANDOM.normal(size=(120, 6)).astype(np.float32)
        model = pipeline.make_pipeline(preprocessing.StandardScaler(), estimators[kind]())
        model.fit(x, (x[:, 0] + x[:, 1] ** 2 > 1).astype(np.int64))
        options = {"zipmap": False} if kind in ("logistic", "forest", "perceptron", "svm probabilities") else {}
        converted = skl2onnx.to_onnx(model, x[:1], options={id(model): options} if options else None)
        for value in (*converted.graph.input, *converted.graph.output):
            value.type.tensor_type.shape.dim[0].dim_value = 1
        onnx.save(converted, folder / "m.onnx")
        return folder / "m.onnx"

    return made


def onnxruntime_halves(folder: Path) -> Path:
    """By the converter of onnxruntime, from a network of the examples; inputs and outputs are float16, too."""
    pytest.importorskip("onnxruntime")
    from onnxruntime.transformers.float16 import convert_float_to_float16

    onnx.save(convert_float_to_float16(onnx.load(ROOT / "examples" / "digits" / "digits.onnx")), folder / "m.onnx")
    return folder / "m.onnx"


CASES: dict[str, Callable[[Path], Path]] = {
    "torch float": torch_float,
    "torch recurrent": torch_recurrent,
    "torch pt2e": torch_pt2e,
    "brevitas qcdq": brevitas_qcdq,
    "brevitas qonnx": brevitas_qonnx,
    **{f"onnxruntime {kind}": onnxruntime_quantised(kind) for kind in ("qdq", "qoperator", "dynamic")},
    "onnxruntime float16": onnxruntime_halves,
    **{f"sklearn {kind}": sklearn(kind) for kind in ("logistic", "forest", "boosting", "perceptron", "svm", "svm probabilities")},
}


@pytest.mark.parametrize("case", CASES)
def test_what_exporters_write_compiles_and_is_right(case: str, tmp_path: Path) -> None:
    model = CASES[case](tmp_path)
    shape = [dim.dim_value for dim in onnx.load(model).graph.input[0].type.tensor_type.shape.dim]
    np.savez(tmp_path / "inputs.npz", RANDOM.normal(size=(4, *shape)).astype(np.float32))
    for target in ("generic", "siracusa"):
        compiled = deeploy.compile(model, target, inputs=tmp_path / "inputs.npz")
        constants = {buffer.dtype for buffer in compiled.network.program.buffers.values() if buffer.data is not None}
        if target == "generic":  # on Siracusa they are widened where that is faster
            assert (DType.FLOAT16 in constants) == case.endswith("float16")
        verdict = verify_compiled(compiled, model, tmp_path / "inputs.npz")
        assert verdict.passed, [f"{against}: {comparison}" for against, comparison in verdict.comparisons]
        if case != "brevitas qonnx":  # whose operators onnxruntime does not have
            assert "onnxruntime" in {against for against, _ in verdict.comparisons}, verdict.notes


def tokens(seed: int) -> dict[str, np.ndarray]:
    """Inputs of a text encoder: the last two of eight tokens are none."""
    ids, none = np.random.default_rng(seed).integers(0, 50, (1, 8)), np.zeros((1, 8), np.int64)
    return {"input_ids": ids, "attention_mask": np.array([[1] * 6 + [0] * 2]), "token_type_ids": none}


def step(seed: int) -> dict[str, np.ndarray]:
    """Inputs of a decoder at its eighth token, with what it remembers of seven."""
    numbers = np.random.default_rng(seed)
    past = {f"past_key_values.0.{what}": numbers.normal(size=(1, 2, 7, 8)).astype(np.float32) for what in ("key", "value")}
    return {
        "input_ids": numbers.integers(0, 50, (1, 1)),
        "attention_mask": np.ones((1, 8), np.int64),
        "position_ids": np.array([[7]]),
        **past,
    }


def hugging_face(name: str, folder: Path) -> Path:
    """A small model with random weights, exported by optimum."""
    transformers, onnx_export = pytest.importorskip("transformers"), pytest.importorskip("optimum.exporters.onnx")
    pytest.importorskip("torch").manual_seed(0)
    if name == "bert":
        sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
        config = transformers.BertConfig(vocab_size=50, max_position_embeddings=16, **sizes)
        model, task = transformers.BertForSequenceClassification(config), "text-classification"
    else:
        config = transformers.GPT2Config(vocab_size=50, n_positions=16, n_embd=16, n_layer=1, n_head=2)
        model, task = transformers.GPT2LMHeadModel(config), "text-generation-with-past"
    onnx_export.onnx_export_from_model(model.eval(), folder, task=task, opset=18, do_validation=False)
    return folder / "model.onnx"


def optimum_quantised(model: Path, kind: str, processor: str) -> Path:
    """By optimum's quantiser, in the way that suits a kind of processor."""
    pytest.importorskip("optimum.onnxruntime")
    from optimum.onnxruntime import ORTQuantizer
    from optimum.onnxruntime.configuration import AutoCalibrationConfig, AutoQuantizationConfig

    quantiser = ORTQuantizer.from_pretrained(model.parent, file_name=model.name)
    form = getattr(AutoQuantizationConfig, processor)(is_static=kind == "static", per_channel=processor == "avx512_vnni")
    ranges = None
    if kind == "static":
        samples = [{name: values[0].tolist() for name, values in tokens(seed).items()} for seed in range(4)]
        data = pytest.importorskip("datasets").Dataset.from_list(samples)
        seen = {"calibration_config": AutoCalibrationConfig.minmax(data), "operators_to_quantize": form.operators_to_quantize}
        seen["onnx_augmented_model_name"] = model.parent / "augmented.onnx"  # else it lies where the tests are started
        ranges = quantiser.fit(dataset=data, **seen)
    quantiser.quantize(save_dir=model.parent / "quantised", quantization_config=form, calibration_tensors_range=ranges)
    return model.parent / "quantised" / "model_quantized.onnx"


@pytest.mark.parametrize("case", ["bert float", "bert dynamic avx512_vnni", "bert static arm64", "gpt2 float", "gpt2 dynamic arm64"])
def test_hugging_face_models_compile_as_optimum_writes_them(case: str, tmp_path: Path) -> None:
    name, kind, *processor = case.split()
    model = hugging_face(name, tmp_path)
    if processor:
        model = optimum_quantised(model, kind, processor[0])
    dims = {"batch_size": 1, "sequence_length": 8}
    if name == "gpt2":
        dims = {"batch_size": 1, "sequence_length": 1, "past_sequence_length": 7, "past_sequence_length + sequence_length": 8}
    np.savez(tmp_path / "inputs.npz", **(tokens(9) if name == "bert" else step(9)))
    for target in ("generic", "siracusa"):
        compiled = deeploy.compile(model, target, inputs=tmp_path / "inputs.npz", dims=dims)
        verdict = verify_compiled(compiled, model, tmp_path / "inputs.npz")
        assert verdict.passed, [f"{against}: {comparison}" for against, comparison in verdict.comparisons]
        assert "onnxruntime" in {against for against, _ in verdict.comparisons}, verdict.notes
