"""Words as espeak-ng (Debian and others: package espeak-ng) speaks them: of several speakers, each at its own speed and pitch."""

from __future__ import annotations

import shutil
import subprocess
import sys

import numpy as np
from scipy.signal import resample_poly

PROGRAM, RATE = "espeak-ng", 22050  # samples of its sound in a second
WAKE, OTHERS = "computer", ("hello", "lantern", "music", "okay", "weather", "kitchen", "marmalade", "nothing", "seventeen", "tomorrow")
SPEAKERS = tuple(f"{language}+{variant}" for language in ("en-us", "en-gb") for variant in ("m1", "m3", "m7", "f2", "f3", "f4"))
_HEAD = 44  # bytes of a WAV file in front of its samples
_SILENT = 0.02  # of the largest sample


def check_program() -> None:
    """End with two lines where there is no espeak-ng."""
    if shutil.which(PROGRAM) is None:
        remedy = f"Install it (apt-get install {PROGRAM}), or leave --speech out: then vowels are made up."
        sys.exit(f"--speech: there is no {PROGRAM} on this machine\n{remedy}")


def record_words(rate: int, samples: int, rng: np.random.Generator) -> dict[str, list[np.ndarray]]:
    """All words by all speakers, in so many samples each."""
    check_program()
    return {word: [_record_word(word, speaker, rate, samples, rng) for speaker in SPEAKERS] for word in (WAKE, *OTHERS)}


def _record_word(word: str, speaker: str, rate: int, samples: int, rng: np.random.Generator) -> np.ndarray:
    """A word without the silence around it, as loud as others, followed by zeros."""
    manner = [f"-{name}{rng.integers(low, high)}" for name, low, high in (("s", 150, 190), ("p", 35, 65))]
    spoken = subprocess.run([PROGRAM, "-v", speaker, *manner, "--stdout", word], capture_output=True, check=True).stdout
    sound = resample_poly(np.frombuffer(spoken[_HEAD:], "<i2").astype(np.float64), rate, RATE)
    loud = np.flatnonzero(np.abs(sound) > _SILENT * np.abs(sound).max())
    sound = sound[loud[0] : loud[-1] + 1][:samples]
    return np.pad(sound * 0.1 / sound.std(), (0, samples - len(sound)))
