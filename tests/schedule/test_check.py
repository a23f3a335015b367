"""The checker of schedules: what plans give is free of hazards, and whatever one takes out of it is found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import deeploy
from deeploy.midend.machine import Options
from deeploy.midend.plan import Buffering, Plan
from deeploy.schedule import Schedule, build
from deeploy.schedule.build import past_rows
from deeploy.schedule.check import ScheduleError, check
from deeploy.schedule.ir import Barrier, Condition, Finish, Guard, Layer, Loop, Move, Node, Wait
from tests.e2e import decoders
from tests.simulate import nets

NETWORKS: dict[str, tuple[Callable[[Path, Options], deeploy.Compiled], int, int | None]] = {
    "convolutions": (nets.convolutions, 2500, None),
    "streamed": (nets.convolutions, 2500, 14_000),
    "perceptron": (nets.perceptron, 2000, 6000),
    "transposed": (nets.transposed, 4000, None),
}
Change = Callable[[Node], list[Node] | None]  # what a node becomes; None: it stays


def planned(name: str, buffering: Buffering, folder: Path) -> Plan:
    network, l1, l2 = NETWORKS[name]
    little = {"l1": l1} if l2 is None else {"l1": l1, "l2": l2}
    return network(folder, Options(little, None, buffering, "L2" if l2 is None else "L3")).plan


def changed(schedule: Schedule, step: int, number: int, change: Change) -> Schedule | None:
    """The schedule with one node of a call changed: the one of this number among those that change."""
    count = iter(range(10**6))

    def of(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        result: list[Node] = []
        for node in nodes:
            other = change(node)
            if other is not None and next(count) == number:
                result += other
            elif isinstance(node, Guard | Loop):
                result.append(replace(node, body=of(node.body)))
            else:
                result.append(node)
        return tuple(result)

    layer = schedule.layers[step]
    made = replace(layer, body=of(layer.body), procedures={name: of(body) for name, body in layer.procedures.items()})
    layers: list[Layer] = [*schedule.layers[:step], made, *schedule.layers[step + 1 :]]
    return replace(schedule, layers=tuple(layers)) if next(count) > number else None


def mutants(schedule: Schedule, change: Change) -> Iterator[tuple[int, int, Schedule]]:
    for step in range(len(schedule.layers)):
        for number in range(100):
            mutant = changed(schedule, step, number, change)
            if mutant is None:
                break
            yield step, number, mutant


@pytest.mark.share(0.25)
@pytest.mark.parametrize("buffering", ["single", "double"])
@pytest.mark.parametrize("name", NETWORKS)
def test_hazards_are_found(name: str, buffering: Buffering, tmp_path: Path) -> None:
    plan = planned(name, buffering, tmp_path)
    schedule = build(plan)
    check(plan, schedule)
    changes: dict[str, Change] = {
        "a wait is dropped": lambda node: [] if isinstance(node, Wait | Finish) else None,
        "a window has one slot": lambda node: (
            [replace(node, near=replace(node.near, offset=0))] if isinstance(node, Move) and not isinstance(node.near.offset, int) else None
        ),
        "a transfer goes beyond its block": lambda node: (
            [replace(node, near=replace(node.near, offset=node.near.offset + 2**20))] if isinstance(node, Move) else None
        ),
        "a window is fetched from elsewhere": lambda node: (
            [replace(node, far=replace(node.far, offset=node.far.offset + 1))] if isinstance(node, Move) and not node.is_store else None
        ),
        "a barrier is dropped": lambda node: [] if isinstance(node, Barrier) else None,
        "a transfer is dropped": lambda node: [] if isinstance(node, Move) and not node.is_store else None,
    }
    for what, change in changes.items():
        for step, number, mutant in mutants(schedule, change):
            try:
                check(plan, mutant)
            except ScheduleError:
                continue
            raise AssertionError(f"{what}, number {number} of call {step}: not found\n{mutant.layers[step]}")


@pytest.fixture(scope="module")
def tiled(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    return planned("streamed", "double", tmp_path_factory.mktemp("tiled"))


def test_blocks_are_alive_in_every_step_that_moves_them(tiled: Plan) -> None:
    """Each placement that transfers use is left out of the steps in which they do, one after the other."""
    schedule = build(tiled)
    moved = {end.block for layer in schedule.layers for region in layer.regions.values() for end in (region.near, region.far) if end.level}
    assert len(moved) > 5
    for number, placement in enumerate(tiled.placements):
        if not moved & {*placement.buffers}:
            continue
        gone = replace(placement, first=len(schedule.layers), last=len(schedule.layers))
        plan = replace(tiled, placements=(*tiled.placements[:number], gone, *tiled.placements[number + 1 :]))
        with pytest.raises(ScheduleError, match="is not alive in step"):
            check(plan, schedule)


def test_an_engine_has_as_many_tickets_as_are_open(tiled: Plan) -> None:
    """Double buffering has two at a time, of what comes in and of what goes out."""
    schedule = build(tiled)
    for count in (1, 2, 3):
        target = replace(tiled.target, paths=tuple(replace(path, tickets=count) for path in tiled.target.paths))
        if count == 1:
            with pytest.raises(ScheduleError, match=r"2 tickets of \w+ are open, the engine has 1"):
                check(replace(tiled, target=target), schedule)
        else:
            check(replace(tiled, target=target), schedule)


@pytest.mark.parametrize("past", [0, 22])
def test_the_first_position_and_the_last_one_are_gone_through(past: int, tmp_path: Path) -> None:
    """Waits that are dropped at one position only; two rows are appended at a time, in a context of 24."""
    model = decoders.decoder(tmp_path, rows=2)
    plan = deeploy.compile(model, "siracusa", context=24, options=Options({"l1": 1300})).plan
    here, schedule = Condition(past_rows(plan.program), "!=", past), build(plan)
    found = list(mutants(schedule, lambda node: [Guard((here,), (node,))] if isinstance(node, Wait) else None))
    assert len(found) > 10
    for *_, mutant in found:
        with pytest.raises(ScheduleError):
            check(plan, mutant)
