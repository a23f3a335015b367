"""Projects: units, each a network on a chip with its plan, and what is emitted, predicted and shown of them.

A chip alone may hold several networks; a network that is cut over several chips has a unit on each. What both have in common is here:
C, reports, files on disk.
"""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from deeploy.backend import project
from deeploy.backend.constants import Additions
from deeploy.backend.emit import arenas_of, emit_networks
from deeploy.backend.packages import make_package
from deeploy.certify import NetworkProof, Printed, certify_network
from deeploy.documents import Contents, Document
from deeploy.driver.certificate import (
    collect_printed,
    describe_prediction,
    explain_arithmetic,
    explain_times,
    hash_files,
    print_certificate,
    select_sizes,
)
from deeploy.driver.plan import Requantisation
from deeploy.driver.prefixes import check_files
from deeploy.driver.samples import Arrays, Outputs, read_sample, split_samples
from deeploy.errors import shorten
from deeploy.execution.runners.host import Host
from deeploy.execution.runners.sizes import Sizes, measure_sizes
from deeploy.execution.simulation.interpreter import StateRows, network_outputs
from deeploy.execution.simulation.joint import draw_joint_rows
from deeploy.execution.simulation.requantised import Measured, measure_requantised
from deeploy.execution.simulation.systems import LINK
from deeploy.execution.simulation.timeline import make_timeline
from deeploy.execution.simulation.timing import Run, summarise_run
from deeploy.execution.simulation.trace import FEWEST_EVENTS, MOST_EVENTS, write_trace
from deeploy.execution.simulation.walk import walk_plan, walk_round
from deeploy.frontend.arrays import Expected, load_arrays
from deeploy.frontend.dialect_types import Integers
from deeploy.frontend.io import Port
from deeploy.frontend.pins import Pinned
from deeploy.frontend.streaming import Streamed
from deeploy.ir.target import Target
from deeploy.ir.values import Graph
from deeploy.options import Options, Package
from deeploy.planning.plan import LevelUse, Plan, memory_of
from deeploy.planning.program import Program
from deeploy.report.page import report_page
from deeploy.report.quantised import quantise_first
from deeploy.report.reasons import explain_calls
from deeploy.schemas import CERTIFICATE, MANIFEST


@dataclass(frozen=True, eq=False)
class Network:
    """One compiled network of a project.

    Attributes:
        requantisation: what engines requantise otherwise than exactly, where that was asked for.
        graph: that kernels were chosen for; None where that is not known.
        samples: npz with inputs, by which that is measured.
        digest: SHA-256 of the ONNX file, in hexadecimal digits; empty where that is not known.
        streamed: how it runs along an input that never ends.
    """

    plan: Plan
    model: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    dialect: Integers
    notes: tuple[str, ...]
    pinned: tuple[Pinned, ...] = ()
    requantisation: Requantisation | None = None
    graph: Graph | None = None
    samples: str | Path | None = None
    digest: str = ""
    self_test: Contents | None = None
    streamed: Streamed | None = None

    @property
    def program(self) -> Program:
        return self.plan.program

    @cached_property
    def predicted(self) -> Run | None:
        """One inference as predicted, where the target says how long things take."""
        return _walk_plan(self.plan)

    @cached_property
    def requantised(self) -> Contents | None:
        """What ``deploy.json`` says of layers that engines requantise; None where all are exact."""
        requantisation = self.requantisation
        if requantisation is None:
            return None
        shares: Mapping[str, Measured] = {}
        if self.samples is not None and requantisation.layers:
            buffers = [self.program.buffers[name] for name in self.program.inputs]
            samples = load_arrays(Path(self.samples), [Expected(b.tensor, b.shape) for b in buffers], "input", self.pinned).samples
            shares = measure_requantised(self.program, requantisation.layers, samples)
        walked = _walk_plan(requantisation.plan)
        layers = [
            {
                "node": layer.exact.name,
                "engine": layer.engine,
                **{name: getattr(layer.nearest, name) for name in ("sums", "inside", "differ")},
                "largest": int(layer.nearest.differ > 0),
                "measured": shares[layer.result].share if layer.result in shares else None,
            }
            for layer in requantisation.layers
        ]
        return {"cycles": round(walked.cycles) if walked is not None else None, "layers": layers, "exact": list(requantisation.unchanged)}


def _walk_plan(plan: Plan) -> Run | None:
    return walk_plan(plan) if plan.target.timing is not None else None


@dataclass(frozen=True, eq=False)
class Unit:
    """A network on a chip.

    Attributes:
        title: for people, in the trace.
        run: one inference as predicted, where that is known.
        cycles: of an inference of all that it is a part of.
        is_lead: whether it is the first unit with its code, of which pages show all.
    """

    title: str
    network: Network
    run: Run | None
    cycles: float | None
    is_lead: bool = True

    def description(self) -> Contents:
        """What is known of the network beyond its plan, for ``deploy.json``."""
        ports = {"inputs": self.network.inputs, "outputs": self.network.outputs}
        timing = summarise_run(self.run) if self.run is not None else None
        return {
            "model": self.network.model,
            "digest": self.network.digest,
            **describe_pinned(self.network.pinned),
            **{side: [describe_entries(p) for p in side_ports] for side, side_ports in ports.items()},
            "timing": timing,
            "requantised": self.network.requantised,
            "self_test": self.network.self_test,
            **({"stream": self._describe_stream(timing)} if self.network.streamed is not None else {}),
        }

    def _describe_stream(self, timing: Contents | None) -> Contents:
        """What ``deploy.json`` says of a network that streams; cycles and energy of an inference in the mean."""
        plan, streamed = self.network.plan, self.network.streamed
        assert streamed is not None
        mean = {"cycles": None, "energy_uj": None} if timing is None else {name: timing[name] for name in ("cycles", "energy_uj")}
        if timing is not None and plan.program.period > 1:
            cycles, energy = walk_round(plan)
            mean = {"cycles": round(cycles), "energy_uj": None if mean["energy_uj"] is None else round(energy, 3)}
        second = None
        if self.run is not None and streamed.wanted.rate is not None:
            seconds = streamed.stream.hop / streamed.wanted.rate
            second = count_second(mean["cycles"] or 0, self.run.mhz, mean["energy_uj"], seconds)
        return {**asdict(streamed.stream), **mean, "second": second}


def count_second(cycles: float, mhz: float, energy_uj: float | None, seconds: float) -> Contents:
    """What a second of signal takes, of the cycles and the energy for some seconds of it, on a machine with a clock."""
    needed = cycles / seconds / 1e6
    return {"mhz": needed, "duty_cycle": needed / mhz, "energy_uj": None if energy_uj is None else energy_uj / seconds}


def describe_pinned(pinned: Sequence[Pinned]) -> Contents:
    """What ``deploy.json`` says of inputs that are constants, where there are some."""
    return {"pinned": [each.contents() for each in pinned]} if pinned else {}


def describe_entries(port: Port) -> Contents:
    """What ``deploy.json`` says of an input or output beyond its buffer."""
    entries = asdict(port)
    del entries["name"]
    if not entries["labels"]:
        del entries["labels"]
    return {**entries, "equality": port.equality.value}


class Project(ABC):
    """What is written, shown and run of the units of a project."""

    seconds: Mapping[str, float]  # of the stages that made it
    is_certified: bool  # whether what is emitted is compared with the graph

    @abstractmethod
    def certify(self, files: Mapping[str, str | bytes], is_exhaustive: bool = False) -> Sequence[NetworkProof]:
        """Prove that the C in files does what the graph of every network says, for all inputs.

        Args:
            is_exhaustive: at all positions of states, instead of the first and the last two.

        Raises:
            CertificateError: it does not.
        """

    @property
    @abstractmethod
    def units(self) -> Mapping[str, Unit]:
        """The units, by the names that reports call them."""

    @abstractmethod
    def sources(self) -> Mapping[str, str | bytes]:
        """The emitted files that a build needs: without reports and other files for people."""

    @abstractmethod
    def references(self, samples: Sequence[Sequence[np.ndarray]], sequence: bool = False) -> list[list[np.ndarray]]:
        """Outputs by the kernels' NumPy references, per sample; with ``sequence``, samples are steps of one."""

    @property
    @abstractmethod
    def wanted(self) -> Sequence[Expected]:
        """The inputs of the first network."""

    @property
    @abstractmethod
    def output_names(self) -> Sequence[str]:
        """The outputs of the first network."""

    @property
    @abstractmethod
    def first(self) -> str | None:
        """The name of the first network in ``deploy.json``; None where all chips have one together."""

    def run(self, inputs: Arrays, sanitize: bool = False, sequence: bool = False) -> Outputs:
        """Build the C of the first network for this machine and run it; with ``sanitize``, with sanitizers.

        Args:
            inputs: of one sample, by name or in order; or of several, all inputs stacked on a new first axis or on the first one. The
                outputs of several are stacked on a new first axis.
            sequence: samples are steps of one sequence: states carry over from one to the next.

        Returns: the outputs in the network's order, each also by its name: ``outputs["scores"]``.

        Raises:
            UsageError, BuildError: arrays do not fit, or the C cannot be built here.
        """
        samples, is_stacked = split_samples(self.wanted, inputs)
        with TemporaryDirectory() as scratch:
            folder = Path(scratch) / "project"
            project.write_project(folder, self.sources())
            entry = project.select_network(project.read_manifest(folder), self.first)
            stacks = Host(sanitize).run(folder, entry, samples, sequence=sequence).outputs
        return Outputs(self.output_names, stacks if is_stacked else [stack[0] for stack in stacks])

    def interpret(self, inputs: Arrays) -> list[np.ndarray]:
        """One inference by the kernels' NumPy references."""
        return self.references([read_sample(self.wanted, inputs)])[0]

    def interpret_sequence(self, steps: Sequence[Arrays]) -> list[list[np.ndarray]]:
        """Consecutive inferences of one sequence by the kernels' NumPy references; the states begin empty."""
        return self.references([read_sample(self.wanted, step) for step in steps], sequence=True)

    def files(self, seconds: dict[str, float] | None = None) -> Mapping[str, str | bytes]:
        """The emitted project: relative paths and contents; what the certificate takes is added to ``seconds``."""
        sources = self.measured(self.sources())
        certificate = {}
        if self.is_certified:
            start = time.perf_counter()
            proofs = self.certify(sources)
            facts = {**self.facts(), **select_sizes(json.loads(sources[MANIFEST]))}
            certificate[CERTIFICATE] = print_certificate([each.counts for each in proofs], self.hashes(sources), facts)
            (seconds if seconds is not None else {})["certify"] = time.perf_counter() - start
        return {**sources, **certificate, **self.reports(json.loads(sources["deploy.json"]))}

    def facts(self) -> Mapping[str, object]:
        """What a certificate says of time and arithmetic, of every network with code of its own."""
        leads = {name: unit for name, unit in self.units.items() if unit.is_lead}
        calls = {name: unit.network.program.calls for name, unit in leads.items()}
        predictions = [
            describe_prediction(name, unit.cycles, timing)
            for name, unit in leads.items()
            if unit.cycles is not None and (timing := unit.network.plan.target.timing) is not None
        ]
        return {"time": {**explain_times(calls), "predictions": predictions}, "arithmetic": explain_arithmetic(calls)}

    def hashes(self, files: Mapping[str, str | bytes]) -> Mapping[str, Mapping[str, str]]:
        """SHA-256 of what a certificate speaks of: emitted files by their paths, and models, where their files are known."""
        networks = {f"{each.network.model} of {each.title}": each.network.digest for each in self.units.values()}
        return {"models": {name: digest for name, digest in networks.items() if digest}, "files": hash_files(files)}

    def measured(self, sources: Mapping[str, str | bytes]) -> Mapping[str, str | bytes]:
        """The emitted files with what a cross compiler makes of them in ``deploy.json``, where the target has one."""
        return sources

    def reports(self, manifest: Document, advice: Mapping[str, Sequence[Contents]] | None = None) -> Mapping[str, str]:
        """The files of the project that are made for people.

        Args:
            manifest: ``deploy.json``.
            advice: what would help, by the names of units, where that was planned (``deeploy advise``).
        """
        is_system = "chips" in manifest
        entries = manifest["chips"] if is_system else manifest.get("networks") or [manifest]
        shown = {name: (unit, entry) for (name, unit), entry in zip(self.units.items(), entries, strict=True) if unit.is_lead}
        reasons = {name: explain_calls(unit.network.plan, entry) for name, (unit, entry) in shown.items()}
        for name, (unit, _) in shown.items():
            told = advice.get(name) if advice is not None else None
            if told is not None or unit.network.program.is_float:
                reasons[name]["advice"] = told or [quantise_first(unit.network.program, unit.network.plan.target)]
        timelines = {name: make_timeline(unit.run) for name, (unit, _) in shown.items() if unit.run is not None}
        runs = {unit.title: (unit.network.plan, unit.run) for unit in self.units.values() if unit.run is not None}
        rows = draw_joint_rows([run for _, run in runs.values()], LINK) if is_system else ()
        files = {"report.html": report_page(manifest, timelines, reasons, rows)}
        if runs:
            files["trace.json"] = write_trace(runs, max(MOST_EVENTS // len(runs), FEWEST_EVENTS) if is_system else MOST_EVENTS)
        if reasons:
            files["explain.json"] = json.dumps({"networks": reasons}, separators=(",", ":")) + "\n"
        return files

    def write(self, folder: str | Path, further: Mapping[str, str] | None = None) -> None:
        """Write the project and ``further`` files, in place of an older project of ours; see ``deeploy.backend.project``."""
        folder = Path(folder)
        project.check_destination(folder)
        start, seconds = time.perf_counter(), dict(self.seconds)
        files = {**self.files(seconds), **(further or {})}
        seconds["emit"] = time.perf_counter() - start - seconds.get("certify", 0)
        files["timings.json"] = json.dumps({"total": sum(seconds.values()), **seconds}, indent=1) + "\n"
        project.write_project(folder, files)


@dataclass(frozen=True, eq=False)
class CompiledProject(Project):
    """The result of ``deeploy.compile``: one or several networks, planned for one chip; by ``origin`` it is compiled again.

    ``sizes`` are those of the program, where limits (``budgets``) asked for them.
    """

    networks: Mapping[str, Network]
    seconds: Mapping[str, float]
    additions: Additions | None = None
    budgets: Mapping[str, int] = field(default_factory=dict)
    sizes: Sizes | None = None
    package: Package | None = None
    is_certified: bool = True
    has_contracts: bool = False
    origin: tuple[Callable[[Target, Options], CompiledProject], Target, Options] | None = None

    def __repr__(self) -> str:
        names = ", ".join(shorten(network.model) for network in self.networks.values())
        cycles = ", ".join(f"{run.cycles:,.0f} cycles".replace(",", " ") for one in self.networks.values() if (run := one.predicted))
        layers = sum(len(network.program.calls) for network in self.networks.values())
        return f"<Compiled {names} for {self.plan.target.name}: {layers} layers{f', {cycles}' if cycles else ''}>"

    def _repr_html_(self) -> str:
        """The report, for notebooks: a page of its own inside of a frame."""
        page = escape(str(self.files()["report.html"]), quote=True)
        return f'<iframe srcdoc="{page}" sandbox="allow-scripts" style="width: 100%; height: 640px; border: 0"></iframe>'

    @property
    def network(self) -> Network:
        """The only network of the project, or the first of several."""
        return next(iter(self.networks.values()))

    @property
    def plan(self) -> Plan:
        return self.network.plan

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences that ``deeploy compile`` prints of all networks."""
        return tuple(note for network in self.networks.values() for note in network.notes)

    @property
    def memory(self) -> Mapping[str, LevelUse]:
        """What the plan uses of each memory level, in bytes, by its name; where constants are read in place, their memory as well."""
        return memory_of(self.plan)

    @property
    def units(self) -> Mapping[str, Unit]:
        runs = {name: network.predicted for name, network in self.networks.items()}
        cycles = {name: run.cycles if run is not None else None for name, run in runs.items()}
        return {name: Unit(name, network, runs[name], cycles[name]) for name, network in self.networks.items()}

    def printed(self, files: Mapping[str, str | bytes]) -> Iterator[Printed]:
        """What is certified of files of the project, network by network."""
        for prefix, network in self.networks.items():
            if network.graph is not None:
                yield collect_printed(files, prefix, next(iter(self.networks)), network.plan, network.graph)

    def certify(self, files: Mapping[str, str | bytes], is_exhaustive: bool = False) -> Sequence[NetworkProof]:
        return [certify_network(replace(each, is_exhaustive=is_exhaustive)) for each in self.printed(files)]

    def sources(self) -> Mapping[str, str | bytes]:
        plans = {name: network.plan for name, network in self.networks.items()}
        described = {name: unit.description() for name, unit in self.units.items()}
        files = emit_networks(plans, described, self.additions, self.has_contracts)
        check_files(self.networks, files)
        return files if self.package is None else {**files, **make_package(self.package, files, json.loads(files["deploy.json"]))}

    @property
    def largest(self) -> Plan:
        """The plan with the largest arena."""
        return max((network.plan for network in self.networks.values()), key=lambda plan: plan.memory[plan.target.memories[0].name].peak)

    def measure(self, budgets: Collection[str] = ()) -> Sizes | None:
        """The sizes of the program, by a cross compiler; where there is none and ``budgets`` need it, an error says so."""
        return self._measure(self.sources(), budgets)

    def _measure(self, sources: Mapping[str, str | bytes], budgets: Collection[str] = ()) -> Sizes | None:
        plans = {name: network.plan for name, network in self.networks.items()}
        arenas = [size for name, size in arenas_of(plans).items() if not self.plan.target.memory(name).is_far]
        states = max(sum(plan.program.buffers[state.buffer].bytes for state in plan.program.states) for plan in plans.values())
        io = max(sum(use.io for use in plan.memory.values()) for plan in plans.values())
        return measure_sizes(sources, sum(arenas), states, io, budgets)

    def measured(self, sources: Mapping[str, str | bytes]) -> Mapping[str, str | bytes]:
        sizes = self.sizes or self._measure(sources)
        if sizes is None:
            return sources
        manifest = {**json.loads(sources["deploy.json"]), "sizes": {**sizes.contents(), "limits": dict(self.budgets)}}
        return {**sources, "deploy.json": json.dumps(manifest, indent=1) + "\n"}

    @property
    def wanted(self) -> Sequence[Expected]:
        program = self.network.program
        return [Expected(buffer.tensor, buffer.shape, buffer.dtype) for buffer in map(program.buffers.__getitem__, program.inputs)]

    @property
    def output_names(self) -> Sequence[str]:
        return [port.name for port in self.network.outputs]

    @property
    def first(self) -> str | None:
        return next(iter(self.networks))

    def references(self, samples: Sequence[Sequence[np.ndarray]], sequence: bool = False) -> list[list[np.ndarray]]:
        rows = StateRows() if sequence else None
        return [network_outputs(self.network.program, sample, rows) for sample in samples]
