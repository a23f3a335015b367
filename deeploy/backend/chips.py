"""A system of chips as one project: kernels and runtime once, and a folder of sources per chip under ``chips/``.

Chips whose code is the same share it: the first one has it, the others have their constants and their messages. Every chip becomes a
library with static state of its own; ``application`` loads all of them, ``application-mpi`` one per rank (``kernels/chips``).
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from deeploy.backend.constants import share_constants
from deeploy.backend.describe import describe_project
from deeploy.backend.emit import Project, arenas_of, chip_files, common_files, kernel_folders, runtime_files
from deeploy.documents import Contents, Document
from deeploy.ir.interface import Instance
from deeploy.ir.target import Target
from deeploy.ir.templates import TemplateLookup, template_lookup
from deeploy.planning.plan import Plan
from deeploy.resources import resource
from deeploy.schemas import GENERATOR, SCHEMA
from deeploy.version import VERSION

PREFIX = "network"  # of all chips: each is a library of its own
CHIP = "chip.mk.mako"  # how one chip is built for the chip itself, where a target has such a template
_NUMBERS = "include/deeploy_machine.h"  # the same for all chips


def emit_system(
    plans: Sequence[Plan],
    leads: Sequence[int],
    descriptions: Sequence[Document],
    target: Target,
    queue: int,
    system: Document,
) -> Project:
    """The project of a system.

    Args:
        leads: per chip, the first one with the same code.
        descriptions: what is known of each chip's tensors beyond its plan (see ``deeploy.backend.describe``).
        target: without what is reserved for the queues of one chip.
        queue: messages that may wait between two chips.
        system: the head of ``deploy.json``; ``chips`` and what scripts find in every project are added.
    """
    lookup = template_lookup(tuple(target.template_folders))
    files: dict[str, str | bytes] = {}
    instances: dict[str, Instance] = {}
    entries = []
    for chip, (plan, description) in enumerate(zip(plans, descriptions, strict=True)):
        plans_here, descriptions_here = {PREFIX: plan}, {PREFIX: description}
        own = chip_files(
            plans_here, descriptions_here, lookup, instances, share_constants(plans_here, descriptions_here), chip == leads[chip]
        )
        own["src/messages.c"] = _print_messages(plan)
        files |= {name if name == _NUMBERS else f"chips/{chip}/{name}": text for name, text in own.items()}
        entries.append(_describe_chip(chip, plan, description))
    files |= common_files(target, instances, lookup, PREFIX)
    files |= runtime_files(resource("kernels") / "chips", "runtime/chips")
    files["Makefile"] = lookup.get_template("chips.Makefile.mako").render(
        folders=kernel_folders(files), leads=leads, queue=queue, checked=not target.is_flat, alone=lookup.has_template(CHIP)
    )
    if lookup.has_template(CHIP):
        files |= {f"chips/{chip}/chip.mk": _write_makefile(chip, plans[chip], leads[chip], files, lookup) for chip in range(len(plans))}
    head = {"generator": GENERATOR, "version": VERSION, "schema": SCHEMA, **system, "chips": entries}
    files["deploy.json"] = json.dumps(head, indent=1, sort_keys=False) + "\n"
    return files


def _write_makefile(chip: int, plan: Plan, lead: int, files: Project, lookup: TemplateLookup) -> str:
    """How the program of one chip is built for the chip itself."""
    values = {"chip": chip, "lead": lead, "arenas": arenas_of({PREFIX: plan}), "folders": kernel_folders(files), "target": plan.target}
    return str(lookup.get_template(CHIP).render(**values))


def _print_messages(plan: Plan) -> str:
    nodes = [call.node for call in plan.program.calls if call.kernel.link is not None]
    lines = [f"    {{{node.attrs['peer']}, {node.attrs['tag']}}}, /* {node.op} */" for node in nodes] or ["    {0, 0},"]
    head = ["/* Whom the network talks to, in the order of its calls. */", '#include "deeploy_link.h"', ""]
    return "\n".join([*head, "const struct deeploy_message deeploy_messages[] = {", *lines, "};", ""])


def _describe_chip(chip: int, plan: Plan, description: Document) -> Contents:
    """A chip's entry in ``deploy.json``: what a project of its own would say."""
    entry = describe_project({PREFIX: plan}, {PREFIX: description}, VERSION)
    for name in ("generator", "version", "schema"):
        del entry[name]
    return {"chip": chip, **entry}
