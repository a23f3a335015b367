"""Networks on the machine with several memories: every budget, buffering and default memory, run against an adversary.

Of the whole matrix over ``shared/models`` a seeded sample runs by default; the rest is slow. Small networks of our own run always.
"""

from __future__ import annotations

import hashlib
import random
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import deeploy
from deeploy.backend import project
from deeploy.backend.project import select_network
from deeploy.driver import verify
from deeploy.errors import FitError
from deeploy.execution.runners import host
from deeploy.execution.simulation.interpreter import network_outputs as interpreted
from deeploy.execution.verification.compare import compare_output
from deeploy.ir.target import Target
from deeploy.options import Options
from deeploy.planning.plan import Buffering
from deeploy.quantization.static import quantize_model
from deeploy.target import load
from tests.execution.simulation import nets

SHARED = Path(__file__).parents[3] / "shared" / "models"
DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
TARGET: Target = load("siracusa")
LARGEST = next(m.capacity - m.reserved for m in TARGET.memories if m.name == "L1" and m.capacity is not None)
FITS = (LARGEST, 128_000, 64_000, 16_000)  # every network runs with so much L1
TIGHT = 4_000  # runs, or the message says what does not fit
BUFFERINGS: tuple[Buffering, ...] = ("single", "double")
MEMORIES = ("L2", "L3", "L3 and little L2")
IN_SHORT_RUN = 12
SLOW_TO_COMPILE = ("ICCT", "microLlama", "vww", "FP32/CCT", "DeepQuant")  # not in the short run


@dataclass(frozen=True)
class Case:
    """A network under one set of options; ``little`` is half of the L2 that a plan with all of it uses."""

    model: str
    l1: int
    buffering: Buffering
    memory: str

    def __str__(self) -> str:
        return f"{self.model}, {self.l1} bytes, {self.buffering}, {self.memory}"

    @property
    def folder(self) -> Path:
        return SHARED / self.model

    def options(self, l2: int | None = None) -> Options:
        return Options(
            memory={"l1": self.l1} | ({} if l2 is None else {"l2": l2}), buffering=self.buffering, default_memory=self.memory[:2]
        )

    def compiled(self, options: Options) -> deeploy.Compiled:
        inputs = self.folder / "inputs.npz"
        dialect = "integer" if "/Integer/" in self.model or "/Int/" in self.model or "/INT8/" in self.model else None
        return deeploy.compile(self.folder / "network.onnx", "siracusa", inputs=inputs, **options.given(), dialect=dialect)


def matrix() -> list[Case]:
    """Networks of the folders ``real`` and ``reports`` need options of their own, and some are to be refused: they are not part of it."""
    paths = (path for path in SHARED.rglob("network.onnx") if not {"real", "reports"} & {*path.parts})
    models = sorted(str(path.parent.relative_to(SHARED)) for path in paths)
    return [Case(m, l1, b, memory) for m in models for l1 in (*FITS, TIGHT) for b in BUFFERINGS for memory in MEMORIES]


def parameters() -> list[object]:
    """All cases; those outside the seeded sample are slow."""
    cases = matrix()
    quick = [case for case in cases if not any(part in case.model for part in SLOW_TO_COMPILE)]
    sample = set(random.Random(7).sample(quick, IN_SHORT_RUN)) if quick else set()
    return [pytest.param(case, id=str(case), marks=() if case in sample else pytest.mark.slow) for case in cases]


def check_budgets(compiled: deeploy.Compiled) -> None:
    """No memory holds more than it may, and what is said of it is what the placements need."""
    machine, plan = compiled.plan.machine, compiled.plan
    assert machine is not None
    for level, use in compiled.memory.items():
        memory = TARGET.memory(level)
        assert use.lower_bound <= use.peak <= machine.capacities[level]
        assert max((p.offset + p.size for p in plan.placements if p.level == level), default=0) + use.constants <= use.peak
        if memory.capacity is not None:
            assert use.peak + use.io + use.reserved <= memory.capacity
        for p in plan.placements:
            assert p.level != level or p.offset % memory.alignment == 0


_EXPECTED: dict[Path, list[np.ndarray]] = {}
_RIGHT: set[bytes] = set()


def expected(compiled: deeploy.Compiled, inputs: Path, sample: list[np.ndarray]) -> list[np.ndarray]:
    """What the interpreter makes of a sample; it knows neither plan nor options."""
    if inputs not in _EXPECTED:
        _EXPECTED[inputs] = interpreted(compiled.network.program, sample)
    return _EXPECTED[inputs]


def check_run(compiled: deeploy.Compiled, inputs: Path, folder: Path) -> None:
    """The C is right whenever transfers land, whatever memory holds before, and in whatever order cores run."""
    compiled.write(folder)
    sources = _digest(folder)
    if sources in _RIGHT:  # other options, the same C: a budget that nobody needs changes nothing
        return
    entry = select_network(project.read_manifest(folder))
    sample = verify._load_samples(inputs, entry)[0][0]
    outputs = host.Host().run(folder, entry, [sample]).outputs
    ports = verify.interpreted_outputs(compiled.network, entry)
    for port, got, want in zip(ports, outputs, expected(compiled, inputs, sample), strict=True):
        comparison = compare_output(port, got, want[None])
        assert comparison.passed, comparison
    _RIGHT.add(sources)


def _digest(folder: Path) -> bytes:
    """Of all that is compiled and of the constants."""
    files = [p for part in ("src", "include") for p in (folder / part).rglob("*") if p.is_file()] + [*folder.glob("*.bin")]
    return hashlib.sha256(b"".join(path.name.encode() + path.read_bytes() for path in sorted(files))).digest()


@pytest.mark.skipif(not SHARED.is_dir(), reason="shared/models is absent: real networks are not part of the repository")
@pytest.mark.parametrize("case", parameters())
def test_real_networks(case: Case, tmp_path: Path) -> None:
    """Runs bit for bit within its budgets; what does not fit says what would, and that is true."""
    options = case.options()
    compiled = compiled_or_enough(case, options, case.l1 == TIGHT)
    if "little" in case.memory:
        options = case.options(max(compiled.memory["L2"].peak // 2, 1))
        compiled = compiled_or_enough(case, options, True)
    check_budgets(compiled)
    check_run(compiled, case.folder / "inputs.npz", tmp_path / "project")


def compiled_or_enough(case: Case, options: Options, may_fail: bool) -> deeploy.Compiled:
    """The network compiled with these options; if they may be too little, with what the message asks for instead."""
    for _ in range(1 + 2 * may_fail):
        try:
            return case.compiled(options)
        except FitError as error:
            if not may_fail:
                raise
            assert error.exit_status == 3
            assert re.search(r"node .+ \(\w+\) needs \d+ bytes", error.what), error.what
            level, size = re.findall(r"\b(l[12])[ =](\d+)", error.remedy)[0]
            assert int(size) > options.capacities.get(level, 0)
            options = Options(
                memory={**options.capacities, level: int(size)}, buffering=options.buffering, default_memory=options.default_memory
            )
    raise AssertionError("what the messages ask for is not enough")


OWN = {
    "convolutions": (nets.convolutions, 2500, 14_000),
    "perceptron": (nets.perceptron, 2000, 6000),
    "transposed": (nets.transposed, 4000, 6000),
    "upsampled": (nets.upsampled, 4000, 40_000),
}


@pytest.mark.parametrize(("buffering", "memory"), [("double", "L2"), ("single", "L3"), *((b, MEMORIES[-1]) for b in BUFFERINGS)])
@pytest.mark.parametrize("name", OWN)
def test_networks_of_our_own(name: str, buffering: Buffering, memory: str, tmp_path: Path) -> None:
    """Halos, clipped borders and remainders; large weights; strided views without any constant."""
    build, l1, l2 = OWN[name]
    options = Options(memory={"l1": l1} | ({"l2": l2} if "little" in memory else {}), buffering=buffering, default_memory=memory[:2])
    compiled = build(tmp_path, options)
    check_budgets(compiled)
    assert max(call.tiling.tiles for call in compiled.plan.calls) > 1
    np.savez(tmp_path / "inputs.npz", *_noise(compiled))
    check_run(compiled, tmp_path / "inputs.npz", tmp_path / "project")


def _noise(compiled: deeploy.Compiled) -> list[np.ndarray]:
    numbers = np.random.default_rng(5)
    buffers = [compiled.network.program.buffers[name] for name in compiled.network.program.inputs]
    return [numbers.uniform(0.1, 1.0, b.shape).astype(b.dtype.numpy) for b in buffers]


@pytest.mark.parametrize(("l1", "l2", "memory"), [(LARGEST, None, "L2"), (2000, None, "L3"), (2000, 12_000, "L3")])
def test_the_digits(l1: int, l2: int | None, memory: str, tmp_path: Path) -> None:
    """A quantised network with 8-bit inputs and outputs, in all of L1 and in very little of everything."""
    images = np.random.default_rng(3).random((8, 1, 8, 8), dtype=np.float32)
    np.savez(tmp_path / "images.npz", image=images)
    np.savez(tmp_path / "inputs.npz", image=images[:1])
    quantize_model(DIGITS, tmp_path / "images.npz", tmp_path / "int8.onnx")
    options = Options(memory={"l1": l1} | ({} if l2 is None else {"l2": l2}), buffering="auto", default_memory=memory)
    compiled = deeploy.compile(tmp_path / "int8.onnx", "siracusa", **options.given())
    check_budgets(compiled)
    check_run(compiled, tmp_path / "inputs.npz", tmp_path / "project")
