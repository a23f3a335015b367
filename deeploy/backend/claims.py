"""What is claimed of the layers of a plan, for whoever checks the C that is printed of it (``deeploy.certify``)."""

from __future__ import annotations

from deeploy.backend.layers import columns_before, walk_nodes
from deeploy.certify import Claim, ClaimedOperand
from deeploy.ir.mentions import mentions
from deeploy.planning.plan import Plan
from deeploy.planning.program import Program
from deeploy.schedule import build_schedule
from deeploy.schedule.build import all_rows, past_rows
from deeploy.schedule.ir import Compute, Layer, OperandView


def claim_layers(plan: Plan) -> dict[str, Claim]:
    """How the layers of a plan are divided, by their names in C."""
    layers = build_schedule(plan).layers
    inside = {node.step: layer.call.name for layer in layers for node in walk_nodes(layer.body) if isinstance(node, Compute)}
    return {layer.call.name: _claim_layer(layer, inside.get(layer.step, layer.call.name), plan.program) for layer in layers}


def _claim_layer(layer: Layer, inside: str, program: Program) -> Claim:
    with mentions() as noted:
        operands = {name: _claim_operand(operand) for name, operand in layer.work.operands.items()}
        box = {dim: [str(first), str(count)] for dim, (first, count) in layer.work.parts.items()}
        columns = str(columns_before(layer))
    rows = () if program.dynamic_length is None else (past_rows(program), all_rows(program))
    return {
        "inside": inside,
        "tiles": layer.tiling.tiles,
        "cores": layer.work.cores,
        "sizes": layer.tiling.sizes,
        "rows": {row.name: (row.low, row.high) for row in rows if not isinstance(row, int)},
        "names": {part.name: str(part.value) for part in noted.parts()},
        "box": box,
        "operands": operands,
        "columns": columns,
    }


def _claim_operand(operand: OperandView) -> ClaimedOperand:
    window = [[str(axis.first), str(axis.count), str(axis.before)] for axis in operand.axes]
    return {"window": window, "strides": [str(stride) for stride in operand.strides]}
