"""Projects of several chips: a network that is cut, with a unit on each chip."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property

import numpy as np

from deeploy.backend import chips
from deeploy.backend.describe import describe_dynamic_length
from deeploy.certify import CertificateError, NetworkProof, Printed, certify_network, exchange_messages
from deeploy.documents import Contents
from deeploy.driver.certificate import collect_printed, of_chip, text_of
from deeploy.driver.project import Network, Project, Unit, describe_entries, describe_pinned
from deeploy.errors import shorten
from deeploy.execution.simulation import chips as golden
from deeploy.execution.simulation.systems import OutputStream, SystemRun, system_summary, walk_stream, walk_system
from deeploy.frontend.arrays import Expected
from deeploy.frontend.dialect_types import Integers
from deeploy.frontend.io import Port
from deeploy.frontend.pins import Pinned
from deeploy.ir.target import Target
from deeploy.ir.topology import Topology
from deeploy.ir.types import DType
from deeploy.partition.system import System
from deeploy.planning.plan import LevelUse, Plan

STREAMED = 6  # inferences that are predicted beyond those that fill a pipeline


@dataclass(frozen=True, eq=False)
class Distributed(Project):
    """A model compiled for several chips.

    Attributes:
        plans: of every chip; ``leads`` the first chip with the same code.
        inputs, outputs: of the model; ``pinned`` are inputs that are constants.
        target: without what a chip's queues take of it.
    """

    system: System
    topology: Topology
    target: Target
    plans: tuple[Plan, ...]
    leads: tuple[int, ...]
    model: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    dialect: Integers
    notes: tuple[str, ...]
    seconds: Mapping[str, float]
    pinned: tuple[Pinned, ...] = ()
    digest: str = ""
    is_certified: bool = True

    def __repr__(self) -> str:
        return f"<Distributed {shorten(self.model)} over {len(self.plans)} chips of {self.target.name}>"

    def printed(self, files: Mapping[str, str | bytes]) -> Iterator[tuple[int, Printed]]:
        """What is certified of files of the project, for each first chip with a code."""
        for chip, (graph, plan) in enumerate(zip(self.system.chips, self.plans, strict=True)):
            if self.leads[chip] == chip:
                yield chip, collect_printed(of_chip(files, chip), chips.PREFIX, chips.PREFIX, plan, graph)

    def certify(self, files: Mapping[str, str | bytes], is_exhaustive: bool = False) -> Sequence[NetworkProof]:
        proofs = {}
        for chip, each in self.printed(files):
            try:
                proofs[chip] = certify_network(replace(each, is_exhaustive=is_exhaustive))
            except CertificateError as error:
                raise CertificateError(f"chip {chip}: {error}") from error
        tables = [text_of(files, f"chips/{chip}/src/messages.c") for chip in range(len(self.plans))]
        exchange_messages([proofs[lead].messages for lead in self.leads], tables, self.topology.queue)
        return list(proofs.values())

    @property
    def units(self) -> Mapping[str, Unit]:
        ports = {port.name: port for port in (*self.inputs, *self.outputs)}
        result = {}
        for chip, (graph, plan) in enumerate(zip(self.system.chips, self.plans, strict=True)):
            inputs, outputs = (tuple(ports[t.name] for t in side if t.name in ports) for side in (graph.inputs, graph.outputs))
            network = Network(plan, self.model, inputs, outputs, self.dialect, (), graph=graph, digest=self.digest)
            run, cycles = (self.predicted.chips[chip], self.predicted.cycles) if self.predicted is not None else (None, None)
            result[f"chip{chip}"] = Unit(f"chip {chip}", network, run, cycles, self.leads[chip] == chip)
        return result

    def sources(self) -> Mapping[str, str | bytes]:
        descriptions = [unit.description() for unit in self.units.values()]
        return chips.emit_system(self.plans, self.leads, descriptions, self.target, self.topology.queue, self._head())

    @cached_property
    def predicted(self) -> SystemRun | None:
        """One inference as predicted, where the target says how long things take."""
        is_timed = not self.target.is_flat and self.target.timing is not None
        return walk_system(self.plans, self.topology) if is_timed else None

    @cached_property
    def stream(self) -> OutputStream | None:
        """Inferences one behind the other, where messages go from chip to chip in one direction: there stages work at a time."""
        is_pipeline = all(message.sender[0] < message.receiver[0] for message in self.system.messages)
        if self.predicted is None or not is_pipeline or len(self.plans) == 1:
            return None
        return walk_stream(self.plans, self.topology, len(self.plans) + STREAMED)

    def references(self, samples: Sequence[Sequence[np.ndarray]], sequence: bool = False) -> list[list[np.ndarray]]:
        states = golden.States()
        programs = [plan.program for plan in self.plans]
        return [golden.system_outputs(self.system, programs, sample, states if sequence else None) for sample in samples]

    @property
    def wanted(self) -> Sequence[Expected]:
        return [Expected(port.name, self.shapes[port.name][1], self.shapes[port.name][0]) for port in self.inputs]

    @property
    def output_names(self) -> Sequence[str]:
        return [port.name for port in self.outputs]

    @property
    def first(self) -> str | None:
        return None

    @property
    def memory(self) -> Mapping[str, LevelUse]:
        """What the chip that uses most of it uses of each memory level, in bytes, by its name."""
        return {name: self.plans[self._fullest(name)].memory[name] for name in self.plans[0].memory}

    @cached_property
    def shapes(self) -> Mapping[str, tuple[DType, tuple[int, ...]]]:
        """Element types and shapes of the model's inputs and outputs."""
        shape_by_name = {}
        for plan in self.plans:
            for name in (*plan.program.inputs, *plan.program.outputs):
                buffer = plan.program.buffers[name]
                shape_by_name[buffer.tensor] = buffer.dtype, buffer.shape
        return shape_by_name

    def _head(self) -> Contents:
        """What ``deploy.json`` says of the system as a whole."""
        inputs = [{**self._port(port), "chips": list(self.system.given(port.name))} for port in self.inputs]
        outputs = [{**self._port(port), "chip": self.system.holder(port.name)} for port in self.outputs]
        return {
            "name": "network",
            "model": self.model,
            "target": self.target.name,
            "machine": {"mhz": self.target.timing.mhz} if not self.target.is_flat and self.target.timing is not None else None,
            "memory": {name: {"chip": self._fullest(name), **asdict(use)} for name, use in self.memory.items()},
            "inputs": inputs,
            "outputs": outputs,
            **describe_pinned(self.pinned),
            **self._outliving(),
            "calls": [self._call(chip, step) for chip, plan in enumerate(self.plans) for step in range(len(plan.program.calls))],
            "buffers": [],
            **system_summary(self.predicted, self.stream),
            "code": list(self.leads),
            "queue": self.topology.queue,
            "messages": [
                {"from": m.sender[0], "to": m.receiver[0], "tag": m.tag, "bytes": m.bytes, "type": m.tensor.dtype.value}
                for m in self.system.messages
            ],
            "notes": list(self.system.notes),
        }

    def _outliving(self) -> Contents:
        """What outlives an inference; states that all chips have whole, as those that do not grow are, are the first one's."""
        described = describe_dynamic_length(self.plans[0])
        whole = [state for state in described.pop("states", []) if state["axis"] is None]
        return {**described, "states": whole} if whole else described

    def _fullest(self, level: str) -> int:
        """The chip that uses most of a memory level."""
        return max(range(len(self.plans)), key=lambda chip: self.plans[chip].memory[level].peak)

    def _call(self, chip: int, step: int) -> Contents:
        """A call of a chip in short; the entry of the chip says more."""
        call, plan = self.plans[chip].program.calls[step], self.plans[chip]
        head = {"chip": chip, "name": call.name, "op": call.node.op, "kernel": call.kernel.name, "engine": call.kernel.engine}
        tiles = plan.tiling(step).tiles if plan.calls else 1
        cycles = round(self.predicted.chips[chip].calls[step].cycles) if self.predicted is not None else None
        return {**head, "macs": call.geometry.macs(), "tiles": tiles, "cycles": cycles}

    def _port(self, port: Port) -> Contents:
        dtype, shape = self.shapes[port.name]
        return {"name": port.name, "type": dtype.value, "shape": list(shape), **describe_entries(port)}
