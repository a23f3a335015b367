"""Results that are computed once: for equal arrays, of which nodes that are alike hold some, for one object, or by one object."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

P = ParamSpec("P")
T = TypeVar("T")
U = TypeVar("U")
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
    results: dict[object, T] = {}

    @wraps(function)
    def remembered(*arguments: P.args, **named: P.kwargs) -> T:
        key = (*map(_content_key, arguments), *((name, _content_key(value)) for name, value in sorted(named.items())))
        if key not in results:
            if len(results) >= MOST:
                results.clear()
            results[key] = function(*arguments, **named)
        return results[key]

    return remembered


def by_object(function: Callable[[U], T]) -> Callable[[U], T]:
    """The same function of an object that nobody changes; its result is kept as long as the object is, and does not hold it.

    >>> calls = []
    >>> @by_object
    ... def named(one: type) -> str:
    ...     calls.append(one)
    ...     return one.__name__
    >>> named(int), named(int), named(str), len(calls)
    ('int', 'int', 'str', 2)
    """
    results: WeakKeyDictionary[U, T] = WeakKeyDictionary()

    @wraps(function)
    def remembered(one: U) -> T:
        if one not in results:
            results[one] = function(one)
        return results[one]

    return remembered


def by_arguments(method: Callable[Concatenate[U, P], T]) -> Callable[Concatenate[U, P], T]:
    """A method whose results its object keeps by the arguments, which can be hashed; nobody may change what it returns.

    >>> class Counter:
    ...     calls = 0
    ...     @by_arguments
    ...     def double(self, number: int) -> int:
    ...         self.calls += 1
    ...         return 2 * number
    >>> counter = Counter()
    >>> counter.double(3), counter.double(3), counter.double(4), counter.calls
    (6, 6, 8, 2)
    """
    place = f"results of {method.__name__}"

    @wraps(method)
    def remembered(self: U, /, *arguments: P.args, **named: P.kwargs) -> T:
        results: dict[object, T] = self.__dict__.setdefault(place, {})
        key = (*arguments, *named.items())
        if key not in results:
            results[key] = method(self, *arguments, **named)
        return results[key]

    return remembered


def _content_key(value: object) -> object:
    return (value.dtype.str, value.shape, value.tobytes()) if isinstance(value, np.ndarray) else value
