"""What layers that an engine requantises make of samples, beside what they would make exactly of the same inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from deeploy.execution.simulation.interpreter import StateRows, access_at, begin_inference, end_inference, execute_call, window_view
from deeploy.planning.planner.requantise import Requantised
from deeploy.planning.program import Program


@dataclass(frozen=True)
class Measured:
    """Elements of a layer's output over all samples: how many, how many of them differ, and by how many steps at most."""

    elements: int = 0
    differ: int = 0
    largest: int = 0

    @property
    def share(self) -> float:
        """The share of the layer's output elements that differ from the exact requantisation, between 0 and 1."""
        return self.differ / self.elements if self.elements else 0.0


def measure_requantised(
    program: Program, layers: Sequence[Requantised], samples: Sequence[Sequence[np.ndarray]], sequence: bool = False
) -> Mapping[str, Measured]:
    """By the tensors that the layers compute; with ``sequence``, samples are steps of one sequence."""
    exact = {layer.result: layer.exact for layer in layers}
    shares = {layer.result: Measured() for layer in layers}
    rows = StateRows()
    for sample in samples:
        rows = rows if sequence else StateRows()
        memory = begin_inference(program, sample, rows)
        for call in program.calls:
            result = call.node.outputs[0].name
            (written,) = call.writes if result in exact else ("",)
            if result not in exact:
                execute_call(program, call, memory, rows.count)
                continue
            place = window_view(memory[call.operands[written].buffer], access_at(program, call, written, rows.count))
            execute_call(program, replace(call, node=exact[result]), memory, rows.count)
            wanted = place.astype(np.int64)
            execute_call(program, call, memory, rows.count)
            far, before = np.abs(place - wanted), shares[result]
            total, differ = before.elements + far.size, before.differ + int((far > 0).sum())
            shares[result] = Measured(total, differ, max(before.largest, int(far.max(initial=0))))
        end_inference(program, memory, rows)
    return shares
