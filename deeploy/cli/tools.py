"""The commands for what stands beside the compiler: ``quantize``, ``train-graph``, ``explore``, ``sweep``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from deeploy.cli.options import (
    DimOption,
    JobsOption,
    JsonOption,
    PinOption,
    SchedulerOption,
    complete_words,
    print_result,
    print_text,
    target_names,
)
from deeploy.errors import UsageError, shorten, suggest
from deeploy.options import Options
from deeploy.options.texts import PinnedValue, parse_dims, parse_pairs, parse_pins, parse_size
from deeploy.quantization.form import ACTIVATIONS, FLOAT_SHARE, LEAST, METHODS, PERCENTILE, Form
from deeploy.report.progress import Progress

app = typer.Typer()
MOST_LOSS = 100  # decibel
BITS, FEW = 8, 4  # of weights
MOST = 2**31
_Word = TypeVar("_Word", bound=str)

ActivationsOption = Annotated[
    str | None,
    typer.Option(
        "--activations",
        metavar="|".join(ACTIVATIONS),
        help="Element type of activations; int8 by default.",
        autocompletion=complete_words(*ACTIVATIONS),
    ),
]
ForOption = Annotated[
    str | None,
    typer.Option(
        "--for",
        metavar="TARGET",
        help="Try several quantisation schemes and write the one that this target runs fastest.",
        autocompletion=target_names,
    ),
]
MethodOption = Annotated[
    str | None,
    typer.Option(
        "--method",
        metavar="|".join(METHODS),
        help="Range of a tensor: all values (minmax, the default), least loss of information, or a share of the values.",
        autocompletion=complete_words(*METHODS),
    ),
]
PercentileOption = Annotated[
    float | None,
    typer.Option("--percentile", metavar="PERCENT", help=f"Share of the values that a range holds, {PERCENTILE:g} by default."),
]
StateOption = Annotated[
    list[str] | None,
    typer.Option(
        "--state",
        metavar="IN=OUT",
        help="Input that is an output of the step before; samples are then one sequence. Default: as names say; none: there are none.",
    ),
]
RecordingOption = Annotated[
    str | None,
    typer.Option(
        "--stream",
        metavar="INPUT.AXIS",
        help="Axis that will never end; samples are consecutive windows of a recording, whose states begin once.",
    ),
]
AtLeastOption = Annotated[
    float | None,
    typer.Option("--at-least", metavar="DB", help="Least signal-to-noise ratio of every output; below it, nothing is written."),
]
FloatShareOption = Annotated[
    float,
    typer.Option("--float-share", metavar="0..1", help="Share of all values that may stay in float where 8 bits ruin an output."),
]
WeightsOption = Annotated[int, typer.Option("--weights", metavar="8|4", help="Bits of the weights of matrix products and convolutions.")]
GroupOption = Annotated[
    int | None, typer.Option("--group", metavar="N", help="Weights of a matrix product per scale; default: a whole channel.")
]
WeightBytesOption = Annotated[
    str | None,
    typer.Option(
        "--weight-bytes", metavar="SIZE", help="Limit of all weights in bytes: the layers that lose most accuracy in 4 bits keep 8."
    ),
]
WeightLossOption = Annotated[
    float | None,
    typer.Option("--weight-loss", metavar="DB", help="Least signal-to-noise ratio of outputs against those of weights with 8 bits."),
]


@app.command()
def quantize(
    model: Annotated[Path, typer.Argument(metavar="FLOAT", help="A float ONNX file.", show_default=False)],
    calibrate: Annotated[Path, typer.Option("--calibrate", help="npz with representative inputs.", show_default=False)],
    output: Annotated[Path, typer.Option("--output", "-o", help="The int8 ONNX file to write.", show_default=False)],
    per_tensor: Annotated[bool, typer.Option("--per-tensor", help="One scale per weight tensor instead of per channel.")] = False,
    activations: ActivationsOption = None,
    method: MethodOption = None,
    percentile: PercentileOption = None,
    keep: Annotated[list[str] | None, typer.Option("--keep", metavar="NODE", help="Node to keep in float; may be repeated.")] = None,
    int16: Annotated[
        list[str] | None, typer.Option("--int16", metavar="NODE", help="Node whose outputs get 16 bits; may be repeated.")
    ] = None,
    weights: WeightsOption = BITS,
    group: GroupOption = None,
    weight_bytes: WeightBytesOption = None,
    weight_loss: WeightLossOption = None,
    target: ForOption = None,
    loss: Annotated[float, typer.Option("--loss", metavar="DB", help="Signal-to-noise ratio that --for may give up for speed.")] = 3.0,
    memory: Annotated[list[str] | None, typer.Option("--memory", metavar="NAME=SIZE", help="Limit of a memory, for --for.")] = None,
    engines: Annotated[str | None, typer.Option("--engines", metavar="NAME[,NAME]", help="Engines that may run layers, for --for.")] = None,
    dim: DimOption = None,
    pin: PinOption = None,
    state: StateOption = None,
    stream: RecordingOption = None,
    at_least: AtLeastOption = None,
    float_share: FloatShareOption = FLOAT_SHARE,
    as_json: JsonOption = False,
) -> None:
    """Quantise a float model to int8 QDQ with onnxruntime, calibrated on your data; --for picks the fastest scheme of a target."""
    if at_least is not None and not 0 <= at_least <= MOST_LOSS:
        raise UsageError(f"--at-least {at_least:g} is not a number from 0 to {MOST_LOSS}", "For example: --at-least 30")
    if not 0 <= float_share <= 1:
        raise UsageError(f"--float-share {float_share:g} is not a number from 0 to 1", "For example: --float-share 0.5")
    states = None if not state else {} if state == ["none"] else parse_pairs(state, "--state")
    if target is None:
        kinds = _choose_word(activations, ACTIVATIONS, "--activations"), _choose_word(method, METHODS, "--method")
        form = Form(not per_tensor, kinds[0], method=kinds[1], keep=tuple(keep or ()), wide=tuple(int16 or ()))
        form = replace(_with_weights(form, weights, group, weight_bytes, weight_loss), float_share=float_share)
        form = replace(form, least=LEAST if at_least is None else at_least)
        if percentile is not None:
            form = _with_percentile(form, method, percentile)
        _quantize_model(model, calibrate, output, form, at_least, states, stream, parse_dims(dim), parse_pins(pin), as_json)
        return
    for option, is_given in {
        **{"--per-tensor": per_tensor, "--activations": activations, "--method": method, "--percentile": percentile},
        **{"--keep": keep, "--int16": int16, "--weights": weights != BITS, "--group": group is not None},
        **{"--weight-bytes": weight_bytes is not None, "--weight-loss": weight_loss is not None},
        **{"--at-least": at_least is not None, "--float-share": float_share != FLOAT_SHARE, "--stream": stream is not None},
    }.items():
        if is_given:
            raise UsageError(f"{option} with --for", "--for tries forms of its own; leave one of them out.")
    if not 0 <= loss <= MOST_LOSS:
        raise UsageError(f"--loss {loss:g} is not a number from 0 to {MOST_LOSS}", "For example: --loss 3")
    limits = {name: parse_size(size, f"--memory {shorten(name, 60)}=") for name, size in parse_pairs(memory, "--memory").items()}
    teams = None if engines is None else tuple(engines.split(","))
    options = Options(target, memory=limits, engines=teams, dims=parse_dims(dim), pins=parse_pins(pin))
    _quantize_for(model, calibrate, output, loss, options, states, as_json)


def _with_weights(form: Form, weights: int, group: int | None, weight_bytes: str | None, loss: float | None) -> Form:
    """The form with options of weights; raises UsageError where these make no sense."""
    if weights not in (FEW, BITS):
        raise UsageError(f"--weights {weights} is not {FEW} or {BITS}", f"For example: --weights {FEW}")
    budget = parse_size(weight_bytes, "--weight-bytes ", 1) if weight_bytes is not None else None
    for option, value in {"--group": group, "--weight-bytes": budget, "--weight-loss": loss}.items():
        if value is not None and weights == BITS:
            raise UsageError(f"{option} without --weights {FEW}", f"Add --weights {FEW}, or leave {option} out.")
        if value is not None and not 0 < value < MOST:
            raise UsageError(f"{option} {value:g} is not a positive number", f"For example: {option} 32")
    return replace(form, weights=weights, group=group, weight_bytes=budget, weight_loss=loss)


def _with_percentile(form: Form, method: str | None, percentile: float) -> Form:
    """The form with ranges that hold a share of the values; raises UsageError where the share or the method is another."""
    if method not in (None, "percentile") or not 50 < percentile <= 100:
        what = f"--percentile {percentile:g} is not above 50 and up to 100, or --method is another one"
        raise UsageError(what, "For example: --percentile 99.9")
    return replace(form, method="percentile", percentile=percentile)


def _choose_word(given: str | None, known: Sequence[_Word], option: str) -> _Word:
    """The word that was given, or the first."""
    if given is not None and given not in known:
        raise UsageError(f"{option} {shorten(given)} is unknown", f"{suggest(given, known, f'{option} ')}Use one of {', '.join(known)}.")
    return next((word for word in known if word == given), known[0])


def _quantize_model(
    model: Path,
    calibrate: Path,
    output: Path,
    form: Form,
    at_least: float | None,
    states: Mapping[str, str] | None,
    stream: str | None,
    dims: Mapping[str, int],
    pins: Mapping[str, PinnedValue],
    as_json: bool,
) -> None:
    from deeploy.quantization.judged import write_judged
    from deeploy.quantization.messages import compare_sizes, describe_result, warn_of_loss
    from deeploy.quantization.run import load_quantiser
    from deeploy.quantization.static import check_output, read_source
    from deeploy.quantization.weights import summarise_weights

    load_quantiser()
    check_output(output)
    with Progress() as progress:
        progress("read")
        source = read_source(model, calibrate, dims, pins, states, stream)
        written, comparison, stored = write_judged(source, output, form, at_least, progress)
    head = {"output": str(output), "form": str(form), "bytes": dict(zip(("float", "quantised"), stored, strict=True))}
    lines = [summarise_weights(written.weights)] if written.weights else []
    lines += [comparison.summary(), *describe_result(source, written), compare_sizes(*stored), f"wrote {output} ({form})"]
    contents = {**head, **written.contents(source.states), **comparison.contents()}
    print_result(contents, as_json, "\n".join([*lines, *warn_of_loss(comparison)]), indent=None)


def _quantize_for(
    model: Path,
    calibrate: Path,
    output: Path,
    loss: float,
    options: Options,
    states: Mapping[str, str] | None,
    as_json: bool,
) -> None:
    from deeploy.driver.compile import select_target
    from deeploy.quantization.forms import quantize_for, summarise_trials
    from deeploy.quantization.messages import warning_of

    loaded_target = select_target(options)
    with Progress() as progress:
        trials, best = quantize_for(loaded_target, model, calibrate, output, loss, options, states, lambda form: progress(f"try {form}"))
    contents = {"output": str(output), "target": loaded_target.name, "chosen": str(best.form), "forms": [t.contents() for t in trials]}
    lines = [summarise_trials(trials, best), f"wrote {output}", *warning_of("the worst output", best.signal_to_noise)]
    print_result(contents, as_json, "\n".join(lines), indent=None)


@app.command("train-graph")
def train_graph(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="An ONNX file.", show_default=False)],
    loss: Annotated[
        str,
        typer.Option("--loss", metavar="cross_entropy|mse|l1|bce", help="What the first output costs by its label.", show_default=False),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The ONNX file of the training step to write.", show_default=False)],
    train: Annotated[
        str,
        typer.Option("--train", metavar="all|last:N|lora:RANK|bias|norms|NODE[,NODE]", help="Which weights learn; the others are frozen."),
    ] = "all",
    optimizer: Annotated[str, typer.Option("--optimizer", metavar="sgd|momentum|adam", help="How weights change.")] = "sgd",
    batch: Annotated[int | None, typer.Option("--batch", metavar="N", help="Samples of a step; default: as many as the model has.")] = None,
    accumulate: Annotated[
        int, typer.Option("--accumulate", metavar="N", help="Steps whose gradients are averaged before weights change.")
    ] = 1,
    recompute: Annotated[
        bool, typer.Option("--recompute", help="Compute cheap activations again where gradients need them, for less RAM.")
    ] = False,
    objective: Annotated[
        str, typer.Option("--objective", metavar="cycles|ram", help="ram: compute again what lowers the peak of RAM on the target.")
    ] = "cycles",
    activations: Annotated[
        str, typer.Option("--activations", metavar="float32|int8", help="How what gradients read of the way there is stored.")
    ] = "float32",
    target: Annotated[str, typer.Option("--target", "-t", help="The target that plans of --objective ram are for.")] = "generic",
    inference: Annotated[
        Path | None, typer.Option("--inference", metavar="FILE", help="Also write the model as it reads the weights of the step.")
    ] = None,
    dim: DimOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write the training step of a model: one graph that computes the loss, its gradients, and weights that have learned."""
    from deeploy.backend.project import write_file
    from deeploy.training.step import TrainOptions, make_graphs

    graphs = make_graphs(
        model, TrainOptions(loss, train, optimizer, batch, accumulate, recompute, objective, target, activations), parse_dims(dim)
    )
    step = graphs.step
    write_file(output, step.SerializeToString(), "--output")
    if inference is not None:
        write_file(inference, graphs.inference.SerializeToString(), "--inference")
    states = {tensor.name for tensor in step.graph.initializer} & {value.name for value in step.graph.input}
    count = sum(math.prod(tensor.dims) for tensor in step.graph.initializer if tensor.name in states)
    contents = {"step": str(output), "nodes": len(step.graph.node), "states": len(states), "elements": count}
    told = f"wrote {output}: {contents['nodes']} nodes, {contents['states']} states of {count} elements"
    print_result(contents, as_json, told, indent=None)


@app.command()
def explore(
    models: Annotated[
        list[Path], typer.Argument(help="ONNX files, or lists of layers (.json), which form one benchmark suite.", show_default=False)
    ],
    hardware: Annotated[Path, typer.Option("--hardware", help="TOML file of the accelerator (docs/exploration.md).", show_default=False)],
    configs: Annotated[int, typer.Option("--configs", help="Number of unrollings that the datapath supports.")] = 2,
    objective: Annotated[
        str, typer.Option("--objective", metavar="edp|latency|energy", help="What is minimised over the suite; edp is energy times delay.")
    ] = "edp",
    prune: Annotated[
        bool,
        typer.Option("--prune/--no-prune", help="Skip unrollings by the pruning rule of docs/exploration.md, for square layers."),
    ] = True,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Folder to write report.html and explore.json to.")] = None,
    write_engine: Annotated[
        Path | None, typer.Option("--write-engine", help="File to write the chosen unrollings to, for a target to include.")
    ] = None,
    emit_target: Annotated[
        Path | None, typer.Option("--emit-target", metavar="DIR", help="Folder to write a target to that has the chosen unrollings.")
    ] = None,
    machine: Annotated[
        str,
        typer.Option("--machine", help="Target whose runtime and host model the emitted one takes.", autocompletion=target_names),
    ] = "siracusa",
    cost: Annotated[
        str,
        typer.Option("--cost", metavar="formulas|zigzag", help="zigzag: choose by ZigZag's costs, of unrollings that the formulas leave."),
    ] = "formulas",
    vary: Annotated[
        list[str] | None, typer.Option("--vary", metavar="FIELD=V,V", help="Sweep a field of the hardware file over these values.")
    ] = None,
    results: Annotated[
        Path | None, typer.Option("--results", help="Folder for the results of a sweep, from which it can be resumed.")
    ] = None,
    jobs: JobsOption = None,
    scheduler: SchedulerOption = None,
    target: Annotated[str, typer.Option("--target", "-t", help="Target whose kernels define the loop nests.")] = "generic",
    dim: DimOption = None,
    as_json: JsonOption = False,
) -> None:
    """Explore accelerator designs: find the spatial unrollings that suit these networks best."""
    from deeploy import target as registry
    from deeploy.explore.command import ExploreOptions, run_exploration
    from deeploy.jobs import workers

    options = ExploreOptions(
        configs, objective, prune, output, write_engine, emit_target, cost, tuple(vary or ()), results, as_json, machine
    )
    with Progress() as progress, workers(jobs, scheduler):
        progress("explore")
        text = run_exploration(models, hardware, registry.load(target), parse_dims(dim), options)
    print_text(text)


@app.command()
def sweep(
    matrix: Annotated[Path, typer.Argument(metavar="SWEEP.toml", help="Networks, and options with their values.", show_default=False)],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the table, its page and the cells.", show_default=False)],
    base: Annotated[Path | None, typer.Option("--base", metavar="DIR", help="Folder of another sweep, to compare with.")] = None,
    jobs: JobsOption = None,
    scheduler: SchedulerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compile and measure every combination of networks, targets and options: a table, and a page with filters (docs/sweep.md)."""
    from collections import Counter

    from deeploy.jobs import workers
    from deeploy.sweeps.run import run_sweep as run

    with Progress() as progress, workers(jobs, scheduler):
        rows = run(matrix, output, base, progress)
    counts = Counter(row["status"] for row in rows)
    told = f"{len(rows)} cells: {', '.join(f'{count} {status}' for status, count in counts.items())}\nwritten to {output}"
    print_result(rows, as_json, told)
