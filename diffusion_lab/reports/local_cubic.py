"""Local cubic regression: a smooth curve through noisy snapshots that assumes no formula for the whole curve.

At q the value is p(0) of the cubic polynomial p that minimises

    sum_i w_i (y_i - p(x_i - q))^2,     w_i = (1 - (|x_i - q| / h)^3)^3 where |x_i - q| < h, else 0

where h is the distance to the farthest of the `NEAREST` nearest points, or of half of the points if these are more
(Cleveland 1979, "Robust locally weighted regression", without the robust iterations). A curve of up to `NEAREST` points
is fitted as a whole, with h wider than it. With 4 points the polynomial is a parabola; with 2 or 3 it passes through
all of them.
"""

from __future__ import annotations

import numpy as np

NEAREST = 8
WHOLE = 1.5  # h over the distance to the farthest point, where all points are used


def local_cubic(x: np.ndarray, y: np.ndarray, at: np.ndarray) -> np.ndarray:
    """The smoothed curve at some places.

    Args:
        x: (n,) increasing, n >= 2.
        y: (n,) values at x.
        at: (m,) places between the first and the last x.

    Returns:
        (m,) smoothed values.
    """
    count = len(x)
    used = max(NEAREST, (count + 1) // 2)
    offsets = x[None, :] - at[:, None]
    distances = np.abs(offsets)
    if used >= count:
        reach = WHOLE * distances.max(1, keepdims=True)
    else:  # the farthest of the nearest points has a small weight, not 0
        reach = (1 + 1e-3) * np.sort(distances, axis=1)[:, used - 1 : used]
    weights = np.clip(1 - (distances / reach) ** 3, 0, None) ** 3
    degree = min(count - 1, 3 if count > 4 else 2)
    powers = (offsets / reach)[..., None] ** np.arange(degree + 1)
    weighted = weights[..., None] * powers
    normal = np.einsum("mni,mnj->mij", weighted, powers)
    return np.linalg.solve(normal, np.einsum("mni,n->mi", weighted, y)[..., None])[:, 0, 0]
