"""What a stream has to give, from the lengthened network: the whole recording at once, and every window by itself."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from deeploy.documents import Document
from deeploy.driver.project import Network
from deeploy.errors import shorten
from deeploy.execution.simulation.interpreter import network_outputs
from deeploy.execution.verification.compare import EXPLAINED, Comparison, compare_output
from deeploy.execution.verification.explain import Evidence, explain_difference
from deeploy.execution.verification.onnxruntime_reference import runtime_failures
from deeploy.frontend.streaming import Lengthened, Streamed, StreamedOutput, lengthen_graph
from deeploy.frontend.streaming.standard_form import write_standard
from deeploy.ir.rewriting import rewrite_graph
from deeploy.ir.target import Target
from deeploy.ir.values import Graph
from deeploy.planning.binding.assemble import assemble_program

Arrays: TypeAlias = "list[np.ndarray]"
Run = Callable[[Graph, Sequence[Arrays]], Sequence[Arrays]]  # the outputs of a graph for every sample
_FURTHER = 8  # times as many random samples as of other networks: a call gives few results


def count_samples(network: Network, least: int) -> int:
    """How many random samples a network runs on: a stream, until windows are full that begin behind what it lags by."""
    if network.streamed is None:
        return least
    stream = network.streamed.stream
    return _FURTHER * least + -(-(stream.window + max(output.delay for output in stream.outputs)) // stream.hop)


def hold_other_inputs(network: Network, entry: Document, samples: Sequence[Arrays]) -> list[Arrays]:
    """Samples of a stream whose inputs that do not stream are those of the first one, as the lengthened network has them once."""
    streamed = network.streamed
    assert streamed is not None
    names = [port["name"] for port in entry["inputs"]]
    pairs = [[*zip(names, sample, samples[0], strict=True)] for sample in samples]
    return [[own if name == streamed.stream.input else first for name, own, first in sample] for sample in pairs]


def compare_recording(
    network: Network,
    entry: Document,
    interpreted: Sequence[Document],
    samples: Sequence[Arrays],
    outputs: Sequence[np.ndarray],
    strict: bool = False,
) -> tuple[list[tuple[str, Comparison]], list[str]]:
    """What calls gave beside the lengthened network on the whole recording, by NumPy and by onnxruntime; and notices.

    Args:
        interpreted: the outputs with the rules for C against the interpreter.
        strict: differences from onnxruntime fail though they are explained.
    """
    streamed = network.streamed
    assert streamed is not None
    place = [port["name"] for port in entry["inputs"]].index(streamed.stream.input)
    hops, notes = [sample[place] for sample in samples], list[str]()
    others = {port["name"]: array for port, array in zip(entry["inputs"], samples[0], strict=True)}

    def compare(name: str, run: Run, ports: Sequence[Document]) -> list[tuple[str, Comparison]]:
        wanted = zip(ports, outputs, find_expected(streamed, hops, outputs, run, others), strict=True)
        return [(name, compare_output(port, got, y, None)) for port, got, y in wanted if got.dtype.kind == y.dtype.kind]

    floats = [port["equality"] == "float" for port in entry["outputs"]]  # whose sums may have another order over more columns
    rules = [{**rule, "equality": "float"} if is_float else rule for rule, is_float in zip(interpreted, floats, strict=True)]
    asked, run = list[tuple[Graph, Sequence[Arrays]]](), run_references(network.plan.target)

    def remember(graph: Graph, arrays: Sequence[Arrays]) -> Sequence[Arrays]:
        asked.append((graph, arrays))
        return run(graph, arrays)

    comparisons = compare("the lengthened network", remember, rules)
    if importlib.util.find_spec("onnxruntime") is None:
        return comparisons, ["not compared with onnxruntime, which is not installed (pip install onnxruntime)"]
    try:
        further = compare("onnxruntime on the whole recording", run_onnxruntime, entry["outputs"])
        further = [(name, _judge_steps(c, all(before.passed for _, before in comparisons))) for name, c in further]
        if not strict and all(c.passed for _, c in comparisons) and not all(c.passed for _, c in further):
            found = [explain_graph(network.plan.target, *each) for each in asked]
            notes += [one.text for one in found if one is not None]
            is_explained = any(found) and all(one is None or one.is_explained for one in found)
            further = [(name, replace(c, passed=True, rule=EXPLAINED) if is_explained else c) for name, c in further]
        comparisons += further
    except runtime_failures() as error:
        notes.append(f"not compared with onnxruntime: {shorten(str(error).splitlines()[0])}")
    return comparisons, notes


def _judge_steps(comparison: Comparison, is_lengthened: bool) -> Comparison:
    """A comparison with onnxruntime, which passes within one step where calls give what the lengthened network does.

    How many elements of it are a step apart is then the network's: ``deeploy verify`` without a stream judges it.
    """
    if comparison.passed or not is_lengthened or comparison.unit != "steps" or comparison.worst > 1:
        return comparison
    return replace(comparison, passed=True, rule="one step, and equal to the lengthened network")


def find_expected(
    streamed: Streamed,
    hops: Sequence[np.ndarray],
    got: Sequence[np.ndarray],
    run: Run,
    others: Mapping[str, np.ndarray] = MappingProxyType({}),
) -> Arrays:
    """The outputs that all calls of a stream have to give, stacked; columns from before the recording are those of ``got``.

    Args:
        run: computes the outputs of a graph for some samples.
        others: inputs that do not stream, by name, which are the same in all calls.
    """
    stream, recording = streamed.stream, np.concatenate(hops, streamed.stream.axis)
    lengthened = lengthen_graph(streamed.source, streamed.wanted, recording.shape[stream.axis])
    given = [recording if t.name == stream.input else others[t.name] for t in lengthened.body.inputs]
    found = dict(zip([t.name for t in lengthened.body.outputs], run(lengthened.body, [given])[0], strict=True))
    values = {output.name: _cut_output(output, found[output.name], len(hops)) for output in stream.outputs if output.axis is not None}
    if lengthened.head.outputs:
        late = next(output for output in stream.outputs if output.name == lengthened.head.outputs[0].name)
        windows = [_cut_windows(lengthened, (call + 1) * stream.hop - late.reach, found) for call in _new_calls(late, len(hops))]
        further = [others[t.name] for t in lengthened.head.inputs[len(lengthened.cuts) :]]
        computed = run(lengthened.head, [[*arrays, *further] for arrays in windows])
        for place, tensor in enumerate(lengthened.head.outputs):
            values[tensor.name] = [outputs[place] for outputs in computed]
    results = []
    for place, output in enumerate(stream.outputs):
        new, shown = iter(values[output.name]), np.zeros(got[place].shape[1:], got[place].dtype)
        is_new, calls = set(_new_calls(output, len(hops))), list[np.ndarray]()
        for call, given in enumerate(got[place]):
            if call in is_new:
                shown = next(new) if output.axis is None else _fill_front(next(new), given, output.axis)
            calls.append(shown)
        results.append(np.stack(calls))
    return results


def _new_calls(output: StreamedOutput, calls: int) -> range:
    """The calls in which an output is new; in others it stays as it was."""
    return range(output.calls - 1, calls, output.calls)


def _fill_front(array: np.ndarray, other: np.ndarray, axis: int) -> np.ndarray:
    """An array with the first columns of another one in front of it, as many as it lacks."""
    return np.concatenate([other.take(range(other.shape[axis] - array.shape[axis]), axis).astype(array.dtype), array], axis)


def _cut_output(output: StreamedOutput, whole: np.ndarray, calls: int) -> Arrays:
    """The new columns of an output that streams, from those of the whole recording."""
    assert output.axis is not None
    first = [(number * output.columns) - output.delay // output.period for number in range(len(_new_calls(output, calls)))]
    return [whole.take(range(max(0, begin), max(0, begin + output.columns)), output.axis) for begin in first]


def _cut_windows(lengthened: Lengthened, begin: int, values: dict[str, np.ndarray]) -> Arrays:
    """The windows that begin at a column of the input: of each tensor the last columns that windows are of."""
    return [
        _cut_window(values[tensor.name], course.axis, begin // course.period + columns, count, fill)
        for tensor, course, columns, count, fill in lengthened.cuts
    ]


def _cut_window(array: np.ndarray, axis: int, end: int, count: int, fill: float) -> np.ndarray:
    """So many columns before one; those before the recording are filled."""
    shown = array.take(range(max(0, end - count), max(0, end)), axis)
    missing = [(count - shown.shape[axis], 0) if i == axis else (0, 0) for i in range(array.ndim)]
    return np.pad(shown, missing, constant_values=fill)


def explain_graph(target: Target, graph: Graph, samples: Sequence[Arrays]) -> Evidence | None:
    """Why onnxruntime computes something else of a graph, layer by layer; None where it does not."""
    ports = [
        [
            {"name": t.name, "type": t.dtype.value, "shape": list(t.shape), "equality": "float" if t.dtype.is_float else "exact"}
            for t in ends
        ]
        for ends in (graph.inputs, graph.outputs)
    ]
    mine, theirs = ([*map(np.stack, zip(*run(graph, samples), strict=True))] for run in (run_references(target), run_onnxruntime))
    against = [compare_output(port, got, wanted) for port, got, wanted in zip(ports[1], mine, theirs, strict=True)]
    if all(comparison.passed for comparison in against):
        return None
    program = assemble_program("lengthened", rewrite_graph(graph, target.passes), target.kernels)
    entry = {"inputs": ports[0], "outputs": ports[1]}
    found = explain_difference(program, entry, samples, write_standard(graph).SerializeToString(), mine, against)
    return Evidence(f"the difference from onnxruntime is not looked into: {found}", False, 0) if isinstance(found, str) else found


def run_references(target: Target) -> Run:
    """Graphs by the NumPy references of a target's kernels."""

    def run(graph: Graph, samples: Sequence[Arrays]) -> Sequence[Arrays]:
        program = assemble_program("lengthened", rewrite_graph(graph, target.passes), target.kernels)
        return [network_outputs(program, arrays) for arrays in samples]

    return run


def run_onnxruntime(graph: Graph, samples: Sequence[Arrays]) -> Sequence[Arrays]:
    """Graphs by onnxruntime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session: Any = onnxruntime.InferenceSession(write_standard(graph).SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [port.name for port in session.get_inputs()]
    return [session.run([t.name for t in graph.outputs], dict(zip(names, arrays, strict=True))) for arrays in samples]
