"""``deeploy target check``: every kernel of a target against its C and its reference, and what the target lacks, as a table."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from deeploy.bringup.alone import try_kernel
from deeploy.bringup.cases import Case, draw_cases
from deeploy.documents import Contents
from deeploy.errors import BuildError, TargetError, UsageError, shorten
from deeploy.ir.kernel import Kernel
from deeploy.ir.target import ESTIMATE, Target
from deeploy.jobs import in_order
from deeploy.operators.table import OPERATORS
from deeploy.resources import resource
from deeploy.target import load

SAMPLES_PER_KERNEL = 16
_SHOWN = 6  # names of kernels in a finding

Status = Literal["ok", "failed", "note"]


@dataclass(frozen=True)
class CheckedRow:
    """One line of the table: what was looked at, how it went, and how many runs of how many variants of the C were compared."""

    part: str
    name: str
    status: Status
    runs: int
    finding: str
    variants: int = 0


@dataclass(frozen=True)
class Findings:
    """All rows of a target, and what random nodes were drawn from."""

    target: str
    rows: tuple[CheckedRow, ...]
    samples: int
    seed: int

    @property
    def passed(self) -> bool:
        return all(row.status != "failed" for row in self.rows)

    def contents(self) -> Contents:
        """The findings as a document for ``--json``."""
        return {
            "target": self.target,
            "passed": self.passed,
            "kernels": sum(row.runs > 0 for row in self.rows),
            "variants": sum(row.variants for row in self.rows),
            "cases": sum(row.runs for row in self.rows),
            "samples": self.samples,
            "seed": self.seed,
            "rows": [asdict(row) for row in self.rows],
        }


def check_target(
    target: Target,
    names: Iterable[str] = (),
    everything: bool = False,
    samples: int = SAMPLES_PER_KERNEL,
    seed: int = 0,
    on_kernel: Callable[[str], None] = lambda name: None,
    place: str | None = None,
) -> Findings:
    """Check a target; kernels are tasks of ``deeploy.jobs``.

    Args:
        names: only kernels whose names begin so.
        everything: also the kernels whose C is the compiler's own, beside those of the target; its tests run those.
        samples: random nodes of every kernel.
        seed: of all that is random; the same one gives the same nodes and runs.
        on_kernel: called with the name of every kernel as its turn comes.
        place: the target's name or folder, by which other processes load it; without it, threads of this process check kernels.

    Raises:
        BuildError: there is no C compiler with sanitizers.
        UsageError: no kernel has such a name.
    """
    compiler = _find_compiler()
    wanted = tuple(names)
    kernels = [kernel for kernel in target.kernels if not wanted or kernel.name.startswith(wanted)]
    if not kernels:
        raise UsageError(f"no kernel of {target.name} begins with {' or '.join(wanted)}", "Show them with: deeploy targets NAME")
    everything = everything or bool(wanted) or all(_is_borrowed(kernel, target) for kernel in kernels)
    rows, chosen = [*_check_levels(target)], [kernel for kernel in kernels if everything or not _is_borrowed(kernel, target)]
    with tempfile.TemporaryDirectory(prefix="deeploy-check-", ignore_cleanup_errors=True) as scratch:
        tasks = [
            _Task(place or target, target.kernels.index(kernel), compiler, samples, seed, Path(scratch).resolve()) for kernel in chosen
        ]
        results = in_order(_check_kernel_task, tasks, threads=place is None, bounded=False)
        for kernel in chosen:
            on_kernel(kernel.name)
            rows.append(next(results))
    borrowed = len(kernels) - len(chosen)
    if borrowed:
        rows.append(
            CheckedRow("kernel", f"{borrowed} more", "note", 0, "their C is the compiler's own, and tested there; --all runs it here too")
        )
    return Findings(target.name, (*rows, *_check_timing(target), *_list_missing_operators(target)), samples, seed)


def _find_compiler() -> str:
    """A compiler that finds its sanitizers."""
    compiler = os.environ.get("CC", "gcc")
    if shutil.which(compiler) is None:
        raise BuildError(f"{compiler} is not installed", "Install it (on Debian: apt-get install gcc), or name a C compiler in CC.")
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "empty.c").write_text("int main(void) { return 0; }\n", encoding="utf-8")
        command = [compiler, "-fsanitize=address,undefined", "empty.c", "-o", "empty"]
        if subprocess.run(command, cwd=scratch, capture_output=True, check=False).returncode:
            raise BuildError(f"{compiler} has no address sanitizer", "Install its libraries, or name another C compiler in CC.")
    return compiler


def _is_borrowed(kernel: Kernel, target: Target) -> bool:
    own = resource("kernels")
    source_folder = next((folder for folder in target.kernel_folders if (folder / kernel.source).is_file()), None)
    return bool(kernel.link) or (source_folder is not None and source_folder.resolve() == own.resolve())


def _check_levels(target: Target) -> Iterable[CheckedRow]:
    for memory in target.memories:
        size = "of any size" if memory.capacity is None else f"{memory.capacity} bytes, {memory.reserved} reserved"
        where = "" if memory.base is None else f", from {memory.base:#x}"
        yield CheckedRow("memory", memory.name, "ok", 0, f"{size}{where}, alignment {memory.alignment}")
    for path in target.paths:
        limits = ", ".join(f"{name} {limit}" for name, limit in path.limits.items())
        yield CheckedRow("path", path.name, "ok", 0, f"{path.far} to {path.near}: {limits}")


@dataclass(frozen=True)
class _Task:
    """A kernel to be checked: the number that it has in its target, which is given or said where it is, and where files may lie."""

    target: Target | str
    number: int
    compiler: str
    samples: int
    seed: int
    scratch: Path


def _check_kernel_task(task: _Task) -> CheckedRow:
    target = task.target if isinstance(task.target, Target) else load(task.target)
    task.scratch.mkdir(parents=True, exist_ok=True)  # on another machine
    return _check_kernel(target.kernels[task.number], target, task, lambda kernel: draw_cases(kernel, task.samples, task.seed))


def _check_kernel(kernel: Kernel, target: Target, task: _Task, draw: Callable[[Kernel], list[Case]]) -> CheckedRow:
    """One kernel, on every case that it accepts."""
    if kernel.link:
        return CheckedRow("kernel", kernel.name, "note", 0, "it needs another chip: deeploy verify --chips runs it on the host model")
    try:
        given = draw(kernel)
    except (ArithmeticError, AssertionError, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        return CheckedRow("kernel", kernel.name, "failed", 0, f"its declaration raises {type(error).__name__}: {shorten(str(error), 160)}")
    if not given:
        need = "it accepts none of the samples" if kernel.operator.draw or kernel.samples or kernel.phases else "there are no samples"
        return CheckedRow(
            "kernel", kernel.name, "failed", 0, f"{need} of {shorten(kernel.op)}: give the declaration samples=(Sample(...),)"
        )
    with tempfile.TemporaryDirectory(dir=task.scratch) as scratch:
        try:
            done = try_kernel(kernel, target, given, Path(scratch), task.compiler, task.seed)
        except subprocess.TimeoutExpired:
            return CheckedRow("kernel", kernel.name, "failed", 0, "it does not end")
        except TargetError as error:
            return CheckedRow("kernel", kernel.name, "failed", 0, error.what)
        except (NameError, AttributeError, KeyError, TypeError, ValueError) as error:
            return CheckedRow("kernel", kernel.name, "failed", 0, f"its template {kernel.call} or its nest: {shorten(str(error), 200)}")
    failure = done.failure
    if failure is None:
        tensors = [t for case in given for t in (*case.node.inputs, *case.node.outputs) if t is not None]
        types = sorted({dtype.value for t in tensors for dtype in (t.dtype, *t.narrow)})
        return CheckedRow("kernel", kernel.name, "ok", done.runs, f"{len(given)} nodes, types {' '.join(types)}", done.variants)
    case = "" if failure.case is None else f" for {given[failure.case]}"
    return CheckedRow("kernel", kernel.name, "failed", done.runs, f"{failure.way}{case}: {failure.text}", done.variants)


def _check_timing(target: Target) -> Iterable[CheckedRow]:
    if target.timing is None:
        what = "no timing: plans are made by bytes and work alone, reports have no cycles"
        yield CheckedRow("timing", "", "note", 0, what if target.paths else "no timing: reports have no cycles")
        return
    for engine in target.engines:
        if engine.name not in target.timing.core_mw:
            yield CheckedRow("timing", engine.name, "note", 0, f"no [engine.{engine.name}]: nothing it does is counted")
    yield CheckedRow("timing", "", "ok", 0, f"{len(target.timing.kernels)} rates of kernels at {target.timing.mhz:g} MHz")
    parts = [part for kernel in target.kernels for part in (kernel, *([kernel.post_processing.kernel] if kernel.post_processing else []))]
    kernels = [one for part in parts for one in ([phase.kernel for phase in part.phases] or [part])]
    rates = {kernel.name: target.timing.own(kernel.name, kernel.engine) for kernel in kernels}
    lacking = sorted(name for name, rate in rates.items() if rate is None)
    estimated = sorted({name for name, rate in rates.items() if rate is not None and rate.is_estimate}.union(lacking))
    if lacking and ESTIMATE not in target.timing.kernels:
        what = f"no cycles for every instance of {_list_names(lacking)}: measure them and add [kernel.NAME] without words"
        yield CheckedRow("timing", "", "failed", 0, what)
    elif estimated:
        yield CheckedRow("timing", "", "note", 0, f"an estimate, of {len(estimated)} kernels: {_list_names(estimated)}")


def _list_names(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def _list_missing_operators(target: Target) -> Iterable[CheckedRow]:
    """Operators of the integer form that no kernel runs; views need none."""
    lacking = sorted({op for op, operator in OPERATORS.items() if operator.draw} - {kernel.op for kernel in target.kernels})
    if lacking:
        yield CheckedRow("missing", "operators", "note", 0, f"no kernel for {', '.join(lacking)}: networks with them are refused")
    if target.engines and (alone := sorted({e.name for e in target.engines} - {k.engine for k in target.kernels})):
        yield CheckedRow("missing", "kernels", "note", 0, f"no kernel runs on {', '.join(alone)}")
