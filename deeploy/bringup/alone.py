"""A kernel alone: the C of many runs (``deeploy.bringup.runs``) as one program, compiled with sanitizers, run, and compared byte by byte.

It takes the way of a compiled network (layouts of constants, geometry, instance, template), one call at a time. Every buffer lies on
the heap and ends with its last element, so that a read or write behind an operand is an error; what lies between the elements of an
output or before them, and all inputs, must be as they were.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np

from deeploy.backend.emit import instance_source, kernel_files
from deeploy.bringup import runs
from deeploy.bringup.cases import Case
from deeploy.bringup.runs import KernelRun
from deeploy.execution.verification.compare import absolute_differences, relative_excess
from deeploy.ir import interface
from deeploy.ir.kernel import Kernel
from deeploy.ir.target import Target
from deeploy.ir.templates import template_lookup
from deeploy.resources import resource

WARNINGS = (
    *("-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Wmissing-prototypes", "-Wconversion", "-Wsign-conversion"),
    *("-Wshadow", "-Wdouble-promotion", "-Werror"),
)  # those of every Makefile of a project
SANITIZE = ("-O0", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
CALLS = ("--param", "asan-stack=0")  # of the calls, whose arguments on the stack only the kernel reads: checks of them are most of the time
SECONDS = 300  # in which a program ends
ASSETS = Path(__file__).parent / "assets"
HOST = resource("kernels") / "hal" / "host"


@dataclass(frozen=True)
class KernelFailure:
    """What went wrong: on which case, in which way; the first line that says so."""

    case: int | None
    way: str
    text: str


@dataclass(frozen=True)
class KernelProgram:
    """Runs of a kernel, the instances of its C that they call, and what the program knows of the machine, in C."""

    runs: Sequence[KernelRun]
    instances: Mapping[str, interface.Instance]
    machine: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """How many runs were compared, in how many variants of the kernel's C, and the first failure."""

    runs: int
    variants: int
    failure: KernelFailure | None


def try_kernel(kernel: Kernel, target: Target, given: Sequence[Case], folder: Path, compiler: str = "gcc", seed: int = 0) -> Outcome:
    """Run every case in its forms.

    Args:
        folder: takes the sources and the program.
        seed: of what the forms of runs are drawn from.
    """
    program = write_program(kernel, target, given, folder, seed)
    failure = _build_run(kernel, target, program, folder, compiler) or _execute_run(program.runs, folder, target)
    if failure is None:
        done, failure = _compare_runs(program.runs, (folder / "out.bin").read_bytes())
        return Outcome(done, len(program.instances), failure)
    return Outcome(0, len(program.instances), failure)


def write_program(kernel: Kernel, target: Target, given: Sequence[Case], folder: Path, seed: int = 0) -> KernelProgram:
    """Write the C of every case in its forms: a file for each instance of the kernel, and ``main.c``, which calls them."""
    lookup = template_lookup(tuple(target.template_folders))
    instances: dict[str, interface.Instance] = {}
    made: list[KernelRun] = []
    engine = next((engine for engine in target.engines if engine.name == kernel.engine), None)
    cores = 1 if engine is None else 0 if engine.accelerator else engine.cores
    for number, case in enumerate(given):
        subject = runs.make_subject(number, case, kernel, cores)
        for form in runs.draw_forms(subject, Random(f"{seed} {number} {case}")):
            run, more_runs = runs.make_runs(subject, form, lookup)
            instances |= more_runs
            made.append(run)
    program = KernelProgram(made, instances, _describe_machine(target) if engine is not None and engine.accelerator else ())
    _write_run(kernel, target, program, folder)
    return program


def _describe_machine(target: Target) -> tuple[str, ...]:
    """The lines that tell calls of an accelerator's kernel of the machine."""
    accelerators = [engine.name for engine in target.engines if engine.accelerator]
    cores = max(engine.cores for engine in target.engines)
    lines = ['#include "alone.h"', *(f"#define ACCELERATOR_{name} {number}" for number, name in enumerate(accelerators))]
    return (*lines, f"const struct rt_machine rt_machine = {{.cores = {cores}, .accelerators = {len(accelerators)}}};")


def _write_run(kernel: Kernel, target: Target, program: KernelProgram, folder: Path) -> None:
    for name, content in _collect_files(kernel, target).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else content.decode(), encoding="utf-8")
    for instance in program.instances.values():
        (folder / f"{instance.name}.c").write_text(instance_source(instance, f"kernels/{instance.source}"), encoding="utf-8")
    (folder / "main.c").write_text(_print_main(program), encoding="utf-8")
    (folder / "in.bin").write_bytes(b"".join(array.tobytes() for run in program.runs for array in run.memory.values()))


def _collect_files(kernel: Kernel, target: Target) -> Mapping[str, str | bytes]:
    """The sources and headers of a kernel, of its post-processing, and of the kernels that it consists of."""
    files = kernel_files(target, kernel.source)
    for part in [*([kernel.post_processing.kernel] if kernel.post_processing else []), *(phase.kernel for phase in kernel.phases)]:
        files = {**files, **_collect_files(part, target)}
    return files


def include_options(kernel: Kernel, target: Target, program: KernelProgram, folder: Path) -> list[str]:
    """Options of a compiler that find the headers of a written program."""
    paths = {(folder / name).parent for name in _collect_files(kernel, target)} | {path for path in target.runtime if path.is_dir()}
    if program.machine:
        paths |= {ASSETS, HOST, HOST.parent}
    return [*(f"-I{path}" for path in sorted(paths)), *(["-DRT_CHECKED"] if program.machine else [])]


def _build_run(kernel: Kernel, target: Target, program: KernelProgram, folder: Path, compiler: str) -> KernelFailure | None:
    files = [str(folder / f"{name}.c") for name in program.instances]
    if program.machine:
        files += [str(ASSETS / "alone.c"), str(HOST / "npu.c")]
    common = [compiler, *WARNINGS, *SANITIZE, *include_options(kernel, target, program, folder)]
    for command in (
        [*common, *(CALLS if compiler.endswith("gcc") else ()), "-c", str(folder / "main.c"), "-o", str(folder / "main.o")],
        [*common, str(folder / "main.o"), *files, "-lm", "-o", str(folder / "main")],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, encoding="utf-8", errors="replace")
        if done.returncode:
            return KernelFailure(None, "compile", _first_problem(done.stderr, folder, target))
    return None


def _execute_run(made: Sequence[KernelRun], folder: Path, target: Target) -> KernelFailure | None:
    command = [str(folder / "main"), "in.bin", "out.bin"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=folder, timeout=SECONDS, encoding="utf-8", errors="replace"
    )
    if not done.returncode:
        return None
    last = max((int(number) for number in re.findall(r"^run (\d+)$", done.stderr, re.MULTILINE)), default=0)
    return KernelFailure(made[last].case, made[last].way, _first_problem(done.stderr, folder, target))


def _first_problem(text: str, folder: Path, target: Target) -> str:
    """The first line of a compiler's or sanitizer's text that says what is wrong; files by where they were written."""
    lines = [line for line in text.splitlines() if re.search(r"error|ERROR|undefined reference", line)]
    line = lines[0] if lines else (text.strip().splitlines() or ["it ended without a word"])[-1]
    frame = re.search(rf"{re.escape(str(folder))}/\S+:\d+", text) if "Sanitizer" in line else None
    line = f"{frame[0]}: {line.split('ERROR: ')[-1]}" if frame else line
    match = re.search(r"(\S*kernels/)(\S+?)(:\d+)", line)
    if match is not None:
        source_file = next((path / match[2] for path in target.kernel_folders if (path / match[2]).is_file()), None)
        line = line.replace(f"{match[1]}{match[2]}", str(source_file)) if source_file else line
    return line.strip()


def _compare_runs(made: Sequence[KernelRun], data: bytes) -> tuple[int, KernelFailure | None]:
    """How many runs left their memory as it should be, and what the first other one did."""
    position = 0
    for number, run in enumerate(made):
        left: dict[str, np.ndarray] = {}
        for name in (n for n in run.memory if n not in run.scratch):
            size = run.memory[name].nbytes
            left[name] = np.frombuffer(data, np.uint8, size, position)
            position += size
        text = _describe_difference(run, left)
        if text is not None:
            return number, KernelFailure(run.case, run.way, text)
    return len(made), None


def _describe_difference(run: KernelRun, left: Mapping[str, np.ndarray]) -> str | None:
    before = {name: array.view(np.uint8) for name, array in run.memory.items()}
    written = {name: np.zeros(data.size, bool) for name, data in left.items()}
    for name, (owner, places, values) in run.wanted.items():
        got = left[owner].view(values.dtype)[places]
        same = (
            relative_excess(got, values) <= 1 if values.dtype.kind == "f" and not run.is_exact else absolute_differences(got, values) == 0
        )
        if not same.all():
            at = tuple(int(i) for i in np.argwhere(~same)[0])
            hint = (
                " (if its C adds up floats in another order on purpose: reorders=True)" if values.dtype.kind == "f" and run.is_exact else ""
            )
            return f"{name}{list(at)} is {got[at]} instead of {values[at]}; {int((~same).sum())} of {same.size} elements differ{hint}"
        written[owner].reshape(-1, values.itemsize)[places] = True
    for name, data in left.items():
        if ((data != before[name]) & ~written[name]).any():
            outputs = [y for y, (owner, _, _) in run.wanted.items() if owner == name]
            return f"it wrote between or before the elements of {outputs[0]}" if outputs else f"it wrote into its input {name}"
    return None


_TAKE = """
int rt_core(void);
static int core;
int rt_core(void) { return core; }
void rt_barrier(void);
void rt_barrier(void) {}

static void *take(FILE *in, size_t bytes) {
    void *const result = malloc(bytes ? bytes : 1);
    if (!result || fread(result, 1, bytes, in) != bytes) exit(3);
    return result;
}
"""


def _print_main(program: KernelProgram) -> str:
    """One function per run, in the order of their memory in the file."""
    made, instances, machine = program.runs, program.instances, program.machine
    take = "alone_take" if machine else "take"
    lines = [f"#include <{name}.h>" for name in ("math", "stdint", "stdio", "stdlib")]
    lines += sorted({f'#include "{i.struct}.h"' for i in instances.values()})
    lines += [f"void {i.name}(const struct {i.struct} *k);" for i in instances.values()] + [*machine, "" if machine else _TAKE]
    for number, run in enumerate(made):
        lines += [f"static void run_{number}(FILE *in, FILE *out) {{", *(["    alone_begin();"] if machine else [])]
        for name, array in run.memory.items():
            lines.append(f"    {run.types[name]} *m_{name} = {take}(in, {array.nbytes});")
        lines += [f"    {line}" for line in run.body] + (["    alone_end();"] if machine else [])
        lines += [f"    fwrite(m_{name}, 1, {array.nbytes}, out);" for name, array in run.memory.items() if name not in run.scratch]
        lines += [*(f"    free(m_{name});" for name in run.memory if not machine), "}", ""]
    lines += ["int main(int argc, char **argv) {", "    if (argc != 3) return 2;"]
    lines += ['    FILE *in = fopen(argv[1], "rb"), *out = fopen(argv[2], "wb");', "    if (!in || !out) return 3;"]
    for number in range(len(made)):
        lines += [f'    fprintf(stderr, "run {number}\\n");', f"    run_{number}(in, out);"]
    return "\n".join([*lines, "    fclose(in);", "    return fclose(out) != 0;", "}", ""])
