"""A sound file through a project that streams: scores hop by hop, and what a second of signal costs."""

from __future__ import annotations

import json
import wave
from pathlib import Path

import numpy as np
import pytest

import deeploy
from deeploy.backend.project import read_manifest
from deeploy.driver.recordings import listen, read_sound
from deeploy.errors import UsageError
from deeploy.report.sections import headline_cards_of
from deeploy.report.terminal import report_network
from deeploy.report.text import tell_second
from tests.models import Net

RATE = 8000


def write_sound(path: Path, samples: np.ndarray, channels: int = 1) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes((samples * 2**15).astype("<i2").tobytes())
    return path


def write_project(folder: Path, target: str = "generic", stream: str | None = "x0.1=400") -> Path:
    """A project whose score is the largest sample of the last 800."""
    n = Net()
    model = n.save(folder / "m.onnx", n.ReduceMax(n.Clip(n.x(1, 800), n.c(np.float32(-0.9)), n.c(np.float32(0.75))), axes=[1]))
    deeploy.compile(model, target, stream=stream, certify=False).write(folder / "out")
    return folder / "out"


def test_scores_are_drawn_over_time(tmp_path: Path) -> None:
    sound = np.zeros(2200)
    sound[1000] = 0.5
    found = listen(write_project(tmp_path), write_sound(tmp_path / "x.wav", sound))
    assert found.scores.ravel().tolist() == [0, 0, 0.5, 0.5, 0]
    assert json.loads(json.dumps(found.contents()))["scores"] == [[0.0], [0.0], [0.5], [0.5], [0.0]]
    assert str(found).splitlines() == [
        "    0.05 s   0.000  of less than a window",
        "    0.10 s   0.000",
        f"    0.15 s   0.500  {'#' * 30}",
        f"    0.20 s   0.500  {'#' * 30}",
        "    0.25 s   0.000",
    ]


def test_a_second_of_signal_has_a_price(tmp_path: Path) -> None:
    found = listen(write_project(tmp_path, "siracusa"), write_sound(tmp_path / "x.wav", np.zeros(400)))
    assert found.cycles is not None and found.mhz == 360 and found.microjoules is not None
    said = str(found).splitlines()[-1]
    needed = found.cycles * 20 / 1e6
    assert said.startswith(
        f"{found.cycles:.0f} cycles predicted for 50 ms of signal: {needed:.2f} MHz, a duty cycle of {needed / 360:.1%}, "
    )
    assert said.endswith(f"{found.microjoules * 20:.1f} uJ for each second of signal")


@pytest.mark.parametrize("target", ["siracusa", "cortex_m4", "generic"])
def test_reports_say_what_a_second_of_signal_takes(tmp_path: Path, target: str) -> None:
    entry = read_manifest(write_project(tmp_path, target, "x0.1=400@16000"))
    second = entry["stream"]["second"]
    if target == "generic":  # whose cycles are not known
        assert second is None
        return
    cycles, energy = entry["stream"]["cycles"], entry["stream"]["energy_uj"]
    clock = {"siracusa": 360, "cortex_m4": 120}[target]
    assert second["mhz"] == pytest.approx(cycles * 40 / 1e6) and second["duty_cycle"] == pytest.approx(cycles * 40 / clock / 1e6, rel=1e-3)
    assert second["energy_uj"] == (pytest.approx(energy * 40) if energy is not None else None)
    assert f"  of the stream: {tell_second(second)}" in report_network(entry).splitlines()
    assert f"{second['duty_cycle']:.1%}" in headline_cards_of(entry)
    found = listen(tmp_path / "out", write_sound(tmp_path / "x.wav", np.zeros(800)))  # of half as many samples for a second
    assert found.contents()["second"]["mhz"] == pytest.approx(second["mhz"] / 2)


def test_what_is_no_sound_is_refused(tmp_path: Path) -> None:
    project = write_project(tmp_path)
    (tmp_path / "text.wav").write_text("no sound")
    with pytest.raises(UsageError, match=r"text\.wav is no WAV file that can be read"):
        read_sound(tmp_path / "text.wav")
    with pytest.raises(UsageError, match="has 2 channels of 16 bits\nConvert it to one channel of 16 bits"):
        listen(project, write_sound(tmp_path / "two.wav", np.zeros(800), 2))
    with pytest.raises(UsageError, match="has 10 samples, a hop has 400"):
        listen(project, write_sound(tmp_path / "short.wav", np.zeros(10)))
    with pytest.raises(UsageError, match="the project does not take samples of sound hop by hop"):
        listen(write_project(tmp_path, stream=None), write_sound(tmp_path / "x.wav", np.zeros(800)))
