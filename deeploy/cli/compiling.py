"""The commands that compile and run: ``compile``, ``run``, ``verify``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deeploy.cli import build_file
from deeploy.cli.options import (
    BoardOption,
    ExpectOption,
    HostfileOption,
    InputsOption,
    JobsOption,
    JsonOption,
    Model,
    NetworkOption,
    PortOption,
    Project,
    SanitizeOption,
    SchedulerOption,
    SequenceOption,
    SoundOption,
    TimeOption,
    ToleranceOption,
    check_tolerance,
    complete_words,
    print_result,
    print_self_test,
    print_text,
    takes_options,
    target_names,
)
from deeploy.documents import read_document
from deeploy.errors import UsageError, shorten, suggest
from deeploy.options import Options
from deeploy.options.texts import check_seconds
from deeploy.report.progress import Progress
from deeploy.schemas import BUILD, CERTIFICATE

if TYPE_CHECKING:
    from deeploy.devices.compile import Planned
    from deeploy.driver.distributed import Distributed
    from deeploy.driver.project import CompiledProject
    from deeploy.driver.verify import Verdict
    from deeploy.ir.target import Target

app = typer.Typer()


def _print_notes(notes: Iterable[str]) -> None:
    for note in dict.fromkeys(notes):
        print_text(f"note: {note}", to_errors=True)


def _parse_models(texts: list[str]) -> dict[str, Path]:
    """The models by the prefixes of their names in C."""
    if len(texts) == 1 and ("=" not in texts[0] or Path(texts[0]).exists()):
        return {"network": Path(texts[0])}
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


def _resolve_options(models: list[str] | None, config: Path | None, options: Options) -> tuple[dict[str, Path], Options]:
    """The models and options of the command line and of a file; what the command line says counts."""
    if config is None:
        if not models:
            raise UsageError("no model is named", "Name an ONNX file, or a file of options with --config.")
        return _parse_models(models), options
    recorded, others, notes = build_file.read_build_file(config)
    _print_notes(notes)
    return (_parse_models(models) if models else recorded), replace(others, **options.given())


def _compile_for(models: dict[str, Path], target: Target, options: Options) -> CompiledProject | Distributed:
    """What is compiled for one chip, or for several."""
    from deeploy.driver.compile import compile_chips, compile_networks
    from deeploy.generation.generate import find_generators

    if options.chips is None:
        return compile_networks(models, target, options, find_generators)
    return compile_chips(_single_model(models, options), target, options)


def _compile_models(models: dict[str, Path], options: Options) -> CompiledProject | Distributed:
    """What is compiled for the target that the options name."""
    from deeploy.driver.compile import select_target

    return _compile_for(models, select_target(options), options)


def _single_model(models: dict[str, Path], options: Options) -> Path:
    """The model that is cut.

    Raises:
        UsageError: there are several, or operators without a kernel are to be generated.
    """
    if options.generates_kernels:
        raise UsageError("--fallback with --chips: generated kernels are not cut over chips", "Leave one of them out.")
    if len(models) > 1:
        raise UsageError("--chips: several networks cannot be cut together", "Give one model.")
    return next(iter(models.values()))


def compile_or_plan(models: dict[str, Path], options: Options) -> CompiledProject | Distributed | Planned:
    """What is compiled, or planned for a target without code."""
    from deeploy.devices.compile import plan_pipeline
    from deeploy.driver.compile import select_target

    target = select_target(options)
    if target.device is None:
        return _compile_for(models, target, options)
    options.check_one_chip()
    if options.chips is None:
        options = replace(options, chips=1, partition="pipeline", balance="parameters")
    return plan_pipeline(_single_model(models, options), target, options)


def _record_options(models: dict[str, Path], options: Options, output: Path) -> dict[str, str]:
    """The file in a project that says how it was compiled."""
    return {BUILD: build_file.write_build_file(models, options, output)}


def _read_stamps(models: dict[str, Path], options: Options) -> dict[str, str]:
    """What the files and folders held that were read for a compilation."""
    from deeploy.driver.build_cache import stamp_paths
    from deeploy.frontend.load import files_of
    from deeploy.target import origin

    files = [file for model in models.values() for file in files_of(model)]
    named = [Path(file) for file in (options.inputs, options.topology, options.timing, options.self_test) if file is not None]
    return stamp_paths([*files, *named, origin(str(options.target))])


@app.command()
@takes_options
def compile(
    models: Annotated[
        list[str] | None,
        typer.Argument(metavar="MODEL", help="The ONNX, TFLite or .pt2 file; several as NAME=FILE, into one project.", show_default=False),
    ] = None,
    *,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the project.", show_default=False)],
    options: Options,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="deeploy.toml", help="Read models and options from a file; every project contains one."),
    ] = None,
    save_after: Annotated[
        str | None, typer.Option("--save-after", metavar="PASS", help="Save the graph after this pass as OUT.PASS.onnx.")
    ] = None,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Compile again even if nothing changed since the last time.")] = False,
    jobs: JobsOption = None,
    scheduler: SchedulerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compile a model, or several that share weights and caches, into a self-contained folder of C."""
    from deeploy.backend import project
    from deeploy.driver.build_cache import loaded_modules, place_of, stamp_paths
    from deeploy.jobs import workers

    project.check_destination(output)
    given, options = _resolve_options(models, config, options)
    place = None if no_cache or save_after else place_of(repr((given, options)), given.values())
    cached = None if place is None else place.find()
    if cached is not None:
        _print_notes(cached.notes)
        project.write_project(output, {**cached.files, **_record_options(given, options, output)})
    else:
        read = {} if place is None else _read_stamps(given, options)
        with Progress() as progress, workers(jobs, scheduler):
            saved = (save_after, output.with_name(f"{output.name}.{save_after}.onnx")) if save_after else None
            compiled = compile_or_plan(given, replace(options, save_after=saved, on_stage=progress))
        _print_notes(compiled.notes)
        compiled.write(output, _record_options(given, options, output))
        if place is not None:
            place.keep(output, compiled.notes, {**read, **stamp_paths(loaded_modules())})
    from deeploy.devices import report as devices
    from deeploy.report import chips as together
    from deeploy.report import text

    if (plan := project.read_plan(output)) is not None:
        return print_result(plan, as_json, devices.report_stages(plan, output))
    manifest = project.read_manifest(output)
    summary = together.summarise_system if "chips" in manifest else text.summarise_project
    return print_result(manifest, as_json, summary(manifest, output))


def _check_word(on: str, known: Sequence[str], does: str) -> None:
    """Raise UsageError where ``--on`` names no place."""
    if on not in known:
        what = f"--on {shorten(on)}: {does} on {', '.join(known[:-1])} or {known[-1]}"
        raise UsageError(what, f"{suggest(on, known)}Leave --on out, or name one of them.")


def _check_place(on: str, sanitize: bool, board: str | None, port: str | None) -> None:
    if on != "host" and sanitize:
        raise UsageError("--sanitize: only the host has sanitizers", "Leave --sanitize out, or --on.")
    if on != "board" and (board, port) != (None, None):
        raise UsageError("--board or --port without --on board", "Say --on board, or leave them out.")


@app.command()
@takes_options
def verify(
    model: Model,
    options: Options,
    expect: ExpectOption = None,
    tolerance: ToleranceOption = None,
    layers: Annotated[
        bool,
        typer.Option(
            "--layers",
            help="Show the first layer that differs from the interpreter, and the layers where differences from onnxruntime grow.",
        ),
    ] = False,
    on: Annotated[
        str,
        typer.Option(
            "--on",
            metavar="host|gvsoc|qemu|board",
            help="Where the C runs.",
            autocompletion=complete_words("host", "gvsoc", "qemu", "board"),
        ),
    ] = "host",
    board: BoardOption = None,
    port: PortOption = None,
    sanitize: SanitizeOption = False,
    sequence: SequenceOption = False,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Leave with status 1 where outputs differ from onnxruntime's, although the difference is explained."),
    ] = False,
    jobs: JobsOption = None,
    scheduler: SchedulerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compile a model and compare its C with the reference interpreter (bit for bit), onnxruntime and expected outputs."""
    check_tolerance(tolerance)
    _check_word(on, ("host", "gvsoc", "qemu", "board"), "a model is verified")
    _check_place(on, sanitize, board, port)
    options.check_one_chip()
    from deeploy.jobs import workers

    with Progress() as progress, workers(jobs, scheduler):
        from deeploy.driver import verify as checks

        compiled = _compile_models({"network": model}, replace(options, on_stage=progress))
    _print_notes(compiled.notes)
    with workers(jobs, scheduler):
        result = checks.verify_compiled(
            compiled, model, options.inputs, expect, tolerance, layers, sanitize, sequence, on, board, port, strict, options.exact
        )
    _print_notes(result.notes)
    _print_verdict(result, as_json, f"{result.samples} sample{'s' * (result.samples != 1)}")


@app.command()
def certify(
    project: Project,
    every_position: Annotated[
        bool, typer.Option("--every-position", help="Run all positions of states, instead of the first and the last two.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Check a project's certificate: its files are unchanged, and the C does what the graph says for all inputs (docs/trust.md)."""
    from deeploy.backend import project as files
    from deeploy.certify import CertificateError
    from deeploy.driver.certificate import find_changes

    files.read_manifest(project)
    told = read_document(project / CERTIFICATE, CERTIFICATE) if (project / CERTIFICATE).exists() else None
    models, options = _resolve_options(None, project / BUILD, Options())
    with Progress() as progress:
        made = _compile_models(models, replace(options, on_stage=progress))
    contents = {path: files.read_file(project / path) for path in made.sources()}
    changed = find_changes(told, made.hashes(contents)) if told is not None else []
    if told is not None and any(told[name] != fact for name, fact in made.facts().items()):
        changed.append(CERTIFICATE)
    failure = f"changed since {CERTIFICATE} was written: {', '.join(map(shorten, changed))}" if changed else None
    try:
        made.certify(contents, every_position)
    except CertificateError as error:
        failure = f"{failure}; {error}" if failure is not None else str(error)
    if as_json:
        print_text(json.dumps({"certified": failure is None, "failure": failure, "changed": changed}, indent=1))
    elif failure is None:
        print_text("certified: the C does what the graph says, for all inputs")
    else:
        print_text(f"not certified: {failure}\ncompile again, or report this if nobody changed the C (deeploy reduce)", to_errors=True)
    if failure is not None:
        raise typer.Exit(1)


@app.command()
def advise(project: Project, as_json: JsonOption = False) -> None:
    """Plan what would make a project faster, and say by how many cycles (docs/slow.md); report and explain show it from then on."""
    from deeploy.advice.advise import advise as advised
    from deeploy.backend import project as files
    from deeploy.driver.compile import select_target
    from deeploy.report import advice
    from deeploy.schemas import REASONS

    manifest = files.read_manifest(project)
    models, options = _resolve_options(None, project / BUILD, Options())
    target = select_target(options)
    with Progress() as progress:
        options = replace(options, on_stage=progress)
        made = _compile_for(models, target, options)
        if json.loads(made.sources()["deploy.json"]) != {name: value for name, value in manifest.items() if name != "sizes"}:
            what = f"{shorten(str(project))} is not what its model, target and options are compiled to now"
            raise UsageError(what, "Compile it again: deeploy compile --config deeploy.toml -o OUT")
        suggestions = advised(made, lambda given, wanted: _compile_for(models, given, wanted), target, options)
        pages = made.reports(manifest, suggestions)
    for name in ("report.html", REASONS):
        if name in pages:
            files.write_file(project / name, pages[name].encode(), "OUT")
    is_alone = len(suggestions) == 1
    lines = [line for name, entries in suggestions.items() for line in (*([] if is_alone else [f"{name}:"]), *advice.advice_lines(entries))]
    print_result({"advice": next(iter(suggestions.values())) if is_alone else suggestions}, as_json, "\n".join(lines))


def _check_self_test(others: Mapping[str, object]) -> None:
    """Raise UsageError where options are given that a self-test does not have."""
    if (option := next((name for name, value in others.items() if value is not None), None)) is not None:
        raise UsageError(f"{option} with --layers: the self-test runs the samples that were compiled in", "Leave one of them out.")


@app.command()
def run(
    project: Project,
    inputs: InputsOption = None,
    expect: ExpectOption = None,
    tolerance: ToleranceOption = None,
    save: Annotated[Path | None, typer.Option("--save", help="npz file to write the outputs to.")] = None,
    on: Annotated[
        str,
        typer.Option(
            "--on",
            metavar="host|gvsoc|qemu|board|mpi",
            help="Where to run.",
            autocompletion=complete_words("host", "gvsoc", "qemu", "board", "mpi"),
        ),
    ] = "host",
    board: BoardOption = None,
    port: PortOption = None,
    time_limit: TimeOption = None,
    hostfile: HostfileOption = None,
    sanitize: SanitizeOption = False,
    network: NetworkOption = None,
    sequence: SequenceOption = False,
    stream: SoundOption = None,
    layers: Annotated[bool, typer.Option("--layers", help="Run the self-test that was compiled in (--self-test), layer by layer.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Build a project, run it on inputs, and compare the outputs."""
    from deeploy.backend import project as files
    from deeploy.driver import verify as checks

    _check_word(on, ("host", "gvsoc", "qemu", "board", "mpi"), "projects run")
    _check_place(on, sanitize, board, port)
    if hostfile is not None and on != "mpi":
        raise UsageError("--hostfile without --on mpi", "Say --on mpi, or leave --hostfile out.")
    check_tolerance(tolerance)
    check_seconds(time_limit, "--time-limit")
    if layers:
        _check_self_test({"--inputs": inputs, "--expect": expect, "--save": save, "--sequence": sequence or None})
        entry, log = checks.run_self_test(project, network, on, time_limit, board, port)
        return print_self_test(log, entry, as_json, "nanoseconds" if on == "host" else "cycles")
    if stream is not None:
        from deeploy.driver import recordings

        found = recordings.listen(project, stream, on, network, time_limit)
        return print_result(found.contents(), as_json, str(found))
    if inputs is None:
        raise UsageError("no inputs are named", "Give them: --inputs IN.npz, or run the self-test: --layers.")
    if save is not None:
        files.check_file(save, "--save")
    with Progress() as progress:
        result = checks.run_project(
            project, inputs, expect, tolerance, sanitize, network, on, time_limit, progress, sequence, hostfile, board, port
        )
    _print_notes(result.notes)
    if save is not None:
        result.save(save)
    from deeploy.report import text

    lines = [f"{result.samples} sample{'s' * (result.samples != 1)} run on {'the ' * (on in ('host', 'board'))}{on}"]
    _print_verdict(result, as_json, "\n".join(lines + (text.counted_cycles(result.cycles, result.layers) if result.cycles else [])))


@app.command()
def calibrate(
    models: Annotated[list[Path], typer.Argument(metavar="MODEL...", help="Quantised or float ONNX files, whose layers are measured.")],
    target: Annotated[str, typer.Option("--target", "-t", help="Target of the board.", autocompletion=target_names, show_default=False)],
    output: Annotated[Path, typer.Option("--output", "-o", help="TOML file for deeploy compile --timing.", show_default=False)],
    board: Annotated[str, typer.Option("--board", metavar="NAME|FOLDER", help="Board, as for deeploy run.", show_default=False)],
    port: PortOption = None,
    time_limit: Annotated[float | None, typer.Option("--time-limit", help="Seconds that an inference may take.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure the layers of networks on a board, and write what its kernels take: predictions are of your machine then."""
    from deeploy.bringup.calibrate import calibrate_target

    check_seconds(time_limit, "--time-limit")
    with Progress() as progress:
        calibration = calibrate_target(models, target, board, port, output, time_limit, progress)
    print_result(calibration.contents(), as_json, str(calibration))


@app.command()
def evaluate(
    project: Project,
    inputs: Annotated[Path, typer.Option("--inputs", help="npz file with samples, stacked on a new first axis.", show_default=False)],
    labels: Annotated[Path, typer.Option("--labels", help="npz file with a label, or a row of labels, per sample.", show_default=False)],
    metric: Annotated[
        str,
        typer.Option(
            "--metric",
            metavar="top1|auc|mse|FILE.py:NAME",
            help="Metric to compute: a name, or FILE.py:NAME of a Python function, which is executed.",
            autocompletion=complete_words("top1", "auc", "mse"),
        ),
    ] = "top1",
    model: Annotated[Path | None, typer.Option("--model", help="The quantised model, to evaluate it in onnxruntime as well.")] = None,
    float_model: Annotated[Path | None, typer.Option("--float", help="The float model, to evaluate it as well.")] = None,
    output: Annotated[str | None, typer.Option("--output", help="The output to measure, by name, instead of the first that fits.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure accuracy on labelled samples: of the C on the host, of the quantised model, and of the float one."""
    from deeploy.driver.evaluate import evaluate_project as measured

    with Progress() as progress:
        progress("evaluate")
        evaluation = measured(project, inputs, labels, metric, model, float_model, output)
    print_result(evaluation.contents(), as_json, str(evaluation), indent=None)


def _print_verdict(verdict: Verdict, as_json: bool, headline: str) -> None:
    """Print what was compared and leave with status 1 where something differs."""
    lines = [f"  against {against}: {comparison}" for against, comparison in verdict.comparisons]
    print_result(verdict.contents(), as_json, "\n".join([headline, *lines]))
    if not verdict.passed:
        raise typer.Exit(1)
