"""The inception score, with the same values as torch-fidelity's function.

exp E_x KL(p(y|x) || p(y)), mean over splits of the samples          Salimans et al. (2016)
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from diffusion_lab.data import ImageDataModule
from diffusion_lab.metrics.feature_checks import checked
from diffusion_lab.metrics.generated import SPLITS
from diffusion_lab.metrics.metric import Given, Metric
from diffusion_lab.metrics.moments import ScoreSums


class InceptionScore(Metric):
    """In [1, K] for an extractor with K classes; uses no reference images."""

    name, better = "is", "higher"
    needs = frozenset({"scores"})

    def __call__(self, given: Given) -> float:
        return given.scores.score()

    def check(self, num_samples: int, data: ImageDataModule) -> None:
        if num_samples < SPLITS:
            raise ValueError(
                f"num_samples={num_samples} must be at least {SPLITS}, the parts of the inception score; use 1000"
            )

    def settings(self, given: Given) -> dict[str, Any]:
        return {"splits": SPLITS}


def inception_score(logits: Tensor, splits: int = SPLITS) -> float:
    """Inception score of class logits (N,K), in [1, K].

    Args:
        splits: the score is the mean over this many equal parts of the shuffled rows; N >= splits.
    """
    logits = checked("logits", logits)
    sums = ScoreSums(len(logits), splits)
    sums.update(torch.arange(len(logits)), logits)
    return sums.score()
