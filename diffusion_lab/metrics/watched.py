"""What is kept of samples while they pass by on their way to the extractor."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from diffusion_lab.data import Conditions
from diffusion_lab.metrics.paired import PAIRED, paired_values

TRIPLES = 3  # per row of a grid


class Watched:
    """The first samples, and in a paired task each sample's distance to its truth.

    Args:
        conditions: what the samples are asked for.
        keep: images in the picture. In a paired task these are triples: what was given, the sample, the truth.
    """

    def __init__(self, conditions: Conditions, keep: int) -> None:
        self.conditions, self.paired = conditions, conditions.task.paired
        self.keep = math.ceil(keep / 3) if self.paired else keep
        self._seen, self._pictures, self._values = 0, [], []

    def __call__(self, batches: Iterator[Tensor], ids: Sequence[int]) -> Iterator[Tensor]:
        """Pass on batches of bytes (b,C,H,W) that are samples `ids`, in order."""
        for batch in batches:
            here = ids[self._seen : self._seen + len(batch)]
            kept = max(0, self.keep - self._seen)
            if not self.paired:
                self._pictures.append(batch[:kept])
            else:
                given, truths = self.conditions.given_and_truth(here)
                self._values.append(paired_values(batch, truths))
                self._pictures.append(torch.stack([given, batch, truths], dim=1)[:kept].flatten(0, 1))
            self._seen += len(batch)
            yield batch

    @property
    def pictures(self) -> Tensor:
        """(n,C,H,W) uint8; empty where no sample was made."""
        return torch.cat(self._pictures) if self._pictures else torch.empty(0, 1, 1, 1, dtype=torch.uint8)

    @property
    def columns(self) -> int | None:
        """Images in a row of a grid; None: as the grid likes."""
        return 3 * TRIPLES if self.paired else None

    @property
    def values(self) -> Tensor:
        """(n,2) float64, the columns of `PAIRED`."""
        return torch.cat(self._values) if self._values else torch.empty(0, len(PAIRED), dtype=torch.float64)
