"""Runs on this host: natively, on the model of a machine with scratchpad memories, and as MPI ranks.

Of a machine with scratchpad memories, a project runs once for its outputs, then again and again under an adversary: transfers land as
early or as late as they may or in pieces in between, memory that nobody has written holds other garbage with every seed, and cores
take turns in another order. A plan is right when no output notices. Several chips are threads of one program, or ranks; each reads its
own inputs and writes its own outputs, inference after inference, so that chips work on different samples at a time.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from deeploy.documents import Document
from deeploy.errors import BuildError, UsageError
from deeploy.execution.runners.processes import (
    REPORT,
    SECONDS,
    Ended,
    first_lines,
    last_lines,
    require,
    run_make,
    run_program,
    run_together,
)
from deeploy.execution.runners.runner import Result, Samples, gather_outputs, project_parts, self_test_macro, split_outputs, write_samples
from deeploy.jobs import in_order, workers

ADVERSARIES = tuple((mode, seed) for mode in ("early", "late", "random") for seed in (1, 2))
SHORT = 0.2  # seconds of a run that is not worth others beside it
PATIENCE = 600.0  # seconds that a rank waits for a message before it takes the other chip for lost
_LOST = 71  # the status of a program one of whose chips lost another (kernels/chips/chip.h)

Sanitizer = Literal["address", "thread"]
Start = Callable[[Path, Path, int], list[str]]  # the command for an application, a folder of arguments, and as many chips


def build_application(
    project: Path, sanitize: Sanitizer | None = None, flags: str | None = None, goal: str = "all", network_flags: str | None = None
) -> Path:
    """Compile the project's application with make and return its path.

    Args:
        sanitize: ``address`` adds the address and undefined-behaviour sanitizers, ``thread`` runs cores as threads under
            the thread sanitizer.
        flags: of the C compiler, instead of the usual ones.
        goal: of the Makefile; ``mpi`` for ranks.
        network_flags: further ones of what is no kernel: by default, where ``flags`` are the usual ones, it is not optimised. It is
            compiled anew for every network, and calls kernels, in which the time goes.

    Raises:
        BuildError: no C compiler or make, or the compiler rejects the sources.
    """
    compiler = os.environ.get("CC", "gcc")
    require(("make", "make"), (compiler, "gcc"), more=", or name a C compiler in CC")
    chosen = None if flags is None and network_flags is None else f"{flags}\0{network_flags}"
    of_flags = "host" if chosen is None else hashlib.sha256(chosen.encode()).hexdigest()[:12]  # make does not see that flags changed
    folder = f"build/{sanitize or of_flags}"
    cflags = flags if flags is not None else "-O1" if sanitize else "-O2"
    own = network_flags if network_flags is not None else "-O0" if flags is None else ""
    options = [f"BUILD={folder}", f"CFLAGS={cflags}", f"NETWORK_CFLAGS={own}", f"CC={compiler}"]
    if sanitize:
        options.append("SANITIZE=thread" if sanitize == "thread" else "SANITIZE=1")

    def failure(text: str, _: Sequence[str]) -> BuildError:
        return BuildError(f"the project in {project} does not compile:\n{last_lines(text)}", REPORT)

    run_make(project, [*options, goal], failure)
    return project / folder / ("application" if goal == "all" else f"application-{goal}")


@dataclass(frozen=True)
class Host:
    """Runs on this machine.

    Attributes:
        sanitize: with the address and undefined-behaviour sanitizers; where cores are modelled, then with that of threads.
        flags: of the C compiler, instead of the usual ones.
        repeat: when positive, as many inferences of the first sample are timed; on a target of one flat memory.
        seconds: after which one run of the program is taken for hanging.
    """

    sanitize: bool = False
    flags: str | None = None
    repeat: int = 0
    seconds: float = SECONDS

    def check(self, project: Path, entry: Document) -> None:
        """Accepts every project: all of them run on the host."""

    def build(self, project: Path, entry: Document, sequence: bool = False) -> Sequence[Path]:
        """Builds the application for this machine; returns its path."""
        return [build_application(project, "address" if self.sanitize else None, self.flags)]

    def self_test(self, project: Path, entry: Document) -> str:
        """What the project's self-test prints here (``SelfTests``)."""
        application = build_application(project, "address" if self.sanitize else None, network_flags=f"-O1 {self_test_macro(entry)}")
        (done,) = run_together([[str(application.resolve()), entry["name"], "--self-test"]], self.seconds)
        return done.stdout

    def run(self, project: Path, entry: Document, samples: Samples, sequence: bool = False) -> Result:
        """One inference per sample; where memories are managed, the first sample twice in a row under every adversary, or the sequence.

        Raises:
            BuildError: a rule of the machine is broken, an output depends on what the machine does not promise, or a chip is lost.
        """
        (application,) = self.build(project, entry)
        is_managed = entry["machine"] is not None
        options = sequence_options(is_managed, sequence)
        if self.repeat and not is_managed:
            options = [str(self.repeat), *options]
        begin = time.monotonic()
        first = execute_application(application, project, entry, samples, options, seconds=self.seconds)
        is_short = time.monotonic() - begin < SHORT
        if not is_managed:
            return first
        again, more = (samples, []) if sequence else (samples[:1], ["--repeat", "2"])
        runs = [(application, f"mode {mode}, seed {seed}", ["--mode", mode, "--seed", str(seed)]) for mode, seed in ADVERSARIES]
        runs += [(build_application(project, "thread"), "cores as threads", [])] if self.sanitize else []

        def run(one: tuple[Path, str, list[str]]) -> Sequence[np.ndarray]:
            return execute_application(one[0], project, entry, again, [*options, *one[2], *more], seconds=self.seconds).outputs

        with workers(1) if is_short else nullcontext(), closing(in_order(run, runs, threads=True)) as outputs:
            for (_, how, _), got in zip(runs, outputs, strict=True):
                for port, a, b in zip(entry["outputs"], first.outputs, got, strict=True):
                    if a[: len(b)].tobytes() != b.tobytes():
                        raise BuildError(f"output {port['name']} changes with what the machine does not promise ({how})", REPORT)
        return first


@dataclass(frozen=True)
class Mpi:
    """Runs chips as ranks.

    Attributes:
        hostfile: machines, as mpirun reads them.
        patience: seconds until a silent chip counts as lost.
        count: of ranks, where mpirun is to begin others than there are chips.
    """

    hostfile: Path | None = None
    patience: float = PATIENCE
    count: int | None = None
    seconds: float = SECONDS

    def check(self, project: Path, entry: Document) -> None:
        """Raise UsageError for a single chip or without the hostfile, BuildError without MPI."""
        if "chips" not in entry:
            raise UsageError("--on mpi: a single chip has no ranks", "Run it on the host, or compile for several chips: --chips N.")
        if self.hostfile is not None and not self.hostfile.is_file():
            raise UsageError(f"there is no hostfile {self.hostfile}", "Give a file with a machine per line, as mpirun reads it.")
        require(("mpicc", "libopenmpi-dev"), ("mpirun", "openmpi-bin libopenmpi-dev"))

    def build(self, project: Path, entry: Document, sequence: bool = False) -> Sequence[Path]:
        """Builds the application that every MPI rank runs; returns its path."""
        return [build_application(project, goal="mpi")]

    def run(self, project: Path, entry: Document, samples: Samples, sequence: bool = False) -> Result:
        """One inference per sample, all chips at the same time.

        Raises:
            BuildError: a chip fails or is lost; it is named.
        """
        self.check(project, entry)
        (application,) = self.build(project, entry)
        options = sequence_options(entry["machine"] is not None, sequence)
        around = project if self.hostfile is not None else None  # a folder that the other machines see
        return execute_application(application, project, entry, samples, options, self.start, around=around, seconds=self.seconds)

    def start(self, application: Path, folder: Path, chips: int) -> list[str]:
        """The ``mpirun`` command that runs ``application`` once per chip."""
        count = str(self.count or chips)
        command = ["mpirun", "--oversubscribe", "-n", count, *(["--allow-run-as-root"] if os.geteuid() == 0 else [])]
        where = ["--host", f"localhost:{count}"] if self.hostfile is None else ["--hostfile", str(self.hostfile.resolve())]
        return [*command, *where, str(application.resolve()), str(folder), f"{self.patience:g}"]


def sequence_options(is_managed: bool, sequence: bool) -> list[str]:
    """What the applications of the host model, and those of flat machines, want to be told of a sequence."""
    return (["--sequence", "1"] if is_managed else ["--sequence"]) if sequence else []


def execute_application(
    application: Path,
    project: Path,
    entry: Document,
    samples: Samples,
    options: Sequence[str] = (),
    start: Start | None = None,
    counters: bool = False,
    around: Path | None = None,
    seconds: float = SECONDS,
) -> Result:
    """One run of an application.

    Args:
        options: of every chip's part of it (see ``runtime/host/main.c``).
        start: how the parts of several chips are started; as threads by default.
        counters: whether the host model is to count what the chips move.
        around: the folder for files that come and go; a temporary one by default.

    Raises:
        BuildError: it ended with a status, or did not end in time.
    """
    with tempfile.TemporaryDirectory(dir=around) as scratch:
        folder = Path(scratch).resolve()
        own = project_parts(project, entry, samples)
        arguments = []
        for part in own:
            files = [folder / f"{part.chip}.{kind}" for kind in ("in", "out", "json")]
            write_samples(files[0], part.entry, part.samples)
            words = [part.entry["name"], str(files[0]), str(files[1]), str(len(samples)), *options]
            words += ["--constants", str(part.constants.resolve())] if part.constants is not None else []
            arguments.append([*words, *(["--counters", str(files[2])] if counters else [])])
        if "chips" in entry:
            for part, words in zip(own, arguments, strict=True):
                (folder / f"{part.chip}.args").write_text("\n".join(["application", *words]) + "\n", encoding="utf-8")
            command = start(application, folder, len(own)) if start is not None else [str(application.resolve()), str(folder)]
        else:
            command = [str(application.resolve()), *arguments[0]]
        done = run_program(command, seconds)
        if done.returncode:
            raise _explain_lost_chips(done) if "chips" in entry else explain_failure(done)
        outputs = [split_outputs((folder / f"{p.chip}.out").read_bytes(), p.entry["outputs"], len(samples)) for p in own]
        counted = tuple(json.loads((folder / f"{p.chip}.json").read_text(encoding="utf-8")) for p in own) if counters else ()
        nanoseconds = float(done.stdout) if "chips" not in entry and done.stdout.strip() else None
        return Result(gather_outputs(entry, outputs), nanoseconds=nanoseconds, counters=counted)


def explain_failure(done: Ended) -> BuildError:
    """The error for an application that ended with a status."""
    return BuildError(f"the program failed with status {done.returncode}:\n{first_lines(done.stderr)}", REPORT)


def _explain_lost_chips(done: Ended) -> BuildError | UsageError:
    """The error for a program of several chips: those that were lost, and those that waited for them, are named."""
    lines = [line for line in done.stderr.splitlines() if re.match(r"(chip \d+|host model:|  |the project has)", line)]
    killed = re.search(r"mpirun noticed that process rank (\d+).*exited on signal (\d+)", done.stderr, re.DOTALL)
    if killed is not None:
        lines.insert(0, f"chip {killed[1]} was lost (signal {killed[2]})")
    if any("mpirun began" in line for line in lines):
        return UsageError(lines[0], "Begin as many ranks as the project has chips.")
    shown = "\n".join(dict.fromkeys(lines)) or first_lines(done.stderr)
    is_lost = killed is not None or done.returncode == _LOST or any("waits to" in line for line in lines)
    remedy = "See why the chip that was lost ended; its peers only waited for it." if is_lost else REPORT
    return BuildError(f"the chips stopped with status {done.returncode}:\n{shown}", remedy)
