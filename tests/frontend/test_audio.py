"""Features of sound: the graph that is made for them, in C, beside SciPy in floats of 64 bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import deeploy
from deeploy.driver import streams
from deeploy.errors import UsageError
from deeploy.operators.fourier import fixed_factors, fixed_reference, reference, turning_factors
from tests.models import Net

ERROR = 1e-4  # of logarithms and what follows; of a spectrum, relative to its largest element: 1e-6
FIXED_ERROR = 0.05  # of logarithms of spectra in 16 bits, of noise at a tenth of full scale
HIGH_PASS = [[0.92, -1.84, 0.92, 1.0, -1.835, 0.845], [0.9, -1.8, 0.9, 1.0, -1.9, 0.915]]


def reference_features(about: deeploy.AudioFeatures, sound: np.ndarray) -> np.ndarray:
    """Features [frames, width] of sound in floats of 64 bits, by SciPy's transforms."""
    fft = pytest.importorskip("scipy.fft")
    window = pytest.importorskip("scipy.signal").get_window("hann", about.length)
    sound = sound.astype(np.float64)
    if about.source is not None:
        up, down = about.factors
        reach = 10 * max(up, down)
        low_pass = pytest.importorskip("scipy.signal").firwin(2 * reach + 1, 1 / max(up, down), window=("kaiser", 5.0))
        sound = pytest.importorskip("scipy.signal").upfirdn(up * low_pass, sound, up, down)[2 * reach // down :]
    if about.sections:
        sound = pytest.importorskip("scipy.signal").sosfilt(about.sections, sound)
    last = range(about.points, len(sound) + 1, about.step)
    frames = np.stack([sound[end - about.length : end] * window for end in last]).astype(np.float64)
    frames = np.pad(frames, ((0, 0), (about.points - about.length, 0)))
    power = np.abs(fft.rfft(frames)) ** 2
    mel = 2595 * np.log10(1 + np.arange(about.points // 2 + 1) * about.rate / about.points / 700)
    low, high = (2595 * np.log10(1 + f / 700) for f in (about.low, about.top))
    corners = 700 * (10 ** (np.linspace(low, high, about.mels + 2) / 2595) - 1)
    hertz = 700 * (10 ** (mel / 2595) - 1)
    bands = np.stack([np.interp(hertz, corners[i : i + 3], [0, 1, 0], 0, 0) for i in range(about.mels)], axis=1)
    energy = power @ bands
    if about.pcen:
        course = np.zeros(about.mels)
        rows = []
        for row in energy:
            course = 0.975 * course + 0.025 * row
            rows.append((row / (1e-6 + course) ** 0.98 + 2) ** 0.5 - 2**0.5)
        return np.array(rows)
    logarithms = np.log(energy + 1e-6)
    return np.asarray(fft.dct(logarithms, norm="ortho")[:, : about.coefficients]) if about.coefficients else logarithms


@pytest.mark.parametrize("points", [4, 8, 64, 512, 4096])
def test_the_fast_transform_is_that_of_numpy(points: int) -> None:
    x = np.random.default_rng(0).normal(size=(3, points)).astype(np.float32)
    y = reference(None, x, turning_factors(points)).reshape(3, -1, 2)  # type: ignore[arg-type]
    wanted = np.fft.rfft(x.astype(np.float64))
    assert np.abs(y[..., 0] + 1j * y[..., 1] - wanted).max() < 1e-6 * np.abs(wanted).max()


@pytest.mark.parametrize("points", [4, 8, 64, 512, 32768])
def test_the_transform_in_16_bits_is_within_its_error(points: int) -> None:
    rng, places = np.random.default_rng(0), np.arange(points)
    low, high = -(2**15), 2**15 - 1
    extremes = [np.full(points, low), np.full(points, high), np.where(places % 2, low, high), np.where(places // 2 % 2, low, high)]
    x = np.stack([*extremes, *rng.choice([low, high], (4, points)), *rng.integers(low, high + 1, (4, points))]).astype(np.int16)
    y = fixed_reference(None, x, fixed_factors(points)).reshape(len(x), -1, 2)  # type: ignore[arg-type]
    wanted = np.fft.rfft(x.astype(np.float64)) / points
    wrong = np.stack([y[..., 0] - wanted.real, y[..., 1] - wanted.imag])
    assert np.abs(wrong).max() <= np.log2(points)  # every one of so many steps rounds
    assert np.sqrt((wrong**2).mean()) < 1


@pytest.mark.parametrize(
    "about",
    [
        deeploy.AudioFeatures(mels=20, points=256, length=200, step=80),
        deeploy.AudioFeatures(mels=20, points=256, length=256, step=128, coefficients=10),
        deeploy.AudioFeatures(mels=12, points=128, length=100, step=50, pcen=True),
        deeploy.AudioFeatures(mels=20, points=256, length=200, step=80, source=24_000),
        deeploy.AudioFeatures(mels=20, points=256, length=200, step=80, source=48_000, sections=HIGH_PASS),
        deeploy.AudioFeatures(mels=20, points=256, length=200, step=80, fixed=True),
    ],
    ids=["logarithms", "cepstrum", "pcen", "two thirds of the samples", "a third of the samples, filtered", "in 16 bits"],
)
def test_streamed_features_are_those_of_scipy(tmp_path: Path, about: deeploy.AudioFeatures) -> None:
    onnx.save(deeploy.frontend_audio(features=about, frames=4), tmp_path / "m.onnx")
    up, down = about.factors
    step = about.step * down // up
    compiled = deeploy.compile(tmp_path / "m.onnx", stream=f"audio.1={2 * step}", certify=False)
    ops = {call.node.op for call in compiled.network.program.calls}
    assert {"FixedFourier" if about.fixed else "RealFourier", "BandMatMul"} <= ops
    sound = np.random.default_rng(0).normal(scale=0.1 if about.fixed else 1, size=24 * step).astype(np.float32)
    hops = sound.reshape(-1, 1, 2 * step)
    got = compiled.run({"audio": hops}, sequence=True)[0].reshape(-1, about.width)
    streamed = compiled.network.streamed
    assert streamed is not None
    late = streamed.stream.outputs[0].delay // step
    wanted = reference_features(about, sound)[: len(got) - late]
    assert len(wanted) > 15
    assert np.abs(got[late : late + len(wanted)] - wanted).max() < (FIXED_ERROR if about.fixed else ERROR) * max(1.0, np.abs(wanted).max())
    outputs = [got.reshape(len(hops), 1, 2, about.width)]
    again = streams.find_expected(streamed, list(hops), outputs, streams.run_onnxruntime)
    assert np.allclose(again[0], outputs[0], atol=FIXED_ERROR if about.fixed else 1e-3)


@pytest.mark.parametrize("shape", [(1, 10, 8), (1, 1, 8, 10), (1, 8, 10), (1, 10, 8, 1)])
def test_features_are_put_in_front_of_a_network(tmp_path: Path, shape: tuple[int, ...]) -> None:
    n = Net()
    path = n.save(tmp_path / "m.onnx", n.Relu(n.x(*shape)))
    about = deeploy.AudioFeatures(mels=8, points=64, length=64, step=32)
    whole = deeploy.frontend_audio(path, about)
    sound = np.random.default_rng(0).normal(size=(1, 64 + 9 * 32)).astype(np.float32)
    got = deeploy.compile(whole, certify=False).interpret({"audio": sound})[0]
    wanted = np.maximum(reference_features(about, sound[0]), 0)
    wanted = wanted.T if shape[-1] == 10 else wanted
    assert got.shape == shape
    assert np.allclose(got.reshape(wanted.shape), wanted, atol=1e-3)


def test_what_does_not_fit_is_said(tmp_path: Path) -> None:
    n = Net()
    path = n.save(tmp_path / "m.onnx", n.Relu(n.x(1, 10, 8)))
    with pytest.raises(UsageError, match=r"no input has frames of 40 features: x0 \[1, 10, 8\]"):
        deeploy.frontend_audio(path)
    with pytest.raises(UsageError, match="Points are a power of two"):
        deeploy.AudioFeatures(points=500)
    with pytest.raises(UsageError, match="do not fit each other"):
        deeploy.AudioFeatures(coefficients=50)
    with pytest.raises(UsageError, match="44100 samples per second do not become 16000 by factors of up to 32"):
        deeploy.AudioFeatures(source=44_100)
    with pytest.raises(UsageError, match="a section has six numbers"):
        deeploy.AudioFeatures(sections=[[1, 2, 3]])
    with pytest.raises(UsageError, match="a cepstrum is one of logarithms"):
        deeploy.AudioFeatures(coefficients=5, pcen=True)
