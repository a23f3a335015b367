"""Names that no target has: chips and boards lead to the target that serves them, misspelt names to the nearest one."""

from __future__ import annotations

import random

import pytest

from deeploy.errors import UsageError
from deeploy.target import load, names
from tests.target.test_public import ROOT

TARGETS = sorted(file.parent.name for file in (ROOT / "targets").glob("*/target.py"))
CHIPS = [(chip, target) for target in TARGETS for chip in load(target).serves]


def refusal(name: str) -> str:
    """The error for a name, which is of two lines and leads to exit status 2."""
    with pytest.raises(UsageError) as caught:
        load(name)
    assert len(str(caught.value).splitlines()) == 2 and caught.value.exit_status == 2
    return str(caught.value)


def test_no_chip_is_of_two_targets() -> None:
    chips = [chip for chip, _ in CHIPS]
    assert len(set(chips)) == len(chips) and not set(chips) & set(names())


def test_chips_lead_to_their_target() -> None:
    spell = (str.upper, lambda chip: chip.replace("_", "-"), lambda chip: f"{chip}_x")
    for number, (chip, target) in enumerate(CHIPS):
        spelling = spell[number % len(spell)](chip)
        assert f"the target for it is {target}\n" in refusal(spelling), spelling


@pytest.mark.parametrize(
    ("asked", "target"), [("esp32c3", "rv32imc"), ("esp32", "generic"), ("ESP32-S3", "generic"), ("STM32F407VG", "cortex_m4")]
)
def test_the_longest_beginning_counts(asked: str, target: str) -> None:
    assert f"the target for it is {target}\n" in refusal(asked)


def test_misspelt_names_lead_to_the_nearest() -> None:
    draw = random.Random(5)
    known = names()
    for name in TARGETS:
        place = draw.randrange(1, len(name))
        shorter = name[:place] + name[place + 1 :]
        for spelling in (name.replace("_", "-"), name.upper(), shorter):
            if spelling not in known:
                assert "Did you mean" in refusal(spelling), spelling
    assert "Did you mean siracusa?" in refusal("sircusa") and "Did you mean cortex_m4?" in refusal("cortex-m4")


def test_other_names_are_listed_only() -> None:
    text = refusal("\x1b[31mnonsense")
    assert "Did you mean" not in text and "\x1b" not in text and all(name in text for name in names())
