"""The commands of those who write a target; heavy packages are imported inside them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer()
_target = typer.Typer(help="What someone who writes a target needs.", no_args_is_help=True)
app.add_typer(_target, name="target")


@app.command("new-target")
def new_target(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to write; its name is that of the target.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> None:
    """Write the skeleton of a target: one engine, three kernels, a model of the machine, tests; it works at once."""
    from deeploy.bringup import new

    files = new.write(folder)
    if as_json:
        print(json.dumps({"folder": str(folder), "files": [str(file) for file in files]}))
        return
    print("\n".join([*(f"  {file}" for file in files), f"written to {folder}; next: deeploy target check {folder}"]))


@_target.command("check")
def target_check(
    target: Annotated[
        str, typer.Argument(metavar="DIR", help="Folder or name of the target. Of a folder, the Python in it is run.", show_default=False)
    ],
    kernel: Annotated[list[str] | None, typer.Option("--kernel", help="Only kernels whose names begin so.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Also kernels whose C is the compiler's own.")] = False,
    samples: Annotated[int, typer.Option("--samples", min=0, help="Random nodes of every kernel.")] = 16,
    seed: Annotated[int, typer.Option("--seed", help="Of the random nodes, and of where their operands lie.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> None:
    """Run every kernel of a target alone, with sanitizers, against its reference; list limits, timing and what is missing."""
    from deeploy import target as registry
    from deeploy.bringup.check import check
    from deeploy.report import checked

    findings = check(registry.load(target), kernel or (), everything, samples, seed)
    print(json.dumps(findings.contents(), indent=1)) if as_json else checked.show(findings.contents())
    if not findings.passed:
        raise typer.Exit(1)
