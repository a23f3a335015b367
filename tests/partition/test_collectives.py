"""Algorithms of collectives: who sends what to whom."""

from __future__ import annotations

import pytest

from deeploy.ir.topology import Link, Topology
from deeploy.partition.collectives import Links, Receive, Send, fastest_algorithm, list_spreads

GROUPS = Topology({"wire": Link("wire", 5e8, 3e-7, 100.0)}, 4, "wire")


@pytest.mark.parametrize("members", [[0, 1], [0, 1, 2], [0, 2, 3], list(range(7)), [0, 5, 6, 18], list(range(64))], ids=len)
@pytest.mark.parametrize("count", [1, 3])
def test_everybody_gets_every_chunk_once_from_one_that_has_it_over_one_link(members: list[int], count: int) -> None:
    found = list(list_spreads(members, 4, [count]))
    assert {"hierarchical", *(["doubling"] if count == 1 else [])} <= {algorithm.name for algorithm in found}
    for algorithm in found:
        has = {(0, chunk) for chunk in range(algorithm.chunks)}
        for sent, received in zip(algorithm.events[::2], algorithm.events[1::2], strict=True):
            assert isinstance(sent, Send) and received == Receive(sent)
            assert (sent.chip, *sent.piece) in has and (sent.target, *sent.piece) not in has
            has.add((sent.target, sent.piece[0]))
        assert len(has) == len(members) * algorithm.chunks
        if algorithm.name in ("hierarchical", "doubling") and len(members) == members[-1] + 1:
            assert all(GROUPS.find_link(sent.chip, sent.target) for sent in algorithm.sends)


def test_a_small_tensor_reaches_many_chips_by_doubling() -> None:
    """The first chip sends twice in each of three levels instead of three times."""
    links = Links(GROUPS, 64, 2.5e-7)
    chosen, _ = fastest_algorithm(list_spreads(list(range(64)), 4, [1]), 512, links)
    assert chosen.name == "doubling" and sum(sent.chip == 0 for sent in chosen.sends) == 6
    others = {algorithm.name: fastest_algorithm([algorithm], 512, links)[1] for algorithm in list_spreads(list(range(64)), 4, [1])}
    assert others["doubling"] < 0.95 * others["hierarchical"]
