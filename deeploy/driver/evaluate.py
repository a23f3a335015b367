"""Accuracy on labelled samples: of the C of a project, of the quantised model in onnxruntime, and of the float model.

Samples of a project that streams are windows. Its C has them one after the other, as a recording; models have each by itself.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from deeploy.backend import project
from deeploy.documents import Contents, Document
from deeploy.driver.verify import run_project
from deeploy.driver.windows import expected_inputs, run_windows
from deeploy.errors import UnsupportedError, UsageError, shorten, suggest
from deeploy.execution.verification.litert_reference import run_litert
from deeploy.execution.verification.metrics import METRICS, Metric, agreement
from deeploy.frontend import in_floats
from deeploy.frontend.arrays import load_arrays
from deeploy.frontend.npz import read_arrays, read_headers
from deeploy.frontend.tflite import is_tflite
from deeploy.ir.types import DType
from deeploy.report.text import align_table


@dataclass(frozen=True)
class Accuracy:
    """A metric of several ways to run a network, and over how many samples."""

    metric: str
    samples: int
    values: tuple[tuple[str, float], ...]
    output: str | None = None  # the one that was measured; None where the metric had all of them

    def contents(self) -> Contents:
        """The metric of every way to run the network, as a document for ``--json``."""
        return {"metric": self.metric, "output": self.output, "samples": self.samples, "values": dict(self.values)}

    def __str__(self) -> str:
        measured = self.metric if self.output is None else f"{self.metric} of {shorten(self.output, 40)}"
        return align_table((f"{measured} over {self.samples} samples", ""), [(name, f"{value:.4f}") for name, value in self.values])


def evaluate_project(
    folder: Path,
    inputs: Path,
    labels: Path,
    metric: str = "top1",
    model: Path | None = None,
    float_model: Path | None = None,
    output: str | None = None,
) -> Accuracy:
    """The metric of a project's C on the host, and of the models that it comes from in onnxruntime.

    Args:
        folder: a project.
        inputs: npz with samples stacked on a new first axis.
        labels: npz with one array: a label per sample, or a row of them; texts where the network has a list of labels.
        metric: ``top1``, ``auc``, ``mse``, or ``FILE.py:NAME`` of a function of the outputs, each stacked over the samples, and the
            labels, which returns a number. The file is run.
        model, float_model: the quantised model that was compiled, and the float one; where they are not named, they are left out.
        output: the output that is measured. Without it, a function of the user has all of them, and a metric of a name the first one
            that it can be of: ``top1`` of integer labels that the network gives, which are compared as they are, or of scores,
            the largest of which counts; ``auc`` and ``mse`` of anything else than labels.

    Raises:
        UsageError: files cannot be read, or do not fit; there is no such metric; or onnxruntime is missing.
        UnsupportedError: onnxruntime cannot run a model.
    """
    entry = project.select_network(project.read_manifest(folder))
    ports = entry["outputs"]
    wanted = _read_labels(labels, ports)
    chosen = _choose_output(ports, metric, wanted, output)
    measure = agreement if metric == "top1" and chosen is not None and _is_label(ports[chosen]) else metric_of(metric)
    is_streamed = entry.get("stream") is not None
    verdict = run_windows(folder, entry, inputs) if is_streamed else run_project(folder, inputs)
    if not verdict.stacked or len(wanted) != verdict.samples:
        told = f"{len(wanted)} labels for {verdict.samples} samples" if verdict.stacked else "the inputs are one sample, not stacked"
        raise UsageError(f"{shorten(labels.name)}: {told}", "Stack the samples on a new first axis, and give a label for each.")
    rows = []
    for name, path in (("float", float_model), ("quantised, in onnxruntime", model)):
        if path is not None:
            name = name.replace("onnxruntime", "LiteRT" if _is_lite(path) else "onnxruntime")
            rows.append((name, _apply_metric(measure, metric, _reference_outputs(path, folder, inputs, chosen), wanted)))
    rows.append(
        (
            "C, windows one after the other" if is_streamed else "C",
            _apply_metric(measure, metric, verdict.outputs if chosen is None else [verdict.outputs[chosen]], wanted),
        )
    )
    return Accuracy(metric, verdict.samples, tuple(rows), None if chosen is None else str(ports[chosen]["name"]))


def _is_lite(model: Path) -> bool:
    return model.is_file() and is_tflite(model.read_bytes())


def _is_label(port: Document) -> bool:
    """Whether an output holds integers that stand for themselves, as labels and indices do, and no quantised numbers."""
    is_plain = port["scale"] == 1 and port["zero_point"] == 0 and port["equality"] != "exact"
    return not DType(port["type"]).is_float and (is_plain or port["type"] == DType.INT64.value)


def _choose_output(ports: Sequence[Document], metric: str, labels: np.ndarray, output: str | None) -> int | None:
    """The place of the output that a metric is of; None where it is a function of all."""
    names = [port["name"] for port in ports]
    if output is not None and output not in names:
        raise UsageError(
            f"--output {shorten(output)}: there is no such output", f"{suggest(output, names)}Use one of {shorten(', '.join(names), 200)}."
        )
    if metric not in METRICS:
        return None if output is None else names.index(output)
    places = range(len(ports)) if output is None else [names.index(output)]
    fitting = [place for place in places if _metric_fits(ports[place], metric, labels)]
    if fitting:
        return fitting[0]
    port = ports[places[0]]
    count = math.prod(port["shape"])
    told = f"{'label' if _is_label(port) else 'element'}{'s' * (count != 1)} per sample and labels of shape {list(labels.shape)}"
    raise UsageError(
        f"--metric {metric}: output {shorten(port['name'])} has {count} {told}, which cannot be compared",
        "Use a metric that fits (auc: a score per sample; mse: numbers), give other labels, or name another output with --output.",
    )


def _metric_fits(port: Document, metric: str, labels: np.ndarray) -> bool:
    """Whether a metric of a name can be of an output, by its shape and type."""
    per_sample, is_label = math.prod(port["shape"]), _is_label(port)
    if metric == "top1" and is_label:
        return labels.size == len(labels) * per_sample
    if metric == "top1":
        return per_sample > 1
    return (metric == "auc" and not is_label) or (metric == "mse" and labels.size == len(labels) * per_sample)


def metric_of(name: str) -> Metric:
    """The metric of a name; see ``evaluate_project``."""
    if name in METRICS:
        return METRICS[name]
    file, _, function = name.rpartition(":")
    if not file.endswith(".py") or not Path(file).is_file() or not function.isidentifier():
        raise UsageError(
            f"--metric {shorten(name)} is unknown",
            f"{suggest(name, METRICS)}Use one of {', '.join(METRICS)}, or FILE.py:NAME of a function.",
        )
    spec = importlib.util.spec_from_file_location("deeploy_metric", file)
    assert spec is not None and spec.loader is not None  # of a file that ends with .py
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        metric: Metric = getattr(module, function)
    except Exception as error:  # the user's own code
        raise UsageError(f"{shorten(file)}: {type(error).__name__}: {shorten(str(error))}", "Make the file of the metric run.") from error
    return metric


def _apply_metric(measure: Metric, name: str, outputs: Sequence[np.ndarray], labels: np.ndarray) -> float:
    if name in METRICS:
        return measure(outputs, labels)
    try:
        return float(measure(outputs, labels))
    except Exception as error:  # the user's own code
        raise UsageError(f"{shorten(name)}: {type(error).__name__}: {shorten(str(error))}", "Make the metric return a number.") from error


def _read_labels(path: Path, ports: Sequence[Document]) -> np.ndarray:
    """The labels of a file; texts as their places in the list of labels that an output has."""
    headers = read_headers(path)
    if len(headers) != 1:
        raise UsageError(f"{shorten(path.name)} holds {len(headers)} arrays instead of one", "Store the labels alone, with numpy.savez.")
    texts = next((port["labels"] for port in ports if "labels" in port), ())
    (labels,) = read_arrays(path, headers, with_texts=bool(texts)).values()
    if labels.dtype.kind == "U":
        unknown = sorted(set(labels.ravel().tolist()) - set(texts))
        if unknown:
            raise UsageError(
                f"{shorten(path.name)}: the network has no label {shorten(unknown[0], 60)!r}", f"It has {shorten(', '.join(texts), 200)}."
            )
        labels = np.array([texts.index(text) for text in labels.ravel().tolist()], np.int64).reshape(labels.shape)
    return labels if labels.ndim else labels.reshape(1)


def _reference_outputs(model: Path, folder: Path, inputs: Path, chosen: int | None) -> list[np.ndarray]:
    """What onnxruntime (of TensorFlow Lite files: LiteRT) makes of samples by another model, whose inputs have the project's shapes.

    All outputs, or the one with the name of the project's ``chosen`` one; the one in its place, where the model has other names.
    """
    entry = project.select_network(project.read_manifest(folder))
    samples = load_arrays(inputs, expected_inputs(entry), "input").samples
    if _is_lite(model):
        outputs = run_litert(model, samples)
        if isinstance(outputs, str):
            raise UsageError(f"{shorten(model.name)} is not evaluated: {outputs}", "Install it, or leave the model out.")
        return outputs if chosen is None else outputs[chosen : chosen + 1]
    try:
        import onnxruntime
    except ImportError as error:
        raise UsageError("onnxruntime is not installed", "pip install onnxruntime") from error
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    failures = (state.Fail, state.InvalidGraph, state.NotImplemented, state.InvalidArgument, state.RuntimeException, state.NoSuchFile)
    try:
        read = in_floats(model)
        loaded = read if isinstance(read, bytes) else str(read)
        session = onnxruntime.InferenceSession(loaded, options, providers=["CPUExecutionProvider"])
        names = [feed.name for feed in session.get_inputs()]
        wanted = [output.name for output in session.get_outputs()]
        if chosen is not None:
            name = entry["outputs"][chosen]["name"]
            if name not in wanted and chosen >= len(wanted):
                raise UsageError(
                    f"{shorten(model.name)} has no output {shorten(name)}", "Leave it out, or name another output with --output."
                )
            wanted = [name if name in wanted else wanted[chosen]]
        wide = {feed.name for feed in session.get_inputs() if feed.type == "tensor(double)"}
        feeds = ({n: a.astype(np.float64) if n in wide else a for n, a in zip(names, sample, strict=False)} for sample in samples)
        results = [session.run(wanted, feed) for feed in feeds]
    except (*failures, ValueError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise UnsupportedError(
            f"onnxruntime cannot run {shorten(model.name)}: {shorten(lines[-1], 200)}", "Check its inputs, or leave it out."
        ) from error
    return [np.stack(column) for column in zip(*results, strict=True)]
