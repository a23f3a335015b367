"""Plans as C: one function per layer, weights in a file of their own, a stable header.

A Project is a mapping from relative paths to contents; nothing is written here. The same plans give the same bytes.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mako.lookup import TemplateLookup

from deeploy import __version__
from deeploy.backend import calls as c
from deeploy.backend import generate, managed
from deeploy.backend.constants import Shared, context, shared, symbol
from deeploy.backend.describe import describe
from deeploy.errors import TargetError
from deeploy.graph.target import Target
from deeploy.midend.plan import Plan
from deeploy.midend.program import Call, Role
from deeploy.schedule.build import PAST, live_rows

Project = Mapping[str, str | bytes]

_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


@dataclass(frozen=True)
class Layer:
    """One call as the source template sees it."""

    name: str
    header: tuple[str, ...]
    pointers: tuple[str, ...]
    body: str


def emit(plans: Mapping[str, Plan], descriptions: Mapping[str, Mapping[str, Any]]) -> Project:
    """The project that holds every plan as one network; keys of ``plans`` are the prefixes of its C names.

    Args:
        descriptions: what is known of each network's tensors beyond the plan (see ``deeploy.backend.describe``).
    """
    first = next(iter(plans.values()))
    target = first.target
    lookup = TemplateLookup([str(folder) for folder in target.template_folders], strict_undefined=True)
    files: dict[str, str | bytes] = {}
    instances: dict[str, c.Instance] = {}
    common = shared(plans, descriptions)
    for prefix, plan in plans.items():
        write = managed.network if plan.machine is not None else network
        files |= write(prefix, plan, lookup, instances, descriptions[prefix], __version__, common)
    arenas = {name: max(managed.arena_bytes(plan, name) for plan in plans.values()) for name in first.memory}
    for generator in common.generators.values():
        files |= generate.files(generator, lookup)
    if first.machine is not None:
        files |= managed.machine(first, arenas, common, lookup)
    files |= common_files(target, instances, lookup, common.project)
    files["src/networks.c"] = lookup.get_template("networks.c.mako").render(prefixes=list(plans))
    files["Makefile"] = lookup.get_template(target.build).render(
        prefixes=list(plans), folders=kernel_folders(files), target=target, arenas=arenas
    )
    files["deploy.json"] = json.dumps(describe(plans, descriptions, __version__), indent=1, sort_keys=False) + "\n"
    return files


def common_files(target: Target, instances: Mapping[str, c.Instance], lookup: TemplateLookup, project: str) -> dict[str, str | bytes]:
    """What does not depend on a network but for the kernel instances that it needs: kernels, runtime, headers.

    Args:
        project: begins the names of the instances.
    """
    files: dict[str, str | bytes] = {}
    for instance in instances.values():
        files[f"src/kernels/{instance.name}.c"] = _instance_source(instance)
    for source, texts in sorted({instance.source: instance.texts for instance in instances.values()}.items()):
        files |= kernel_files(target, source) if source not in texts else {f"kernels/{name}": text for name, text in texts.items()}
    files[f"include/{project}_kernels.h"] = _prototypes(instances, project)
    for entry in target.runtime:
        files |= runtime_files(entry)
    files["include/deeploy_network.h"] = lookup.get_template("deeploy_network.h.mako").render()
    return files


def runtime_files(entry: Path, folder: str = "runtime") -> dict[str, str | bytes]:
    """A folder of sources, or a single one, as a project holds it."""
    files: dict[str, str | bytes] = {}
    for path in sorted(entry.rglob("*")) if entry.is_dir() else [entry]:
        if path.is_file() and "__pycache__" not in path.parts:
            inside = path.relative_to(entry if entry.is_dir() else entry.parent)
            files[f"{folder}/{inside}"] = path.read_text(encoding="utf-8")
    return files


def kernel_folders(files: Project) -> list[str]:
    """The folders of a project that compilers search for headers of kernels."""
    return sorted({str(Path(name).parent) for name in files if name.startswith("kernels/")})


def network(
    prefix: str,
    plan: Plan,
    lookup: TemplateLookup,
    instances: dict[str, c.Instance],
    description: Mapping[str, Any],
    version: str,
    common: Shared,
) -> dict[str, str | bytes]:
    """The files of one network of a flat machine; kernel instances it needs are added to ``instances``."""
    use = plan.memory[plan.target.memories[0].name]
    values = context(prefix, plan, description, version, common) | {
        "layers": [_layer(prefix, plan, step, lookup, instances, common.project) for step in range(len(plan.program.calls))],
        "arena_bytes": common.arenas[prefix],
        "alignment": use.alignment,
        "offsets": sorted((offset, f"AT_{name.upper()}") for name, offset in plan.offsets.items()),
    }
    render = {
        f"include/{prefix}.h": "network.h.mako",
        f"src/{prefix}.c": "network.c.mako",
    }
    files: dict[str, str | bytes] = {path: lookup.get_template(name).render(**values) for path, name in render.items()}
    return files | managed.constant_files(prefix, plan, lookup, description, version, common)


def _layer(prefix: str, plan: Plan, step: int, lookup: TemplateLookup, instances: dict[str, c.Instance], project: str) -> Layer:
    program = plan.program
    call = program.calls[step]
    stored = {name: program.buffers[operand.buffer].dtype for name, operand in call.operands.items()}
    function = c.called(call, stored, instances, project)
    scratch = {key: f"(void *)(arena + AT_{name.upper()})" for key, name in call.scratch.items()}
    live = live_rows(program)
    text = c.render(call, function, c.views(call, stored, live), scratch, c.extents(call, live), lookup, c.message_number(program, step))
    pointers = tuple(_pointer(prefix, plan, call, name) for name in call.operands)
    return Layer(call.name, c.header(call), pointers, text)


def _pointer(prefix: str, plan: Plan, call: Call, name: str) -> str:
    """The declaration of the local variable through which a call sees one operand."""
    program = plan.program
    operand = call.operands[name]
    buffer = program.buffers[operand.buffer]
    const = "" if name in call.writes else "const "
    if buffer.role is Role.CONSTANT:
        base = symbol(prefix, buffer.name)
    elif program.growth is not None and buffer.name == program.growth.position:
        base = f"&{c.POSITION}"
    elif buffer.role is Role.INPUT:
        base = f"(const {buffer.dtype.c} *)inputs[{program.inputs.index(buffer.name)}]"
    elif buffer.role is Role.OUTPUT:
        base = f"({const}{buffer.dtype.c} *)outputs[{program.outputs.index(buffer.name)}]"
    else:
        base = f"({const}{buffer.dtype.c} *)(void *)(arena + AT_{buffer.name.upper()})"
    offset = f" + {operand.access.offset}" if operand.access.offset else ""
    offset += f" + {PAST} * {operand.step}" if operand.step else ""
    return f"{const}{buffer.dtype.c} *{name} = {base}{offset};"


def _instance_source(instance: c.Instance) -> str:
    defines = "\n".join(f"#define {name} {value}" for name, value in instance.macros)
    return f'#include <stdint.h>\n\n{defines}\n#include "{Path(instance.source).name}"\n'


def _prototypes(instances: Mapping[str, c.Instance], project: str) -> str:
    guard = f"{project.upper()}_KERNELS_H"
    headers = sorted({f"{i.struct}.h" for i in instances.values()})
    lines = ["/* Kernel instances of this project. */", f"#ifndef {guard}", f"#define {guard}", ""]
    lines += [f'#include "{header}"' for header in headers] + [""]
    lines += [f"void {i.name}(const struct {i.struct} *k);" for _, i in sorted(instances.items())]
    return "\n".join([*lines, "", "#endif", ""])


def kernel_files(target: Target, source: str) -> dict[str, str | bytes]:
    """A kernel source and the headers it includes, under ``kernels/`` as in the folder it was found in; the runtime's are there."""
    files: dict[str, str | bytes] = {}
    runtime = {path.name for folder in target.runtime for path in folder.glob("*.h")}
    waiting = [source]
    while waiting:
        name = waiting.pop()
        if f"kernels/{name}" in files:
            continue
        path = next((folder / name for folder in target.kernel_folders if (folder / name).is_file()), None)
        if path is None:
            raise TargetError(
                f"target {target.name}: kernel file {name} is in none of its kernel folders",
                f"Put it under one of {', '.join(folder.name for folder in target.kernel_folders)}, or correct the declaration.",
            )
        text = path.read_text(encoding="utf-8")
        files[f"kernels/{name}"] = text
        own = [include for include in _INCLUDE.findall(text) if include not in runtime]
        waiting += [posixpath.normpath(f"{Path(name).parent}/{include}") for include in own]
    return files
