"""Frama-C's Eva finds no undefined behaviour in what is compiled, and finds what is seeded (``tests.certify.prove``)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import deeploy
from deeploy.errors import UsageError
from tests.certify.prove import FRAMA_C, RANGE, SECONDS, Proof, prove_files, prove_model
from tests.models import Net, quantised, weights

needs_frama_c = pytest.mark.skipif(FRAMA_C is None, reason="needs frama-c (Debian's frama-c-base)")


def small(folder: Path, is_float: bool = False) -> Path:
    """Convolutions of all kinds, a sum, a mean, a product and a softmax, in int8 or in floats."""
    n = Net()

    def values(name: str, *scale: float) -> str:
        return name if is_float else quantised(n, name, *scale)

    def filters(*shape: int) -> str:
        return n.c(np.linspace(-1, 1, math.prod(shape), dtype=np.float32).reshape(shape)) if is_float else weights(n, *shape)

    def layer(x: str, channels: int, per_group: int, kernel: int, **attrs: int) -> str:
        bias = n.c(np.zeros(channels, np.float32))
        return values(n.Relu(n.Conv(x, filters(channels, per_group, kernel, kernel), bias, pads=[kernel // 2] * 4, **attrs)))

    first = layer(values(n.x(1, 3, 9, 9)), 16, 3, 3, strides=[2, 2])
    each = layer(first, 16, 1, 3, group=16)
    total = values(n.Add(layer(each, 16, 16, 1), first))
    mean = values(n.AveragePool(layer(total, 8, 16, 3), kernel_shape=[5, 5]))
    scores = values(n.MatMul(n.Flatten(mean), filters(8, 12 if is_float else 6)))
    return n.save(folder / "small.onnx", values(n.Softmax(scores), 1 / 128))


@pytest.fixture(scope="module")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def annotated_network(small_model: Path) -> deeploy.Compiled:
    return deeploy.compile(small_model, acsl=True)


def prove(compiled: deeploy.Compiled, replaced: Sequence[str] = ("", "")) -> Proof:
    """Run Eva where a text of the network's C is replaced by another one."""
    files = compiled.sources()
    network = str(files["src/network.c"])
    assert replaced[0] in network
    return prove_files({**files, "src/network.c": network.replace(*replaced)}, compiled, RANGE, SECONDS)


def test_contracts_are_comments(small_model: Path, annotated_network: deeploy.Compiled) -> None:
    printed = str(annotated_network.sources()["src/network.c"])
    assert printed.count("/*@ requires") == len(annotated_network.plan.program.calls) > 8
    in_arena = printed.count("@ assigns ((int8_t *)(self->arena + AT_")
    assert in_arena == printed.count("@ assigns") - 1  # the last layer fills an array of the caller
    files = deeploy.compile(small_model).sources()
    assert re.sub(r"/\*@.*?\*/\n", "", printed, flags=re.DOTALL) == files["src/network.c"]
    assert {path for path, text in annotated_network.sources().items() if files[path] != text} == {"src/network.c"}


@pytest.mark.parametrize(
    "compiling",
    [partial(deeploy.compile, target="siracusa"), partial(deeploy.chips.compile, target="siracusa", chips=2)],
    ids=["several memories", "two chips"],
)
def test_contracts_are_for_one_memory_and_one_chip(compiling: Callable[..., object], small_model: Path) -> None:
    with pytest.raises(UsageError, match="acsl"):
        compiling(small_model, acsl=True)


@needs_frama_c
@pytest.mark.slow
def test_nothing_is_undefined(annotated_network: deeploy.Compiled) -> None:
    proof = prove(annotated_network)
    assert proof.holds, "\n".join([str(proof), *proof.alarms])


@needs_frama_c
@pytest.mark.slow
def test_nothing_is_undefined_in_floats(tmp_path: Path) -> None:
    proof = prove_model(small(tmp_path, is_float=True))
    assert proof.holds, "\n".join([str(proof), *proof.alarms])


@needs_frama_c
@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "other"),
    [
        (".w_row = 144", ".w_row = 288"),
        (".depth = 8", ".depth = 9"),
        (".shift = 46", ".shift = 64"),
        ("_OUTPUTS; i++", "_OUTPUTS + 1; i++"),
    ],
    ids=["filters", "depth", "shift", "outputs"],
)
def test_what_is_undefined_is_found(text: str, other: str, annotated_network: deeploy.Compiled) -> None:
    assert not prove(annotated_network, (text, other)).holds
