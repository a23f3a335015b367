"""An array of processing elements that can be configured: what ``deeploy explore --write-engine`` writes, and a target includes.

Every configuration is a spatial unrolling, and to the planner an engine of its own: it offers the same kernels, at rates that
follow from how well a layer's loops fill the array. So a plan chooses a configuration per layer as it chooses an engine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from deeploy.documents import read_document
from deeploy.errors import TargetError, shorten
from deeploy.ir.kernel import Kernel
from deeploy.ir.loops import LOOPS, LayerLoops, array_slots
from deeploy.ir.target import Engine, Rate
from deeploy.schemas import KINDS


@dataclass(frozen=True)
class _ArrayUse:
    """The products that an array could do in a layer, with the factors of one configuration."""

    count: Callable[[LayerLoops, Sequence[int]], float]
    factors: tuple[int, ...]

    def __call__(self, layer: LayerLoops) -> float:
        return self.count(layer, self.factors)


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

    def rates(self, call: float, output: float = 0.0, slots: Callable[[LayerLoops, Sequence[int]], float] = array_slots) -> dict[str, Rate]:
        """By engine, for ``Timing.kernels``: cycles of a job to begin, of an output beside products, a cycle for ``pes`` products.

        Args:
            slots: the products that the array could do while it runs a layer with such factors of the seven loops; those of loops that
                are rounded up to multiples of them by default.
        """
        return {
            self._name(c): Rate(call, 1 / self.pes, output, slots=_ArrayUse(slots, tuple(factors[loop] for loop in LOOPS)))
            for c, factors in self.configurations.items()
        }

    def _name(self, configuration: str) -> str:
        return f"{self.name}_{configuration}"


def load_array(file: Path) -> Array:
    """Read an engine description.

    Raises:
        UsageError: there is no such file.
        TargetError: it is not what its schema says, or factors do not fill the array.
    """
    data = read_document(file, "array.toml", TargetError)
    sizes_by_unit: dict[str, dict[str, int]] = {}
    for number, entry in enumerate(data["configuration"]):
        name, factors = entry["name"], {loop: entry["unrolling"].get(loop, 1) for loop in LOOPS}
        product = math.prod(factors.values())
        problem = f"unrolling fills {product} of {data['pes']} elements" if product != data["pes"] else "name is that of an entry before"
        if product != data["pes"] or name in sizes_by_unit:
            raise TargetError(f"{shorten(str(file), 160)}: configuration[{number}].{problem}", KINDS["array.toml"].remedy)
        sizes_by_unit[name] = factors
    return Array(data["name"], data["pes"], sizes_by_unit)
