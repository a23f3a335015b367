"""The command line. Heavy packages are imported inside the commands, so that ``deeploy --help`` stays instant."""

from __future__ import annotations

import gc
import io
import json
import re
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from deeploy import __version__
from deeploy.bringup import commands as bringup
from deeploy.errors import DeeployError, UsageError, shorten
from deeploy.options import (
    BalanceOption,
    BufferingOption,
    CapacityOption,
    ChipsOption,
    ContextOption,
    CoresOption,
    DialectOption,
    DimOption,
    EnginesOption,
    ExpectOption,
    FallbackEngine,
    FallbackOption,
    InputsOption,
    JsonOption,
    LevelOne,
    LevelTwo,
    MemoryOption,
    Model,
    NetworkOption,
    PartitionOption,
    Project,
    QuantisedOption,
    SecondsOption,
    SequenceOption,
    StateOption,
    TargetOption,
    ToleranceOption,
    TopologyOption,
    TypeOption,
    capacities_of,
    chips_of,
    context_of,
    dims_of,
    pairs,
    seconds_of,
    show,
    target_names,
    tolerance_of,
    words,
)

_STATUS = (
    "Exit status: 0 done, and equal where compared; 1 outputs differ; 2 wrong usage or a model that cannot be compiled; 3 it does not fit."
)

app = typer.Typer(
    help="Compile quantised ONNX networks to C for machines whose memories software manages itself.",
    epilog=_STATUS,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.add_typer(bringup.app)


def _version(value: bool) -> None:
    if value:
        show(f"deeploy {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback when something fails.")] = False,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")] = False,
) -> None:
    """``--debug`` is taken out of the arguments by ``main``, so that it works behind a command too."""


def _note(text: str) -> None:
    show(f"note: {text}", to_errors=True)


def _compiled(
    model: Path | dict[str, Path],
    target: str,
    inputs: Path | None,
    input_type: list[str] | None,
    dialect: str | None,
    dim: list[str] | None,
    states: tuple[list[str] | None, int | None],
    quantised_io: bool,
    machine: Mapping[str, Any],
    save_after: tuple[str, Path] | None = None,
    cut: Any = None,
    fallback: bool | str = False,
    may_plan: bool = False,
) -> Any:
    """Compile with a progress line on a terminal, and print the notices; where ``may_plan``, a target without code is planned."""
    if dialect not in (None, "integer", "standard"):
        raise UsageError(f"--dialect {dialect} is unknown", "Use --dialect integer or --dialect standard.")
    options: dict[str, Any] = {
        "inputs": inputs,
        "input_types": pairs(input_type, "--input-type"),
        "dialect": dialect,
        "dims": dims_of(dim),
        "states": pairs(states[0], "--state"),
        "context": context_of(states[1]),
        "quantised_io": quantised_io,
        "save_after": save_after,
    }
    with _Progress() as progress:
        from deeploy import api
        from deeploy import target as registry
        from deeploy.midend.machine import Options

        options |= {"options": Options(**{name: value for name, value in machine.items() if value is not None}), "on_stage": progress}
        found = registry.load(target)
        if cut is None and not (may_plan and found.device):
            compiled: Any = api.compile(model, found, **options, fallback=fallback)
        elif fallback is not False:
            raise UsageError("--fallback with --chips: generated kernels are not cut over chips", "Leave one of them out.")
        else:
            compiled = _distributed(model, cut, found, options, may_plan)
    for note in dict.fromkeys(compiled.notes):
        _note(note)
    return compiled


def _distributed(model: Path | dict[str, Path], cut: Any, target: Any, options: dict[str, Any], may_plan: bool) -> Any:
    from deeploy import chips

    if isinstance(model, dict):
        raise UsageError("--chips: several networks cannot be cut together", "Give one model.")
    if may_plan and target.device:
        return chips.plan(model, target, cut or chips.Cut(1, "pipeline", "parameters"), **options)
    return chips.compile(model, target, cut, **options)


def _cut(chips: str | None, partition: str, balance: str, topology: Path | None) -> Any:
    """How the model is to be cut; None where it is not."""
    if chips is None:
        if topology is not None:
            raise UsageError("--topology without --chips", "Say over how many chips the model is cut: --chips N.")
        return None
    from deeploy.chips import Cut

    return Cut(chips_of(chips), partition, balance, topology)


def _machine(
    l1: int | None,
    l2: int | None,
    memory: list[str] | None,
    cores: int | None,
    engines: str | None,
    buffering: str,
    default_memory: str | None,
    seconds: float | None,
) -> dict[str, Any]:
    """The options that say how much of the target a plan may use (``deeploy.midend.machine.Options``)."""
    capacities = {level: value for level, value in (("l1", l1), ("l2", l2)) if value is not None} | capacities_of(memory)
    seconds_of(seconds, "--seconds")
    chosen = {"capacities": capacities, "cores": cores, "buffering": buffering, "default_memory": default_memory, "seconds": seconds}
    return {**chosen, "engines": None if engines is None else tuple(engines.split(","))}


class _Progress:
    """One line on a terminal that names the running stage; silent where stderr is no terminal."""

    def __enter__(self) -> _Progress:
        self._live = sys.stderr.isatty()
        return self

    def __call__(self, stage: str) -> None:
        if self._live:
            print(f"\r\x1b[K{stage} ...", end="", file=sys.stderr, flush=True)

    def __exit__(self, *_: object) -> None:
        if self._live:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _models(texts: list[str]) -> Path | dict[str, Path]:
    """One model, or several by the prefixes of their names in C."""
    if len(texts) == 1 and ("=" not in texts[0] or Path(texts[0]).exists()):
        return Path(texts[0])
    models: dict[str, Path] = {}
    for text in texts:
        name, equals, path = text.partition("=")
        if not equals or not path or not re.fullmatch("[A-Za-z][A-Za-z0-9_]*", name) or name in models:
            raise UsageError(
                f"{shorten(text, 60)} is not of the form NAME=MODEL.onnx with a name of its own",
                "For example: prompt=prompt.onnx step=step.onnx",
            )
        models[name] = Path(path)
    return models


@app.command()
def compile(
    models: Annotated[
        list[str], typer.Argument(metavar="MODEL", help="The ONNX file; several as NAME=MODEL.onnx, into one project.", show_default=False)
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the project.", show_default=False)],
    target: TargetOption = "generic",
    inputs: InputsOption = None,
    input_type: TypeOption = None,
    dialect: DialectOption = None,
    dim: DimOption = None,
    state: StateOption = None,
    context: ContextOption = None,
    quantised_io: QuantisedOption = False,
    l1: LevelOne = None,
    l2: LevelTwo = None,
    memory: CapacityOption = None,
    cores: CoresOption = None,
    engines: EnginesOption = None,
    buffering: BufferingOption = "auto",
    default_memory: MemoryOption = None,
    seconds: SecondsOption = None,
    chips: ChipsOption = None,
    partition: PartitionOption = "tensor",
    balance: BalanceOption = "cycles",
    topology: TopologyOption = None,
    fallback: FallbackOption = False,
    fallback_engine: FallbackEngine = None,
    save_after: Annotated[
        str | None, typer.Option("--save-after", metavar="PASS", help="Save the graph after a pass, beside the project, as OUT.PASS.onnx.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Compile a model, or several that share weights and caches, into a folder of C that builds on its own."""
    from deeploy.backend import project

    project.check_destination(output)
    saved = (save_after, output.with_name(f"{output.name}.{save_after}.onnx")) if save_after else None
    machine = _machine(l1, l2, memory, cores, engines, buffering, default_memory, seconds)
    cut = _cut(chips, partition, balance, topology)
    filled = fallback_engine if fallback_engine is not None else fallback
    compiled = _compiled(
        _models(models), target, inputs, input_type, dialect, dim, (state, context), quantised_io, machine, saved, cut, filled, True
    )
    compiled.write(output)
    from deeploy.report import chips as together
    from deeploy.report import devices, text

    if (plan := project.read_plan(output)) is not None:
        show(json.dumps(plan, indent=1) if as_json else devices.report(plan, output))
        return
    manifest = project.read_manifest(output)
    summary = together.summary if "chips" in manifest else text.summary
    show(json.dumps(manifest, indent=1) if as_json else summary(manifest, output))


@app.command()
def run(
    project: Project,
    inputs: Annotated[
        Path, typer.Option("--inputs", help="npz with the inputs of one sample, or of several stacked ones.", show_default=False)
    ],
    expect: ExpectOption = None,
    tolerance: ToleranceOption = None,
    save: Annotated[Path | None, typer.Option("--save", help="npz to write the outputs to.")] = None,
    on: Annotated[
        str, typer.Option("--on", metavar="host|gvsoc|qemu|mpi", help="Where to run.", autocompletion=words("host", "gvsoc", "qemu", "mpi"))
    ] = "host",
    time_limit: Annotated[
        float | None, typer.Option("--time-limit", help="Seconds after which a simulation is stopped, or a silent chip is taken for lost.")
    ] = None,
    hostfile: Annotated[Path | None, typer.Option("--hostfile", help="Machines for --on mpi, as mpirun reads them.")] = None,
    sanitize: Annotated[bool, typer.Option("--sanitize", help="Build with the address and undefined-behaviour sanitizers.")] = False,
    network: NetworkOption = None,
    sequence: SequenceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Build a project, run it on inputs, and compare the outputs."""
    from deeploy import verify as checks
    from deeploy.backend import project as files

    if on not in ("host", "gvsoc", "qemu", "mpi"):
        raise UsageError(f"--on {on}: projects run on host, gvsoc, qemu or mpi", "Leave --on out, or name one of them.")
    if on != "host" and sanitize:
        raise UsageError("--sanitize: only the host has sanitizers", "Leave --sanitize out, or --on.")
    if hostfile is not None and on != "mpi":
        raise UsageError("--hostfile without --on mpi", "Say --on mpi, or leave --hostfile out.")
    tolerance_of(tolerance)
    seconds_of(time_limit, "--time-limit")
    if save is not None:
        files.check_file(save, "--save")
    with _Progress() as progress:
        result = checks.run_project(project, inputs, expect, tolerance, sanitize, network, on, time_limit, progress, sequence, hostfile)
    for note in result.notes:
        _note(note)
    if save is not None:
        result.save(save)
    from deeploy.report import text

    lines = [f"{result.samples} sample{'s' * (result.samples != 1)} run on {'the host' if on == 'host' else on}"]
    _finish(result, as_json, "\n".join(lines + (text.cycles(result.cycles, result.layers) if result.cycles else [])))


@app.command()
def verify(
    model: Model,
    target: TargetOption = "generic",
    inputs: InputsOption = None,
    expect: ExpectOption = None,
    tolerance: ToleranceOption = None,
    layers: Annotated[
        bool,
        typer.Option(
            "--layers", help="Show the first layer that differs from the interpreter, and where differences from onnxruntime grow."
        ),
    ] = False,
    sanitize: Annotated[bool, typer.Option("--sanitize", help="Build with the address and undefined-behaviour sanitizers.")] = False,
    sequence: SequenceOption = False,
    input_type: TypeOption = None,
    dialect: DialectOption = None,
    dim: DimOption = None,
    state: StateOption = None,
    context: ContextOption = None,
    quantised_io: QuantisedOption = False,
    l1: LevelOne = None,
    l2: LevelTwo = None,
    memory: CapacityOption = None,
    cores: CoresOption = None,
    engines: EnginesOption = None,
    buffering: BufferingOption = "auto",
    default_memory: MemoryOption = None,
    seconds: SecondsOption = None,
    chips: ChipsOption = None,
    partition: PartitionOption = "tensor",
    balance: BalanceOption = "cycles",
    topology: TopologyOption = None,
    fallback: FallbackOption = False,
    fallback_engine: FallbackEngine = None,
    as_json: JsonOption = False,
) -> None:
    """Compile a model and compare its C with the interpreter (every bit), with onnxruntime, and with golden outputs."""
    from deeploy import verify as checks

    tolerance_of(tolerance)
    machine = _machine(l1, l2, memory, cores, engines, buffering, default_memory, seconds)
    cut = _cut(chips, partition, balance, topology)
    filled = fallback_engine if fallback_engine is not None else fallback
    compiled = _compiled(model, target, inputs, input_type, dialect, dim, (state, context), quantised_io, machine, None, cut, filled)
    result = checks.verify(compiled, model, inputs, expect, tolerance, layers, sanitize, sequence)
    for note in result.notes:
        _note(note)
    _finish(result, as_json, f"{result.samples} sample{'s' * (result.samples != 1)}")


def _finish(verdict: Any, as_json: bool, headline: str) -> None:
    """Print what was compared and leave with status 1 where something differs."""
    if as_json:
        show(json.dumps(verdict.contents(), indent=1))
    else:
        show(headline)
        for against, comparison in verdict.comparisons:
            show(f"  against {against}: {comparison}")
    if not verdict.passed:
        raise typer.Exit(1)


@app.command()
def report(project: Project, as_json: JsonOption = False, network: NetworkOption = None) -> None:
    """Show what a project holds and costs: cycles, memory, layers, transfers, energy; report.html shows more."""
    from deeploy.backend.project import read_manifest, read_plan, select_network
    from deeploy.report import chips, devices, terminal

    if (plan := read_plan(project)) is not None:
        show(json.dumps(plan, indent=1) if as_json else devices.report(plan))
        return
    manifest = read_manifest(project)
    shown = chips.report if "chips" in manifest and network is None else terminal.report
    show(json.dumps(manifest, indent=1) if as_json else shown(select_network(manifest, network)))


@app.command()
def explain(
    project: Project,
    node: Annotated[
        str, typer.Argument(metavar="NODE", help="A layer, by the name of its node or of its function in C.", show_default=False)
    ],
    as_json: JsonOption = False,
    network: NetworkOption = None,
) -> None:
    """Say why a layer has its tile, its engine and the homes of its operands, and what else there was."""
    from deeploy.backend.project import read_manifest, select_network
    from deeploy.report import why

    manifest = read_manifest(project)
    found = why.find(project, select_network(manifest, network or ("chip0" if "chips" in manifest else None)), node)
    show(json.dumps(found, indent=1) if as_json else "\n\n".join(why.describe(one) for one in found))


@app.command()
def inspect(model: Model, dim: DimOption = None, as_json: JsonOption = False) -> None:
    """Show what a model holds: operators, inputs and outputs, quantisation, and what needs to be said to compile it."""
    from deeploy.frontend import import_model
    from deeploy.report import text

    contents = text.contents(import_model(model, dims_of(dim)))
    show(json.dumps(contents, indent=1) if as_json else text.describe_model(contents))


@app.command()
def targets(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="Show one target in detail; of a folder, the Python in it is run.", autocompletion=target_names
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the targets, or show the memories, kernels and passes of one."""
    from deeploy import target as registry
    from deeploy.report import text

    found = [registry.load(n) for n in ([name] if name else registry.names())]
    entries = [text.target_contents(t, detailed=name is not None) for t in found]
    show(json.dumps(entries, indent=1) if as_json else "\n".join(text.describe_target(e) for e in entries))


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


def main() -> None:
    """Entry point: runs a command and turns errors into two lines on stderr and an exit status."""
    arguments = [a for a in sys.argv[1:] if a != "--debug"]
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # what a terminal's encoding does not have
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that unfinished files are removed
    gc.set_threshold(200_000)  # nearly all that a command makes lives until it ends
    try:
        app(args=arguments, prog_name="deeploy")
    except DeeployError as error:
        if "--debug" in sys.argv:
            raise
        show(f"error: {error.what}\n{error.remedy}", to_errors=True)
        sys.exit(error.exit_status)
    except OSError as error:  # what the system refuses: a path that cannot be, a full disk, a program that cannot be started
        if "--debug" in sys.argv:
            raise
        path = f"{shorten(str(error.filename), 160)}: " if error.filename else ""
        remedy = "Check paths, permissions and disks; --debug shows what was attempted."
        show(f"error: {path}{error.strerror or error}\n{remedy}", to_errors=True)
        sys.exit(2)
