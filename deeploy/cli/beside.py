"""The commands for what stands beside the compiler: ``quantize``, ``explore``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from deeploy.cli.options import Choices, DimOption, JsonOption, PinOption, dims_of, pins_of, show, target_names, words
from deeploy.errors import UsageError, shorten
from deeploy.quantization.form import ACTIVATIONS, METHODS, Form
from deeploy.report.progress import Progress

app = typer.Typer()
MOST_LOSS = 100  # decibel
BITS, FEW = 8, 4  # of weights
MOST = 2**31
_Word = TypeVar("_Word", bound=str)

MethodOption = Annotated[
    str | None,
    typer.Option(
        "--method",
        metavar="|".join(METHODS),
        help="Range of a tensor: all values (minmax, the default), least loss of information, or 99.999 % of the values.",
        autocompletion=words(*METHODS),
    ),
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
    activations: Annotated[
        str | None,
        typer.Option(
            "--activations",
            metavar="|".join(ACTIVATIONS),
            help="Element type of activations; int8 by default.",
            autocompletion=words(*ACTIVATIONS),
        ),
    ] = None,
    method: MethodOption = None,
    keep: Annotated[list[str] | None, typer.Option("--keep", metavar="NODE", help="Node to keep in float; may be repeated.")] = None,
    int16: Annotated[
        list[str] | None, typer.Option("--int16", metavar="NODE", help="Node whose outputs get 16 bits; may be repeated.")
    ] = None,
    weights: WeightsOption = BITS,
    group: GroupOption = None,
    weight_bytes: WeightBytesOption = None,
    weight_loss: WeightLossOption = None,
    target: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="TARGET",
            help="Try several quantisation schemes and write the one that this target runs fastest.",
            autocompletion=target_names,
        ),
    ] = None,
    loss: Annotated[float, typer.Option("--loss", metavar="DB", help="Signal-to-noise ratio that --for may give up for speed.")] = 3.0,
    memory: Annotated[list[str] | None, typer.Option("--memory", metavar="NAME=SIZE", help="Limit of a memory, for --for.")] = None,
    engines: Annotated[str | None, typer.Option("--engines", metavar="NAME[,NAME]", help="Engines that may run layers, for --for.")] = None,
    dim: DimOption = None,
    pin: PinOption = None,
    as_json: JsonOption = False,
) -> None:
    """Quantise a float model to int8 QDQ with onnxruntime, calibrated on your data; --for picks the fastest scheme of a target."""
    if target is None:
        from deeploy.midend.machine import bytes_of

        kinds = _one(activations, ACTIVATIONS, "--activations"), _one(method, METHODS, "--method")
        budget = bytes_of(weight_bytes, "--weight-bytes ", 1) if weight_bytes is not None else None
        _check_weights(weights, {"--group": group, "--weight-bytes": budget, "--weight-loss": weight_loss})
        form = Form(not per_tensor, kinds[0], method=kinds[1], keep=tuple(keep or ()), wide=tuple(int16 or ()))
        form = replace(form, weights=weights, group=group, weight_bytes=budget, weight_loss=weight_loss)
        _quantize(model, calibrate, output, form, dims_of(dim), pins_of(pin), as_json)
        return
    for option, is_given in {
        **{"--per-tensor": per_tensor, "--activations": activations, "--method": method},
        **{"--keep": keep, "--int16": int16, "--weights": weights != BITS, "--group": group is not None},
        **{"--weight-bytes": weight_bytes is not None, "--weight-loss": weight_loss is not None},
    }.items():
        if is_given:
            raise UsageError(f"{option} with --for", "--for tries forms of its own; leave one of them out.")
    if not 0 <= loss <= MOST_LOSS:
        raise UsageError(f"--loss {loss:g} is not a number from 0 to {MOST_LOSS}", "For example: --loss 3")
    _quantize_for(target, model, calibrate, output, loss, Choices(memory=memory, engines=engines, dim=dim, pin=pin), as_json)


def _check_weights(weights: int, others: Mapping[str, float | None]) -> None:
    """Raise UsageError where options of weights make no sense."""
    if weights not in (FEW, BITS):
        raise UsageError(f"--weights {weights} is not {FEW} or {BITS}", f"For example: --weights {FEW}")
    for option, value in others.items():
        if value is not None and weights == BITS:
            raise UsageError(f"{option} without --weights {FEW}", f"Add --weights {FEW}, or leave {option} out.")
        if value is not None and not 0 < value < MOST:
            raise UsageError(f"{option} {value:g} is not a positive number", f"For example: {option} 32")


def _one(given: str | None, known: Sequence[_Word], option: str) -> _Word:
    """The word that was given, or the first."""
    if given is not None and given not in known:
        raise UsageError(f"{option} {shorten(given)} is unknown", f"Use one of {', '.join(known)}.")
    return next((word for word in known if word == given), known[0])


def _quantize(
    model: Path, calibrate: Path, output: Path, form: Form, dims: Mapping[str, int], pins: Mapping[str, Sequence[float]], as_json: bool
) -> None:
    from deeploy.quantization.losses import compare
    from deeploy.quantization.static import check_output, quantiser, read, write_quantised
    from deeploy.quantization.weights import summary

    quantiser()
    with Progress() as progress:
        progress("read")
        source, samples = read(model, calibrate, dims, pins)
        check_output(output)
        progress("quantise")
        narrowed = write_quantised(source, model.name, samples, output, form)
        progress("compare with the float model")
        found = compare(source, model.name, samples, output)
    if as_json:
        weights = {"weights": [weight.contents() for weight in narrowed]} if narrowed else {}
        show(json.dumps({"output": str(output), "form": str(form), **weights, **found.contents()}))
        return
    show("\n".join([*([summary(narrowed)] if narrowed else []), found.summary(), f"wrote {output} ({form})"]))


def _quantize_for(target: str, model: Path, calibrate: Path, output: Path, loss: float, choices: Choices, as_json: bool) -> None:
    from deeploy import target as registry
    from deeploy.quantization.forms import quantize_for, summary

    found = registry.load(target)
    with Progress() as progress:
        trials, best = quantize_for(found, model, calibrate, output, loss, choices.request(), lambda form: progress(f"try {form}"))
    if as_json:
        show(json.dumps({"output": str(output), "target": found.name, "chosen": str(best.form), "forms": [t.contents() for t in trials]}))
        return
    show(summary(trials, best))
    show(f"wrote {output}")


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
    workers: Annotated[int | None, typer.Option("--workers", help="Number of processes of a sweep, or of ZigZag.")] = None,
    dask: Annotated[str | None, typer.Option("--dask", metavar="ADDRESS", help="Address of a Dask scheduler to run a sweep.")] = None,
    target: Annotated[str, typer.Option("--target", "-t", help="Target whose kernels define the loop nests.")] = "generic",
    dim: DimOption = None,
    as_json: JsonOption = False,
) -> None:
    """Explore accelerator designs: find the spatial unrollings that suit these networks best."""
    from deeploy import target as registry
    from deeploy.explore.command import Options, run

    options = Options(
        configs, objective, prune, output, write_engine, emit_target, cost, tuple(vary or ()), results, workers, dask, as_json, machine
    )
    with Progress() as progress:
        progress("explore")
        text = run(models, hardware, registry.load(target), dims_of(dim), options)
    show(text)
