"""The C of schedules: what plans give is certified, and whatever one takes out of it is found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest

import deeploy
from deeploy.backend.layers import walk_nodes
from deeploy.certify import CertificateError, certify_network
from deeploy.options import Options
from deeploy.planning.plan import Buffering, Plan
from deeploy.schedule import Schedule, build_schedule
from deeploy.schedule.build import past_rows
from deeploy.schedule.ir import Barrier, Condition, Finish, Guard, Layer, Loop, Move, Node, Wait
from tests.e2e import decoders
from tests.execution.simulation import nets
from tests.samples import is_drawn
from tests.schedule.proofs import emitted, refuse, refuse_schedules

NETWORKS: dict[str, tuple[Callable[[Path, Options], deeploy.Compiled], int, int | None]] = {
    "convolutions": (nets.convolutions, 2500, None),
    "streamed": (nets.convolutions, 2500, 14_000),
    "perceptron": (nets.perceptron, 2000, 6000),
    "transposed": (nets.transposed, 4000, None),
}
SHARE = 0.3  # of mutants that `make test` tries
Change = Callable[[Node], list[Node] | None]  # what a node becomes; None: it stays


def compile_network(name: str, buffering: Buffering, folder: Path) -> deeploy.Compiled:
    network, l1, l2 = NETWORKS[name]
    little = {"l1": l1} if l2 is None else {"l1": l1, "l2": l2}
    return network(folder, Options(memory=little, buffering=buffering, default_memory="L2" if l2 is None else "L3"))


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


CHANGES: dict[str, Change] = {
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
    "a result stays": lambda node: [] if isinstance(node, Move) and node.is_store else None,
}


@pytest.mark.share(0.25)
@pytest.mark.parametrize("buffering", ["single", "double"])
@pytest.mark.parametrize("name", NETWORKS)
def test_hazards_are_found(name: str, buffering: Buffering, tmp_path: Path) -> None:
    one = compile_network(name, buffering, tmp_path)
    found = [(what, *mutant) for what, change in CHANGES.items() for mutant in mutants(build_schedule(one.plan), change)]
    drawn = [mutant for *place, mutant in found if is_drawn(f"{name} {buffering} {place}", SHARE)]
    assert refuse_schedules(one, drawn) == len(drawn) and len(found) > 20


@pytest.fixture(scope="module")
def tiled(tmp_path_factory: pytest.TempPathFactory) -> deeploy.Compiled:
    return compile_network("streamed", "double", tmp_path_factory.mktemp("tiled"))


def test_blocks_that_are_alive_together_lie_apart(tiled: deeploy.Compiled) -> None:
    """Of a few pairs of blocks, one is put where the other begins."""
    placements, pairs = tiled.plan.placements, list[tuple[str, Plan]]()
    for first, second in combinations(range(len(placements)), 2):
        one, other = placements[first], placements[second]
        if one.level == other.level and one.first <= other.last and other.first <= one.last:
            moved = replace(other, offset=one.offset)
            plan = replace(tiled.plan, placements=(*placements[:second], moved, *placements[second + 1 :]))
            pairs.append((f"{one.buffers} {other.buffers}", plan))
    assert len(pairs) > 10
    refuse(tiled, [plan for label, plan in pairs if is_drawn(label, SHARE)])


def test_an_engine_has_as_many_tickets_as_are_used(tiled: deeploy.Compiled) -> None:
    """Those of what comes in and of what goes out, and of whole constants; with one less, the C is not certified."""
    (printed,) = tiled.printed(emitted(tiled))
    schedule = build_schedule(tiled.plan)
    bodies = [schedule.initialise, *(body for layer in schedule.layers for body in (layer.body, *layer.procedures.values()))]
    tokens = [node.token for body in bodies for node in walk_nodes(body) if isinstance(node, Move)]
    paths = [replace(path, tickets=max(one.ticket for one in tokens if one.path == path.name) + 1) for path in printed.target.paths]
    certify_network(replace(printed, target=replace(printed.target, paths=tuple(paths))))
    assert len(paths) == 2
    for number, path in enumerate(paths):
        fewer = (*paths[:number], replace(path, tickets=path.tickets - 1), *paths[number + 1 :])
        with pytest.raises(CertificateError, match=f"ticket {path.tickets - 1} of {path.name}"):
            certify_network(replace(printed, target=replace(printed.target, paths=fewer)))


@pytest.mark.parametrize("past", [0, 22])
def test_the_first_position_and_the_last_one_are_gone_through(past: int, tmp_path: Path) -> None:
    """Waits that are dropped at one position only; two rows are appended at a time, in a context of 24."""
    model = decoders.decoder(tmp_path, rows=2)
    one = deeploy.compile(model, "siracusa", context=24, memory={"l1": 1300})
    here = Condition(past_rows(one.plan.program), "!=", past)
    found = [
        mutant
        for *_, mutant in mutants(build_schedule(one.plan), lambda node: [Guard((here,), (node,))] if isinstance(node, Wait) else None)
    ]
    drawn = [mutant for number, mutant in enumerate(found) if is_drawn(f"{past} {number}", SHARE)]
    assert refuse_schedules(one, drawn) == len(drawn) and len(found) > 10
