"""The small network of ``network/`` on the host machine model: built as it is or with lines exchanged, and run.

The model's own objects are compiled once per flavour; a change costs the compilation of the network alone.
"""

from __future__ import annotations

import functools
import hashlib
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from mako.template import Template

from deeploy.execution.runners import objects
from deeploy.resources import cache_folder, mark_used, resource, write_whole

HERE = Path(__file__).parent / "network"
HAL = resource("kernels") / "hal"
MODES = ("early", "late", "random")
VIOLATION = 70
FLAGS = {
    "plain": ("-O1",),
    "asan": ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
    "threads": ("-O1", "-DRT_THREADS", "-pthread"),
    "tsan": ("-O1", "-DRT_THREADS", "-pthread", "-fsanitize=thread"),
}
WARNINGS = ("-std=c11", "-g", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-DRT_CHECKED")

_scratch = tempfile.TemporaryDirectory(prefix="deeploy-hal-")
SCRATCH = Path(_scratch.name)

_random = np.random.default_rng(7)
SAMPLES = 2
X = _random.integers(-128, 128, (SAMPLES, 32, 16), dtype=np.int8)
CONSTANTS = _random.integers(-128, 128, 128, dtype=np.int8)


@dataclass(frozen=True)
class Run:
    """How one run of the application ended; ``is_right`` when it wrote the outputs that NumPy computes."""

    status: int
    message: str
    is_right: bool


def expected() -> tuple[np.ndarray, np.ndarray]:
    """The network in NumPy: ``y`` of step 0 and the output, both (SAMPLES, 384), int8 as it wraps around."""
    y = (3 * X[:, :, :12].astype(np.int32) + CONSTANTS[16:28]).astype(np.int8).reshape(SAMPLES, -1)
    sums = np.cumsum(y.reshape(SAMPLES, 4, -1).astype(np.int32).sum(axis=2), axis=1)
    return y, (y + sums[:, np.arange(384) % 4]).astype(np.int8)


def _compile(arguments: Sequence[str | Path], flavour: str) -> None:
    command = [os.environ.get("CC", "gcc"), *WARNINGS, *FLAGS[flavour], f"-I{HAL}", f"-I{SCRATCH}", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(f"{' '.join(command)}\n{done.stderr}")


@functools.cache
def _model_digest() -> str:
    """A hash of all that the model is made of, and of the compiler."""
    digest = hashlib.sha256(repr((objects.tool_identity(os.environ.get("CC", "gcc")), WARNINGS)).encode())
    for path in sorted([*HAL.rglob("*.[ch]"), resource("templates") / "deeploy_network.h.mako"]):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


@functools.cache
def _objects(flavour: str) -> tuple[Path, ...]:
    """The objects of the model and of the box mover, kept from session to session beside those of builds."""
    header = Template(filename=str(resource("templates") / "deeploy_network.h.mako")).render()
    (SCRATCH / "deeploy_network.h").write_text(str(header))
    made = []
    for source in sorted([*(HAL / "host").glob("*.c"), HAL / "deeploy_box.c"]):
        name = hashlib.sha256(f"{_model_digest()} {flavour} {FLAGS[flavour]} {source.name}".encode()).hexdigest()
        made.append((cache_folder("objects") or SCRATCH) / f"{name}.o")
        if not made[-1].is_file():
            with write_whole(made[-1]) as fresh:
                _compile(["-c", source, "-o", fresh], flavour)
        mark_used(made[-1])
    return tuple(made)


def sources() -> dict[str, str]:
    """The network and its machine, by file name."""
    return {path.name: path.read_text() for path in HERE.glob("*.c")}


def build_sources(texts: Mapping[str, str], flavour: str = "plain") -> Path:
    """The application of any network, given its C by file name."""
    model = _objects(flavour)
    folder = Path(tempfile.mkdtemp(dir=SCRATCH))
    for name, text in texts.items():
        (folder / name).write_text(text)
    flags = () if texts == sources() else ("-Wno-unused", "-Wno-unused-parameter")
    _compile([*flags, *(folder / name for name in texts), *model, "-o", folder / "application"], flavour)
    return folder / "application"


@functools.cache
def build(flavour: str = "plain", changes: tuple[tuple[str, str], ...] = ()) -> Path:
    """The application; every change replaces a text that occurs exactly once in machine.c and network.c together."""
    texts = sources()
    for old, new in changes:
        holders = [name for name, text in texts.items() if old in text]
        assert len(holders) == 1 and texts[holders[0]].count(old) == 1, f"{old!r} does not occur exactly once"
        texts[holders[0]] = texts[holders[0]].replace(old, new)
    return build_sources(texts, flavour)


def run(application: Path, mode: str | None = None, seed: int = 1, repeat: int = 1, options: Sequence[str] = ()) -> Run:
    """Run all samples."""
    folder = application.parent
    (folder / "inputs.bin").write_bytes(X.tobytes())
    (folder / "constants.bin").write_bytes(CONSTANTS.tobytes())
    outputs = folder / "outputs.bin"
    outputs.unlink(missing_ok=True)
    files = [str(folder / "inputs.bin"), str(outputs)]
    command = [str(application), "small", *files, str(SAMPLES), "--constants", str(folder / "constants.bin")]
    command += ["--seed", str(seed), "--repeat", str(repeat), *(["--mode", mode] if mode else []), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return Run(done.returncode, done.stderr, outputs.exists() and outputs.read_bytes() == expected()[1].tobytes())
