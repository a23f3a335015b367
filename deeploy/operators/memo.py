"""Results that are computed once for equal arguments, where these are arrays: nodes that are alike hold equal constants."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import numpy as np

P = ParamSpec("P")
T = TypeVar("T")
MOST = 512  # results that are kept of a function


def by_content(function: Callable[P, T]) -> Callable[P, T]:
    """The same function of arrays and of what can be hashed; nobody may change what it returns.

    >>> calls = []
    >>> @by_content
    ... def total(values: np.ndarray) -> int:
    ...     calls.append(values)
    ...     return int(values.sum())
    >>> total(np.arange(4)), total(np.arange(4)), len(calls)
    (6, 6, 1)
    """
    kept: dict[object, T] = {}

    @wraps(function)
    def found(*arguments: P.args, **named: P.kwargs) -> T:
        key = (*map(_content, arguments), *((name, _content(value)) for name, value in sorted(named.items())))
        if key not in kept:
            if len(kept) >= MOST:
                kept.clear()
            kept[key] = function(*arguments, **named)
        return kept[key]

    return found


def _content(value: object) -> object:
    return (value.dtype.str, value.shape, value.tobytes()) if isinstance(value, np.ndarray) else value
