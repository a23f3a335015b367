"""Layers are found by the name of their node, and by the one that they have in C."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deeploy.errors import UsageError
from deeploy.report.explain_layer import find_explanations

CALL = {"op": "Conv", "kernel": "conv2d", "form": "", "engine": "core", "operands": {}}
ENTRY: dict[str, Any] = {
    "model": "m.onnx",
    "target": "generic",
    "machine": None,
    "memory": {"RAM": {}},
    "buffers": [],
    "constants": [],
    "calls": [{**CALL, "name": "conv", "node": "/conv"}, {**CALL, "name": "conv_2", "node": "/conv"}],
}


@pytest.mark.parametrize(("name", "steps"), [("/conv", [0, 1]), ("conv", [0]), ("conv_2", [1])])
def test_layers_are_found_by_either_name(name: str, steps: list[int]) -> None:
    assert [found["step"] for found in find_explanations(Path(), ENTRY, name)] == steps


def test_other_names_are_refused_with_those_that_are_near() -> None:
    with pytest.raises(UsageError, match="has no layer conv_3") as caught:
        find_explanations(Path(), ENTRY, "conv_3")
    assert "conv_2" in caught.value.remedy
