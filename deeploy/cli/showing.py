"""The commands that show: ``report``, ``explain``, ``compare``, ``inspect``, ``targets``, ``doctor``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deeploy.cli.options import (
    DimOption,
    JsonOption,
    Model,
    NetworkOption,
    PinOption,
    Project,
    print_result,
    print_self_test,
    print_text,
    target_names,
)
from deeploy.options import Options
from deeploy.options.texts import parse_dims, parse_pins
from deeploy.resources import cache_root, prune_cache
from deeploy.version import VERSION

app = typer.Typer()


@app.command()
def report(
    project: Project,
    as_json: JsonOption = False,
    network: NetworkOption = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show transfers, memories over time, bounds and reasons too.")] = False,
) -> None:
    """Show a project's cycles, memory and layers; report.html shows more."""
    from deeploy.backend.project import read_manifest, read_plan, select_network
    from deeploy.devices import report as devices
    from deeploy.report import advice, chips, terminal

    if (plan := read_plan(project)) is not None:
        return print_result(plan, as_json, devices.report_stages(plan))
    manifest = read_manifest(project)
    entry = select_network(manifest, network)
    if "chips" in manifest and network is None:
        return print_result(entry, as_json, chips.report_system(entry))
    advised = advice.read_advice(project).get(entry["name"])
    return print_result({**entry, "advice": advised or []}, as_json, terminal.report_network(entry, advised, verbose))


@app.command()
def explain(
    project: Project,
    node: Annotated[str, typer.Argument(metavar="NODE", help="Layer: the name of its ONNX node or of its C function.", show_default=False)],
    as_json: JsonOption = False,
    network: NetworkOption = None,
) -> None:
    """Explain why a layer has its engine, tile size and memories, and what the alternatives would cost."""
    from deeploy.backend.project import read_manifest, select_network
    from deeploy.report import explain_layer as why

    manifest = read_manifest(project)
    explanation = why.find_explanations(project, select_network(manifest, network or ("chip0" if "chips" in manifest else None)), node)
    print_result(explanation, as_json, "\n\n".join(map(why.describe_explanation, explanation)))


@app.command()
def compare(
    before: Annotated[Path, typer.Argument(metavar="A", help="A folder that deeploy compile wrote.", show_default=False)],
    after: Annotated[Path, typer.Argument(metavar="B", help="Another one, or a file with what A's self-test printed.", show_default=False)],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="HTML file to write the comparison to as a page.")] = None,
    network: NetworkOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what changed between two projects, and why; or what a self-test found (docs/firmware.md)."""
    from deeploy.backend.project import read_file, read_manifest, select_network, write_file
    from deeploy.report import compare as comparison

    if after.is_file():
        print_self_test(read_file(after).decode(errors="replace"), select_network(read_manifest(before), network), as_json)
        return
    entries = [select_network(read_manifest(folder), network) for folder in (before, after)]
    differences, names = comparison.compare_entries(entries[0], entries[1]), (str(before), str(after))
    if output is not None:
        write_file(output, comparison.comparison_page(differences, names, VERSION).encode(), "--output")
    print_result(differences, as_json, comparison.describe_comparison(differences, names))
    if output is not None and not as_json:
        print_text(f"written to {output}")


@app.command()
def doctor(
    as_json: JsonOption = False,
    clear_cache: Annotated[bool, typer.Option("--clear-cache", help="Delete what is kept from run to run.")] = False,
) -> None:
    """List the compilers, emulators, simulators, boards and packages found here, what each is for, and the build cache."""
    from deeploy.execution.runners.doctor import examine_tools
    from deeploy.report.progress import Progress
    from deeploy.report.text import align_table

    with Progress() as progress:
        progress("look for tools")
        if clear_cache and (root := cache_root()) is not None:
            prune_cache(root, 0)
        findings = examine_tools()
    rows = [
        (t.kind, t.name, "found" if t.found else "-", t.version or "-", t.enables + (f" ({t.remedy})" if t.remedy else ""))
        for t in findings
    ]
    print_result([tool.contents() for tool in findings], as_json, align_table(("", "name", "", "version", "needed for"), rows))


@app.command()
def inspect(
    model: Model,
    dim: DimOption = None,
    pin: PinOption = None,
    after: Annotated[
        str | None,
        typer.Option("--after", metavar="PASS", help="Print the graph behind this pass of a target, or 'import', a line per node."),
    ] = None,
    target: Annotated[
        str, typer.Option("--target", "-t", metavar="NAME", help="The target of --after.", autocompletion=target_names)
    ] = "generic",
    as_json: JsonOption = False,
) -> None:
    """Show a model's operators, inputs, outputs and quantisation, and the options that it needs to be compiled."""
    from deeploy import target as registry
    from deeploy.driver.inspect import inspect_model
    from deeploy.driver.lower import graph_after
    from deeploy.report import text
    from deeploy.report.progress import Progress

    if after is not None:
        print_text(str(graph_after(model, registry.load(target), after, Options(dims=parse_dims(dim), pins=parse_pins(pin)))).rstrip())
        return
    with Progress() as progress:
        progress("read")
        contents = inspect_model(model, parse_dims(dim), parse_pins(pin))
    print_result(contents, as_json, text.describe_model(contents))


@app.command()
def targets(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="Target to show in detail: its name, or a folder with a target.py, which is executed.",
            autocompletion=target_names,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the targets, or show the memories, kernels and passes of one."""
    from deeploy import target as registry
    from deeploy.report import text

    loaded_targets = [registry.load(n) for n in ([name] if name else registry.names())]
    entries = [text.target_contents(t, detailed=name is not None) for t in loaded_targets]
    print_result(entries, as_json, "\n".join(map(text.describe_target, entries)))
