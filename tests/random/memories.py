"""A network in memories of random sizes: it is compiled to C that is right, or it does not fit.

The planner takes few of the chains that it finds. Of those that it does not take, some get addresses as well, and their C is
compared with the graph: a chain that is built wrongly is found though it is not the fastest one.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import deeploy
from deeploy.backend import project
from deeploy.driver import layer_fusion as driver
from deeploy.driver import verify
from deeploy.errors import BuildError, DeeployError, FitError
from deeploy.execution.runners import host
from deeploy.ir.target import Target
from deeploy.options import Options
from deeploy.planning.groups import layer_fusion as fuse
from deeploy.planning.packing.addresses import Overfull
from deeploy.target import load
from tests.models import save_graph
from tests.random.check import Difference, Outcome, _equal, failure
from tests.random.choices import Choices
from tests.schedule.proofs import prove
from tests.schedule.test_reductions import Deep

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT.parent / "shared" / "models"  # networks that are no part of the repository
FOLDERS = ("real", "mlperf_tiny", "dialect", "shapes", "hf")
LARGEST = 500_000  # bytes of a model: larger ones take minutes
MACHINES = ((6, "siracusa"), (2, "pulp_open"), (1, "snitch"), (1, "tcm"), (2, "duo"))
CHECKED = 6  # chains of each kind whose C is compared with the graph
LEAST = 2000  # bytes of a memory


@dataclass(frozen=True)
class Case:
    """A network, and the machine that it is compiled for.

    Attributes:
        model: a file of a network; ``inputs.npz`` and ``dims.json`` beside it, where there are such.
    """

    model: Path
    target: str
    options: Options

    def __str__(self) -> str:
        given = {name: value for name, value in asdict(self.options).items() if value not in (None, {})}
        return f"{self.model} on {self.target} with {given}"


def machine(name: str) -> Target:
    """A target of the repository, or of one of its examples."""
    folder = ROOT / "examples" / "targets" / name / f"deeploy_{name}"
    return _loaded(folder if folder.is_dir() else name)


@cache
def _loaded(name: str | Path) -> Target:
    return load(name)


def draw(choices: Choices, folder: Path, networks: Sequence[Path]) -> Case:
    """What a stream of choices describes.

    Args:
        folder: where a random network is written.
        networks: given ones, from which half of the cases take theirs.
    """
    target = choices.weighted(MACHINES)
    is_given = bool(networks) and choices.chance(2)
    model = choices.pick(networks) if is_given else random_network(choices, folder / "network.onnx")
    return Case(model, target, random_options(choices, machine(target)))


def random_options(choices: Choices, target: Target) -> Options:
    """Sizes of memories, spread evenly over their logarithms, and what else there is to choose."""
    capacities = {}
    for memory in target.memories:
        most = 0 if memory.capacity is None else memory.capacity - memory.reserved
        if most > LEAST and choices.chance(2):
            share = choices.integer(0, 1000) / 1000
            capacities[memory.name.lower()] = round(LEAST * (most / LEAST) ** share)
    around = [path.far for path in target.outward(target.engines[0].memory)]
    engines, most = [engine.name for engine in target.engines], max(engine.cores for engine in target.engines)
    return Options(
        memory=capacities,
        cores=choices.pick([None, None, None, 1, min(3, most)]),
        buffering=choices.pick(["auto", "auto", "single", "double"]),
        default_memory=choices.pick([None, *around]),
        engines=choices.pick([None, None, tuple(engines[:1])]),
        objective=choices.pick(["cycles", "traffic"]),
    )


# Random networks of what chains are made of.


class Layers(Deep):
    """An int8 network whose images shrink as it grows."""

    def dynamic(self, x: str, channels: int, outputs: int, size: int, group: int) -> str:
        """A convolution in integers, by scales that are known when it runs."""
        shape = outputs, channels // group, size, size
        node = helper.make_node("DynamicQuantizeLinear", [self.read(x)], [f"d{len(self.nodes)}{n}" for n in "qsz"])
        self.nodes.append(node)
        quantised, scale, zero = node.output
        weights = self.constant(self.random.integers(0, 256, shape), np.uint8)
        sums = self.node(
            "ConvInteger",
            quantised,
            weights,
            zero,
            self.constant(128, np.uint8),
            group=group,
            kernel_shape=[size] * 2,
            pads=[size // 2] * 4,
        )
        factor = self.node("Mul", scale, self.constant(0.01 / np.prod(shape[1:]) ** 0.5))
        return self.stored(self.node("Relu", self.node("Mul", self.node("Cast", sums, to=1), factor)))

    def gelu(self, x: str) -> str:
        erf = self.node("Erf", self.node("Div", self.read(x), self.constant(2**0.5)))
        return self.stored(self.node("Mul", self.node("Mul", self.read(x), self.node("Add", erf, self.constant(1.0))), self.constant(0.5)))


def random_network(choices: Choices, path: Path) -> Path:
    """Convolutions, branches and inverted residuals; an MLP; or neighbours that need nothing of each other."""
    kind = choices.weighted([(4, "images"), (1, "rows"), (1, "apart")])
    one = Layers()
    if kind == "images":
        return _images(choices, one, path)
    rows, width, hidden = choices.integer(2, 300), 8 * choices.integer(1, 12), 8 * choices.integer(2, 48)
    if kind == "rows":
        y = one.matmul(one.gelu(one.matmul("x", width, hidden)), hidden, width)
        return one.save(path, y, [rows, width], [rows, width])
    return _apart(choices, one, path, rows, width, hidden)


def _images(choices: Choices, one: Layers, path: Path) -> Path:
    channels, height, width = choices.pick([3, 8, 16, 32]), choices.integer(4, 48), choices.integer(4, 48)
    begin, x = [1, channels, height, width], "x"
    for _ in range(choices.integer(2, 5)):
        kind = choices.pick(["dense", "each", "block", "branches", "dynamic", "joined", "strided"])
        outputs = choices.pick([8, 16, 24, 32, 48])
        if kind == "dense":
            x, channels = one.conv(x, channels, outputs, choices.pick([1, 3])), outputs
        elif kind == "each":
            x = one.conv(x, channels, channels, 3, group=channels)
        elif kind == "block" and channels <= 16:
            x = one.block(x, channels)
        elif kind in ("branches", "joined"):
            sides = [one.read(one.conv(x, channels, outputs, size)) for size in (1, 3)]
            x = one.stored(one.node("Add", *sides) if kind == "branches" else one.node("Concat", *sides, axis=1))
            channels = outputs * (1 + (kind == "joined"))
        elif kind == "dynamic":
            group = choices.pick([1, channels])
            outputs = channels if group > 1 else outputs
            x, channels = one.dynamic(x, channels, outputs, choices.pick([1, 3]), group), outputs
        else:
            x, channels = one.conv(x, channels, outputs, 3, stride=2), outputs
            height, width = -(-height // 2), -(-width // 2)
    return one.save(path, x, begin, [1, channels, height, width])


def _apart(choices: Choices, one: Layers, path: Path, rows: int, width: int, hidden: int) -> Path:
    """Sums of products in 32 bits, requantised products, and elements, in any order."""
    ends: list[tuple[str, str, int, int]] = []
    for kind in (choices.pick(["sums", "product", "elements"]) for _ in range(choices.integer(2, 4))):
        x = f"x{len(ends)}"
        if kind == "sums":
            weights = one.constant(one.random.integers(-127, 128, (width, hidden)), np.int8)
            ends.append((x, one.node("MatMulInteger", x, weights), TensorProto.INT32, hidden))
        elif kind == "product":
            ends.append((x, one.matmul(x, width, hidden), TensorProto.INT8, hidden))
        else:
            ends.append((x, one.stored(one.node("Add", one.read(x), one.read(x))), TensorProto.INT8, width))
    inputs = [helper.make_tensor_value_info(x, TensorProto.INT8, [rows, width]) for x, *_ in ends]
    outputs = [helper.make_tensor_value_info(y, dtype, [rows, columns]) for _, y, dtype, columns in ends]
    graph = helper.make_graph(one.nodes, "network", inputs, outputs, one.constants)
    return save_graph(graph, path)


def given_networks(largest: int = LARGEST) -> list[Path]:
    """The networks of the shared models that are not too large; none where the folder is absent."""
    found = (path for folder in FOLDERS for path in sorted((MODELS / folder).rglob("network.onnx")))
    return [path for path in found if path.stat().st_size <= largest]


# What becomes of a case.


def check(case: Case, choices: Choices, chains: int = CHECKED) -> Outcome:
    """Compile a network, certify the C of some ``chains`` of each kind that it could have, run its C; no exception leaves it."""
    try:
        with _offered() as found:
            compiled = _compiled(case)
        checked = sum(_certified(choices, compiled, fuser, kind, chains) for fuser, kinds in found for kind in kinds)
        _run(case, compiled)
        return Outcome("passed", compared=[case.target, *(["chains"] if checked else [])])
    except FitError as error:
        return Outcome("misfit", error.what.splitlines()[0][:40])
    except Difference as difference:
        return Outcome("failed", difference.label, f"{case}: {difference}")
    except BuildError as error:
        return Outcome("failed", f"{error.what.rpartition(':')[2][:60]}", f"{case}: {error.what}")
    except DeeployError as error:
        return Outcome("refused", error.what.splitlines()[0][:60])
    except Exception as error:  # whatever else is raised is the failure looked for
        reason, detail = failure(error)
        return Outcome("failed", reason, f"{case}\n{detail}")


Kinds = Sequence[Sequence[fuse.FusionCandidate]]


@contextmanager
def _offered() -> Iterator[list[tuple[fuse.FusionSearch, Kinds]]]:
    """The chains that the planner finds meanwhile."""
    found: list[tuple[fuse.FusionSearch, Kinds]] = []
    possible: Callable[..., list[fuse.FusionCandidate]] = driver._possible_groups

    def noted(fuser: fuse.FusionSearch, *others: Any) -> list[fuse.FusionCandidate]:
        chains, kinds = possible(fuser, *others), dict[tuple[bool, bool], list[fuse.FusionCandidate]]()
        for one in chains:
            kinds.setdefault((one.fused_group.is_nested, bool(one.fused_group.tile_buffers)), []).append(one)
        found.append((fuser, list(kinds.values())))
        return chains

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "_possible_groups", noted)
        yield found


def _certified(
    choices: Choices, compiled: deeploy.Compiled, fuser: fuse.FusionSearch, kind: Sequence[fuse.FusionCandidate], count: int
) -> int:
    """How many of some chains have C that does what the graph says: all that there is room for.

    Raises:
        CertificateError: that of one does not.
    """
    some = [choices.pick(kind) for _ in range(min(count, len(kind)))]
    checked = 0
    for one in {id(one): one for one in some}.values():
        try:
            plan = fuse.place_addresses(fuse.apply_groups(fuser.plan, [one], fuser.buffers))
        except Overfull:
            continue
        prove(compiled, plan)
        checked += 1
    return checked


def _compiled(case: Case) -> deeploy.Compiled:
    beside = case.model.parent
    inputs, dims = beside / "inputs.npz", beside / "dims.json"
    is_dialect = {"Integer", "Int", "INT8"} & set(case.model.parts)
    return deeploy.compile(
        case.model,
        machine(case.target),
        inputs=inputs if inputs.is_file() else None,
        dims=json.loads(dims.read_text()) if dims.is_file() else {},
        dialect="integer" if is_dialect else None,
        **case.options.given(),
    )


def _run(case: Case, compiled: deeploy.Compiled) -> None:
    """Run the C on the host model.

    Raises:
        Difference: an output is not that of the interpreter.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "project"
        compiled.write(folder)
        entry = project.select_network(project.read_manifest(folder))
        file = case.model.parent / "inputs.npz"
        if not file.is_file():
            file = Path(scratch) / "inputs.npz"
            numbers = np.random.default_rng(1)
            np.savez(file, **{p["name"]: numbers.integers(-128, 128, p["shape"]).astype(np.int8) for p in entry["inputs"]})
        sample = verify._load_samples(file, entry)[0][0]
        outputs = host.Host(flags="-O1").run(folder, entry, [sample]).outputs
        for port, got, want in zip(entry["outputs"], outputs, compiled.interpret(sample), strict=True):
            _equal(f"{case.target}: C against interpreter", port["name"], got[0], want, 0.0)
