"""``deeploy explore``: options, files and printing around a study or a sweep."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from deeploy.documents import Document
from deeploy.errors import UsageError, shorten, suggest
from deeploy.explore.choose import OBJECTIVES, Objective
from deeploy.explore.hardware import load_hardware
from deeploy.explore.networks import read_network
from deeploy.explore.study import describe_study, recost_study, study_unrollings
from deeploy.ir.loops import LayerLoops, distinct_layers
from deeploy.ir.target import Target

MOST_CONFIGS = 8
RESULT = "explore.json"
COSTS = ("formulas", "zigzag")


@dataclass(frozen=True)
class ExploreOptions:
    """What the command line says.

    Attributes:
        vary: fields of the hardware file and their values, for a sweep.
        target: folder of the target to emit; machine: the target whose runtime and host model that one takes.
        cost: of ``COSTS``, what pairs cost.
        results: folder of a sweep's results; points that lie there already are not computed again.
    """

    configs: int = 2
    objective: str = "edp"
    prune: bool = True
    output: Path | None = None
    engine: Path | None = None
    target: Path | None = None
    cost: str = "formulas"
    vary: tuple[str, ...] = ()
    results: Path | None = None
    as_json: bool = False
    machine: str = ""


def run_exploration(models: Sequence[Path], hardware: Path, target: Target, dims: Mapping[str, int], options: ExploreOptions) -> str:
    """Explore and write what was asked for; returns what to print."""
    objective = _parse_objective(options)
    accelerator = load_hardware(hardware)
    layers = distinct_layers([layer for model in models for layer in read_network(model, target, dims)])
    if options.vary:
        return _run_sweep(layers, hardware, objective, options)
    if options.results is not None:
        raise UsageError("--results belongs to a sweep", "Say what to vary, for example: --vary pes=256,1024")
    if options.output is not None:
        _check_folder(options.output, [RESULT], "study", "-o")
    if options.target is not None:
        _check_folder(options.target, ["array.toml", "hardware.toml"], "target that was emitted", "--emit-target")
    result = study_unrollings(layers, accelerator, options.configs, objective, options.prune)
    if options.cost == "zigzag":
        result = recost_study(result)
    description = {"models": [model.name for model in models], **describe_study(result)}
    if options.engine is not None:
        from deeploy.explore.engine import engine_description

        _write_file(options.engine, engine_description(description))
    if options.target is not None:
        from deeploy.explore.emit import target_files

        text = hardware.read_text(encoding="utf-8")
        for name, contents in target_files(description, accelerator, text, options.machine, target.name).items():
            _write_file(options.target / name, contents)
    if options.output is not None:
        from deeploy.explore.report import study_page

        _write_file(options.output / "report.html", study_page(description))
        _write_file(options.output / RESULT, json.dumps(description, indent=1) + "\n")
    if options.as_json:
        return json.dumps(description, indent=1)
    targets = None if options.target is None else options.target / "target.py"
    written = [path for path in (options.output and options.output / "report.html", options.engine, targets) if path is not None]
    return "\n".join([summarise_study(description), *(f"wrote {path}" for path in written)])


def _check_folder(folder: Path, files: Sequence[str], what: str, option: str) -> None:
    """Raise UsageError unless a folder is absent, empty, or holds the files of what was written there before."""
    if folder.is_dir() and any(folder.iterdir()) and not all((folder / name).is_file() for name in files):
        raise UsageError(f"{shorten(str(folder))} exists and holds no {what}", f"Name another folder ({option}), or empty this one.")
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{shorten(str(folder))} exists and is not a folder", f"Name another folder ({option}).")


def _write_file(file: Path, contents: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(contents, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{shorten(str(file))} cannot be written: {error.strerror}", "Name a place that can be written.") from error


def _parse_objective(options: ExploreOptions) -> Objective:
    named_objective = next((o for o in OBJECTIVES if o == options.objective), None)
    if named_objective is None:
        raise UsageError(
            f"--objective {shorten(options.objective)} is unknown",
            f"{suggest(options.objective, OBJECTIVES)}Use one of {', '.join(OBJECTIVES)}.",
        )
    if options.cost not in COSTS:
        raise UsageError(f"--cost {shorten(options.cost)} is unknown", f"{suggest(options.cost, COSTS)}Use one of {', '.join(COSTS)}.")
    if not 1 <= options.configs <= MOST_CONFIGS:
        raise UsageError(f"--configs {options.configs} is out of range", f"Give a number from 1 to {MOST_CONFIGS}.")
    return named_objective


def _run_sweep(layers: Sequence[LayerLoops], hardware: Path, objective: Objective, options: ExploreOptions) -> str:
    from deeploy.explore.sweep import parameter_grid, sweep_points

    if options.output is not None or options.engine is not None or options.target is not None:
        raise UsageError("--output, --write-engine and --emit-target show one accelerator, --vary many", "Leave out one or the other.")
    if options.cost != "formulas":
        raise UsageError(f"--cost {options.cost} with --vary", "Sweep with the formulas, then study single points with ZigZag.")
    points = parameter_grid(options.vary)
    rows = sweep_points(layers, hardware, points, options.configs, objective, options.prune, options.results)
    if options.as_json:
        return json.dumps(rows, indent=1)
    lines = []
    for row in rows:
        at = ", ".join(f"{field} {value:g}" for field, value in row["point"].items())
        best = row["sets"][-1]
        names = " + ".join(u["label"] for u in best["unrollings"])
        lines.append(f"{at}: EDP {best['edp']:.4g} pJ cycles, gain {best['gain']:.3f}, {names}")
    return "\n".join(lines)


def summarise_study(description: Document) -> str:
    """A study for a terminal."""
    counts = description["factorisations"]
    pruned = f", {counts['evaluated']} after pruning" if counts["pruned"] else ", not pruned"
    lines = [
        f"{description['hardware']}: {description['pes']} elements, {len(description['layers'])} different layers",
        f"{counts['all']} factorisations, {counts['useful']} that fit the layers{pruned}; {description['pairs']} pairs evaluated",
    ]
    for entry in description["sets"]:
        figures = f"{entry['cycles']:.4g} cycles, {entry['energy_pj'] / 1e6:.4g} uJ, EDP {entry['edp']:.4g}"
        lines.append(f"{entry['configs']} unrolling{'s' * (entry['configs'] > 1)}: {figures}, gain {entry['gain']:.3f}")
        for u in entry["unrollings"]:
            inner = ", ".join(f"{kind} for {loop}" for kind, loop in u["inner"].items() if loop)
            lines.append(f"  {u['label']:32} {u['layers']:4} layers; innermost: {inner or 'unused'}")
        share = 100 * entry["overhead_gates"] / description["datapath_gates"]
        lines.append(f"  {entry['overhead_gates']} gates of multiplexers and adder trees, {share:.1f} % of the elements'")
    return "\n".join(lines)
