"""Small networks are certified as they are printed; with a mistake of any kind they are not, and the message says where."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import deeploy
from deeploy.certify import CertificateError, Printed, certify_network
from tests.certify.networks import NETWORKS
from tests.hal import hand_written
from tests.hal.hand_written import CHANGES, Change
from tests.models import Net

NETWORK = "src/network.c"
Make = Callable[[str], Printed]
ALL = {**hand_written.NETWORKS, **NETWORKS}


@dataclass(frozen=True)
class Mistake:
    """In a network, the first match of ``pattern`` becomes ``replacement``; the certificate then says ``words``."""

    what: str
    network: str
    pattern: str
    replacement: str
    words: str


WAITS = (
    Mistake(
        "no wait for a window that comes",
        "doubled",
        r"rt_wait\(DMA_L2_L1, IN\);",
        ";",
        r"layer a_node, tile 0, core 0: a is read while a transfer",
    ),
    Mistake(
        "no wait for a window that leaves",
        "doubled",
        r"rt_wait\(DMA_L2_L1, OUT\);",
        ";",
        r"tile 2, core 0: y is written while a transfer from L1",
    ),
    Mistake(
        "no wait at the end",
        "doubled",
        r"(layer_y_node.*?)rt_wait\(DMA_L2_L1, OUT\);",
        r"\1;",
        "nobody waits for a transfer from L1 byte 744 to",
    ),
    Mistake("a wait for another transfer", "doubled", r"(rt_fetch_rows\(DMA_L2_L1, )IN", r"\1OUT", "b is read while a transfer from L2"),
    Mistake(
        "a wait before its transfer", "doubled", r"(rt_fetch_run\(DMA_L3_L2, ONCE[^;]*;)\s+(rt_wait\([^;]*;)", r"\2 \1", "nobody waits for"
    ),
    Mistake("no wait for a job", "sums", r"rt_job_wait\(ACCELERATOR_npu\);", ";", "sums is read while a job of Conv_t2 is under way"),
)
ORDER = (
    Mistake(
        "a window does not come", "doubled", r"rt_fetch_run\(DMA_L2_L1, IN[^;]*;", ";", r"a does not hold element \[0, 0\] .* but nothing"
    ),
    Mistake("a window does not leave", "doubled", r"rt_store_rows\([^;]*;", ";", r"layer y_node, .* x does not hold element \[0, 0\]"),
    Mistake("a layer does not run", "doubled", r"TEAM_LAYER\(0, a_node\);", "", "layer y_node, tile 0, core 0: x does not hold"),
    Mistake("no team is started", "doubled", r"rt_fork\([^;]*;", ";", r"output 0 does not hold element \[0, 0\]"),
    Mistake("a tile is computed twice", "doubled", r"body_a_node\(self, t\);", "body_a_node(self, 0);", "layer a_node, tile 0"),
    Mistake(
        "cores do not wait for each other",
        "doubled",
        r"(body_a_node\(self, t\);\s+)rt_barrier\(\);",
        r"\1",
        "layer a_node, tile 0, core 1: b",
    ),
    Mistake("a core leaves out a barrier", "doubled", r"rt_barrier\(\);(\s+return;)", r"\1", "cores come to different numbers of barriers"),
    Mistake(
        "all cores but one start transfers",
        "doubled",
        r"rt_core\(\) == 0",
        "rt_core() != 0",
        "core 1 starts a transfer, which is for the first",
    ),
    Mistake("rows move too late", "chained", r"t >= 3\)", "t >= 4)", r"layer a_node, tile 1, .* x does not hold element \[0, 0, 0, 0\]"),
)
PLACES = (
    Mistake(
        "windows overlap", "doubled", r"AT_A_NODE__B = 0", "AT_A_NODE__B = 16", r"a does not hold element \[0, 0\] .* part of a constant"
    ),
    Mistake(
        "a window leaves its memory", "doubled", r"AT_Y_NODE__Y = \d+", "AT_Y_NODE__Y = 1480", "are bytes 1480 to .* of L1, which has 1488"
    ),
    Mistake(
        "the address of another buffer", "doubled", r"AT_A_NODE__A, \(rt_address\)self", "AT_Y_NODE__Y, (rt_address)self", "a does not hold"
    ),
    Mistake(
        "the other window", "doubled", r"t % 2 \* 320", "(1 - t % 2) * 320", "layer a_node, tile 0, core 0: b is another constant than w"
    ),
    Mistake(
        "cores share scratch memory",
        "staged",
        r"(_COLUMNS \+ \(uintptr_t\)\(rt_core\(\)) \*",
        r"\1 / 2 *",
        "columns of core 0 and columns of core 1 are written to the same place",
    ),
    Mistake(
        "sums of a job over what it reads", "sums", r"AT_CONV_T2_SUMS_2 = \d+", "AT_CONV_T2_SUMS_2 = 127360", "sums overwrites x, which the"
    ),
    Mistake(
        "a result over scratch memory",
        "staged",
        r"AT_CONV_T7__Y = \d+",
        "AT_CONV_T7__Y = 7264",
        "y of core 0 and columns of core 7 are written",
    ),
    Mistake(
        "a result over what is read",
        "chained",
        r"AT_H_CHANNELS_LAST = 0",
        "AT_H_CHANNELS_LAST = 16",
        "y overwrites x, which the kernel still",
    ),
    Mistake("operands change places", "doubled", r"\.a = a, \.b = b", ".a = b, .b = a", "a does not hold element"),
)
SIZES = (
    Mistake("a row too long", "doubled", r"self->inputs\[0\], 480", "self->inputs[0], 481", "bytes 0 to 480 of input 0, which has 480"),
    Mistake("a row too short", "doubled", r"self->inputs\[0\], 480", "self->inputs[0], 479", r"a does not hold element \[0, 19\]"),
    Mistake("another distance of rows", "doubled", r", 20, 124\)", ", 20, 120)", "b is another constant than w"),
    Mistake("another limit", "doubled", r"smaller\(4, 31 - at_n\)", "larger(4, 31 - at_n)", "of L1, which has 1488"),
    Mistake("a difference turned round", "doubled", r"6 - part_m", "part_m - 6", r"\.rows is 1 instead of -1"),
    Mistake("a tile less", "chained", r"time_step < 37", "time_step < 36", r"layer a_node, tile 18, core 0: x does not hold element"),
    Mistake("another stride", "doubled", r"\.a_row = 20", ".a_row = 21", r"pulp_matmul_floats_f32_f32_f32\[0\]\.a_row is 21 instead of 20"),
    Mistake(
        "another kernel",
        "doubled",
        r"network_kernel_unary_f32_f32_\w+\(",
        "network_kernel_other(",
        "network_kernel_other is called instead of",
    ),
    Mistake("a border less", "chained", r"\.left = 1", ".left = 0", r"conv2d_f32_f32_f32_clamp\[0\]\.left is 0 instead of 1"),
    Mistake("a job computes a row more", "sums", r"\.height = n_oh", ".height = n_oh + (t == 0)", r"\.height is 15 instead of 14"),
)
RIGHT = {"every core moves all rows"}  # each core puts the same bytes there


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """What is printed of a network, which is compiled once."""

    @cache
    def make(name: str) -> Printed:
        compiled = ALL[name](tmp_path_factory.mktemp(name))
        (printed,) = compiled.printed(compiled.sources())
        return printed

    return make


def changed(printed: Printed, text: str) -> Printed:
    return replace(printed, files={**printed.files, NETWORK: text})


@pytest.mark.share(0.5)
@pytest.mark.parametrize("name", [*NETWORKS, "attention", "states"])
def test_what_is_printed_is_certified(name: str, made: Make) -> None:
    assert certify_network(made(name)).messages == []  # no messages to other chips


def test_one_number_is_a_constant_of_any_rank(tmp_path: Path) -> None:
    n = Net()
    column = n.MatMul(n.Exp(n.Add(n.x(3, 4), n.c(np.full(1, 2, np.float32)))), n.c(np.ones((4, 1), np.float32)))
    n.save(tmp_path / "ranks.onnx", n.MatMul(column, n.c(np.full((1, 1), 2, np.float32))))
    compiled = deeploy.compile(tmp_path / "ranks.onnx")
    (shared,) = {buffer.name for buffer in compiled.network.program.buffers.values() if buffer.data is not None and buffer.data.size == 1}
    readers = [call.name for call in compiled.network.program.calls if shared in {place.buffer for place in call.operands.values()}]
    (printed,) = compiled.printed(compiled.sources())
    assert len(readers) == 2 and certify_network(printed).messages == []


@pytest.mark.slow
def test_a_mistake_at_one_position_is_found_where_all_are_run(made: Make) -> None:
    printed = made("states")
    wrong = re.sub(r"past_rows = self->past_rows;", "past_rows = self->past_rows + (self->past_rows == 5);", str(printed.files[NETWORK]))
    assert wrong != printed.files[NETWORK]
    certify_network(replace(printed, is_exhaustive=True))
    certify_network(changed(printed, wrong))
    with pytest.raises(CertificateError, match="element"):
        certify_network(replace(changed(printed, wrong), is_exhaustive=True))


@pytest.mark.parametrize("mistake", [*WAITS, *ORDER, *PLACES, *SIZES], ids=lambda mistake: mistake.what)
def test_a_mistake_is_named(mistake: Mistake, made: Make) -> None:
    printed = made(mistake.network)
    text, count = re.subn(mistake.pattern, mistake.replacement, str(printed.files[NETWORK]), count=1, flags=re.DOTALL)
    assert count == 1, f"nothing matches {mistake.pattern}"
    with pytest.raises(CertificateError, match=mistake.words):
        certify_network(changed(printed, text))


@pytest.mark.share(0.2)
@pytest.mark.parametrize(
    ("name", "change"), [pytest.param(name, change, id=f"{name}: {change.what}") for name, row in CHANGES.items() for change in row]
)
def test_mistakes_of_engineers_are_found_without_a_run(name: str, change: Change, made: Make) -> None:
    printed = made(name)
    text = change.mutant({NETWORK: str(printed.files[NETWORK])}).sources[NETWORK]
    if change.what in RIGHT:
        certify_network(changed(printed, text))
        return
    with pytest.raises(CertificateError):
        certify_network(changed(printed, text))
