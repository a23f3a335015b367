"""An array of processing elements that can be configured: what ``deeploy explore --write-engine`` writes, and a target includes.

Every configuration is a spatial unrolling, and to the planner an engine of its own: it offers the same kernels, at rates that
follow from how well a layer's loops fill the array. So a plan chooses a configuration per layer as it chooses an engine.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from deeploy.errors import TargetError, shorten
from deeploy.graph.kernel import Kernel
from deeploy.graph.loops import LOOPS
from deeploy.graph.target import Engine, Rate


@dataclass(frozen=True)
class Array:
    """A configurable array.

    Attributes:
        name: prefix of the names of its engines and kernels.
        pes: multipliers.
        configurations: factors of every loop by the name of the configuration; each one's product is ``pes``.
    """

    name: str
    pes: int
    configurations: Mapping[str, Mapping[str, int]]

    def engines(self, memory: str, like: Engine | None = None) -> tuple[Engine, ...]:
        """An engine per configuration, working in ``memory``, in everything else ``like`` another one."""
        return tuple(replace(like or Engine("", ""), name=self._name(c), memory=memory) for c in self.configurations)

    def kernels(self, kernels: Iterable[Kernel]) -> tuple[Kernel, ...]:
        """The kernels, once for every configuration: the array divides the work, not cores."""
        offered = tuple(kernels)
        return tuple(
            replace(kernel, name=f"{self._name(c)}_{kernel.name}", engine=self._name(c), cores=())
            for c in self.configurations
            for kernel in offered
        )

    def rates(self, call: float, output: float = 0.0) -> dict[str, Rate]:
        """For ``Timing.kernels``: cycles of a job to begin, of an output beyond the products, and a cycle for ``pes`` products."""
        return {
            f"{self._name(c)}_": Rate(call, 1 / self.pes, output, unrolling=tuple(factors[loop] for loop in LOOPS))
            for c, factors in self.configurations.items()
        }

    def _name(self, configuration: str) -> str:
        return f"{self.name}_{configuration}"


def load_array(file: Path) -> Array:
    """Read an engine description.

    Raises:
        TargetError: a field that is missing or wrong, or factors that do not fill the array.
    """
    remedy = "Write the file with: deeploy explore MODEL --hardware HW.toml --write-engine FILE"
    try:
        data: dict[str, Any] = tomllib.loads(file.read_text())
        name, pes, entries = data["name"], data["pes"], data["configuration"]
        found = {str(entry["name"]): {loop: entry["unrolling"].get(loop, 1) for loop in LOOPS} for entry in entries}
    except (OSError, tomllib.TOMLDecodeError, KeyError, TypeError, AttributeError) as error:
        raise TargetError(f"engine description {shorten(str(file))}: {shorten(str(error), 100)} is missing or wrong", remedy) from error
    for configuration, factors in found.items():
        product = 1
        for factor in factors.values():
            product *= factor if isinstance(factor, int) and factor > 0 else 0
        if product != pes or not str(configuration).isidentifier():
            raise TargetError(f"{shorten(str(file))}: configuration {shorten(configuration)} does not fill the {pes} elements", remedy)
    return Array(str(name), pes, found)
