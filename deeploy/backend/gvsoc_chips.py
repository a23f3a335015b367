"""Run a project of several chips on GVSoC: a simulator for each chip, and pipes of this machine as links between them.

That shows that the programs of the chips work together, and nothing of their time: messages take what the controller needs to hand
them over, and simulators know nothing of each other's clocks.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from deeploy.backend import gvsoc, host
from deeploy.errors import BuildError, DeeployError, UsageError

_PAUSE = 0.05  # seconds between two looks whether a simulator has ended


def run(
    project: Path,
    manifest: Mapping[str, Any],
    samples: Sequence[Sequence[np.ndarray]],
    seconds: float = gvsoc.SECONDS,
) -> list[np.ndarray]:
    """Outputs of the model by position, stacked over samples: builds every chip, and simulates all of them at once.

    Raises:
        UsageError: the project is for a target whose chips no such simulator runs.
        BuildError: tools are missing, or a chip fails or hangs; it is named.
        FitError: a program with its arenas and arrays is larger than a chip's memory.
    """
    chips, target = manifest["chips"], manifest["target"]
    if not (project / "chips" / "0" / "chip.mk").is_file():
        raise UsageError(f"--on gvsoc: several chips of target {target} do not run there", "Leave --on out, or say --on mpi.")
    simulator = gvsoc.check_tools()
    gvsoc.check_revision(simulator, project / "runtime" / "bare" / "bare.mk")
    folders = [_prepared(project, manifest, chip, samples) for chip in range(len(chips))]
    for message in manifest["messages"]:
        pipe = folders[0].parent / f"link_{message['from']}_{message['to']}"
        if not pipe.exists():
            os.mkfifo(pipe)
    printed = _together([gvsoc.command(simulator, target, folder) for folder in folders], folders, seconds)
    found = [gvsoc.simulated(*entry, len(samples)) for entry in zip(printed, folders, chips, strict=True)]
    outputs = []
    for port in manifest["outputs"]:
        names = [own["name"] for own in chips[port["chip"]]["outputs"]]
        outputs.append(found[port["chip"]].outputs[names.index(port["name"])])
    return outputs


def _prepared(project: Path, manifest: Mapping[str, Any], chip: int, samples: Sequence[Sequence[np.ndarray]]) -> Path:
    """Build a chip's program; returns its folder, with what it reads."""
    entry, name = manifest["chips"][chip], f"build/bare/{chip}"
    gvsoc.make(project, ["-f", f"chips/{chip}/chip.mk", f"BUILD={name}", "DEFINES="])
    folder = (project / name).resolve()
    positions = {port["name"]: index for index, port in enumerate(manifest["inputs"])}
    own = [[sample[positions[port["name"]]] for port in entry["inputs"]] for sample in samples]
    if entry["inputs"]:
        host.write_samples(folder / "inputs.bin", entry, own)
    else:
        (folder / "inputs.bin").write_bytes(bytes(len(samples)))
    if entry["machine"]["constants"] is not None:
        shutil.copyfile(project / "chips" / str(chip) / entry["machine"]["constants"], folder / "weights.bin")
    (folder / "outputs.bin").unlink(missing_ok=True)
    return folder


def _together(commands: Sequence[Sequence[str]], folders: Sequence[Path], seconds: float) -> list[list[str]]:
    """What each simulator printed, when all have ended; none outlives this.

    Raises:
        DeeployError: one failed, or they did not end in time.
    """
    running: dict[int, subprocess.Popen[bytes]] = {}
    try:
        for chip, (command, folder) in enumerate(zip(commands, folders, strict=True)):
            with (folder / "printed.txt").open("wb") as printed:
                running[chip] = subprocess.Popen(
                    command, cwd=folder, stdin=subprocess.DEVNULL, stdout=printed, stderr=subprocess.STDOUT, start_new_session=True
                )
        end = time.monotonic() + seconds
        while running:
            ended = {chip: process.returncode for chip, process in running.items() if process.poll() is not None}
            failed = [chip for chip, status in ended.items() if status]
            if failed:
                raise _failure(commands[0][0], {chip: ended[chip] for chip in failed}, folders)
            for chip in ended:
                del running[chip]
            if running and time.monotonic() > end:
                waiting = ", ".join(map(str, running))
                raise BuildError(
                    f"the simulation of chips {waiting} did not end within {seconds:g} seconds", "Give it more with --time-limit."
                )
            time.sleep(_PAUSE)
    except OSError as error:
        raise BuildError(f"the simulator {commands[0][0]} cannot be run: {error.strerror}", gvsoc.REVISION) from error
    finally:
        for process in running.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # the launcher starts the simulator as a process of its own
            process.wait()
    return [_lines(folder) for folder in folders]


def _lines(folder: Path) -> list[str]:
    return [gvsoc.plain(line) for line in (folder / "printed.txt").read_text(errors="replace", encoding="utf-8").splitlines()]


def _failure(simulator: str, failed: Mapping[int, int], folders: Sequence[Path]) -> DeeployError:
    """Why chips failed: the first whose failure is not that its peer is gone, else the first."""
    found = {chip: gvsoc.failure(simulator, status, _lines(folders[chip])) for chip, status in failed.items()}
    chip, error = next(((c, e) for c, e in found.items() if "is gone" not in e.what), next(iter(found.items())))
    return type(error)(f"chip {chip}: {error.what}", error.remedy)
