"""The commands of those who write a target; heavy packages are imported inside them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer()
_target = typer.Typer(help="Commands for writing a target.", no_args_is_help=True)
app.add_typer(_target, name="target")


@app.command("new-target")
def new_target(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder to create; its name becomes that of the target.", show_default=False)
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> None:
    """Write a minimal target that works: one engine, three kernels, a timing model, tests."""
    from deeploy.bringup import new

    files = new.write_skeleton(folder)
    if as_json:
        print(json.dumps({"folder": str(folder), "files": [str(file) for file in files]}))
        return
    print("\n".join([*(f"  {file}" for file in files), f"written to {folder}; next: deeploy target check {folder}"]))


@_target.command("check")
def target_check(
    target: Annotated[
        str, typer.Argument(metavar="DIR", help="Name of a target, or a folder with a target.py, which is executed.", show_default=False)
    ],
    kernel: Annotated[list[str] | None, typer.Option("--kernel", help="Only kernels whose names begin with this.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Include the compiler's own kernels.")] = False,
    samples: Annotated[int, typer.Option("--samples", min=0, help="Random test cases per kernel.")] = 16,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the random test cases.")] = 0,
    jobs: Annotated[int | None, typer.Option("--jobs", metavar="N", help="Kernels checked at once; default: one for each core.")] = None,
    scheduler: Annotated[
        str | None, typer.Option("--scheduler", metavar="ADDRESS", help="Dask or Ray cluster that checks them: tcp://HOST:PORT.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> None:
    """Test every kernel of a target against its NumPy reference, with sanitizers; list limits, timing and what is missing."""
    from deeploy import target as registry
    from deeploy.bringup.check import check_target
    from deeploy.jobs import workers
    from deeploy.report import checked
    from deeploy.report.progress import Progress

    with Progress() as progress, workers(jobs, scheduler):
        findings = check_target(registry.load(target), kernel or (), everything, samples, seed, progress, target)
    print(json.dumps(findings.contents(), indent=1)) if as_json else checked.print_findings(findings.contents())
    if not findings.passed:
        raise typer.Exit(1)
