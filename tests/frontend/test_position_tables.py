"""Constants that depend on how many rows there are: which ones slide, which are looked up, and how they are read."""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.frontend.position_tables import differing_constants, look_up, slide_constants, sliding_constants
from deeploy.ir.surgeon import read_graph
from deeploy.ir.values import Graph
from deeploy.operators.views import POSITION, SLIDE

ROWS, CONTEXT = 3, 10


def graph_of_rows(total: int) -> Graph:
    """Sums with a causal mask of the last rows, the numbers of these, the mask's other form and something constant, for ``total`` rows."""
    own = np.arange(total - ROWS, total)
    values = {
        "mask": np.where(np.arange(total) <= own[:, None], 0, -9).astype(np.float32),
        "numbers": own.astype(np.float32),
        "columns": np.where(np.arange(total)[:, None] <= own, 0, -9).astype(np.float32),
        "first": np.eye(ROWS, total, dtype=np.float32),
        "same": np.ones(ROWS, np.float32),
    }
    nodes = []
    for name, array in values.items():
        x, y = (gs.Variable(f"{side}_{name}", np.float32, list(array.shape)) for side in "xy")
        nodes.append(gs.Node("Add", f"add_{name}", {}, [x, gs.Constant(name, array)], [y]))
    return read_graph(gs.Graph(nodes, [node.inputs[0] for node in nodes], [node.outputs[0] for node in nodes]))


def test_constants_that_lose_their_first_column_slide() -> None:
    """One that loses its last column is the same at every position, as far as it goes."""
    assert sliding_constants(graph_of_rows(CONTEXT), graph_of_rows(CONTEXT - 1)) == {"mask": 1, "columns": 0}
    assert differing_constants(graph_of_rows(CONTEXT), graph_of_rows(CONTEXT - 1)) == ["numbers"]


def test_what_slides_is_read_at_the_end_of_its_columns() -> None:
    """Behind ``past`` rows it begins as many columns before its place, where the mask of so many rows lies."""
    whole = slide_constants(graph_of_rows(CONTEXT), {"mask": 1, "columns": 0}, ROWS)
    found = {node.operands[0].name: node for node in whole.nodes if node.op == SLIDE}
    assert set(found) == {"mask (full context)", "columns (full context)"}
    for name, axis in (("mask", 1), ("columns", 0)):
        node = found[f"{name} (full context)"]
        assert node.attrs == {"axis": axis, "start": CONTEXT - ROWS}
        (reader,) = whole.readers[node.outputs[0]]
        assert reader.name == f"add_{name}"
        for past in range(CONTEXT - ROWS + 1):
            own = next(n.operands[1].data for n in graph_of_rows(past + ROWS).nodes if n.name == f"add_{name}")
            begin = node.attrs["start"] - past
            np.testing.assert_array_equal(np.take(node.operands[0].data, range(begin, begin + past + ROWS), axis), own)


def test_rows_of_tables_are_those_of_the_position() -> None:
    table = np.arange(24, dtype=np.float32).reshape(8, 3)
    whole = look_up(graph_of_rows(CONTEXT), {"numbers": table})
    assert [tensor.name for tensor in whole.inputs][-1] == POSITION
    (gather,) = (node for node in whole.nodes if node.op == "Gather")
    np.testing.assert_array_equal(gather.operands[0].data, table)
    assert gather.attrs == {"axis": 0} and gather.operands[1].name == POSITION
    (reshape,) = whole.readers[gather.outputs[0]]
    assert [reader.name for reader in whole.readers[reshape.outputs[0]]] == ["add_numbers"] and reshape.outputs[0].shape == (3,)
