"""Least squares with no negative coefficient, of relative errors."""

from __future__ import annotations

import numpy as np

Array = np.ndarray
TOLERANCE = 1e-9


def fit_coefficients(features: Array, measured: Array, relative_to: Array | None = None) -> Array:
    """Coefficients >= 0 that minimise the sum of squared errors of ``features @ coefficients`` against ``measured``.

    Errors are relative to what is measured, or to ``relative_to``.

    The active set method of Lawson and Hanson (Solving Least Squares Problems, 1974, chapter 23), columns scaled to length one.
    """
    unit = measured if relative_to is None else relative_to
    rows = features / unit[:, None]
    scale = np.linalg.norm(rows, axis=0)
    scale[scale == 0] = 1.0
    rows, target = rows / scale, measured / unit
    x = np.zeros(features.shape[1])
    free = np.zeros(len(x), bool)
    for _ in range(3 * len(x)):
        gradient = np.where(free, -np.inf, rows.T @ (target - rows @ x))
        if free.all() or gradient.max() <= TOLERANCE:
            break
        free[int(gradient.argmax())] = True
        while True:
            candidate = np.zeros(len(x))
            candidate[free] = np.linalg.lstsq(rows[:, free], target, rcond=None)[0]
            if (candidate[free] > 0).all():
                break
            negative = free & (candidate <= 0)
            step = (x[negative] / np.maximum(x[negative] - candidate[negative], 1e-300)).min()
            x = x + step * (candidate - x)
            free &= x > TOLERANCE
            x[~free] = 0.0
        x = candidate
    solution: Array = x / scale
    return solution
