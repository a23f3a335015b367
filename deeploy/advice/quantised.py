"""What a network's weights and activations take, to say by how much quantisation lessens it."""

from __future__ import annotations

from deeploy.midend.lifetime import lifetimes, most_alive
from deeploy.midend.program import Program, Role

MOST_BYTES = 1 << 26  # of a network's weights that are quantised to know what they take


def weights_of(program: Program) -> int:
    """Bytes of the constants that a program reads by the first kernel of every call."""
    names = {operand.buffer for call in program.calls for operand in call.operands.values()}
    return sum(program.buffers[name].bytes for name in names if program.buffers[name].role is Role.CONSTANT)


def activations_of(program: Program) -> int:
    """The most bytes of activations and states that are alive at once."""
    blocks = [block for block in lifetimes(program) if program.buffers[block.buffers[0]].role in (Role.LOCAL, Role.STATE)]
    return most_alive(blocks, len(program.calls))
