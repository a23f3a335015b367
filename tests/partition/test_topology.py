"""Topologies: who is joined to whom, ways through others, and files that cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest

from deeploy.errors import TargetError, UsageError
from deeploy.ir.topology import Member, load_members
from deeploy.target import Topology, load, load_topology

FILE = """
[system]
mhz = 500
ports = 1
queue = 2
provenance = "test"
[link.fast]
bytes_per_second = 1e9
latency = 1e-6
pj_per_byte = 10
provenance = "test"
"""
CHAIN = FILE + '[[pair]]\nchips = [0, 1]\nlink = "fast"\n[[pair]]\nchips = [2, 1]\nlink = "fast"\n'


def written(folder: Path, text: str) -> Path:
    path = folder / "topology.toml"
    path.write_text(text)
    return path


def siracusa() -> Topology:
    topology = load("siracusa").topology
    assert topology is not None
    return topology


def test_siracusas_come_in_groups_of_four_whose_leaders_are_joined() -> None:
    topology = siracusa()
    assert topology.neighbours(0, 64) == (1, 2, 3, 4, 8, 12, 16, 32, 48)
    assert topology.neighbours(5, 64) == (4, 6, 7)
    assert topology.route(3, 5, 64) == (3, 0, 4, 5)
    assert topology.route(21, 21, 64) == (21,)
    link = topology.find_link(1, 2)
    assert link is not None and (link.bytes_per_second, link.pj_per_byte, topology.mhz) == (5e8, 100, None)
    assert topology.find_link(3, 4) is None


def test_a_message_passes_through_the_chips_on_its_way(tmp_path: Path) -> None:
    topology = load_topology(written(tmp_path, CHAIN))
    assert topology.route(0, 2, 3) == (0, 1, 2)
    assert topology.seconds(0, 2, 5000, 3) == pytest.approx(2e-6 + 5e-6)
    assert topology.seconds(2, 1, 5000, 3) == pytest.approx(1e-6 + 5e-6)
    with pytest.raises(UsageError, match="no links lead from chip 0 to chip 3"):
        topology.seconds(0, 3, 1, 4)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (CHAIN.replace('provenance = "test"\n[link', "[link"), "system.provenance is missing"),
        (CHAIN.replace('pj_per_byte = 10\nprovenance = "test"', "pj_per_byte = 10"), "link.fast.provenance is missing"),
        (CHAIN.replace("latency = 1e-6\n", ""), "link.fast.latency is missing"),
        (CHAIN.replace('link = "fast"\n[[', 'link = "slow"\n[['), r"pair\[0\].link is slow, and there is no table link.slow"),
        (CHAIN.replace("[2, 1]", "[1, 1]"), "a pair joins two different chips"),
        (CHAIN.replace("[2, 1]", "[1, 0]"), "a pair joins two different chips, once"),
        (CHAIN.replace("1e9", "-1"), "link.fast.bytes_per_second is -1, not more than 0"),
        (CHAIN.replace("1e9", "'much'"), "bytes_per_second is much, not a number"),
        (CHAIN.replace("queue = 2", "queue = 0"), "system.queue is 0, less than 1"),
        (FILE, "it joins no chips"),
        (FILE + '[groups]\nchips = 1\nlink = "fast"\nprovenance = "test"\n', "groups.chips is 1, less than 2"),
        ("[system", "is not valid TOML"),
    ],
)
def test_files_that_cannot_be_used(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(TargetError, match=problem) as raised:
        load_topology(written(tmp_path, text))
    assert len(str(raised.value).splitlines()) == 2


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no topology file"):
        load_topology(tmp_path / "none.toml")


def test_a_file_may_say_in_what_chips_differ_and_nothing_else(tmp_path: Path) -> None:
    text = '[[chip]]\nchip = 2\nmemory = { L2 = 9000 }\n[[chip]]\nchip = 0\ncores = 4\nengines = ["cluster"]\n'
    members = {2: Member({"l2": 9000}), 0: Member({}, 4, ("cluster",))}
    file = written(tmp_path, text)
    assert load_members(file) == members
    found = load_topology(file, siracusa())
    assert found.members == members and found.neighbours(5, 64) == siracusa().neighbours(5, 64)
    assert load_topology(written(tmp_path, CHAIN + text)).members == members
    with pytest.raises(TargetError, match="system is missing"):
        load_topology(written(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[[chip]]\nmemory = { L2 = 9 }", r"chip\[0\].chip is missing"),
        ("[[chip]]\nchip = 1\n[[chip]]\nchip = 1", r"chip\[1\].chip is 1, which an entry before has"),
        ("chip = 4", "chip is 4, not a list"),
        ("[[chip]]\nchip = 1\nspeed = 2", r"toml:1: chip\[0\].speed is not a field; fields here: chip, memory, cores, engines"),
        ("[[chip]]\nchip = 1\nmemory = 9", r"chip\[0\].memory is 9, not a table"),
        ("[[chip]]\nchip = 1\nmemory = { L2 = true }", "memory.L2 is true, not a whole number"),
        ("[[chip]]\nchip = 1\ncores = 0", "cores is 0, less than 1"),
        ('[[chip]]\nchip = 1\nengines = "npu"', "engines is npu, not a list"),
    ],
)
def test_entries_of_chips_that_make_no_sense_are_refused(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(TargetError, match=problem):
        load_topology(written(tmp_path, text), siracusa())
