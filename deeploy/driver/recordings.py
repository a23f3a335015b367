"""A sound file through a project that streams, hop by hop: its scores over time, and what that costs for each second of signal."""

from __future__ import annotations

import tempfile
import wave
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from deeploy.backend.project import read_manifest, select_network
from deeploy.documents import Contents
from deeploy.driver.project import count_second
from deeploy.driver.verify import run_project
from deeploy.errors import UsageError, shorten
from deeploy.report.text import clock_mhz, tell_second

_WIDTH = 60  # characters of the largest score


@dataclass(frozen=True)
class Listening:
    """What a recording gave.

    Attributes:
        seconds: of signal from one score to the next.
        scores: the elements of the last output, whenever it is new.
        lag: by how many seconds they are late.
        window: seconds of signal that a score is of; 0 where it is of all that has been.
        cycles, mhz: predicted for these seconds, and the clock; None where the target has none. ``microjoules`` likewise.
    """

    seconds: float
    scores: np.ndarray
    lag: float
    window: float
    cycles: float | None
    mhz: float | None
    microjoules: float | None

    def __str__(self) -> str:
        low, high = min(0.0, float(self.scores.min())), max(1.0, float(self.scores.max()))
        lines = []
        for call, row in enumerate(self.scores):
            best = int(row.argmax())
            end = (call + 1) * self.seconds - self.lag
            bar = "#" * round((float(row[best]) - low) / (high - low) * _WIDTH) if end >= self.window else "of less than a window"
            name = f"{best:>4}" if len(row) > 1 else ""
            lines.append(f"{end:8.2f} s{name}{float(row[best]):8.3f}  {bar}".rstrip())
        return "\n".join([*lines, *self._costs()])

    def contents(self) -> Contents:
        """All fields as JSON has them, and what a second of signal takes."""
        return {**asdict(self), "scores": self.scores.tolist(), "second": self._count_second()}

    def _count_second(self) -> Contents | None:
        if self.cycles is None or self.mhz is None:
            return None
        return count_second(self.cycles, self.mhz, self.microjoules, self.seconds)

    def _costs(self) -> list[str]:
        second = self._count_second()
        if second is None:
            return []
        return [f"{self.cycles:.0f} cycles predicted for {1000 * self.seconds:.0f} ms of signal: {tell_second(second)}"]


def read_sound(path: Path) -> tuple[np.ndarray, int]:
    """The samples of a WAV file with one channel of 16 bits, between -1 and 1, and how many there are in a second.

    Raises:
        UsageError: it is none.
    """
    try:
        with wave.open(str(path), "rb") as file:
            if file.getnchannels() != 1 or file.getsampwidth() != 2:
                what = f"{shorten(str(path))} has {file.getnchannels()} channels of {8 * file.getsampwidth()} bits"
                raise UsageError(what, "Convert it to one channel of 16 bits.")
            samples, rate = np.frombuffer(file.readframes(file.getnframes()), "<i2"), file.getframerate()
    except (OSError, EOFError, wave.Error) as error:
        raise UsageError(f"{shorten(str(path))} is no WAV file that can be read: {error}", "Give a WAV file.") from error
    return samples.astype(np.float32) / 2**15, rate


def listen(folder: Path, path: Path, on: str = "host", network: str | None = None, time_limit: float | None = None) -> Listening:
    """Run a project on a sound file.

    Raises:
        UsageError: it does not stream, or not samples of sound; or the file is shorter than a hop.
    """
    entry = select_network(read_manifest(folder), network)
    stream, inputs = entry.get("stream"), entry["inputs"]
    if stream is None or len(inputs) != 1 or int(np.prod(inputs[0]["shape"])) != stream["hop"] or inputs[0]["type"] != "f32":
        raise UsageError("--stream: the project does not take samples of sound hop by hop", "Compile it with --stream INPUT.AXIS=HOP.")
    samples, rate = read_sound(path)
    output = stream["outputs"][-1]
    calls, every = len(samples) // stream["hop"], output["calls"]
    if calls < every:
        hops = f"a hop has {stream['hop']}" + f", and scores are new behind {every}" * (every > 1)
        raise UsageError(f"{shorten(str(path))} has {len(samples)} samples, {hops}", "Give a longer recording.")
    hops = samples[: calls * stream["hop"]].reshape(calls, *inputs[0]["shape"])
    with tempfile.TemporaryDirectory() as scratch:
        np.savez(Path(scratch) / "hops.npz", hops)
        verdict = run_project(folder, Path(scratch) / "hops.npz", network=network, on=on, sequence=True, time_limit=time_limit)
    scores = np.asarray(verdict.outputs[-1], np.float32).reshape(calls, -1)[every - 1 :: every]
    costs = (None if stream[name] is None else stream[name] * every for name in ("cycles", "energy_uj"))
    return Listening(
        every * stream["hop"] / rate,
        scores,
        output["delay"] / rate,
        stream["window"] / rate if output["axis"] is None else 0.0,
        next(costs),
        None if entry["cycles"] is None else clock_mhz(entry),
        next(costs),
    )
