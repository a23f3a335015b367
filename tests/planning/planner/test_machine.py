"""How much of a target options leave to a plan."""

from __future__ import annotations

import pytest

from deeploy.errors import UsageError
from deeploy.ir.target import Target
from deeploy.options import Options
from deeploy.planning.planner.machine import kernels_of, machine_of, share_machine
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
    machine = machine_of(TARGET, Options(memory={"l1": 64_000, "L2": 100_000}, cores=3, buffering="single", default_memory="l3"))
    assert machine is not None
    assert (machine.capacities["L1"], machine.capacities["L2"]) == (64_000, 100_000)
    assert (machine.cores, machine.buffering, machine.default_memory) == (3, "single", "L3")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (Options(memory={"l1": 0}), ("--l1 0", "L1 has")),
        (Options(memory={"l1": 10**7}), ("--l1 10000000", "reserved")),
        (Options(memory={"l9": 100}), ("no memory l9", "L1, L2, L3")),
        (Options(cores=9), ("--cores 9", "1 to 8")),
        (Options(cores=0), ("--cores 0", "1 to 8")),
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
    assert machine_of(generic, Options()).default_memory == ""
    with pytest.raises(UsageError):
        machine_of(generic, Options(memory={"l1": 1000}))


@pytest.mark.parametrize(
    ("options", "engines"),
    [
        (Options(), {"cluster", "npu"}),
        (Options(engines=("npu",)), {"npu"}),
        (Options(engines=("cluster",)), {"cluster"}),
    ],
)
def test_kernels_are_those_of_the_engines_that_may_be_used_and_of_the_links(options: Options, engines: set[str]) -> None:
    on, off = kernels_of(TARGET, machine_of(TARGET, options))
    assert {kernel.engine for kernel in on} == engines | {"link"} and not {kernel.engine for kernel in off} & {*engines, "link"}
    assert sorted(kernel.name for kernel in (*on, *off)) == sorted(kernel.name for kernel in TARGET.kernels)


def test_what_no_constant_may_lie_in_has_no_kernels() -> None:
    machine = machine_of(TARGET, Options())
    assert machine is not None
    resident = {kernel.name for kernel in TARGET.kernels if kernel.resident}
    for without in (machine_of(TARGET, Options(memory={"wm": 0})), share_machine(machine, TARGET)):
        on, off = kernels_of(TARGET, without)
        assert {kernel.name for kernel in off} == resident and not resident & {kernel.name for kernel in on}
    assert share_machine(machine, TARGET).capacities == {**machine.capacities, "WM": 0}


@pytest.mark.parametrize(("engines", "words"), [(("gpu",), "no engine gpu"), (("link",), "no engine link"), ((), "names no engine")])
def test_engines_are_those_that_there_is_a_choice_of(engines: tuple[str, ...], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        machine_of(TARGET, Options(engines=engines))
