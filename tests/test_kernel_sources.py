"""Kernels in C read like C: few conditions of the preprocessor, and each file of a kernel opens with what it computes."""

from __future__ import annotations

import re

import pytest

from deeploy.resources import resource

KERNELS = resource("kernels")
CONDITION = re.compile(r"^[ \t]*#[ \t]*(?:if|ifdef|ifndef|elif)\b(?! \w+_H$).*$", re.MULTILINE)  # include guards apart

# The most conditions of every folder: a variant is a constant that a branch asks, and what truly differs is a function of its own.
MOST = {"arm": 11, "neureka": 1, "portable": 65, "pulp": 11, "rvv": 4}


def conditions(folder: str) -> list[str]:
    return [f"{path.name}: {line}" for path in sorted((KERNELS / folder).glob("*.[ch]")) for line in CONDITION.findall(path.read_text())]


@pytest.mark.parametrize("folder", MOST)
def test_conditions_of_the_preprocessor_become_no_more(folder: str) -> None:
    found = conditions(folder)
    assert len(found) <= MOST[folder], "\n".join(found)


def test_what_counts_as_a_condition() -> None:
    text = "#ifndef A_H\n#define A_H\n#if X\n#  elif defined(Y)\n#ifdef Z /* why */\n#else\n#endif\n#endif\n"
    assert CONDITION.findall(text) == ["#if X", "#  elif defined(Y)", "#ifdef Z /* why */"]


@pytest.mark.parametrize("folder", ["portable", "pulp"])
def test_a_kernel_opens_with_its_formula_and_its_bound(folder: str) -> None:
    """What it computes, how its operands lie, the inner loop in instructions, and what bounds it."""
    for path in sorted((KERNELS / folder).glob("*.c")):
        comment, found, _ = path.read_text().partition("*/")
        assert found and comment.startswith("/* "), path
        assert re.search(r"\bbounds?\b", " ".join(comment.split())) and comment.count("\n") > 2, path
