"""What emitted C must not have: factors of one, tickets without a name, a condition asked twice, a number computed twice."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from mako.lookup import TemplateLookup

import deeploy
from deeploy.backend.layers import Printer
from deeploy.ir.expr import Affine, Named, Variable
from deeploy.options import Options
from deeploy.planning.program import Program
from deeploy.schedule.ir import Address, Box, Condition, Guard, Move, Node, Schedule, Token
from deeploy.target import load
from tests.e2e import decoders
from tests.execution.simulation import nets

FAR = Options(memory={"l1": 4000, "l2": 9000}, buffering="double", default_memory="L3")

NETWORKS: dict[str, Callable[[Path], deeploy.Compiled]] = {
    "perceptron": lambda folder: nets.perceptron(folder, Options(memory={"l1": 2000})),
    "far": lambda folder: nets.perceptron(folder, FAR),
    "convolutions": lambda folder: nets.convolutions(folder, Options(memory={"l1": 6000})),
    "filters": lambda folder: nets.filters(folder, Options(memory={"l1": 6000, "l2": 20000}, default_memory="L3")),
    "states": lambda folder: deeploy.compile(decoders.decoder(folder, is_quantised=True), "siracusa", context=24, memory={"l1": 1300}),
    "flat": lambda folder: deeploy.compile(decoders.decoder(folder), context=8),
}


def _functions(text: str) -> Iterator[tuple[str, str]]:
    """Name and body of every function of a file."""
    for match in re.finditer(r"^(?:static|TILED_LAYER|enum) [^;=\n]*?(\w+)\([^;=\n]*\) \{\n(.*?)^\}$", text, re.MULTILINE | re.DOTALL):
        yield match[1], match[2]


@pytest.mark.share(0.5)
@pytest.mark.parametrize("name", NETWORKS)
def test_emitted_c_is_readable(tmp_path: Path, name: str) -> None:
    compiled = NETWORKS[name](tmp_path)
    text = compiled.files()["src/network.c"]
    assert isinstance(text, str)
    assert not re.findall(r"(?<![\w.])1 \*(?![\w/])|\* 1(?![\w.])", text)
    assert not re.findall(r"\brt_\w+\(\w+, \d+[,)]", text), "a ticket without a name"
    assert not re.findall(r"\{\s*\}", text)
    assert not re.findall(r"^ +\{$", text, re.MULTILINE), "a block that is none of an if or a loop"
    functions = dict(_functions(text))
    assert len(functions) > len(compiled.network.program.calls)
    for function, body in functions.items():
        found = [*re.finditer(r"^ {4}if (\(.*?\)) (?:\{.*?^ {4}\}|[^{\n]*;)$", body, re.MULTILINE | re.DOTALL)]
        assert not [a[1] for a, b in pairwise(found) if a[1] == b[1] and not body[a.end() : b.start()].strip()], function
        declared = re.findall(r"const int32_t (\w+) =", body)
        assert len(declared) == len(set(declared)), function


def test_comments_say_what_is_emitted(tmp_path: Path) -> None:
    """Of a product in tiles: kernel, cores and tiles, where its operands are; of whole constants, the layer that they are fetched for."""
    compiled = NETWORKS["far"](tmp_path)
    text = compiled.files()["src/network.c"]
    assert isinstance(text, str)
    comments = re.findall(r"^/\*.*?\*/$", text, re.MULTILINE | re.DOTALL)
    for step, call in enumerate(compiled.plan.program.calls):
        comment = " ".join(next(found for found in comments if found.startswith(f"/* {call.node.name}: ")).split()).replace(" * ", " ")
        tiling = compiled.plan.tiling(step)
        assert f"Kernel {call.kernel.name} on 8 cores of cluster, split along {tiling.core_dims}" in comment
        assert (f"in {tiling.tiles} tiles " in comment) == (tiling.tiles > 1)
        for stream in tiling.streams:
            assert re.search(rf"\b{stream.operand} f32\[[\d,]+\][^;]* through windows in ", comment), stream
        assert all(f" {name} f32[" in comment for name in call.operands)
    assert "from L3 through windows in L1 and L2" in " ".join(text.split()) or "FOR_" in text


def test_names_are_declared_where_all_that_need_them_see_them() -> None:
    """Once where two statements share a part, inside where one block has it to itself, and in a block where it has another value."""
    t = Variable("t", 0, 3)
    one, same, other = (Named("at_n", Affine(((t, factor),), 0)) for factor in (32, 32, 16))
    length = Named("n_n", Affine(((other, -1),), 64))

    def move(far: Named, *parts: Named) -> Move:
        box = Box(parts[0] if parts else 8)
        return Move(Token("L2_L1", "in", 0), False, Address("x", 0, "L1"), Address("y", far * 4, "L2"), box, 0, "x")

    def printed(*nodes: Node) -> str:
        printer = Printer(Schedule("s", (), (), ()), Program("p", {}, (), (), (), {}), {}, {}, load("siracusa"), TemplateLookup(), {}, "p")
        lines = printer._statements(None, nodes)
        return "\n".join(lines).replace("rt_fetch_run(DMA_L2_L1, IN, self->l1 + AT_X, self->l2 + AT_Y + (rt_address)(at_n * 4), ", "move(")

    inside = (Condition(t, "!=", 0),)
    assert printed(move(one), move(same)) == "const int32_t at_n = t * 32;\nmove(8);\nmove(8);"
    guarded = "if (t) {\n    const int32_t at_n = t * 32;\n    move(8);\n    move(8);\n}"
    assert printed(Guard(inside, (move(one),)), Guard(inside, (move(same),))) == guarded
    assert printed(Guard(inside, (move(one),)), move(same)) == "const int32_t at_n = t * 32;\nif (t) move(8);\nmove(8);"
    block = "{\n    const int32_t at_n = t * 16;\n    const int32_t n_n = 64 - at_n;\n    move((uint32_t)n_n);\n}"
    assert printed(move(one), move(other, length)) == f"const int32_t at_n = t * 32;\nmove(8);\n{block}"
