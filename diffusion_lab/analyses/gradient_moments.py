"""Variance and squared mean of N vectors g_i from |g_i|^2 and g_i . sum_j g_j, and the jackknife's standard errors.

    V = 1/(N-1) (sum_i |g_i|^2 - |sum_i g_i|^2 / N)          trace of the covariance
    U = (|sum_i g_i|^2 - sum_i |g_i|^2) / (N (N-1))          unbiased for the squared norm of the expectation

U is |mean|^2 - V/N, the mean of g_i . g_j over i != j.
"""

from __future__ import annotations

import numpy as np


def moments(square: np.ndarray, product: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """V and U: |g_i|^2 (...,N), g_i . sum_j g_j (...,N) -> (...), (...)."""
    n = square.shape[-1]
    return _moments(square.sum(-1), product.sum(-1), n)


def without_each(square: np.ndarray, product: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """V and U of all pairs but one: (...,N), (...,N) -> (...,N), (...,N)."""
    n = square.shape[-1]
    squares, of_sum = (values.sum(-1, keepdims=True) for values in (square, product))
    return _moments(squares - square, of_sum - 2 * product + square, n - 1)


def jackknife(values: np.ndarray) -> np.ndarray:
    """Standard error of a statistic from its values without each of N: (...,N) -> (...)."""
    return np.sqrt((values.shape[-1] - 1) * values.var(-1))


def _moments(squares: np.ndarray, of_sum: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """From sum_i |g_i|^2 and |sum_i g_i|^2."""
    return (squares - of_sum / n) / (n - 1), (of_sum - squares) / (n * (n - 1))
