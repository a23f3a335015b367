"""The first advice for a float network: to quantise it, with what its weights and activations take before and after."""

from __future__ import annotations

from deeploy.documents import Contents
from deeploy.ir.target import Target
from deeploy.planning.choice.infeasibility import quantise_command
from deeploy.planning.packing.lifetimes import block_lifetimes, most_alive
from deeploy.planning.program import Program, Role

MOST_BYTES = 1 << 26  # of a network's weights that are quantised to know what they take


def weights_of(program: Program) -> int:
    """Bytes of the constants that a program reads by the first kernel of every call."""
    names = {operand.buffer for call in program.calls for operand in call.operands.values()}
    return sum(program.buffers[name].bytes for name in names if program.buffers[name].role is Role.CONSTANT)


def activations_of(program: Program) -> int:
    """The most bytes of activations and states that are alive at once."""
    blocks = [block for block in block_lifetimes(program) if program.buffers[block.buffers[0]].role in (Role.LOCAL, Role.STATE)]
    return most_alive(blocks, len(program.calls))


def quantise_first(program: Program, target: Target, after: Program | None = None) -> Contents:
    """The entry that says so; without the program in int8 (``after``), bytes are about a quarter, and cycles are not known."""
    about = "" if after is not None else "about "
    now = [size(program) for size in (weights_of, activations_of)]
    then = [size(after) for size in (weights_of, activations_of)] if after is not None else [size // 4 for size in now]
    return {
        "kind": "quantise",
        "title": f"Quantise the network: {quantise_command(target)} MODEL --calibrate SAMPLES.npz -o INT8.onnx",
        "why": f"the network computes floats; in int8, weights take {about}{then[0]} bytes instead of {now[0]}, "
        f"and activations {about}{then[1]} instead of {now[1]}",
        "how": "The difference of two plans." if after is not None else "Nothing was planned: deeploy advise OUT does so.",
        "options": [],
        "gain": 0,
        "share": 0.0,
        "layers": [],
    }
