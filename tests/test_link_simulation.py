"""Two models of the links between chips that share no code: the compiler's, and packets in ``benchmarks/link_simulation.py``."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import onnx
import pytest

from benchmarks.link_simulation import SIRACUSA, simulate
from benchmarks.transformer_models import Shape, decoder, encoder
from deeploy import chips

SLOW = SIRACUSA.read_text().replace("500_000_000", "20_000_000").replace("3e-7", "2e-6")
BOUND = 0.05  # of all cycles; ports of packets are never kept for a message that waits, so that they end earlier


@pytest.fixture(scope="module")
def transformer_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    onnx.save(decoder(Shape(32, 64, 8, 1, 4)), folder / "decoder.onnx")
    onnx.save(encoder(Shape(32, 64, 4, 1, 6)), folder / "encoder.onnx")
    return folder


def emit(model: Path, count: int, **options: Any) -> tuple[Any, list[str]]:
    """``deploy.json``, and of every chip the table of messages."""
    found = chips.compile(model, "siracusa", count, dialect="integer", **options)
    files = found.sources()
    manifest = json.loads(files["deploy.json"])
    return manifest, [str(files[f"chips/{chip}/src/messages.c"]) for chip in range(len(found.plans))]


@pytest.mark.share(0.34)
@pytest.mark.parametrize("has_gathers", [True, False])
@pytest.mark.parametrize(("network", "count"), [("decoder", 2), ("encoder", 4), ("decoder", 8)])
def test_packets_end_when_the_compiler_says(transformer_models: Path, network: str, count: int, has_gathers: bool) -> None:
    emitted = emit(transformer_models / f"{network}.onnx", count, collective=None if has_gathers else "hierarchical", gathers=has_gathers)
    assert abs(simulate(*emitted, tomllib.loads(SIRACUSA.read_text())) / emitted[0]["cycles"] - 1) < BOUND


def test_links_that_are_slower_than_cores(transformer_models: Path, tmp_path: Path) -> None:
    """Most of the time is spent on links: both say so, and the comparison sees a topology that is not the compiled one."""
    file = tmp_path / "topology.toml"
    file.write_text(SLOW)
    emitted = emit(transformer_models / "decoder.onnx", 8, topology=file, collective="hierarchical", gathers=False)
    compiled = emitted[0]["cycles"]
    assert abs(simulate(*emitted, tomllib.loads(SLOW)) / compiled - 1) < BOUND
    assert simulate(*emitted, tomllib.loads(SIRACUSA.read_text())) < 0.8 * compiled
