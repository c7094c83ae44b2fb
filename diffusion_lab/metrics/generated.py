"""What metrics need of generated images, collected batch by batch: sums, whose size does not grow, or all rows.

    mean and covariance of features x (D,)      n, s = sum x, Q = sum x x^T
                                                mu = s/n,  S = (Q - s s^T/n)/(n - 1)
    inception score of class probabilities p (K,)   for each split: n, sum p, sum of p.log p
                                                exp(KL),  KL = mean p.log p - m.log m,  m = mean p

All sums are float64. The difference in S loses log10(|mu|^2/tr S) of 16 digits: about one for Inception.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from diffusion_lab.arguments import check_integer
from diffusion_lab.distributed import gather_rows, sum_
from diffusion_lab.failure import WrongResult

SHUFFLE_SEED = 2020  # torch-fidelity's, of the order in which images are dealt to the splits
SPLITS = 10  # of the inception score
ROWS = ("features", "logits", "samples", "nearest")


class Statistics(NamedTuple):
    """Mean mu (D,) and covariance sigma (D,D) of a feature set, float64."""

    mu: np.ndarray
    sigma: np.ndarray


class Moments:
    """Mean and covariance of feature rows that come in batches: D^2 + D + 1 numbers.

    Args:
        dim: D.
        device: device of the features and the sums.
    """

    def __init__(self, dim: int, device: torch.device | str = "cpu") -> None:
        # Row 0 of the sum of outer products of (1, x) is (n, s), so one matrix holds all sums.
        self.sums = torch.zeros(dim + 1, dim + 1, dtype=torch.float64, device=device)

    def update(self, features: Tensor) -> None:
        """Add rows (n,D)."""
        rows = torch.nn.functional.pad(features.detach().to(self.sums), (1, 0), value=1.0)
        self.sums.addmm_(rows.T, rows)

    def statistics(self, few: bool = False) -> Statistics:
        """Mean and covariance (divisor n - 1) of the added rows; with several ranks, call `sum_` first.

        Args:
            few: whether they may be fewer than 2 D, as for metrics that compare rows.

        Raises:
            ValueError: fewer than 2 D rows, or a number that is not finite.
        """
        count, dim = int(self.sums[0, 0]), len(self.sums) - 1
        if count < 2 * dim and not few:
            raise ValueError(
                f"features={count} images must be at least {2 * dim}, twice their {dim} dimensions, or the covariance "
                "is mostly noise; use more images or an extractor with fewer dimensions"
            )
        if not torch.isfinite(self.sums).all():
            raise ValueError("features must be finite; check the images: the model has probably diverged")
        sums, outer = self.sums[0, 1:], self.sums[1:, 1:]
        mean = sums / count
        sigma = (outer - torch.outer(sums, mean)) / max(count - 1, 1)
        return Statistics(mean.cpu().numpy(), sigma.cpu().numpy())


class ScoreSums:
    """The inception score of class logits that come in batches: splits (K + 2) numbers, and a byte per image.

    The byte is the split of an image, assigned by its number in torch-fidelity's order, so that the scores agree.

    Args:
        total: N images, at least `splits`.
        splits: number of equal parts of the shuffled images over which the score is averaged, at most 255.

    Raises:
        ValueError: fewer images than splits.
    """

    def __init__(self, total: int, splits: int) -> None:
        check_integer("splits", splits, 1, "use 10; there are no more samples", maximum=total)
        order = np.random.RandomState(SHUFFLE_SEED).permutation(total)
        split = np.empty(total, dtype=np.uint8)
        for part in range(splits):
            split[order[part * total // splits : (part + 1) * total // splits]] = part
        self.split, self.splits = torch.from_numpy(split), splits
        self.sums = torch.zeros(0)  # (splits, 2 + K) once K is known, on the logits' device

    def update(self, ids: Tensor, logits: Tensor) -> None:
        """Add the logits (n,K) of the images with numbers `ids` (n,)."""
        scores = logits.detach().to(torch.float64)
        p, log_p = scores.softmax(1), scores.log_softmax(1)
        rows = torch.cat([torch.ones_like(p[:, :1]), (p * log_p).sum(1, keepdim=True), p], dim=1)
        if not len(self.sums):
            self.sums = torch.zeros(self.splits, rows.shape[1], dtype=torch.float64, device=rows.device)
        self.sums.index_add_(0, self.split[ids.cpu()].long().to(rows.device), rows)

    def score(self) -> float:
        """exp(KL), mean over the splits; in [1, K]."""
        count, p_log_p, p = self.sums[:, :1], self.sums[:, 1], self.sums[:, 2:]
        mean = p / count
        divergence = p_log_p / count[:, 0] - torch.xlogy(mean, mean).sum(1)
        return float(divergence.exp().mean())


class Batch(NamedTuple):
    """A batch of samples.

    Attributes:
        ids: (b,) their numbers, increasing.
        samples: (b,C,H,W) uint8.
        features, logits: (b,D) and (b,K) float32 on the device; None without an extractor.
        truths: (b,C,H,W) uint8, the true image of each sample; None unless the task is paired.
        classes: (b,) int64, the class of each sample's condition; None unless the extractor has the data's classes.
        nearest: (b,3) float64, of `copying.RealImages.nearest`; None unless a metric needs it.
    """

    ids: Sequence[int]
    samples: Tensor
    features: Tensor | None = None
    logits: Tensor | None = None
    truths: Tensor | None = None
    classes: Tensor | None = None
    nearest: Tensor | None = None


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
