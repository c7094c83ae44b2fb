"""Memory of an evaluation's state against the number of images: what `Generated` holds for FID and the inception score.

Synthetic features of Inception's size, 2048 numbers and 1008 logits an image, in batches of 500 through the accumulator
that an evaluation uses. Counted are the bytes of all tensors that it keeps.
"""

from __future__ import annotations

import torch

from benchmarks.growth import Points
from benchmarks.line import at_most

X, Y, ORDER, GOAL = "images", "MB of statistics", 0, at_most(1)
COUNTS, BATCH, DIM, CLASSES = (1_000, 4_000, 16_000, 64_000), 500, 2048, 1008
NEEDS = {"moments", "scores"}


def points() -> Points:
    return [float(count) for count in COUNTS], [[_megabytes(count)] for count in COUNTS]


def _megabytes(count: int) -> float:
    from diffusion_lab.metrics import Batch, Generated

    generated = Generated(count, NEEDS, feature_dim=DIM)
    samples, features, logits = torch.zeros(BATCH, 1, 1, 1), torch.randn(BATCH, DIM), torch.randn(BATCH, CLASSES)
    for first in range(0, count, BATCH):
        generated.update(Batch(range(first, first + BATCH), samples, features, logits))
    return generated.nbytes / 1e6
