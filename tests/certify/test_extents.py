"""Every index, offset and size of a schedule stays inside of its block, for all tiles, cores and rows: z3 proves it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("z3", reason="needs z3-solver (pip install 'deeploy[prove]')")

import z3

from deeploy.ir.expr import Maximum, Variable, quotient, remainder
from deeploy.planning.plan import Plan
from deeploy.schedule import Schedule, build_schedule
from deeploy.schedule.ir import Address, Do, Guard, Layer, Loop, Move, Node, ShiftRows
from tests.certify.extents import Extents, Terms, find_overhanging
from tests.certify.networks import NETWORKS
from tests.hal import hand_written

ALL = {**hand_written.NETWORKS, **NETWORKS}


def refutations(plan: Plan, schedule: Schedule) -> list[str]:
    """What can leave its block, or is not known."""
    return [found for each in Extents(plan, schedule).obligations() if (found := each.refute())]


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_all_indices_stay_inside(name: str, tmp_path: Path) -> None:
    plan = ALL[name](tmp_path).plan
    schedule = build_schedule(plan)
    assert refutations(plan, schedule) == []
    assert find_overhanging(plan) == []
    reached = {each.what for each in Extents(plan, schedule).obligations()}
    assert all(
        any(what.startswith(f"{operand} of {call.name}") for what in reached) for call in plan.program.calls for operand in call.operands
    )


def further(address: Address) -> Address:
    return replace(address, offset=address.offset + 1)


def move_nodes(nodes: Sequence[Node]) -> Iterator[tuple[str, tuple[Node, ...]]]:
    """The nodes with one offset or tile raised by one, each under what it is."""
    for number, node in enumerate(nodes):
        changed: list[tuple[str, Node]] = []
        if isinstance(node, Guard | Loop):
            changed = [(what, replace(node, body=body)) for what, body in move_nodes(node.body)]
        elif isinstance(node, Move):
            changed = [("far", replace(node, far=further(node.far))), ("near", replace(node, near=further(node.near)))]
        elif isinstance(node, ShiftRows):
            changed = [("rows", replace(node, begin=node.begin + 1))]
        elif isinstance(node, Do):
            changed = [("tile", replace(node, tile=node.tile + 1))]
        yield from ((what, (*nodes[:number], other, *nodes[number + 1 :])) for what, other in changed)


def move_layer(layer: Layer) -> Iterator[tuple[str, Layer]]:
    for name, procedure in layer.procedures.items():
        yield from ((what, replace(layer, procedures={**layer.procedures, name: body})) for what, body in move_nodes(procedure))
    yield from ((what, replace(layer, body=body)) for what, body in move_nodes(layer.body))
    for name, view in layer.work.operands.items():
        operands = {**layer.work.operands, name: replace(view, element=view.element + 1)}
        yield "view", replace(layer, work=replace(layer.work, operands=operands))


# What is not refuted stays inside of its block although it is wrong, such as the first tile that becomes the second, or what only a part of
# a line buffer holds. The certificate of the C finds these.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "always", "sometimes"), [("doubled", {"far", "near", "view"}, {"tile"}), ("chained", {"rows", "tile"}, {"view"})]
)
def test_offsets_that_are_raised_by_one_are_refuted(name: str, always: set[str], sometimes: set[str], tmp_path: Path) -> None:
    plan = ALL[name](tmp_path).plan
    schedule = build_schedule(plan)
    extents, tried, refuted = Extents(plan, schedule), Counter[str](), Counter[str]()
    for layer in schedule.layers:
        for kind, changed in move_layer(layer):
            tried[kind] += 1
            refuted[kind] += any(each.refute() for each in extents.of_layer(changed))
    assert {kind for kind in tried if refuted[kind] == tried[kind]} == always, (tried, refuted)
    assert {kind for kind in tried if 0 < refuted[kind] < tried[kind]} == sometimes, (tried, refuted)


def test_terms_mean_what_expressions_mean() -> None:
    """Floor division and remainders of negative numbers as well."""
    t = Variable("t", -9, 9)
    value = quotient(3 * t - 5, 4) * 7 + remainder(2 - 5 * t, 6) - Maximum((t + 1).affine(), (2 - t).affine(), is_least=True) * (t + 3)
    terms = Terms({})
    term = terms.term(value)
    for number in range(-9, 10):
        assert z3.simplify(z3.substitute(term, (z3.Int("t"), z3.IntVal(number)))).as_long() == value.at({"t": number})
