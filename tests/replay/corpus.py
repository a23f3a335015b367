"""What is compiled: models of the tests' generators, examples, and models beside the checkout, each for a share of the configurations."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
import onnxruntime

from deeploy.resources import write_whole
from tests.e2e import test_recurrent
from tests.e2e.decoders import decoder
from tests.frontend import nodes, test_loops
from tests.frontend.expand import test_ai_onnx_ml, test_expansion
from tests.frontend.lower.nets import CONSTRUCTS
from tests.frontend.lower.test_constructs import FORMS, write
from tests.random.choices import Choices
from tests.random.contradictions import drawn
from tests.random.forms import make
from tests.random.oracle import Invalid

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (ROOT / "examples", ROOT / "tests" / "random" / "regressions", ROOT.parent / "shared" / "models")
SEEDS = 300  # of random graphs, and of nodes that contradict themselves
CONFIGURATIONS = {
    "generic": "-t generic",
    "siracusa": "-t siracusa",
    "little_l1": "-t siracusa --l1 6000 --default-memory L3",
    "tensor": "-t siracusa --chips 2",
    "pipeline": "-t siracusa --chips 2 --partition pipeline",
    "cortex_m4": "-t cortex_m4",
    "ram": "-t cortex_m4 --objective ram",
    **{path.name: f"-t ./{path.name}" for path in sorted((ROOT / "examples" / "targets").iterdir())},
}
# Of the cases for other configurations than the first; families that are not here: all.
SHARES = {"constructs": 0.1, "nodes": 0.1, "random": 0.3, "wrong": 0.05, "models": 0.2}
LATER = {"generic": 1, "tensor": 4, "pipeline": 4}  # how late cases come that take longer; else 2
Made = tuple[bytes | None, list[str]]  # a file, none where there is no such model, and the arguments that it needs


class Case(NamedTuple):
    """A model for one configuration."""

    name: str
    make: Callable[[], Made]

    def prepared(self, folder: Path) -> tuple[Path, list[str]] | None:
        """The model's file, which is written once, and the arguments of the command."""
        name, _, configuration = self.name.rpartition("@")
        model = folder / f"{name}.onnx"
        if not model.exists():
            content, needed = self.make()
            with write_whole(model) as fresh:
                fresh.write_bytes(content or b"")
                model.with_suffix(".json").write_text(json.dumps(needed))
        arguments = CONFIGURATIONS[configuration].split() + json.loads(model.with_suffix(".json").read_text())
        return (model, arguments) if model.stat().st_size else None


def cases() -> list[Case]:
    """All cases, in an order that is the same in every run: a part of them begins it, of which cheap ones are the most."""
    logging.disable(logging.WARNING)
    onnxruntime.set_default_logger_severity(4)
    found = []
    for source, make_model in sources():
        name = re.sub(r"[^\w.,/+-]+", "_", source)
        for configuration in CONFIGURATIONS:
            case = Case(f"{name}@{configuration}", make_model)
            share = 1 if configuration == "generic" else SHARES.get(name.partition("/")[0], 1)
            place = int.from_bytes(hashlib.sha256(case.name.encode()).digest()[:8]) / 2**64 / share  # those below 1 are in
            found += [(place * LATER.get(configuration, 2), case)] * (place < 1)
    return [case for _, case in sorted(found, key=lambda entry: entry[0])]


def sources() -> Iterator[tuple[str, Callable[[], Made]]]:
    """Every model by name, and what makes it."""
    for name in CONSTRUCTS:
        yield from ((f"constructs/{name}/{form}", partial(_construct, name, form)) for form in FORMS)
    for name, model in listed():
        yield f"nodes/{name}", lambda model=model: (model.SerializeToString(), [])
    for is_quantised in (False, True):
        yield f"decoders/{is_quantised}", partial(_decoder, is_quantised)
    for seed in range(SEEDS):
        yield f"random/{seed}", partial(_random, seed)
        yield f"wrong/{seed}", lambda seed=seed: (drawn(Choices(f"node {seed}"))[1].SerializeToString(), [])
    for folder in FOLDERS:
        for path in sorted(folder.rglob("*.onnx")):
            yield f"{folder.name}/{path.relative_to(folder).with_suffix('')}", partial(_file, path)


def listed() -> Iterator[tuple[str, onnx.ModelProto]]:
    """The models that tests list by name."""
    yield from nodes.sample_models().items()
    for name, (x, outputs, attributes) in test_ai_onnx_ml.CASES.items():
        yield f"classic {name}", test_ai_onnx_ml.model_of(name.split()[0], x, outputs, attributes)
    for name in test_loops.CASES:
        yield f"loop {name}", test_loops.model_of(name)
    for name in test_expansion.NAMES:
        case = test_expansion.cases()[name]
        arrays = [np.asarray(array) for array in case.data_sets[0][0] if array is not None]
        yield f"onnx {name}", test_expansion.fixed(case.model, arrays, True)[0]
    for name, (op, given) in test_recurrent.OPTIONS.items():
        yield f"recurrent {name}", test_recurrent.recurrent_model(op, **test_recurrent.attributes(op, given))
    for name, (op, given) in test_recurrent.QUANTISED.items():
        yield f"quantised recurrent {name}", test_recurrent.quantised(op, **given)


def _decoder(is_quantised: bool) -> Made:
    with tempfile.TemporaryDirectory() as folder:
        return decoder(Path(folder), is_quantised=is_quantised).read_bytes(), ["--context=8"]


def _construct(name: str, form: str) -> Made:
    with tempfile.TemporaryDirectory() as folder:
        try:
            return write(name, form, Path(folder), np.random.default_rng(1))[1].read_bytes(), []
        except (ValueError, IndexError, RuntimeError):  # onnxruntime cannot quantise it
            return None, []


def _random(seed: int) -> Made:
    try:
        case = make(Choices(seed))
    except Invalid:
        return None, []
    typed = [f"--input-type={name}={kind}" for name, kind in case.types.items()]
    return case.model.SerializeToString(), typed + ["--dialect=integer"] * (case.form == "dialect")


def _file(path: Path) -> Made:
    """A model with what lies beside it: samples, where the types of inputs are read from them, extents and pins."""
    samples = path.with_name("inputs.npz")
    needed = [f"--inputs={samples}"] * ("dialect" in path.parts)
    for option, file in (("dim", "dims.json"), ("pin", "pin.json")):
        if (given := path.with_name(file)).exists():
            needed += [f"--{option}={name}={value}" for name, value in json.loads(given.read_text()).items()]
    return path.read_bytes(), needed
