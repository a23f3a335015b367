"""Forms of quantisation: what a network may be quantised to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Activations = Literal["int8", "uint8", "int16"]
Method = Literal["minmax", "entropy", "percentile"]
ACTIVATIONS: tuple[Activations, ...] = get_args(Activations)  # the default is the first
METHODS: tuple[Method, ...] = get_args(Method)


@dataclass(frozen=True)
class Form:
    """How a network is quantised.

    Attributes:
        per_channel: one scale per output channel of a weight instead of one per weight.
        activations: element type of the activations.
        symmetric: the zero point of every activation is that of its type's middle.
        powers: every scale is a power of two.
        method: how ranges follow from what activations are over the samples: their limits; the limits that lose the least
            information (Kullback-Leibler divergence); or those that hold 99.999 % of all elements.
        keep: names of nodes that stay in float.
        wide: names of nodes whose outputs have 16 bits.
        weights: bits of the weights of products and convolutions, 8 or 4.
        group: elements of a product's weight with one scale, of weights of 4 bits; None: those of an output channel.
        weight_bytes: a budget for all weights; those that lose most in 4 bits keep 8 as far as it allows. None: none do.
        weight_loss: decibel of signal to noise that the outputs keep at least beside those with weights of 8 bits; None: any.
    """

    per_channel: bool = True
    activations: Activations = "int8"
    symmetric: bool = False
    powers: bool = False
    method: Method = "minmax"
    keep: tuple[str, ...] = ()
    wide: tuple[str, ...] = ()
    weights: int = 8
    group: int | None = None
    weight_bytes: int | None = None
    weight_loss: float | None = None

    def __str__(self) -> str:
        parts = [self.activations, "per channel" if self.per_channel else "per tensor"]
        parts += ["symmetric"] * self.symmetric + ["scales of 2^n"] * self.powers + [self.method] * (self.method != "minmax")
        parts += [f"{len(self.keep)} in float"] * bool(self.keep) + [f"{len(self.wide)} in 16 bits"] * bool(self.wide)
        parts += [f"weights of {self.weights} bits" + (f" in groups of {self.group}" if self.group else "")] * (self.weights < 8)
        return ", ".join(parts)


DEFAULT = Form()
