"""What metrics need of generated images, collected batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from diffusion_lab.distributed import gather_rows, sum_
from diffusion_lab.failure import WrongResult
from diffusion_lab.metrics.moments import Moments, ScoreSums

SPLITS = 10  # of the inception score
ROWS = ("features", "logits", "samples")


class Batch(NamedTuple):
    """A batch of samples.

    Attributes:
        ids: (b,) their numbers, increasing.
        samples: (b,C,H,W) uint8.
        features, logits: (b,D) and (b,K) float32 on the device; None without an extractor.
        truths: (b,C,H,W) uint8, the true image of each sample; None unless the task is paired.
        classes: (b,) int64, the class of each sample's condition; None unless the extractor has the data's classes.
    """

    ids: Sequence[int]
    samples: Tensor
    features: Tensor | None = None
    logits: Tensor | None = None
    truths: Tensor | None = None
    classes: Tensor | None = None


class Generated:
    """What metrics need of N samples.

    Args:
        total: N.
        needs: any of `moments` and `scores`, sums of a fixed size (and one byte per image for `scores`), and of `ROWS`,
            for which the rows of all images are kept.
        each: name -> function of a batch that returns a value (b,) for each sample, or None.
        feature_dim: D of the extractor.
        device: device of the features and the sums.

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
        """Add samples; those with a number >= N only complete a rank's share and are not counted."""
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
                if getattr(values, "shape", None) != (len(batch.ids),):
                    part = getattr(function, "__self__", function)
                    wanted = f"a tensor ({len(batch.ids)},), a value for each sample of the batch, or None"
                    raise WrongResult.of(part, "of", wanted, values)
                self._rows.setdefault(name, []).append(values)

    def across_ranks(self) -> Generated:
        """Itself, combined over all ranks. Must be called on all of them, with the same number of images."""
        for part in (self.moments, self.scores):
            if part is not None:
                sum_(part.sums)
        for name, parts in self._rows.items():
            # On the device: NCCL cannot gather CPU tensors.
            self._rows[name] = [gather_rows(torch.cat(parts).to(self.device)).cpu()[: self.total]]
        return self

    def rows(self, name: str) -> Tensor | None:
        """(N, ...) on the CPU, in order: rows of `ROWS`, or values of a function of `each`; None if there are none."""
        return torch.cat(self._rows[name]) if name in self._rows else None

    @property
    def nbytes(self) -> int:
        """Memory of all collected tensors in bytes."""
        kept = [tensor for parts in self._rows.values() for tensor in parts]
        kept += [self.moments.sums] if self.moments is not None else []
        kept += [self.scores.sums, self.scores.split] if self.scores is not None else []
        return sum(tensor.nbytes for tensor in kept)
