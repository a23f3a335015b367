"""Loop nests, layouts, conditions and references of the operators that the compiler knows, for the kernels of a target.

A module per family; docs/integer-form.md lists the operators. ``conv.nest`` and ``conv.reference``, say, are what a faster
convolution shares with the portable one.

>>> from deeploy.target import Node, Tensor
>>> from deeploy.target.operators import elementwise
>>> x, y = Tensor("x", (2, 3), DType.INT8), Tensor("y", (2, 3), DType.INT8)
>>> print(elementwise.nest("x")(Node("n", "Clip", (x,), (y,))).writes["y"])
[d0, d1]
"""

from deeploy.ir.types import DType
from deeploy.operators import (
    accumulate,
    conv,
    elementwise,
    integer,
    integer_recurrent,
    link,
    matmul,
    movement,
    norms,
    pairs,
    pool,
    recurrent,
    reduce,
    requantise,
    residual,
    rotate,
    rows,
    scaled,
)

__all__ = [
    "DType",
    "accumulate",
    "conv",
    "elementwise",
    "integer",
    "integer_recurrent",
    "link",
    "matmul",
    "movement",
    "norms",
    "pairs",
    "pool",
    "recurrent",
    "reduce",
    "requantise",
    "residual",
    "rotate",
    "rows",
    "scaled",
]
