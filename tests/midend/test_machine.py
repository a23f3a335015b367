"""How much of a target options leave to a plan."""

from __future__ import annotations

import pytest

from deeploy.errors import UsageError
from deeploy.graph.target import Target
from deeploy.midend.machine import Options, machine_of
from deeploy.target import load

TARGET: Target = load("siracusa")


def test_a_target_leaves_what_it_does_not_reserve() -> None:
    machine = machine_of(TARGET, Options())
    assert machine is not None
    for memory in TARGET.memories:
        assert memory.capacity is not None
        assert machine.capacities[memory.name] == memory.capacity - memory.reserved
    assert (machine.cores, machine.buffering, machine.default_memory) == (8, "auto", "L2")


def test_options_take_less() -> None:
    machine = machine_of(TARGET, Options({"l1": 64_000, "L2": 100_000}, 3, "single", "l3"))
    assert machine is not None
    assert (machine.capacities["L1"], machine.capacities["L2"]) == (64_000, 100_000)
    assert (machine.cores, machine.buffering, machine.default_memory) == (3, "single", "L3")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (Options({"l1": 0}), ("--l1 0", "L1 has")),
        (Options({"l1": 10**7}), ("--l1 10000000", "reserved")),
        (Options({"l9": 100}), ("no memory l9", "L1, L2, L3")),
        (Options(cores=9), ("--cores 9", "1 to 8")),
        (Options(cores=0), ("--cores 0", "1 to 8")),
        (Options(buffering="triple"), ("--buffering triple", "double, single or auto")),  # type: ignore[arg-type]
        (Options(default_memory="L1"), ("--default-memory L1", "L2 or L3")),
    ],
)
def test_what_the_target_does_not_have_is_refused(options: Options, words: tuple[str, str]) -> None:
    with pytest.raises(UsageError) as error:
        machine_of(TARGET, options)
    message = f"{error.value.what} {error.value.remedy}"
    assert all(word in message for word in words)


def test_a_flat_target_takes_no_options() -> None:
    generic = load("generic")
    assert machine_of(generic, Options()) is None
    with pytest.raises(UsageError):
        machine_of(generic, Options({"l1": 1000}))
