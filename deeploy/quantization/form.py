"""Forms of quantisation: what a network may be quantised to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from deeploy.errors import UsageError, suggest

Activations = Literal["int8", "uint8", "int16"]
Method = Literal["minmax", "entropy", "percentile"]
ACTIVATIONS: tuple[Activations, ...] = get_args(Activations)  # the default is the first
PERCENTILE = 99.999
LEAST = 20.0  # decibel; an error of a tenth
FLOAT_SHARE = 0.75
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
            information (Kullback-Leibler divergence); or those that hold a share of all elements.
        percentile: that share, in percent.
        keep: names of nodes that stay in float.
        wide: names of nodes whose outputs have 16 bits.
        weights: bits of the weights of products and convolutions, 8 or 4.
        group: elements of a product's weight with one scale, of weights of 4 bits; None: those of an output channel.
        weight_bytes: a budget for all weights; those that lose most in 4 bits keep 8 as far as it allows. None: none do.
        least: signal to noise in decibel that every output keeps at least: tensors that 8 bits ruin stay in float for it.
        float_share: of the elements of all activations and weights, that may be in float for it.
        weight_loss: decibel of signal to noise that the outputs keep at least beside those with weights of 8 bits; None: any.
    """

    per_channel: bool = True
    activations: Activations = "int8"
    symmetric: bool = False
    powers: bool = False
    method: Method = "minmax"
    percentile: float = PERCENTILE
    keep: tuple[str, ...] = ()
    wide: tuple[str, ...] = ()
    weights: int = 8
    group: int | None = None
    weight_bytes: int | None = None
    weight_loss: float | None = None
    least: float = LEAST
    float_share: float = FLOAT_SHARE

    def __post_init__(self) -> None:
        for field, given, known in (("method", self.method, METHODS), ("activations", self.activations, ACTIVATIONS)):
            if given not in known:
                raise UsageError(f"{field}={given!r} is unknown", f"{suggest(given, known, f'{field}=')}Use one of {', '.join(known)}.")

    def __str__(self) -> str:
        parts = [self.activations, "per channel" if self.per_channel else "per tensor"]
        parts += ["symmetric"] * self.symmetric + ["scales of 2^n"] * self.powers + self._method
        parts += [f"{len(self.keep)} in float"] * bool(self.keep) + [f"{len(self.wide)} in 16 bits"] * bool(self.wide)
        parts += [f"weights of {self.weights} bits" + (f" in groups of {self.group}" if self.group else "")] * (self.weights < 8)
        return ", ".join(parts)

    @property
    def _method(self) -> list[str]:
        return [] if self.method == "minmax" else [f"{self.method} {self.percentile:g}" if self.method == "percentile" else self.method]


DEFAULT = Form()
