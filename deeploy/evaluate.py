"""Accuracy on labelled samples: of the C of a project, of the quantised model in onnxruntime, and of the float model."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from deeploy.backend import project
from deeploy.documents import Contents
from deeploy.errors import UnsupportedError, UsageError, shorten
from deeploy.frontend.arrays import Expected, load_arrays
from deeploy.frontend.npz import read_arrays, read_headers
from deeploy.report.text import table
from deeploy.verification.metrics import METRICS, Metric
from deeploy.verify import run_project


@dataclass(frozen=True)
class Accuracy:
    """A metric of several ways to run a network, and over how many samples."""

    metric: str
    samples: int
    values: tuple[tuple[str, float], ...]

    def contents(self) -> Contents:
        """For scripts."""
        return {"metric": self.metric, "samples": self.samples, "values": dict(self.values)}

    def __str__(self) -> str:
        return table((f"{self.metric} over {self.samples} samples", ""), [(name, f"{value:.4f}") for name, value in self.values])


def evaluate(
    folder: Path, inputs: Path, labels: Path, metric: str = "top1", model: Path | None = None, float_model: Path | None = None
) -> Accuracy:
    """The metric of a project's C on the host, and of the models that it comes from in onnxruntime.

    Args:
        folder: a project.
        inputs: npz with samples stacked on a new first axis.
        labels: npz with one array: a label per sample, or a row of them.
        metric: ``top1``, ``auc``, ``mse``, or ``FILE.py:NAME`` of a function of the outputs, each stacked over the samples, and the
            labels, which returns a number. The file is run.
        model, float_model: the quantised model that was compiled, and the float one; where they are not named, they are left out.

    Raises:
        UsageError: files cannot be read, or do not fit; there is no such metric; or onnxruntime is missing.
        UnsupportedError: onnxruntime cannot run a model.
    """
    measure, wanted = metric_of(metric), _labels(labels)
    verdict = run_project(folder, inputs)
    if not verdict.stacked or len(wanted) != verdict.samples:
        told = f"{len(wanted)} labels for {verdict.samples} samples" if verdict.stacked else "the inputs are one sample, not stacked"
        raise UsageError(f"{shorten(labels.name)}: {told}", "Stack the samples on a new first axis, and give a label for each.")
    rows = []
    for name, path in (("float", float_model), ("quantised, in onnxruntime", model)):
        if path is not None:
            rows.append((name, _measured(measure, metric, _outputs(path, folder, inputs), wanted)))
    rows.append(("C", _measured(measure, metric, verdict.outputs, wanted)))
    return Accuracy(metric, verdict.samples, tuple(rows))


def metric_of(name: str) -> Metric:
    """The metric of a name; see ``evaluate``."""
    if name in METRICS:
        return METRICS[name]
    file, _, function = name.rpartition(":")
    if not file.endswith(".py") or not Path(file).is_file() or not function.isidentifier():
        raise UsageError(f"--metric {shorten(name)} is unknown", f"Use one of {', '.join(METRICS)}, or FILE.py:NAME of a function.")
    spec = importlib.util.spec_from_file_location("deeploy_metric", file)
    assert spec is not None and spec.loader is not None  # of a file that ends with .py
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        found: Metric = getattr(module, function)
    except Exception as error:  # the user's own code
        raise UsageError(f"{shorten(file)}: {type(error).__name__}: {shorten(str(error))}", "Make the file of the metric run.") from error
    return found


def _measured(measure: Metric, name: str, outputs: Sequence[np.ndarray], labels: np.ndarray) -> float:
    if name in METRICS:
        return measure(outputs, labels)
    try:
        return float(measure(outputs, labels))
    except Exception as error:  # the user's own code
        raise UsageError(f"{shorten(name)}: {type(error).__name__}: {shorten(str(error))}", "Make the metric return a number.") from error


def _labels(path: Path) -> np.ndarray:
    headers = read_headers(path)
    if len(headers) != 1:
        raise UsageError(f"{shorten(path.name)} holds {len(headers)} arrays instead of one", "Store the labels alone, with numpy.savez.")
    (labels,) = read_arrays(path, headers).values()
    return labels if labels.ndim else labels.reshape(1)


def _outputs(model: Path, folder: Path, inputs: Path) -> list[np.ndarray]:
    """What onnxruntime makes of the samples of a project by another model, whose inputs have the project's shapes and order."""
    try:
        import onnxruntime
    except ImportError as error:
        raise UsageError("onnxruntime is not installed", "pip install 'deeploy-compiler[verify]'") from error
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    entry = project.select_network(project.read_manifest(folder))
    samples = load_arrays(inputs, [Expected.of(port) for port in entry["inputs"]], "input").samples
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    failures = (state.Fail, state.InvalidGraph, state.NotImplemented, state.InvalidArgument, state.RuntimeException, state.NoSuchFile)
    try:
        session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        names = [feed.name for feed in session.get_inputs()]
        results = [session.run(None, dict(zip(names, sample, strict=False))) for sample in samples]
    except (*failures, ValueError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise UnsupportedError(
            f"onnxruntime cannot run {shorten(model.name)}: {shorten(lines[-1], 200)}", "Check its inputs, or leave it out."
        ) from error
    return [np.stack(column) for column in zip(*results, strict=True)]
