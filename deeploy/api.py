"""The Python interface: ``deeploy.compile`` and what it returns, and the other commands as functions.

Every function raises a subclass of ``deeploy.errors.DeeployError``, which says what is wrong and what to do.
"""

from __future__ import annotations

import tempfile
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import wraps
from inspect import Parameter, Signature, cleandoc, signature
from pathlib import Path
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

import numpy as np
import onnx

from deeploy.backend.project import read_manifest, select_network
from deeploy.documents import Contents, Document
from deeploy.driver.compile import compile_networks, load_target, select_target
from deeploy.driver.evaluate import Accuracy
from deeploy.driver.evaluate import evaluate_project as measured
from deeploy.driver.inspect import inspect_model
from deeploy.driver.models import Arrays, Model, model_file, npz_file
from deeploy.driver.project import CompiledProject, Network, Project
from deeploy.driver.verify import Verdict
from deeploy.driver.verify import verify_compiled as compared
from deeploy.errors import DeeployError, UsageError, shorten, suggest
from deeploy.frontend.audio import AudioFeatures, make_features, put_in_front
from deeploy.generation.generate import find_generators
from deeploy.ir.target import Target
from deeploy.options import Exact, Options, list_options, name_arguments, option_parameter
from deeploy.options.texts import PinnedValue
from deeploy.quantization.form import DEFAULT, Form
from deeploy.report import advice
from deeploy.report.explain_layer import find_explanations

__all__ = [
    "Accuracy",
    "AudioFeatures",
    "Compiled",
    "Form",
    "Network",
    "Options",
    "Verdict",
    "advise",
    "compile",
    "evaluate",
    "explore",
    "frontend_audio",
    "inspect",
    "quantize",
    "report",
    "sweep",
    "train_graph",
    "verify",
]


_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


def speak_python(function: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """The function, whose errors name the arguments of Python instead of options of the command line, and end in one frame."""
    names = frozenset(signature(function).parameters)

    @wraps(function)
    def called(*args: _Given.args, **given: _Given.kwargs) -> _Result:
        try:
            return function(*args, **given)
        except DeeployError as error:
            told = type(error)(name_arguments(error.what, names), name_arguments(error.remedy, names))
        raise told

    return called


def _take_options(
    function: Callable[[Model | Mapping[str, str | Path], Options], _Result], record: Callable[_Given, Options]
) -> Callable[Concatenate[Model | Mapping[str, str | Path], _Given], _Result]:
    """The function with the options as arguments of its own, for checkers of types, editors and ``help``."""

    def called(model: Model | Mapping[str, str | Path], /, *args: _Given.args, **given: _Given.kwargs) -> _Result:
        if unknown := [name for name in given if name not in names]:
            told = suggest(unknown[0], names, "")
            raise UsageError(f"there is no option {shorten(unknown[0])}", f"{told}help(deeploy.compile) lists them.")
        return function(model, record(*args, **given))

    names = list(signature(record).parameters)
    own = [option_parameter(parameter) for parameter in signature(record).parameters.values()]
    first = Parameter("model", Parameter.POSITIONAL_ONLY, annotation="Model | Mapping[str, str | Path]")
    called.__signature__ = Signature([first, *own], return_annotation="Compiled")  # type: ignore[attr-defined]
    called.__name__ = called.__qualname__ = function.__name__.strip("_")
    meanings = [f"    {option.field}: {option.describe_argument()}" for option in list_options()]
    called.__doc__ = "\n".join([cleandoc(function.__doc__ or ""), "", "Options:", *meanings])
    return speak_python(called)


class Answers(Project):
    """What a compiled project says of itself and of the model that it was made of, for one chip and for several."""

    @property
    @abstractmethod
    def source(self) -> tuple[Model | None, Sequence[object] | None]:
        """The model, where it is one, and what a PyTorch module is run with once, to export it."""

    @property
    @abstractmethod
    def exact(self) -> Exact:
        """Whose rounding requantisations of TensorFlow Lite files have."""

    @property
    def energy(self) -> Mapping[str, float] | None:
        """Predicted microjoules of an inference of the first network, by part; None where the target has no energies."""
        report = self.report()
        energy: Mapping[str, float] = report.get("energy") or {}
        return energy if report.get("energy_uj") is not None else None

    @property
    def layers(self) -> Sequence[Document]:
        """The layers of the first network, as ``deploy.json`` describes them."""
        layers: Sequence[Document] = self.report()["calls"]
        return layers

    def report(self, network: str | None = None) -> Contents:
        """What a network (of several chips: ``chip0``, ...) costs and where everything lies; see the function ``report``."""
        return report(self, network)

    @speak_python
    def explain(self, layer: str, network: str | None = None) -> list[Contents]:
        """Why a layer, or all layers of a node of the model, have their engines, tiles and memories; of several chips on the first.

        Raises:
            UsageError: there is no such layer or network.
        """
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) / "project"
            self.write(folder)
            manifest = read_manifest(folder)
            return find_explanations(folder, select_network(manifest, network or ("chip0" if "chips" in manifest else None)), layer)

    def verify(self, inputs: Arrays | None = None, expect: Arrays | None = None, **options: Any) -> Verdict:
        """Compare the C with the interpreter, onnxruntime and golden outputs; ``options`` are those of the function ``verify``."""
        return verify(self, None, inputs, expect, **options)

    def evaluate(self, inputs: Arrays, labels: Arrays | np.ndarray, metric: str = "top1", **models: Any) -> Accuracy:
        """The accuracy of the C on labelled samples; ``models`` are further arguments of the function ``evaluate``."""
        return evaluate(self, inputs, labels, metric, **models)


@dataclass(frozen=True, eq=False, repr=False)
class Compiled(CompiledProject, Answers):
    """What ``compile`` returns: one or several networks, planned for one chip, and the model that they were made of."""

    model: Model | Mapping[str, str | Path] | None = None
    example_inputs: Sequence[object] | None = None

    @property
    def source(self) -> tuple[Model | None, Sequence[object] | None]:
        return None if isinstance(self.model, Mapping) else self.model, self.example_inputs

    @property
    def exact(self) -> Exact:
        return "tflite" if self.origin is None else self.origin[2].exact

    @property
    def cycles(self) -> float | None:
        """Predicted cycles of an inference of the first network; None where the target has no timing."""
        run = self.network.predicted
        return None if run is None else run.cycles

    @property
    def advice(self) -> Mapping[str, list[Contents]]:
        """What would make the networks faster, by their names; see ``advise``."""
        return advise(self)


def _compile(model: Model | Mapping[str, str | Path], options: Options) -> Compiled:
    """Compile an ONNX model or a PyTorch module, or several ONNX files into one project (a mapping from C prefix to path).

    Further arguments are the options; ``l1=64_000`` and ``memory={"l1": "64k"}`` are the same. ``example_inputs`` is what a PyTorch module
    is run with once, to export it; ``on_stage`` is called with the name of each stage as it begins. What is returned has ``memory``,
    ``cycles``, ``energy``, ``layers``, ``advice``, ``run``, ``verify``, ``evaluate``, ``explain`` and ``write``. Where there are limits of
    ``flash``, ``ram`` or ``stack``, a cross compiler says what the program takes.

    Raises:
        deeploy.errors.DeeployError: a subclass says what is wrong and what to do.
    """
    if options.chips is not None:
        raise UsageError("deeploy.compile is for one chip", "Use deeploy.chips.compile(model, target, chips=N).")
    examples, options = options.example_inputs, replace(options, example_inputs=None)
    chosen = select_target(options)

    def compiled(target: Target, options: Options) -> CompiledProject:
        if isinstance(model, Mapping):
            return compile_networks(model, target, options, find_generators)
        with model_file(model, examples) as path:
            return compile_networks({"network": path}, target, options, find_generators)

    result = replace(compiled(chosen, options), origin=(compiled, chosen, options))
    return Compiled(**{each.name: getattr(result, each.name) for each in fields(result)}, model=model, example_inputs=examples)


compile = _take_options(_compile, Options)


@speak_python
def quantize(
    model: Model,
    calibration: Arrays,
    output: str | Path | None = None,
    form: Form = DEFAULT,
    *,
    example_inputs: Sequence[object] | None = None,
    dims: Mapping[str, int] | None = None,
    pins: Mapping[str, PinnedValue] | None = None,
    stream: str | None = None,
    at_least: float | None = None,
) -> onnx.ModelProto:
    """Quantise a float model with onnxruntime and return it in int8; with ``output``, it is written there as well.

    Args:
        calibration: representative inputs, by name: samples stacked on the first axis or on a new one before it.
        form: bits, symmetry and granularity of the scales; nodes that stay in float.
        stream: ``INPUT.AXIS`` that will never end, where samples are consecutive windows of a recording (docs/streams.md).
        at_least: decibel of signal to noise that every output keeps; with less, nothing is written.

    Raises:
        UsageError: onnxruntime is missing, or files, samples or names do not fit.
        ModelError, UnsupportedError: the model cannot be read or quantised.
        AccuracyError: an output keeps less than ``at_least``.
    """
    from deeploy.quantization.judged import write_judged
    from deeploy.quantization.run import load_quantiser
    from deeploy.quantization.static import check_output, quantize_model, read_source

    with model_file(model, example_inputs) as source, npz_file(calibration) as samples, tempfile.TemporaryDirectory() as scratch:
        path = Path(output) if output is not None else Path(scratch) / "int8.onnx"
        if at_least is None:
            quantize_model(source, samples, path, form, dims, pins, stream=stream)
        else:
            load_quantiser()
            check_output(path)
            write_judged(read_source(source, samples, dims or {}, pins or {}, None, stream), path, replace(form, least=at_least), at_least)
        return onnx.load(path)


@speak_python
def train_graph(
    model: Model,
    loss: str,
    train: str = "all",
    optimizer: str = "sgd",
    *,
    batch: int | None = None,
    accumulate: int = 1,
    recompute: bool = False,
    objective: Literal["cycles", "ram"] = "cycles",
    activations: Literal["float32", "int8"] = "float32",
    target: str = "generic",
    output: str | Path | None = None,
    inference: str | Path | None = None,
    example_inputs: Sequence[object] | None = None,
    dims: Mapping[str, int] | None = None,
) -> onnx.ModelProto:
    """The training step of a model as one graph: loss, gradients, and weights that have learned (docs/training.md).

    With ``output``, it is written there as well, with ``inference`` the model as it reads the weights of the step.

    Args:
        loss: of the first output by its label: cross_entropy, mse, l1 or bce.
        train: which weights learn: all, last:N, lora:RANK, bias, norms, or names of nodes with commas between them.
        optimizer: sgd, momentum or adam.
        batch: samples of a step, which is the extent of the first axis of all inputs.
        accumulate: steps whose gradients are averaged before weights change.
        recompute: cheap activations are computed again where gradients need them, for less memory.
        activations: int8: what gradients read of the way there is stored in 8 bits, in the range that it has at run time.
        objective: ram: what lowers the peak of RAM of a plan for the target is computed again.

    Raises:
        UsageError: a name is unknown, or the model has no such weights.
        ModelError, UnsupportedError: the model cannot be read, or has no gradient.
    """
    from deeploy.training.step import TrainOptions, make_graphs

    with model_file(model, example_inputs) as path:
        graphs = make_graphs(path, TrainOptions(loss, train, optimizer, batch, accumulate, recompute, objective, target, activations), dims)
    for place, written in ((output, graphs.step), (inference, graphs.inference)):
        if place is not None:
            Path(place).write_bytes(written.SerializeToString())
    return graphs.step


@speak_python
def frontend_audio(
    model: Model | None = None, features: AudioFeatures | None = None, frames: int = 1, input: str | None = None
) -> onnx.ModelProto:
    """A model from samples of sound, ``audio`` [1, samples], to features, or to the outputs of ``model``, which has features for an input.

    Args:
        features: what is computed of sound; without it, the logarithms of 40 mel bands every 20 ms at 16 kHz.
        frames: of a window, without a model.
        input: of the model, where it has several.

    Raises:
        UsageError: no input has so many features.
    """
    about = features or AudioFeatures()
    if model is None:
        return make_features(about, frames)
    with model_file(model) as path:
        return put_in_front(about, onnx.load(path), input)


@speak_python
def verify(
    compiled: Project | Model,
    model: Model | None = None,
    inputs: Arrays | None = None,
    expect: Arrays | None = None,
    *,
    target: str | Path | Target = "generic",
    tolerance: float | None = None,
    sanitize: bool = False,
    sequence: bool = False,
    example_inputs: Sequence[object] | None = None,
) -> Verdict:
    """Run a compiled network's C on this machine, and compare it with the interpreter, with onnxruntime, and with golden outputs.

    Args:
        compiled: what ``compile`` returned, or a model, which is compiled for ``target``.
        model: that was compiled; where it is left out, the one that ``compile`` was given.
        inputs: samples by name; random ones where there are none. ``expect`` are their golden outputs.
        example_inputs: what a PyTorch module is run with once, to export it.
        tolerance: largest absolute difference that counts as equal; without it, the rule of each output.

    Raises:
        UsageError, BuildError: arrays do not fit, or the C cannot be built here.
    """
    if not isinstance(compiled, Project):
        compiled = compile(compiled, target, example_inputs=example_inputs)
    examples = None
    if model is None and isinstance(compiled, Answers):
        model, examples = compiled.source
    if model is None:
        raise UsageError(
            "which model is compared is not known", "Name it: verify(compiled, model=...). Several networks are compared one by one."
        )
    with (
        model_file(model, examples) as path,
        npz_file({} if inputs is None else inputs) as given,
        npz_file({} if expect is None else expect) as golden,
    ):
        wanted = (given if inputs is not None else None), (golden if expect is not None else None)
        exact = compiled.exact if isinstance(compiled, Answers) else "tflite"
        return compared(compiled, path, *wanted, tolerance, False, sanitize, sequence, exact=exact)


@speak_python
def evaluate(
    project: str | Path | Project,
    inputs: Arrays,
    labels: Arrays | np.ndarray,
    metric: str = "top1",
    model: Model | None = None,
    float_model: Model | None = None,
    output: str | None = None,
) -> Accuracy:
    """The accuracy of a project's C on labelled samples; of the quantised and the float model as well, where these are given.

    Args:
        inputs: by name, samples stacked on a new first axis.
        labels: one for every sample, or a row of them.
        metric: ``top1``, ``auc``, ``mse``, or ``FILE.py:NAME``.
        output: the output that is measured, by name, instead of the first that fits.

    Raises:
        UsageError, UnsupportedError: arrays do not fit, there is no such metric, or onnxruntime cannot run a model.
    """
    wanted = labels if isinstance(labels, str | Path | Mapping) else {"labels": np.asarray(labels)}
    with tempfile.TemporaryDirectory() as scratch, npz_file(inputs) as given, npz_file(wanted) as told:
        if isinstance(project, Project):
            project.write(Path(scratch) / "project")
            project = Path(scratch) / "project"
        with model_file(model or "") as quantised, model_file(float_model or "") as floats:
            models = (quantised if model is not None else None), (floats if float_model is not None else None)
            return measured(Path(project), given, told, metric, *models, output)


@speak_python
def inspect(model: Model, *, dims: Mapping[str, int] | None = None, pins: Mapping[str, PinnedValue] | None = None) -> Contents:
    """What a model holds: operators, inputs, outputs, bytes of constants.

    Where dimensions have no extent, it is what the file says, and ``flags`` are the options that ``deeploy compile`` needs.

    Raises:
        ModelError, UnsupportedError, UsageError: it cannot be read, or does not have what ``dims`` or ``pins`` name.
    """
    with model_file(model) as path:
        return inspect_model(path, dims, pins)


@speak_python
def report(project: str | Path | Project, network: str | None = None) -> Contents:
    """What a network costs and where everything lies: its entry of ``deploy.json``, with what ``deeploy advise`` found as ``advice``.

    Raises:
        UsageError: the folder is no project, or has no such network.
    """
    if isinstance(project, Project):
        with tempfile.TemporaryDirectory() as scratch:
            project.write(Path(scratch) / "project")
            return report(Path(scratch) / "project", network)
    entry = select_network(read_manifest(Path(project)), network)
    return {**entry, "advice": list(advice.read_advice(Path(project)).get(entry["name"], []))}


@speak_python
def advise(compiled: CompiledProject) -> Mapping[str, list[Contents]]:
    """What would make the networks of a project faster, by their names: the project is compiled again with every change that could.

    Args:
        compiled: what ``compile`` returned.

    Raises:
        UsageError: ``compile`` did not return it.
    """
    from deeploy.advice.advise import advise as advised

    if compiled.origin is None:
        raise UsageError(f"{compiled!r} cannot be compiled again", "Pass what deeploy.api.compile returned.")
    return advised(compiled, *compiled.origin)


@speak_python
def explore(
    models: Sequence[str | Path], hardware: str | Path, configs: int = 2, objective: str = "edp", target: str | Path = "generic"
) -> Contents:
    """The spatial unrollings that an accelerator for these networks should support (docs/exploration.md).

    Args:
        hardware: TOML file of the accelerator; ``objective`` is ``edp``, ``latency`` or ``energy``.

    Raises:
        UsageError, ModelError, UnsupportedError: files cannot be read, or an argument is unknown.
    """
    import json

    from deeploy.explore.command import ExploreOptions as Study
    from deeploy.explore.command import run_exploration

    wanted = Study(configs, objective, as_json=True)
    exploration: Contents = json.loads(run_exploration([Path(model) for model in models], Path(hardware), load_target(target), {}, wanted))
    return exploration


@speak_python
def sweep(
    matrix: str | Path | Document,
    output: str | Path,
    base: str | Path | None = None,
    *,
    jobs: int | None = None,
    scheduler: str | None = None,
) -> Any:
    """Compile and measure every combination of networks, targets and options (docs/sweep.md).

    Args:
        matrix: TOML file of the sweep, or what such a file holds, with paths from the working directory.
        output: folder for the table, its page and the cells; those that are there are not computed again.
        base: folder of another sweep, to compare with.
        jobs, scheduler: what runs the cells; see ``deeploy.jobs.workers``.

    Returns:
        The table: a ``pandas.DataFrame``, or a list with a dictionary for each row where pandas is not installed.

    Raises:
        UsageError: the file is wrong, or the folder is something else. A cell that fails is a row.
    """
    from deeploy.jobs import workers
    from deeploy.sweeps.run import run_sweep as run

    with workers(jobs, scheduler):
        rows = run(matrix, Path(output), Path(base) if base is not None else None)
    try:
        from pandas import DataFrame
    except ImportError:
        return rows
    return DataFrame(rows)


def __dir__() -> list[str]:
    return sorted(__all__)
