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
from deeploy.schedule.check import ScheduleError, check
from deeploy.schedule.ir import Finish, Guard, Layer, Loop, Move, Node, Wait
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
    return Schedule(schedule.name, schedule.initialise, tuple(layers)) if next(count) > number else None


def mutants(schedule: Schedule, change: Change) -> Iterator[tuple[int, int, Schedule]]:
    for step in range(len(schedule.layers)):
        for number in range(100):
            mutant = changed(schedule, step, number, change)
            if mutant is None:
                break
            yield step, number, mutant


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
        "a transfer is dropped": lambda node: [] if isinstance(node, Move) and not node.is_store else None,
    }
    for what, change in changes.items():
        for step, number, mutant in mutants(schedule, change):
            try:
                check(plan, mutant)
            except ScheduleError:
                continue
            raise AssertionError(f"{what}, number {number} of call {step}: not found\n{mutant.layers[step]}")
