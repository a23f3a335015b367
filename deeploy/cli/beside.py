"""The commands for what stands beside the compiler: ``quantize``, ``explore``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deeploy.cli.options import DimOption, JsonOption, dims_of, show

app = typer.Typer()


@app.command()
def quantize(
    model: Annotated[Path, typer.Argument(metavar="FLOAT", help="A float ONNX file.", show_default=False)],
    calibrate: Annotated[Path, typer.Option("--calibrate", help="npz with representative inputs.", show_default=False)],
    output: Annotated[Path, typer.Option("--output", "-o", help="The int8 ONNX file to write.", show_default=False)],
    per_tensor: Annotated[bool, typer.Option("--per-tensor", help="One scale per weight tensor instead of one per channel.")] = False,
) -> None:
    """Quantise a float model statically with onnxruntime: int8 QDQ, per channel, calibrated on your data."""
    from deeploy.frontend.quantize import quantize as static_quantisation

    static_quantisation(model, calibrate, output, per_channel=not per_tensor)
    show(f"wrote {output}")


@app.command()
def explore(
    models: Annotated[list[Path], typer.Argument(help="ONNX files, or lists of layers (.json): one suite.", show_default=False)],
    hardware: Annotated[Path, typer.Option("--hardware", help="TOML file of the accelerator (docs/exploration.md).", show_default=False)],
    configs: Annotated[int, typer.Option("--configs", help="Unrollings that the datapath supports.")] = 2,
    objective: Annotated[str, typer.Option("--objective", metavar="edp|latency|energy", help="What the suite minimises.")] = "edp",
    prune: Annotated[bool, typer.Option("--prune/--no-prune", help="Drop unrollings by the paper's rule, where layers are square.")] = True,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Folder for report.html and explore.json.")] = None,
    write_engine: Annotated[Path | None, typer.Option("--write-engine", help="File for the set, for a target to include.")] = None,
    vary: Annotated[list[str] | None, typer.Option("--vary", metavar="FIELD=V,V", help="Sweep over a field of the hardware file.")] = None,
    results: Annotated[Path | None, typer.Option("--results", help="Folder that keeps a sweep's results, to resume it.")] = None,
    workers: Annotated[int | None, typer.Option("--workers", help="Processes of a sweep.")] = None,
    dask: Annotated[str | None, typer.Option("--dask", metavar="ADDRESS", help="Scheduler that runs a sweep.")] = None,
    target: Annotated[str, typer.Option("--target", "-t", help="Target whose kernels declare the loop nests.")] = "generic",
    dim: DimOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find the spatial unrollings that an accelerator for these networks should support."""
    from deeploy import target as registry
    from deeploy.explore.command import Options, run

    options = Options(configs, objective, prune, output, write_engine, tuple(vary or ()), results, workers, dask, as_json)
    show(run(models, hardware, registry.load(target), dims_of(dim), options))
