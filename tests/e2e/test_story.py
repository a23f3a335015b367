"""The language model of the example: small enough for the tree, and as good in 8 bits as in float."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import deeploy
from deeploy.backend import project
from deeploy.execution.runners import host

STORY = Path(__file__).parents[2] / "examples" / "story"
CONTEXT, ROWS = 256, 16


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(STORY))
    sys.modules.pop("demo", None)
    return importlib.import_module("demo")


def test_files_are_small() -> None:
    assert sum(path.stat().st_size for path in STORY.iterdir() if path.is_file()) < 1_500_000


def test_the_tokenizer_gives_back_what_it_took(demo: ModuleType) -> None:
    tokenizer = demo.Tokenizer.load(STORY / "tokenizer.json")
    text = (STORY / "heldout.txt").read_text()
    tokens = tokenizer.encode(text)
    assert tokenizer.decode(tokens) == text
    assert len(tokens) < len(text) / 2.5 and 0 < min(tokens) <= max(tokens) < len(tokenizer.pieces) == 512
    assert tokenizer.encode(tokenizer.decode(tokens[7:50])) == tokens[7:50]


@pytest.mark.slow
def test_eight_bits_read_as_float_does(tmp_path: Path, demo: ModuleType) -> None:
    """On three pieces of the held-out text, by the C of the generic target."""
    tokenizer = demo.Tokenizer.load(STORY / "tokenizer.json")
    text = np.array(tokenizer.encode((STORY / "heldout.txt").read_text()), np.int64)[: 3 * CONTEXT + 1]
    pieces, following = text[:-1].reshape(3, CONTEXT), text[1:].reshape(3, CONTEXT)
    deeploy.compile(STORY / "story_int8.onnx", dims={"rows": ROWS}, context=CONTEXT).write(tmp_path / "out")
    entry = project.read_manifest(tmp_path / "out")
    samples = [[[rows[None]] for rows in piece.reshape(-1, ROWS)] for piece in pieces]
    scores = np.stack([host.Host().run(tmp_path / "out", entry, steps, sequence=True).outputs[0].reshape(CONTEXT, -1) for steps in samples])
    reference = demo.float_scores(pieces)
    assert reference.shape == scores.shape
    assert np.mean(reference.argmax(-1) == scores.argmax(-1)) >= 0.9
    before, after = (demo.perplexity(s, following) for s in (reference, scores))
    assert 10 < before < 20 and after < 1.05 * before
