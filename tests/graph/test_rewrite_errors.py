"""What a rule cannot compute with is said of its node."""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs
import pytest

from deeploy.errors import ModelError
from deeploy.graph.rewrite import Pass, Rule


@pytest.mark.parametrize("error", [IndexError("list index out of range"), ValueError("one\ntwo"), MemoryError("40 GiB")])
def test_a_node_that_contradicts_itself_is_named(error: Exception) -> None:
    x, y = gs.Variable("x", np.float32, [3]), gs.Variable("y", np.float32, [3])
    graph = gs.Graph([gs.Node("PRelu", "the slope", {}, [x], [y])], [x], [y])

    def rewrite(graph: gs.Graph, node: gs.Node) -> bool:
        raise error

    with pytest.raises(ModelError, match=r"node the slope \(PRelu\) cannot be rewritten by prelu: \w+Error") as caught:
        Pass("lower", (Rule("prelu", frozenset({"PRelu"}), rewrite),))(graph)
    assert len(str(caught.value).splitlines()) == 2
