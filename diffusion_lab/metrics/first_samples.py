"""The first samples of an evaluation, for a picture."""

from __future__ import annotations

import math

import torch
from torch import Tensor

TRIPLES = 3  # per row of a grid


class FirstSamples:
    """Samples, or in a paired task triples of condition, sample and truth.

    Args:
        keep: images in the picture.
        paired: whether there are truths.
    """

    def __init__(self, keep: int, paired: bool) -> None:
        self.paired, self.missing = paired, math.ceil(keep / 3) if paired else keep
        self._kept: list[Tensor] = []

    def update(self, samples: Tensor, given: Tensor | None = None, truths: Tensor | None = None) -> None:
        """Take as many images of a batch, each (b,C,H,W) uint8, as are still missing."""
        kept = samples[: self.missing]
        if given is not None and truths is not None:
            kept = torch.stack([given, samples, truths], dim=1)[: self.missing].flatten(0, 1)
        self._kept.append(kept)
        self.missing -= min(self.missing, len(samples))

    @property
    def pictures(self) -> Tensor:
        """(n,C,H,W) uint8; empty if no sample was made."""
        return torch.cat(self._kept) if self._kept else torch.empty(0, 1, 1, 1, dtype=torch.uint8)

    @property
    def columns(self) -> int | None:
        """Images per row of a grid; None: chosen by the grid."""
        return 3 * TRIPLES if self.paired else None
