"""What a target is: memories, engines, kernels, lowering passes and a runtime, all data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from deeploy.graph.kernel import Kernel
from deeploy.graph.rewrite import Pass

API_VERSION = 1


@dataclass(frozen=True)
class Memory:
    """One memory level; ``capacity`` in bytes (None: as large as needed), ``alignment`` of every buffer in bytes."""

    name: str
    capacity: int | None = None
    alignment: int = 16


@dataclass(frozen=True)
class Target:
    """A machine.

    Attributes:
        name: how the command line calls it.
        api: version of this interface that the target was written for.
        memories: memory levels, the default one of the arena first.
        kernels: in order of preference: a node takes the first whose signature fits.
        passes: lowering passes, in order.
        sources: folders that kernel sources and templates are looked up in, first match first.
        runtime: folder whose files are copied into every project.
        build: Mako template of the project's Makefile, looked up as call templates are.
    """

    name: str
    memories: tuple[Memory, ...]
    kernels: tuple[Kernel, ...]
    passes: tuple[Pass, ...]
    kernel_folders: tuple[Path, ...]
    template_folders: tuple[Path, ...]
    runtime: Path
    build: str
    api: int = API_VERSION
    options: Mapping[str, str] = field(default_factory=dict)
    summary: str = ""
