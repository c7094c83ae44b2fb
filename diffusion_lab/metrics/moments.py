"""Sums over an image set from which metrics are computed; their size does not depend on the number of images.

    mean and covariance of features x (D,)      n, s = sum x, Q = sum x x^T
                                                mu = s/n,  S = (Q - s s^T/n)/(n - 1)
    inception score of class probabilities p (K,)   for each split: n, sum p, sum of p.log p
                                                exp(KL),  KL = mean p.log p - m.log m,  m = mean p

All sums are float64. The difference in S loses log10(|mu|^2/tr S) of 16 digits: about one for Inception.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from diffusion_lab.arguments import check_integer

SHUFFLE_SEED = 2020  # torch-fidelity's, of the order in which images are dealt to the splits


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

    def statistics(self) -> Statistics:
        """Mean and covariance (divisor n - 1) of the added rows; with several ranks, call `sum_` first.

        Raises:
            ValueError: fewer than 2 D rows, or a number that is not finite.
        """
        count, dim = int(self.sums[0, 0]), len(self.sums) - 1
        if count < 2 * dim:
            raise ValueError(
                f"features={count} images must be at least {2 * dim}, twice their {dim} dimensions, or the covariance "
                "is mostly noise; use more images or an extractor with fewer dimensions"
            )
        if not torch.isfinite(self.sums).all():
            raise ValueError("features must be finite; check the images: the model has probably diverged")
        sums, outer = self.sums[0, 1:], self.sums[1:, 1:]
        mean = sums / count
        sigma = (outer - torch.outer(sums, mean)) / (count - 1)
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
