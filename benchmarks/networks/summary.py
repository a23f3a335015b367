"""A network as the segmentation study sees it: the layers of its int8 form, with their loops, constants and readers.

Made from the exported float network by the compiler's own lowering and loop nests, after normalisations are folded into the product
before them, as every int8 converter does. The cached files hold one layer a line:

    [operator, [layers read; -1 is the input], [G, K, C, OY, OX, FY, FX] or [], constant elements, result elements]
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from deeploy import target
from deeploy.devices import layers as device_layers
from deeploy.devices.layers import Item
from deeploy.frontend import import_states
from deeploy.ir.rewriting import rewrite_graph
from deeploy.partition.balance_levels import BalancedLayer
from deeploy.planning.binding.kernels import inferred_shapes

FOLDER = Path(__file__).parent / "summaries"
FORMAT = 1


@dataclass(frozen=True)
class Summary:
    """A network: its layers, and what its framework says of it.

    Attributes:
        source: where it is from.
        image: height and width of its input.
        parameters: of the float network, as its framework counts them.
        weighted: layers with parameters, normalisations among them.
        longest: layers on the longest path.
    """

    name: str
    source: str
    image: int
    parameters: int
    weighted: int
    longest: int
    items: tuple[Item, ...]

    @property
    def macs(self) -> int:
        return sum(item.macs for item in self.items)

    @property
    def input_bytes(self) -> int:
        return 3 * self.image**2

    def layers(self) -> list[BalancedLayer]:
        """The layers as the strategies read them."""
        return [BalancedLayer(f"{item.op} {i}", item.reads, item.weights, item.output) for i, item in enumerate(self.items)]


def save(summary: Summary) -> None:
    """Write a summary to its file."""
    head = {name: getattr(summary, name) for name in ("name", "source", "image", "parameters", "weighted", "longest")}
    rows = [json.dumps([i.op, i.reads, i.loops, i.constants, i.output], separators=(",", ":")) for i in summary.items]
    text = json.dumps({"format": FORMAT, **head})[:-1] + ', "layers": [\n' + ",\n".join(rows) + "\n]}\n"
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{summary.name}.json").write_text(text)


def load(name: str) -> Summary:
    """Read a cached summary."""
    data = json.loads((FOLDER / f"{name}.json").read_text())
    items = tuple(Item(op, tuple(reads), tuple(loops), constants, output) for op, reads, loops, constants, output in data["layers"])
    return Summary(*(data[key] for key in ("name", "source", "image", "parameters", "weighted", "longest")), items)


def synthetic(filters: int) -> Summary:
    """The paper's family: five 3 x 3 convolutions on 64 x 64 images with three channels (section 3.1)."""
    channels = (3, *[filters] * 5)
    items = tuple(
        Item("Conv", (i - 1,), (1, filters, channels[i], 64, 64, 3, 3), 9 * channels[i] * filters, 64 * 64 * filters) for i in range(5)
    )
    return Summary(f"f{filters}", "synthetic", 64, sum(i.constants for i in items), 5, 5, items)


# ---- from an exported network


def read(file: Path) -> tuple[Item, ...]:
    """The layers of an exported float network."""
    machine = target.load("generic")
    graph = import_states(file, {}, lambda node: inferred_shapes(machine.kernels, node)).graph
    return device_layers.read_layers(rewrite_graph(graph, machine.passes), machine.kernels).items
