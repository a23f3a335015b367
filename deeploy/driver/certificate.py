"""Certificates of what was compiled: that the printed C of every network does what its graph says (``deeploy.certify``)."""

from __future__ import annotations

from collections.abc import Mapping

from deeploy.backend.claims import claim_layers
from deeploy.certify import Printed
from deeploy.ir.values import Graph
from deeploy.planning.plan import Plan


def collect_printed(files: Mapping[str, str | bytes], prefix: str, project: str, plan: Plan, graph: Graph) -> Printed:
    """What is certified of a network; ``files`` by the paths of a project for one chip, ``project`` the prefix of its first one."""
    calls, buffers = plan.program.calls, plan.program.buffers
    stored, constants = {}, {}
    for call in calls:
        own = {name: buffers[operand.buffer] for name, operand in call.operands.items()}
        stored[call.name] = {name: buffer.dtype for name, buffer in own.items()}
        data = {name: buffer.data for name, buffer in own.items() if call.tensors[name].data is not None}  # not views of constants
        constants[call.name] = {name: values for name, values in data.items() if values is not None}
    by_name = {call.name: call for call in calls}
    return Printed(files, prefix, project, plan.target, graph, by_name, stored, constants, claim_layers(plan), plan.program.live)


def of_chip(files: Mapping[str, str | bytes], chip: int) -> dict[str, str | bytes]:
    """The files of a chip by the paths that they would have in a project of its own."""
    folder = f"chips/{chip}/"
    return {**files, **{path.removeprefix(folder): text for path, text in files.items() if path.startswith(folder)}}


def text_of(files: Mapping[str, str | bytes], path: str) -> str:
    """The content of an emitted file as text."""
    content = files[path]
    return content if isinstance(content, str) else content.decode()
