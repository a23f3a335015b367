"""Certificates of what was compiled: that the printed C of every network does what its graph says (``deeploy.certify``)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields

from deeploy.backend.claims import claim_layers
from deeploy.certify import Printed, ProofCounts, bound_network
from deeploy.documents import Document
from deeploy.ir.target import Timing
from deeploy.ir.values import Graph
from deeploy.planning.plan import Plan
from deeploy.planning.program import Call
from deeploy.schemas import GENERATOR, MANIFEST, SCHEMA
from deeploy.version import VERSION

STATEMENT = "Every element of every output is computed from the elements that the graph says, for all inputs."
ASSUMPTIONS = (  # as docs/trust.md has them
    "The declarations of operators and kernels: which elements are read and written, what may be overwritten.",
    "What printer and certificate share: the nodes that were bound to kernels, how a template is given a window "
    "(deeploy/ir/interface.py), and which axes of a tensor grow with states.",
    "The C compiler, and the runtime of the machine: a wait waits, a barrier is one.",
    "Without --every-position: positions of a state in between those that are run are like them.",
    "In time: a choice between two values, and every instruction but a division, takes as long for all values.",
    "Kernels that a generator wrote for loops of the model: what their C does inside is tested, not proved.",
)
Hashes = Mapping[str, Mapping[str, str]]  # SHA-256 by kind and name: of emitted files, and of models


def collect_printed(files: Mapping[str, str | bytes], prefix: str, project: str, plan: Plan, graph: Graph) -> Printed:
    """What is certified of a network; ``files`` by the paths of a project for one chip, ``project`` the prefix of its first one."""
    calls, buffers = plan.program.calls, plan.program.buffers
    stored, constants = {}, {}
    for call in calls:
        own = {name: buffers[operand.buffer] for name, operand in call.operands.items()}
        stored[call.name] = {name: buffer.dtype for name, buffer in own.items()}
        data = {name: buffer.data for name, buffer in own.items() if call.tensors[name].data is not None}  # not views of constants
        shapes = call.geometry.shapes  # not those of buffers, one of which a number has whatever its rank
        constants[call.name] = {name: values.reshape(shapes[name]) for name, values in data.items() if values is not None}
    by_name = {call.name: call for call in calls}
    return Printed(
        files,
        prefix,
        project,
        plan.target,
        graph,
        by_name,
        stored,
        constants,
        claim_layers(plan),
        plan.program.dynamic_axes,
        plan.program.period,
    )


def of_chip(files: Mapping[str, str | bytes], chip: int) -> dict[str, str | bytes]:
    """The files of a chip by the paths that they would have in a project of its own."""
    folder = f"chips/{chip}/"
    return {**files, **{path.removeprefix(folder): text for path, text in files.items() if path.startswith(folder)}}


def text_of(files: Mapping[str, str | bytes], path: str) -> str:
    """The content of an emitted file as text."""
    content = files[path]
    return content if isinstance(content, str) else content.decode()


def hash_files(files: Mapping[str, str | bytes]) -> dict[str, str]:
    """SHA-256 of emitted files by their paths, in hexadecimal digits; not of ``deploy.json``, which tells people and tools of them."""
    contents = {path: text if isinstance(text, bytes) else text.encode() for path, text in sorted(files.items()) if path != MANIFEST}
    return {path: hashlib.sha256(content).hexdigest() for path, content in contents.items()}


def explain_times(networks: Mapping[str, Iterable[Call]]) -> dict[str, object]:
    """The kernels of networks whose time depends on values of their operands, each with its layers."""
    layers: dict[tuple[str, str, str], list[str]] = {}
    for network, calls in networks.items():
        for call in calls:
            reason = call.kernel.explain_time(call.node)
            if reason:
                layers.setdefault((network, call.kernel.name, reason), []).append(call.name)
    kernels = [
        {"network": network, "kernel": kernel, "reason": reason, "layers": names} for (network, kernel, reason), names in layers.items()
    ]
    return {"is_constant": not kernels, "kernels": kernels}


def describe_prediction(network: str, cycles: float, timing: Timing) -> dict[str, object]:
    """The cycles of an inference as predicted, and where the figures are from; an estimate where no machine was measured."""
    return {"network": network, "cycles": round(cycles), "is_estimate": timing.is_estimate, "provenance": timing.provenance}


def select_sizes(manifest: Document) -> dict[str, object]:
    """Bytes of the program as it was linked and its stack, where ``deploy.json`` has them: where the cross compiler is installed."""
    sizes = manifest.get("sizes")
    return {"sizes": {name: sizes[name] for name in ("compiler", "code", "static", "stack")}} if sizes else {}


def explain_arithmetic(networks: Mapping[str, Iterable[Call]]) -> dict[str, object]:
    """The ranges of the integers of layers, and the operators of those that have none: floats, moves, and formulas that tests prove."""
    layers, others = list[dict[str, object]](), set[str]()
    for network, calls in networks.items():
        called = list(calls)
        for call, bound in zip(called, bound_network(call.node for call in called), strict=True):
            if bound is None:
                others.add(call.node.op)
                continue
            told = {name: list(value) if isinstance(value, tuple) else value for name, value in vars(bound).items()}
            told["steps"] = {name: list(reached) for name, reached in bound.steps.items()}
            layers.append(
                {"network": network, "layer": call.name, **{k: value for k, value in told.items() if value not in (None, "", {})}}
            )
    return {"is_proved": not any("failure" in layer for layer in layers), "layers": layers, "others": sorted(others)}


def print_certificate(counts: Sequence[ProofCounts], hashes: Hashes, facts: Mapping[str, object]) -> str:
    """The text of ``certificate.json``, of the networks that were proved; ``facts`` are what it says of time and arithmetic."""
    totals = {each.name: sum(getattr(count, each.name) for count in counts) for each in fields(ProofCounts)}
    head = {"generator": GENERATOR, "version": VERSION, "schema": SCHEMA, "statement": STATEMENT, "assumptions": ASSUMPTIONS}
    return json.dumps({**head, "counts": {"networks": len(counts), **totals}, **facts, **hashes}, indent=1) + "\n"


def find_changes(recorded: Hashes, current: Hashes) -> list[str]:
    """The files and models whose hashes differ from those that a certificate tells, or that only one of them has."""
    kinds = [(recorded[kind], current[kind]) for kind in current]
    return [name for old, new in kinds for name in sorted({*old, *new}) if old.get(name) != new.get(name)]
