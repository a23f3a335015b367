"""Verification: the generated C against the interpreter, onnxruntime, and golden outputs."""

from __future__ import annotations

import io
import math
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import zip_longest
from pathlib import Path

import numpy as np

from deeploy.backend import project
from deeploy.backend.project import select_network
from deeploy.documents import Contents, Document
from deeploy.driver import streams
from deeploy.driver.plan import Requantisation
from deeploy.driver.project import Network, Project
from deeploy.errors import UsageError, shorten
from deeploy.execution.runners import board as boards
from deeploy.execution.runners import gvsoc, host, qemu
from deeploy.execution.runners.processes import SECONDS
from deeploy.execution.runners.runner import Runner
from deeploy.execution.simulation.interpreter import StateRows
from deeploy.execution.simulation.interpreter import network_outputs as interpreted
from deeploy.execution.simulation.requantised import measure_requantised
from deeploy.execution.verification import layers as by_layer
from deeploy.execution.verification import litert_reference
from deeploy.execution.verification import onnxruntime_reference as reference
from deeploy.execution.verification.compare import EXPLAINED, Comparison, absolute_differences, compare_output
from deeploy.execution.verification.explain import Evidence, explain_difference
from deeploy.frontend import in_floats
from deeploy.frontend.arrays import Expected, load_arrays
from deeploy.frontend.pins import Pinned
from deeploy.frontend.tflite import is_tflite
from deeploy.ir.types import DType
from deeploy.options import Exact
from deeploy.planning.program import Program
from deeploy.report import text

Samples = list[list[np.ndarray]]
_RANDOM_SAMPLES = 4


@dataclass(frozen=True)
class Verdict:
    """What was compared; each comparison comes with what it was compared against."""

    comparisons: list[tuple[str, Comparison]]
    outputs: list[np.ndarray]  # per output, stacked over samples
    names: list[str]
    samples: int
    stacked: bool
    notes: list[str]
    cycles: tuple[int, ...] = ()  # of each sample, where a simulator counts them
    layers: tuple[tuple[str, int], ...] = ()  # of the first sample
    evidence: Evidence | None = None  # where outputs differ from onnxruntime's

    @property
    def passed(self) -> bool:
        return all(comparison.passed for _, comparison in self.comparisons)

    def save(self, path: Path) -> None:
        """Write the outputs by name; without the axis of samples where the inputs had none."""
        arrays = {name: array if self.stacked else array[0] for name, array in zip(self.names, self.outputs, strict=True)}
        data = io.BytesIO()
        np.savez(data, allow_pickle=False, **arrays)
        project.write_file(path, data.getvalue(), "--save")

    def contents(self) -> Contents:
        """The verdict as a document for ``--json``; a difference that is no number is null."""
        compared = [{"against": against, **asdict(comparison)} for against, comparison in self.comparisons]
        for entry in compared:
            entry |= {name: entry[name] if math.isfinite(entry[name]) else None for name in ("worst", "relative")}
        layers = [{"name": name, "cycles": cycles} for name, cycles in self.layers]
        is_explained = self.evidence is not None and self.evidence.is_explained
        verdict = "differs" if not self.passed else "explained" if is_explained else "equal"
        head = {"samples": self.samples, "passed": self.passed, "verdict": verdict, "comparisons": compared, "notes": self.notes}
        head |= {"evidence": self.evidence.contents()} if self.evidence is not None else {}
        return head | ({"cycles": list(self.cycles), "layers": layers} if self.cycles else {})


def run_project(
    folder: str | Path,
    inputs: str | Path,
    expect: str | Path | None = None,
    tolerance: float | None = None,
    sanitize: bool = False,
    network: str | None = None,
    on: str = "host",
    time_limit: float | None = None,
    on_line: Callable[[str], None] | None = None,
    sequence: bool = False,
    hostfile: Path | None = None,
    board: str | None = None,
    port: str | None = None,
) -> Verdict:
    """Run a project on the host, on a simulator, under an emulator, on a board or as MPI ranks and compare its outputs with golden ones.

    With ``sequence``, the samples are steps of one sequence; without it, states begin anew with every sample.
    """
    folder, inputs, expect = Path(folder), Path(inputs), None if expect is None else Path(expect)
    manifest = project.read_manifest(folder)
    if network is not None and "chips" in manifest:
        raise UsageError(
            f"--network {shorten(network)}: one chip of several does not run alone", "Leave --network out: all chips run together."
        )
    entry = select_network(manifest, network)
    samples, stacked, notes = _load_samples(inputs, entry)
    _check_sequence(entry, len(samples), sequence)
    if on == "gvsoc" and "context" in entry and len(samples) > 1 and not sequence:
        raise UsageError(
            "--on gvsoc: samples of a network with states are steps of one sequence there", "Say --sequence, or give one sample."
        )
    result = make_runner(on, sanitize, time_limit, on_line, hostfile, board, port).run(folder, entry, samples, sequence)
    comparisons = []
    if expect is not None:
        golden, more = _load_golden(expect, entry["outputs"], len(samples) if stacked else None)
        notes += more
        comparisons = _compare_outputs(entry, result.outputs, golden, tolerance, expect.name)
    names = [port["name"] for port in entry["outputs"]]
    return Verdict(comparisons, result.outputs, names, len(samples), stacked, notes, result.cycles, result.layers)


def run_self_test(
    folder: Path,
    network: str | None = None,
    on: str = "host",
    time_limit: float | None = None,
    board: str | None = None,
    port: str | None = None,
) -> tuple[Document, str]:
    """Run a project's self-test; the entry of the network in ``deploy.json``, and what was printed.

    Raises:
        UsageError: the project has none, or it does not run there.
    """
    entry = select_network(project.read_manifest(folder), network)
    if "self_test" not in entry:
        raise UsageError("--layers: the project has no self-test", "Compile it with --self-test IN.npz.")
    runner = make_runner(on, time_limit=time_limit, board=board, port=port)
    if not isinstance(runner, host.Host | qemu.Qemu | boards.Board):
        raise UsageError(f"--layers --on {on}: a self-test runs on host, qemu or board", "Leave --on out, or name one of them.")
    return entry, runner.self_test(folder, entry)


def make_runner(
    on: str,
    sanitize: bool = False,
    time_limit: float | None = None,
    on_line: Callable[[str], None] | None = None,
    hostfile: Path | None = None,
    board: str | None = None,
    port: str | None = None,
) -> Runner:
    """The runner of a name: ``host``, ``mpi``, ``gvsoc``, ``qemu`` or ``board``; see ``run_project``."""
    made: dict[str, Callable[[], Runner]] = {
        "host": lambda: host.Host(sanitize, seconds=time_limit or SECONDS),
        "mpi": lambda: host.Mpi(hostfile, time_limit or host.PATIENCE, seconds=time_limit or SECONDS),
        "gvsoc": lambda: gvsoc.Gvsoc(time_limit or gvsoc.SECONDS, on_line),
        "qemu": lambda: qemu.Qemu(time_limit or qemu.SECONDS),
        "board": lambda: boards.Board(board, port, time_limit or boards.SECONDS),
    }
    return made[on]()


def verify_compiled(
    compiled: Project,
    model: str | Path,
    inputs: str | Path | None = None,
    expect: str | Path | None = None,
    tolerance: float | None = None,
    layers: bool = False,
    sanitize: bool = False,
    sequence: bool = False,
    on: str = "host",
    board: str | None = None,
    port: str | None = None,
    strict: bool = False,
    exact: Exact = "tflite",
) -> Verdict:
    """Compare the C of a compiled model with the interpreter, with onnxruntime, and with golden outputs; it runs on what ``on`` names.

    Files of TensorFlow Lite are compared with LiteRT instead: every bit of integers, unless ``exact`` says that they round otherwise.
    Outputs that differ from onnxruntime's pass where the C is what the interpreter says, every layer agrees with onnxruntime from the
    same inputs, and the difference is explained by its optimiser or by how the network amplifies rounding; never where this is ``strict``.

    Without ``inputs``, seeded random ones are used, as one sequence where the network has states. Otherwise ``sequence`` says
    whether samples are steps of one sequence.
    """
    model, inputs, expect = Path(model), None if inputs is None else Path(inputs), None if expect is None else Path(expect)
    network = next(iter(compiled.units.values())).network
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "project"
        project.write_project(folder, compiled.sources())
        entry = select_network(project.read_manifest(folder))
        count = streams.count_samples(network, _RANDOM_SAMPLES)
        drawn = random_samples(entry["inputs"], _table_entries(network.program), count)
        samples, stacked, notes = drawn if inputs is None else _load_samples(inputs, entry)
        if network.streamed is not None or (inputs is None and "context" in entry):
            samples, sequence = samples[: entry["context"] // entry["rows"]], True
        samples = streams.hold_other_inputs(network, entry, samples) if network.streamed is not None else samples
        _check_sequence(entry, len(samples), sequence)
        device = make_runner(on, sanitize, board=board, port=port)
        outputs = device.run(folder, entry, samples, sequence).outputs
        interpretation = [np.stack(arrays) for arrays in zip(*compiled.references(samples, sequence), strict=True)]
        comparisons = _compare_outputs({"outputs": interpreted_outputs(network, entry)}, outputs, list(interpretation), None, "interpreter")
        if on == "host" and not all(c.passed for _, c in comparisons):
            comparisons = _by_layer(folder, entry, network, samples, comparisons, outputs, interpretation, notes)
        compared, program, runtime, evidence = outputs, network.program, "onnxruntime", None
        if network.requantisation is not None:
            said, meant = _compare_requantised(network, network.requantisation, entry, samples, sequence, interpretation)
            notes.append(said)
            if tolerance is None:
                compared, program, runtime = meant, network.requantisation.plan.program, "onnxruntime, the exact network"
        if network.streamed is not None:
            found, more = streams.compare_recording(network, entry, interpreted_outputs(network, entry), samples, outputs, strict)
        else:
            against = _outputs_of_runtime(model, entry, samples, sequence, network, runtime, exact)
            may_explain = tolerance is None and "chips" not in entry and all(c.passed for _, c in comparisons)
            found, evidence, more = _compare_runtime(against, compared, tolerance, program, entry, samples, model, may_explain, strict)
        comparisons, notes = [*comparisons, *found], [*notes, *more]
        if expect is not None:
            comparisons += _compare_golden(expect, entry, outputs, len(samples) if stacked else None, tolerance, notes)
        notes += _compare_layers(folder, entry, network, samples[0], model, device) if layers else []
    return Verdict(comparisons, outputs, [p["name"] for p in entry["outputs"]], len(samples), stacked, notes, evidence=evidence)


@dataclass(frozen=True)
class _Against:
    """The outputs of the runtime of a model's own kind, or why there are none, and the rules by which they are compared."""

    runtime: str
    outputs: list[np.ndarray | None] | str
    rules: Document
    is_lite: bool


def _compare_runtime(
    against: _Against,
    outputs: Sequence[np.ndarray],
    tolerance: float | None,
    program: Program,
    entry: Document,
    samples: Samples,
    model: Path,
    may_explain: bool,
    strict: bool,
) -> tuple[list[tuple[str, Comparison]], Evidence | None, list[str]]:
    """The comparisons with a runtime, what explains their differences, and notices."""
    if isinstance(against.outputs, str):
        return [], None, [f"not compared with {against.runtime}: {against.outputs}"]
    found = _compare_outputs(against.rules, outputs, against.outputs, tolerance, against.runtime)
    evidence = None
    if may_explain and not against.is_lite:
        evidence = _explain_outputs(program, entry, samples, in_floats(model), outputs, [c for _, c in found])
    notes = [evidence.text] if evidence is not None else []
    return [(name, _judge_comparison(c, evidence, strict)) for name, c in found], evidence, notes


def _outputs_of_runtime(
    model: Path, entry: Document, samples: Samples, sequence: bool, network: Network, runtime: str, exact: Exact
) -> _Against:
    if is_tflite(model.read_bytes()):
        rules = _exact_integers(entry) if exact == "tflite" else entry
        return _Against("LiteRT", litert_reference.compared_outputs(model, entry, samples, sequence), rules, True)
    return _Against(runtime, _of_onnxruntime(in_floats(model), entry, samples, sequence, network.dialect == "declared"), entry, False)


def _compare_layers(folder: Path, entry: Document, network: Network, sample: list[np.ndarray], model: Path, device: Runner) -> list[str]:
    """What is said of the layers as they are computed where the C runs."""
    if "chips" in entry:
        return ["--layers shows nothing of several chips"]
    shown = device if isinstance(device, qemu.Qemu | boards.Board | gvsoc.Gvsoc) else None
    return by_layer.layer_differences(folder, entry, network.plan, sample, model, shown)


def _of_onnxruntime(
    model: Path | bytes, entry: Document, samples: Samples, sequence: bool, is_dialect: bool
) -> list[np.ndarray | None] | str:
    """The outputs of onnxruntime, or why there are none.

    Args:
        is_dialect: whether the model says that its numbers are integers: only then operators round what onnxruntime does not. Fractions
            of a float graph that was taken for integers are a difference.
    """
    session, reason = reference.open_session(model, entry)
    if session is None:
        return reason
    expected = session.run(samples, sequence)
    if isinstance(expected, str):
        return expected
    integers = [y for y, port in zip(expected, entry["outputs"], strict=True) if y is not None and not DType(port["type"]).is_float]
    if is_dialect and any(y.dtype.kind == "f" and not np.array_equal(y, np.rint(y)) for y in integers):
        return "it computes fractions where operators of the integer dialect round"
    return expected


def _compare_golden(
    expect: Path, entry: Document, outputs: Sequence[np.ndarray], samples: int | None, tolerance: float | None, notes: list[str]
) -> list[tuple[str, Comparison]]:
    """The comparisons with golden outputs of a file, whose notices are added."""
    golden, more = _load_golden(expect, entry["outputs"], samples)
    notes += more
    return _compare_outputs(entry, outputs, golden, tolerance, expect.name)


def _exact_integers(entry: Document) -> Document:
    """The outputs with the rule for integers that have to be those of the file's own runtime: every bit."""
    outputs = [port if DType(port["type"]).is_float else {**port, "equality": "exact"} for port in entry["outputs"]]
    return {"outputs": outputs}


def _judge_comparison(comparison: Comparison, evidence: Evidence | None, strict: bool) -> Comparison:
    """A comparison with onnxruntime passes where the difference is explained."""
    if comparison.passed or strict or evidence is None or not evidence.is_explained:
        return comparison
    return replace(comparison, passed=True, rule=EXPLAINED)


def _explain_outputs(
    program: Program, entry: Document, samples: Samples, model: Path | bytes, outputs: Sequence[np.ndarray], against: Sequence[Comparison]
) -> Evidence | None:
    """Why outputs differ from onnxruntime's, although the C is what the interpreter says; None where they do not, or nothing is known."""
    if all(c.passed for c in against):
        return None
    explanation = explain_difference(program, entry, samples, model if isinstance(model, bytes) else model.read_bytes(), outputs, against)
    return (
        Evidence(f"the difference from onnxruntime is not looked into: {explanation}", False, 0)
        if isinstance(explanation, str)
        else explanation
    )


def _compare_requantised(
    network: Network, by: Requantisation, entry: Document, samples: Samples, sequence: bool, outputs: Sequence[np.ndarray]
) -> tuple[str, list[np.ndarray]]:
    """What is said of layers that engines requantise: their shares, measured on the samples, and the outputs beside the exact ones."""
    shares = measure_requantised(network.program, by.layers, samples, sequence)
    layers = [
        {**layer, "measured": shares[measured_share.result].share}
        for layer, measured_share in zip(entry["requantised"]["layers"], by.layers, strict=True)
    ]
    lines = text.requantised_lines({**entry, "requantised": {**entry["requantised"], "layers": layers}})
    rows = StateRows() if sequence else None
    exact = [np.stack(arrays) for arrays in zip(*(interpreted(by.plan.program, sample, rows) for sample in samples), strict=True)]
    for comparison in (compare_output(port, got, want) for port, got, want in zip(entry["outputs"], outputs, exact, strict=True)):
        worst = f"worst difference {comparison.worst:g} {comparison.unit}"
        lines.append(f"  {shorten(comparison.name)} beside that of the exact network: {comparison.equal:.2%} equal, {worst}")
    return "\n".join(["--requantise engine", *lines]), exact


def _check_sequence(entry: Document, samples: int, sequence: bool) -> None:
    """Raise where a sequence is wanted of a network without states, or is longer than the network's context."""
    if not sequence:
        return
    if "context" not in entry:
        raise UsageError("--sequence: the network has no states", "Leave --sequence out, or declare states when compiling (--state).")
    if samples * entry["rows"] > entry["context"]:
        raise UsageError(
            f"--sequence: {samples} steps of {entry['rows']} row(s) go beyond the context of {entry['context']} rows",
            "Give fewer samples, or compile with a larger --context.",
        )


def interpreted_outputs(network: Network, entry: Document) -> list[Contents]:
    """The outputs with the rule for C against the interpreter: every bit, unless floats depend on the C library or on another order."""
    is_exact = "chips" not in entry and all(call.kernel.is_exact(call.node) for call in network.program.calls)
    ports = []
    for port in entry["outputs"]:
        is_loose = DType(port["type"]).is_float and port["equality"] in ("float", "softmax") and not is_exact
        ports.append({**port, "equality": "float" if is_loose else "exact"})
    return ports


def _by_layer(
    folder: Path,
    entry: Document,
    network: Network,
    samples: Samples,
    comparisons: list[tuple[str, Comparison]],
    outputs: Sequence[np.ndarray],
    interpretation: Sequence[np.ndarray],
    notes: list[str],
) -> list[tuple[str, Comparison]]:
    """The same comparisons, passed where the network calls the C library and every layer of the C is right by its own inputs.

    The last bits of such functions are the library's; a network that amplifies them has no outputs that are equal.
    """
    program = network.program
    if "chips" in entry or program.dynamic_length is not None or all(call.kernel.is_exact(call.node) for call in program.calls):
        return comparisons
    apart = [
        max(absolute_differences(a[n], b[n]).max(initial=0) for a, b in zip(outputs, interpretation, strict=True))
        for n in range(len(samples))
    ]
    for number in [n for n in range(len(samples)) if apart[n] > 0]:
        wrong = by_layer.first_wrong(folder, entry, network.plan, samples[number])
        if wrong is not None:
            notes.append(f"the difference from the interpreter is no matter of the C library: {wrong}")
            return comparisons
    told = (
        "C and interpreter differ by last bits of functions of the C library, which the network amplifies: every layer of the C agrees with"
    )
    notes.append(f"{told} the reference from the C's own inputs")
    return [(name, c if c.passed else replace(c, passed=True, rule=EXPLAINED)) for name, c in comparisons]


def _compare_outputs(
    entry: Document,
    got: Sequence[np.ndarray],
    golden: Sequence[np.ndarray | None],
    tolerance: float | None,
    against: str,
) -> list[tuple[str, Comparison]]:
    """Compare every output that the golden side has."""
    pairs = zip(entry["outputs"], got, golden, strict=True)
    return [(against, compare_output(port, array, expected, tolerance)) for port, array, expected in pairs if expected is not None]


def _load_samples(path: Path, entry: Document) -> tuple[Samples, bool, list[str]]:
    """The samples of an npz for a network, whether they are stacked, and notices."""
    pinned = [Pinned.of(each) for each in entry.get("pinned", ())]
    loaded = load_arrays(path, [Expected.of(port) for port in entry["inputs"]], "input", pinned)
    return loaded.samples, loaded.stacked, list(loaded.notes)


def _load_golden(path: Path, ports: Sequence[Document], stack: int | None) -> tuple[list[np.ndarray | None], list[str]]:
    """Golden outputs, stacked over samples; ``stack`` is how many are expected, or None for one that is not stacked."""
    loaded = load_arrays(path, [Expected.of(port) for port in ports], "output")
    if loaded.stacked != (stack is not None) or len(loaded.samples) != (stack or 1):
        raise UsageError(
            f"{path.name} holds {_describe_stack(len(loaded.samples) if loaded.stacked else None)} of outputs, "
            f"the inputs are {_describe_stack(stack)}",
            "Stack the golden outputs on a new first axis exactly as the inputs are.",
        )
    return [np.stack(arrays) for arrays in zip(*loaded.samples, strict=True)], list(loaded.notes)


def _describe_stack(samples: int | None) -> str:
    return "one sample, not stacked" if samples is None else f"a stack of {samples}"


def _table_entries(program: Program) -> list[int | None]:
    """For every input of a program, how many entries a table has that it is an index into; None where it is no index."""
    sizes = dict[str, int]()
    for call in program.calls:
        for table in call.geometry.nest.indirect:
            shape, index = call.operands[table].access.shape, call.operands["indices"].buffer
            sizes[index] = min(shape[call.node.attrs["axis"]], sizes.get(index, sys.maxsize))
    return [sizes.get(name) for name in program.inputs]


def random_samples(
    ports: Sequence[Document], entries: Sequence[int | None] = (), count: int = _RANDOM_SAMPLES
) -> tuple[Samples, bool, list[str]]:
    """Seeded samples for inputs, that they are stacked, and a notice that says so.

    Args:
        entries: of the table that each input is an index into, so that indices are in its range.
    """
    generator = np.random.default_rng(0)
    samples = []
    for _ in range(count):
        arrays = []
        for port, size in zip_longest(ports, entries):
            dtype, shape = DType(port["type"]), tuple(port["shape"])
            if size is not None:
                arrays.append(generator.integers(0, size, shape).astype(dtype.numpy))
            elif dtype.is_float:
                arrays.append(generator.normal(size=shape).astype(np.float32))
            else:
                low, high = (max(dtype.range[0], -128), min(dtype.range[1], 127)) if dtype.bytes > 1 else dtype.range
                arrays.append(generator.integers(low, high + 1, shape).astype(dtype.numpy))
        samples.append(arrays)
    return samples, True, [f"no --inputs: {count} random samples (seed 0)"]
