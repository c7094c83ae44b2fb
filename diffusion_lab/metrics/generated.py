"""What is kept of generated images while they pass by, one batch at a time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from diffusion_lab.distributed import gather_rows, sum_
from diffusion_lab.metrics.moments import Moments, ScoreSums

SPLITS = 10  # of the inception score
ROWS = ("features", "logits", "samples")


class Batch(NamedTuple):
    """Samples on their way.

    Attributes:
        ids: (b,) their numbers, which grow.
        samples: (b,C,H,W) uint8.
        features, logits: (b,D) and (b,K) float32 on the device; None without an extractor.
        truths: (b,C,H,W) uint8, the image that each sample should be; None unless the task is paired.
        classes: (b,) int64, the class that each was asked for; None unless the extractor knows the data's classes.
    """

    ids: Sequence[int]
    samples: Tensor
    features: Tensor | None = None
    logits: Tensor | None = None
    truths: Tensor | None = None
    classes: Tensor | None = None


class Generated:
    """What the metrics of N samples need of them.

    Args:
        total: N.
        needs: of `moments` and `scores`, whose sums do not grow with N but for a byte of each image, and of `ROWS`, of
            which every image's row is kept.
        each: name -> function of a batch that gives a value (b,) for each sample, or None where it has none.
        feature_dim: D of the extractor.
        device: of the sums, that of the features.

    Raises:
        ValueError: too few images for the inception score.
    """

    def __init__(
        self,
        total: int,
        needs: Collection[str] = (),
        each: Mapping[str, Callable[[Batch], Tensor | None]] | None = None,
        feature_dim: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        self.total, self.device, self._each = total, device, dict(each or {})
        self.moments = Moments(feature_dim, device) if "moments" in needs else None
        self.scores = ScoreSums(total, SPLITS) if "scores" in needs else None
        self._rows: dict[str, list[Tensor]] = {name: [] for name in ROWS if name in needs}

    def update(self, batch: Batch) -> None:
        """Add samples; those with a number >= N fill up a rank's share and enter no sum."""
        real = slice(sum(number < self.total for number in batch.ids))
        if self.moments is not None and batch.features is not None:
            self.moments.update(batch.features[real])
        if self.scores is not None and batch.logits is not None:
            self.scores.update(torch.tensor(batch.ids, dtype=torch.int64)[real], batch.logits[real])
        for name in ROWS:
            if name in self._rows:
                self._rows[name].append(getattr(batch, name).cpu())
        for name, function in self._each.items():
            values = function(batch)
            if values is not None:
                self._rows.setdefault(name, []).append(values)

    def across_ranks(self) -> Generated:
        """Itself, with what all ranks have seen; every rank must call, with the same number of images."""
        for part in (self.moments, self.scores):
            if part is not None:
                sum_(part.sums)
        for name, parts in self._rows.items():
            # On the device: NCCL cannot gather CPU tensors.
            self._rows[name] = [gather_rows(torch.cat(parts).to(self.device)).cpu()[: self.total]]
        return self

    def rows(self, name: str) -> Tensor | None:
        """(N, ...) on the CPU, in order: of `ROWS`, or the values of a function of `each`; None if there are none."""
        return torch.cat(self._rows[name]) if name in self._rows else None

    @property
    def nbytes(self) -> int:
        """Bytes of all that is kept."""
        kept = [tensor for parts in self._rows.values() for tensor in parts]
        kept += [self.moments.sums] if self.moments is not None else []
        kept += [self.scores.sums, self.scores.split] if self.scores is not None else []
        return sum(tensor.nbytes for tensor in kept)
