"""The read-only view of one operator that kernel declarations are evaluated on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from deeploy.graph.types import DType

NARROW = "narrow"  # the attribute that names the narrow types in which a node's constants may be stored that are no larger
Attributes = Mapping[str, Any]  # of an operator, by name; what each may be is its operator's declaration


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor as an operator sees it.

    ``shape`` is in elements, outermost axis first. ``data`` is the value of a constant, else None; ``narrow`` are
    types of fewer bits that have all of its elements, and that the model uses: a kernel may read it so (``Kernel.packing``).
    """

    name: str
    shape: tuple[int, ...]
    dtype: DType
    data: np.ndarray | None = None
    narrow: tuple[DType, ...] = ()

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    def __str__(self) -> str:
        return f"{self.dtype.value}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True, eq=False)
class Node:
    """One operator: its inputs by position (None where an optional one is absent), outputs and attributes.

    ``attrs["epilogue"]`` is the tuple of epilogue stages fused behind the body (see ``deeploy.graph.kernel``); their
    operands follow the body's inputs. ``is_left``: the node has the spelling of ONNX, of which lowering made nothing else.
    ``words``: by which the rates of its kernel differ, besides those that follow from what it computes (``Second.words``).
    """

    name: str
    op: str
    inputs: tuple[Tensor | None, ...]
    outputs: tuple[Tensor, ...]
    attrs: Attributes = field(default_factory=dict)
    is_left: bool = False
    words: tuple[str, ...] = ()

    @property
    def epilogue(self) -> tuple[str, ...]:
        return tuple(self.attrs.get("epilogue", ()))
