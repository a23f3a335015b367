"""Streams: networks that carry states from one inference to the next, as inputs and outputs of one shape.

Samples of a stream are the steps of one sequence: what the float network leaves in its states is what the next step begins with.
A state is declared, or found where the names of an input and of an output say so (``deeploy.frontend.states.same_name``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx

from deeploy.errors import UsageError, shorten
from deeploy.frontend.states import same_name
from deeploy.frontend.streaming import find_source, lengthen_graph
from deeploy.frontend.streaming.standard_form import write_standard
from deeploy.ir.values import Graph
from deeploy.operators.recurrent import GATES
from deeploy.options.texts import parse_stream
from deeploy.quantization.run import run_tensors
from deeploy.quantization.samples import Input, Sample, inputs_of

LEAST_STEPS, MOST_STEPS = 64, 1024  # of a sequence; fewer samples are repeated
_SETTLED = 1.01  # the increase of a state's largest magnitude at most, when the samples are repeated once more


def states_of(model: onnx.ModelProto, declared: Mapping[str, str] | None) -> dict[str, str]:
    """Outputs that are states, by the input that they are in the next step.

    Args:
        declared: as ``--state`` says; None: those whose names say so.

    Raises:
        UsageError: an input or output is declared that the model does not have, or whose shapes or types differ.
    """
    inputs = {entry.name: entry for entry in inputs_of(model)}
    outputs = {entry.name: entry for entry in inputs_of(model, of_outputs=True)}
    if declared is None:
        pairs = same_name([name for name, entry in inputs.items() if entry.dtype.kind == "f"], list(outputs))
        state_pairs = {past: present for past, present in pairs.items() if _ports_fit(inputs[past], outputs[present])}
        return state_pairs if len(state_pairs) < min(len(inputs), len(outputs)) else {}  # a network of states alone computes nothing
    for past, present in declared.items():
        told = f"--state {shorten(past)}={shorten(present)}: "
        for name, known, kind in ((past, inputs, "input"), (present, outputs, "output")):
            if name not in known:
                raise UsageError(f"{told}the model has no {kind} {shorten(name)}", f"Its {kind}s: {', '.join(map(shorten, known))}.")
        if not _ports_fit(inputs[past], outputs[present]):
            shapes = f"{list(inputs[past].shape)} and {list(outputs[present].shape)}"
            raise UsageError(f"{told}the shapes {shapes} or the types differ", "States that quantize runs in sequence have one shape.")
    return dict(declared)


def _ports_fit(before: Input, after: Input) -> bool:
    """Whether types are equal, and shapes as far as they are known."""
    known = [(a, b) for a, b in zip(before.shape, after.shape, strict=False) if a is not None and b is not None]
    return before.dtype == after.dtype and len(before.shape) == len(after.shape) and all(a == b for a, b in known)


def unroll_samples(model: onnx.ModelProto, name: str, samples: Sequence[Sample], states: Mapping[str, str]) -> list[Sample]:
    """The samples as one sequence, each with the states that the float network leaves in the steps before it.

    They are repeated until the states no longer grow, for a mean that runs over many steps.
    """
    steps: list[Sample] = []
    carried: Sample = {past: samples[0][past] for past in states}
    largest = dict.fromkeys(states, 0.0)
    is_settled = False
    while len(steps) < LEAST_STEPS or (not is_settled and len(steps) < MOST_STEPS):
        before = dict(largest)
        feeds = [{**samples[0], **carried}, *samples[1:]]
        for feed, results in zip(feeds, run_tensors(model, name, list(states.values()), feeds, states), strict=True):
            steps.append({**feed, **carried})
            carried = dict(zip(states, results, strict=True))
            largest = {past: max(float(np.abs(array).max(initial=0)), largest[past]) for past, array in carried.items()}
        is_settled = all(largest[past] <= _SETTLED * before[past] for past in states)
    return steps


def measure_recording(graph: Graph, name: str, samples: Sequence[Sample], stream: str) -> dict[str, tuple[float, float]]:
    """Limits of what recurrent layers compute on a whole recording, whose states begin once, and not in every window of it.

    Args:
        samples: consecutive windows of the recording.
        stream: the input and its axis, as ``--stream`` says them.

    Raises:
        UsageError: there is no such input or axis.
        UnsupportedError: onnxruntime cannot run the network on the recording.
    """
    wanted = parse_stream(stream)
    source, axis = find_source(graph, wanted)
    recording = np.concatenate([sample[source.name] for sample in samples], axis)
    body = lengthen_graph(graph, wanted, recording.shape[axis]).body
    layers = [node.outputs[0].name for node in body.nodes if node.op in GATES]
    if not layers:
        return {}
    (values,) = run_tensors(write_standard(body), name, layers, [{**samples[0], source.name: recording}])
    return {layer: (min(0.0, float(array.min())), max(0.0, float(array.max()))) for layer, array in zip(layers, values, strict=True)}
