"""The golden model of a System: the program of every chip by the kernels' NumPy references, messages handed over in order.

A chip runs until it needs a message that has not been sent. What is computed does not depend on who goes first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from deeploy.errors import ModelError
from deeploy.execution.simulation.interpreter import StateRows, access_at, begin_inference, end_inference, execute_call, window_view
from deeploy.ir.target import Target
from deeploy.ir.values import Graph
from deeploy.operators.views import POSITION
from deeploy.partition.system import System
from deeploy.planning.binding.assemble import assemble_program
from deeploy.planning.program import Program

Lines = dict[tuple[int, int], deque[tuple[int, np.ndarray]]]  # tags and contents on their way from a chip to another


@dataclass
class States:
    """What the states of every chip hold between two inferences."""

    chips: dict[int, StateRows] = field(default_factory=dict)


def chip_programs(system: System, target: Target) -> tuple[Program, ...]:
    """The program of every chip.

    Raises:
        UnsupportedError: nodes without a kernel.
    """
    return tuple(assemble_program(f"chip{chip}", graph, target.kernels) for chip, graph in enumerate(system.chips))


def system_outputs(
    system: System, chips: Sequence[Program], inputs: Sequence[np.ndarray] | Mapping[str, np.ndarray], states: States | None = None
) -> list[np.ndarray]:
    """The outputs of the model for one inference, in order.

    Args:
        chips: what ``chip_programs`` made of the system.
        inputs: one array per input of the model, by name or in order.
        states: of a sequence of inferences, which this one adds to.

    Raises:
        ModelError: the chips wait for each other for ever.
    """
    named = inputs if isinstance(inputs, Mapping) else dict(zip(system.inputs, inputs, strict=True))
    states = states if states is not None else States()
    lines: Lines = {}
    results: dict[str, np.ndarray] = {}
    running = {
        chip: _run_chip(chip, system.chips[chip], program, named, states.chips.setdefault(chip, StateRows()), lines, results)
        for chip, program in enumerate(chips)
    }
    while running:
        moved = False
        for chip, steps in list(running.items()):
            for has_moved in steps:
                moved |= has_moved
                if not has_moved:
                    break
            else:
                del running[chip]
                moved = True
        if not moved:
            raise ModelError(
                f"chips {', '.join(map(str, running))} wait for messages that are never sent", "Check the system (deeploy.partition)."
            )
    return [results[name] for name in system.outputs]


def _run_chip(
    chip: int,
    graph: Graph,
    program: Program,
    inputs: Mapping[str, np.ndarray],
    rows: StateRows,
    lines: Lines,
    results: dict[str, np.ndarray],
) -> Iterator[bool]:
    """Run the program of a chip; yields whether a call was done, or waits for a message."""
    memory = begin_inference(program, [inputs[tensor.name] for tensor in graph.inputs if tensor.name != POSITION], rows)
    for call in program.calls:
        if call.kernel.link is None:
            execute_call(program, call, memory, rows.count)
            yield True
            continue
        name = "x" if call.kernel.link == "send" else "y"
        place = window_view(memory_of(program, memory, call.operands[name].buffer), access_at(program, call, name, rows.count))
        peer, tag = int(call.node.attrs["peer"]), int(call.node.attrs["tag"])
        if call.kernel.link == "send":
            lines.setdefault((chip, peer), deque()).append((tag, place.copy()))
            yield True
            continue
        line = lines.setdefault((peer, chip), deque())
        while not line:
            yield False
        got, contents = line.popleft()
        if got != tag:
            raise ModelError(f"chip {chip} expects tag {tag} from chip {peer}, which sends {got}", "Check the system (deeploy.partition).")
        place[...] = contents
        yield True
    memory = end_inference(program, memory, rows)
    results.update({tensor.name: memory[name] for tensor, name in zip(graph.outputs, program.outputs, strict=True)})


def memory_of(program: Program, memory: Mapping[str, np.ndarray], buffer: str) -> np.ndarray:
    """The contents of a buffer, flat; those of a constant are its own."""
    data = program.buffers[buffer].data
    return memory[buffer] if data is None else data.ravel()
