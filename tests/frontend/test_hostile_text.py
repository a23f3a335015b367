"""Texts of a model in generated code: every operator with hostile names and hostile texts in attributes that nobody reads."""

from __future__ import annotations

import re
from pathlib import Path

import onnx
import pytest
from onnx import helper

import deeploy
from deeploy.errors import DeeployError
from tests.frontend import nodes

HOSTILE = '*/ ;INJECTED("%s\\") ??/ // ${INJECTED(1)}\n#include <INJECTED()> \\'
SAMPLES = nodes.sample_models()
# Comments, strings and characters of C; what is left is code.
QUOTED = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)+'", re.DOTALL)


def hostile(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with hostile names of its node, tensors and graph, and hostile texts in its attributes wherever these may be any."""
    result = nodes.changed(model, lambda _: None)
    graph, node = result.graph, result.graph.node[0]
    for value in (*graph.input, *graph.output, *graph.initializer):
        value.name = f"{value.name}{HOSTILE}"
    for names in (node.input, node.output):
        names[:] = [f"{name}{HOSTILE}" if name else "" for name in names]
    node.name = graph.name = HOSTILE
    for field in (result, graph, node):
        field.doc_string = HOSTILE
    if node.domain or not onnx.defs.has(node.op_type):  # others have no attributes beside those that are checked
        node.attribute.extend([helper.make_attribute("surplus", HOSTILE), helper.make_attribute("function", [HOSTILE] * 2)])
    return result


@pytest.mark.share(0.4)
@pytest.mark.parametrize("name", SAMPLES)
def test_hostile_texts_are_in_no_code(tmp_path: Path, name: str) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(hostile(SAMPLES[name]).SerializeToString())
    try:
        files = deeploy.compile(path, "generic").files()
    except DeeployError as error:
        assert SAMPLES[name].graph.node[0].op_type not in ("Conv", "Gemm", "Add", "Pad", "RequantShift", "QLinearAdd")
        assert len(str(error).splitlines()) < 6 and HOSTILE not in str(error)
        return
    for file, text in files.items():
        if file.startswith("src/") and file.endswith((".c", ".h")) and isinstance(text, str):
            assert re.search(r"\bINJECTED\b", QUOTED.sub(" ", text)) is None, (file, name)  # names have it inside theirs
        if file == "Makefile":
            assert "INJECTED" not in str(text)
