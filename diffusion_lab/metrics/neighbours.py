"""Precision and recall of one feature set against another, computed by torch-fidelity.

    precision     share of the samples that lie within the distance of some reference image to its k-th neighbour
    recall        share of the reference images that lie within the distance of some sample to its k-th neighbour

each neighbour in its own set: Kynkäänniemi et al. (2019). Both are in [0, 1].
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

from torch import Tensor

from diffusion_lab.arguments import check_integer
from diffusion_lab.data import ImageDataModule
from diffusion_lab.metrics.feature_checks import checked, same_dim
from diffusion_lab.metrics.metric import Given, Metric


class PrecisionRecall(NamedTuple):
    """Both in [0, 1]."""

    precision: float
    recall: float


class _OfNeighbours(Metric):
    """Against as many reference images as there are samples, evenly spread over the split.

    Args:
        neighbours: k >= 1; values for different k cannot be compared.

    Raises:
        ValueError: k is out of range, or, from `check`, there are not more than k samples.
    """

    better = "higher"
    needs = frozenset({"features"})

    def __init__(self, neighbours: int = 3) -> None:
        self.neighbours = check_integer("neighbours", neighbours, 1, "use 3 as published numbers do")

    def both(self, given: Given) -> PrecisionRecall:
        """Precision and recall, computed once."""
        return given.once(precision_recall, self.neighbours)

    @abstractmethod
    def __call__(self, given: Given) -> float: ...

    def check(self, num_samples: int, data: ImageDataModule) -> None:
        if num_samples <= self.neighbours:
            raise ValueError(
                f"num_samples={num_samples} must be more than the {self.neighbours} neighbours of {self.name}; use 1000"
            )

    def settings(self, given: Given) -> dict[str, Any]:
        return {"neighbours": self.neighbours}


class Precision(_OfNeighbours):
    """Share of the samples among the reference images: how good they are."""

    name = "precision"

    def __call__(self, given: Given) -> float:
        return self.both(given).precision


class Recall(_OfNeighbours):
    """Share of the reference images among the samples: how varied they are."""

    name = "recall"

    def __call__(self, given: Given) -> float:
        return self.both(given).recall


def precision_recall(a: Tensor, b: Tensor, k: int = 3) -> PrecisionRecall:
    """Improved precision and recall of generated features a (N,D) against reference features b (M,D).

    Args:
        k: the radius of a ball is the distance to the k-th neighbour; N, M > k. Compare only at equal N, M and k.
    """
    from torch_fidelity.metric_prc import prc_features_to_metric

    same_dim(a, b)
    a, b = checked("a", a), checked("b", b)
    if min(len(a), len(b)) <= k:
        raise ValueError(f"k={k} must be smaller than both sets ({len(a)} and {len(b)}); generate more samples")
    # save_cpu_ram: distances are computed in blocks of rows; all 50,000 x 50,000 would take 10 GB.
    result = prc_features_to_metric(a, b, prc_neighborhood=k, prc_batch_size=2000, save_cpu_ram=True, verbose=False)
    return PrecisionRecall(result["precision"], result["recall"])
