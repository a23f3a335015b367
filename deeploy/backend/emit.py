"""Plans as C: one function per layer, weights in a file of their own, a stable header.

A Project is a mapping from relative paths to contents; nothing is written here. The same plans give the same bytes.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Mapping
from pathlib import Path

from deeploy.backend.constants import Additions, SharedConstants, share_constants
from deeploy.backend.describe import describe_project
from deeploy.backend.network import arena_bytes, constant_files, emit_machine, emit_network
from deeploy.documents import Document
from deeploy.errors import TargetError
from deeploy.ir.interface import Instance
from deeploy.ir.target import Target
from deeploy.ir.templates import TemplateLookup, template_lookup
from deeploy.planning.plan import Plan
from deeploy.resources import resource
from deeploy.version import VERSION

Project = Mapping[str, str | bytes]

_CODE = "#ifndef DEEPLOY_CODE\n#define DEEPLOY_CODE\n#endif\n"
_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def emit_networks(
    plans: Mapping[str, Plan], descriptions: Mapping[str, Document], add: Additions | None = None, has_contracts: bool = False
) -> Project:
    """The project that holds every plan as one network; keys of ``plans`` are the prefixes of its C names.

    Args:
        descriptions: what is known of each network's tensors beyond the plan (see ``deeploy.backend.describe``).
        add: finds the networks to which functions of other packages are added.
        has_contracts: whether layers have contracts in ACSL.
    """
    first = next(iter(plans.values()))
    target = first.target
    lookup = template_lookup(tuple(target.template_folders))
    files: dict[str, str | bytes] = {}
    instances: dict[str, Instance] = {}
    common = share_constants(plans, descriptions, add)
    for addition in common.generators.values():
        files |= addition.files(lookup)
    files |= chip_files(plans, descriptions, lookup, instances, common, has_contracts=has_contracts)
    files |= common_files(target, instances, lookup, common.project)
    files["Makefile"] = lookup.get_template(target.build).render(
        prefixes=list(plans), folders=kernel_folders(files), target=target, arenas=arenas_of(plans)
    )
    files["deploy.json"] = json.dumps(describe_project(plans, descriptions, VERSION), indent=1, sort_keys=False) + "\n"
    return files


def chip_files(
    plans: Mapping[str, Plan],
    descriptions: Mapping[str, Document],
    lookup: TemplateLookup,
    instances: dict[str, Instance],
    common: SharedConstants,
    has_code: bool = True,
    has_contracts: bool = False,
) -> dict[str, str | bytes]:
    """The networks of a chip, and the chip's memories; kernel instances that are needed are added to ``instances``.

    Args:
        has_code: False for a chip of several that another one's code runs on, with constants of its own.
    """
    files: dict[str, str | bytes] = {}
    for prefix, plan in plans.items():
        if has_code:
            files |= emit_network(prefix, plan, lookup, instances, descriptions[prefix], VERSION, common, has_contracts)
        else:
            files |= constant_files(prefix, plan, lookup, descriptions[prefix], VERSION, common)
    if any(plan.fused_groups and plan.target.is_flat for plan in plans.values()):
        files |= runtime_files(resource("kernels") / "hal" / "deeploy_tile.h", "src")
    if has_code:
        files["src/networks.c"] = lookup.get_template("networks.c.mako").render(prefixes=list(plans))
    return files | emit_machine(next(iter(plans.values())), arenas_of(plans), common, lookup)


def arenas_of(plans: Mapping[str, Plan]) -> dict[str, int]:
    """Bytes of every memory's arena, which the networks of a chip share."""
    return {name: max(arena_bytes(plan, name) for plan in plans.values()) for name in next(iter(plans.values())).memory}


def common_files(target: Target, instances: Mapping[str, Instance], lookup: TemplateLookup, project: str) -> dict[str, str | bytes]:
    """What does not depend on a network but for the kernel instances that it needs: kernels, runtime, headers.

    Args:
        project: begins the names of the instances.
    """
    files: dict[str, str | bytes] = {}
    for instance in instances.values():
        files[f"src/kernels/{instance.name}.c"] = instance_source(instance, Path(instance.source).name)
    for source, texts in sorted({instance.source: instance.texts for instance in instances.values()}.items()):
        files |= kernel_files(target, source) if source not in texts else {f"kernels/{name}": text for name, text in texts.items()}
    files[f"include/{project}_kernels.h"] = _print_prototypes(instances, project)
    for entry in target.runtime:
        files |= runtime_files(entry)
    files |= runtime_files(resource("kernels") / "interface", "include")
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


def instance_source(instance: Instance, kernel: str) -> str:
    """The C of a kernel instance: ``kernel``, the file of the kernel's C, with the instance's types and name."""
    place = {"KERNEL": "DEEPLOY_CODE "}
    defines = "\n".join(f"#define {name} {place.get(name, '')}{value}" for name, value in instance.macros)
    declared = f"struct {instance.struct};\n{_print_prototype(instance)}"
    return f'#include <stdint.h>\n\n{declared}\n\n{_CODE}{defines}\n#include "{kernel}"\n'


def _print_prototype(instance: Instance) -> str:
    return f"void {instance.name}(const struct {instance.struct} *k);"


def _print_prototypes(instances: Mapping[str, Instance], project: str) -> str:
    guard = f"{project.upper()}_KERNELS_H"
    headers = sorted({f"{i.struct}.h" for i in instances.values()})
    lines = ["/* Kernel instances of this project. */", f"#ifndef {guard}", f"#define {guard}", ""]
    lines += [f'#include "{header}"' for header in headers] + [""]
    lines += [_print_prototype(instance) for _, instance in sorted(instances.items())]
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
