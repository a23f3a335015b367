"""Chains: what their schedules are, that they are safe, and that whatever makes one unsafe is found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count, pairwise
from pathlib import Path

import numpy as np
import pytest

import deeploy
from deeploy.backend import project
from deeploy.errors import FitError
from deeploy.execution.runners import host
from deeploy.ir.expr import Value
from deeploy.options import Options
from deeploy.planning.plan import Plan
from deeploy.planning.tiling.fused_group import FusedGroup, GroupMember
from deeploy.schedule import Schedule, build_schedule
from deeploy.schedule.ir import Condition, Do, Guard, Loop, Node, ShiftRows
from tests.execution.simulation.nets import compile_nodes, node
from tests.schedule.proofs import prove, refuse, refuse_schedules

RAM = Options(objective="ram")


def residual(folder: Path, options: Options = RAM) -> deeploy.Compiled:
    """Strides, halos, borders of different widths, a branch that is added again, a pool and a part that nothing reads."""
    nodes = [
        node("Conv", "x w1", "a", pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Relu", "a", "b"),
        node("Conv", "b w2", "c", pads=[1, 1, 1, 1], group=6),
        node("Conv", "c w3", "d"),
        node("Add", "b d", "e"),
        node("MaxPool", "e", "f", kernel_shape=[3, 3], strides=[2, 2], pads=[0, 0, 1, 1]),
        node("Conv", "f w4", "g", pads=[2, 2, 2, 2], dilations=[2, 2]),
        node("Concat", "f g", "h", axis=1),
        node("Conv", "h w5", "y", strides=[2, 2]),
    ]
    constants = {"w1": [6, 3, 3, 3], "w2": [6, 1, 3, 3], "w3": [6, 6, 1, 1], "w4": [4, 6, 3, 3], "w5": [3, 10, 2, 2]}
    return compile_nodes(folder, nodes, {"x": [1, 3, 37, 26]}, {"y": [1, 3, 5, 3]}, constants, options, "generic")


def mlp(folder: Path, options: Options = RAM) -> deeploy.Compiled:
    """Rows of a hidden layer that are wider than what is around them."""
    nodes = [node("MatMul", "x w1", "a"), node("Tanh", "a", "b"), node("MatMul", "b w2", "y")]
    return compile_nodes(folder, nodes, {"x": [24, 5]}, {"y": [24, 4]}, {"w1": [5, 60], "w2": [60, 4]}, options, "generic")


NETWORKS: dict[str, Callable[[Path, Options], deeploy.Compiled]] = {"residual": residual, "mlp": mlp}


def peak(plan: Plan) -> int:
    return plan.memory["arena"].peak


@pytest.mark.parametrize("name", NETWORKS)
def test_chains_take_less_memory_and_compute_the_same(name: str, tmp_path: Path) -> None:
    whole, small = NETWORKS[name](tmp_path, Options()), NETWORKS[name](tmp_path, RAM)
    assert not whole.plan.fused_groups and small.plan.fused_groups
    assert peak(small.plan) < 0.6 * peak(whole.plan)
    found = []
    for one in (whole, small):
        one.write(tmp_path / "out")
        entry = project.select_network(project.read_manifest(tmp_path / "out"))
        sample = [np.random.default_rng(3).uniform(-1, 1, port["shape"]).astype(np.float32) for port in entry["inputs"]]
        (outputs,) = host.Host(sanitize=True).run(tmp_path / "out", entry, [sample]).outputs
        found.append(outputs)
        np.testing.assert_allclose(outputs[0], one.interpret(sample)[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(*found)


def test_the_fastest_plan_within_a_limit_is_taken(tmp_path: Path) -> None:
    """The more memory, the fewer calls; and as much as is given is never exceeded."""
    most, least = peak(residual(tmp_path, Options()).plan), peak(residual(tmp_path).plan)
    counts = []
    for limit in np.linspace(least, most, 7).astype(int):
        plan = residual(tmp_path, Options(memory={"arena": int(limit)})).plan
        assert peak(plan) <= limit
        counts.append(sum(call.tiling.tiles for call in plan.calls))
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > 3 * counts[-1] and counts[-1] == len(plan.calls)
    with pytest.raises(FitError, match=f"needs {least} bytes when it is computed a few rows at a time, {least - 4} are there"):
        residual(tmp_path, Options(memory={"arena": least - 4}))


def test_what_other_limits_would_give_is_known(tmp_path: Path) -> None:
    """From the least memory to the layers one by one: the more memory, the less is added."""
    plan = residual(tmp_path).plan
    found = plan.arrangements
    assert found[0].bytes == peak(plan) and found[-1].bytes == peak(residual(tmp_path, Options()).plan)
    assert (found[-1].calls, found[-1].moved) == (0, 0)
    for less, more in pairwise(found):
        assert less.bytes < more.bytes and (less.calls > more.calls or less.moved > more.moved)
    assert sum(call.tiling.tiles - 1 for call in plan.calls) == found[0].calls


def changed(schedule: Schedule, change: Callable[[Node], Node | None], number: int) -> Schedule | None:
    """The schedule with one node replaced, or left out where ``change`` returns a schedule without it; None where there are no more."""
    count = 0

    def of(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        nonlocal count
        found: list[Node] = []
        for one in nodes:
            other = change(one)
            if other is not None:
                count += 1
                if count - 1 == number:
                    found += [] if other is one else [other]
                    continue
            found.append(replace(one, body=of(one.body)) if isinstance(one, Guard | Loop) else one)
        return tuple(found)

    layers = [
        replace(layer, procedures={name: of(body) for name, body in layer.procedures.items()}, body=of(layer.body))
        for layer in schedule.layers
    ]
    return replace(schedule, layers=tuple(layers)) if count > number else None


def _later(value: Value) -> Value:
    return value + 1


def mutants(schedule: Schedule, change: Callable[[Node], Node | None]) -> Iterator[Schedule]:
    """The schedule with one node changed, for each of those that a change concerns."""
    for number in count():
        mutant = changed(schedule, change, number)
        if mutant is None:
            return
        yield mutant


CHANGES: dict[str, Callable[[Node], Node | None]] = {
    "a move is left out": lambda n: n if isinstance(n, ShiftRows) else None,
    "a move begins a row early": lambda n: replace(n, begin=n.begin - 4) if isinstance(n, ShiftRows) else None,
    "a move is too short": lambda n: replace(n, bytes=n.bytes - 4) if isinstance(n, ShiftRows) else None,
    "a move goes beyond the ring": lambda n: replace(n, bytes=n.bytes + 2**20) if isinstance(n, ShiftRows) else None,
    "a call is left out": lambda n: n if isinstance(n, Do) else None,
    "a call computes the next tile": lambda n: replace(n, tile=_later(n.tile)) if isinstance(n, Do) else None,
    "calls begin one time step early": lambda n: _early(n),
}


def _early(one: Node) -> Node | None:
    if not isinstance(one, Guard) or one.conditions[0].relation != ">=" or not isinstance(one.body[0], Do):
        return None
    (begin, *others), (inner, *rest) = one.conditions, one.body
    turned = [replace(c, right=(c.right - 1) % 2) if c.relation == "==" and c.right else c for c in others]
    earlier = Condition(begin.left, ">=", begin.right - 1)
    return Guard((earlier, *turned), (replace(inner, tile=_later(inner.tile)), *rest)) if isinstance(inner, Do) else None


@pytest.mark.parametrize("what", CHANGES)
def test_what_makes_a_chain_unsafe_is_found(what: str, tmp_path: Path) -> None:
    one = residual(tmp_path)
    assert refuse_schedules(one, mutants(build_schedule(one.plan), CHANGES[what])) >= 2


def with_member(plan: Plan, number: int, member: GroupMember) -> Plan:
    chain = plan.fused_groups[0]
    members = (*chain.members[:number], member, *chain.members[number + 1 :])
    return replace(plan, fused_groups=(FusedGroup(members, chain.line_buffers), *plan.fused_groups[1:]))


def test_no_call_of_a_chain_could_begin_earlier_and_no_ring_be_smaller(tmp_path: Path) -> None:
    """Each start is the least with which the rows that tiles read are there; each ring is the smallest that holds them."""
    one = residual(tmp_path)
    plan = one.plan
    prove(one)
    waiting = [(n, m) for n, m in enumerate(plan.fused_groups[0].members) if m.start > 0]
    assert len(waiting) > 3
    refuse(one, (with_member(plan, number, replace(member, start=member.start - 1)) for number, member in waiting))
    chain = plan.fused_groups[0]
    shrinkable = {name: ring for name, ring in chain.line_buffers.items() if ring.rows > chain.member(ring.producer).rows}
    smaller = (
        {**chain.line_buffers, name: replace(ring, rows=ring.rows - chain.member(ring.producer).rows)} for name, ring in shrinkable.items()
    )
    assert refuse(one, (replace(plan, fused_groups=(FusedGroup(chain.members, rings), *plan.fused_groups[1:])) for rings in smaller))
