"""Metrics of one feature set (N,D) against another: Fréchet and kernel distance, precision and recall; inception score.

    Fréchet distance   |mu_a - mu_b|^2 + tr(S_a + S_b - 2 (S_a S_b)^(1/2))          Heusel et al. (2017), eq. 6
    kernel distance    unbiased MMD^2 with the kernel (x.y/D + 1)^3, mean over random subsets
                                                                                    Binkowski et al. (2018)
    precision          share of the samples that lie within the distance of some reference image to its k-th neighbour
    recall             share of the reference images that lie within the distance of some sample to its k-th neighbour,
                       each neighbour in its own set                                Kynkäänniemi et al. (2019)
    inception score    exp E_x KL(p(y|x) || p(y)), mean over splits of the samples  Salimans et al. (2016)

Features a (N,D) are of generated images, b (M,D) of reference images. The Fréchet distance is biased upwards by a term
of order 1/N that depends on the model (Chong and Forsyth 2019), so values for different N cannot be compared; fewer
than 2 D features are refused. Its trace is the sum of the square roots of the eigenvalues of S_a S_b, which are those
of the symmetric L^T S_b L with S_a = L L^T. This takes a tenth of the time of a matrix root or of eigenvalues of a
product that is not symmetric. The kernel distance, precision and recall are computed by torch-fidelity; the inception
score has the same values as its function.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from diffusion_lab.arguments import check_integer
from diffusion_lab.data import ImageDataModule
from diffusion_lab.metrics.generated import SPLITS, Moments, ScoreSums, Statistics
from diffusion_lab.metrics.metric import Given, Metric

_ROWS = 4096  # rows added to the sums at a time, so that their float64 copy stays small
SUBSET_SIZE = 1000


def checked(name: str, x: Tensor) -> Tensor:
    """x on the CPU, if it is a floating, finite (N,D) tensor with N >= 2; else ValueError."""
    if x.ndim != 2 or not x.is_floating_point() or len(x) < 2:
        raise ValueError(
            f"{name} of shape {tuple(x.shape)} and {x.dtype} must be a floating (N,D) tensor with N >= 2; "
            "use the output of diffusion_lab.metrics.extract"
        )
    if not torch.isfinite(x).all():
        rows = (~torch.isfinite(x).all(1)).nonzero().flatten()
        raise ValueError(
            f"{name} must be finite, but {len(rows)} of {len(x)} rows are not, first {rows[:5].tolist()}; "
            "check those images: the model has probably diverged"
        )
    return x.detach().cpu()


def same_dim(a: Tensor, b: Tensor) -> None:
    """Raise ValueError unless a (N,D) and b (M,D) have one D."""
    if a.shape[-1] != b.shape[-1]:
        raise ValueError(f"a has {a.shape[-1]} dimensions and b {b.shape[-1]}; use one extractor for both")


class FrechetDistance(Metric):
    """Fréchet distance (FID) of N >= 2 D samples to all images of the reference split, by D features of each."""

    name, elsewhere, better, compared_by = "fid", "fd", "lower", "ratio"
    needs = frozenset({"moments"})

    def __call__(self, given: Given) -> float | None:
        return frechet_from_statistics(given.statistics, self.reference(given).statistics)

    def check(self, num_samples: int, data: ImageDataModule) -> None:
        extractor = data.features
        least = 2 * extractor.feature_dim
        if num_samples < least:
            raise ValueError(
                f"num_samples={num_samples} must be at least {least}, twice the {extractor.feature_dim} "
                f"dimensions of {extractor.name}'s features; raise it, or take {self.name} out of names"
            )


def statistics(features: Tensor) -> Statistics:
    """Mean and covariance (divisor N - 1) of features (N,D).

    Raises:
        ValueError: fewer than 2 D rows, not a (N,D) floating tensor, or a number that is not finite.
    """
    features = checked("features", features)
    moments = Moments(features.shape[1])
    for rows in features.split(_ROWS):
        moments.update(rows)
    return moments.statistics()


def frechet_from_statistics(a: Statistics, b: Statistics) -> float:
    """Fréchet distance of two Gaussians.

    Raises:
        ValueError: they have different dimensions.
    """
    if a.mu.shape != b.mu.shape:
        raise ValueError(f"a has {len(a.mu)} dimensions and b {len(b.mu)}; use one extractor for both")
    (mu_a, cov_a), (mu_b, cov_b) = ([torch.as_tensor(part).double() for part in each] for each in (a, b))
    half = _factor(cov_a)
    # Rounding can leave eigenvalues of about -1e-16 where a covariance is singular.
    roots = torch.linalg.eigvalsh(half.T @ cov_b @ half).clamp(min=0).sqrt()
    return float((mu_a - mu_b).square().sum() + cov_a.trace() + cov_b.trace() - 2 * roots.sum())


def _factor(covariance: Tensor) -> Tensor:
    """L with L L^T = S: the Cholesky factor, or one from eigenvectors if S is singular (a feature that is always 0)."""
    factor, failed = torch.linalg.cholesky_ex(covariance)
    if not failed:
        return factor
    values, vectors = torch.linalg.eigh(covariance)
    return vectors * values.clamp(min=0).sqrt()


def frechet_distance(a: Tensor, b: Tensor) -> float:
    """Fréchet distance of features a (N,D) and b (M,D), >= 0 up to rounding; N, M >= 2 D."""
    same_dim(a, b)
    return frechet_from_statistics(statistics(a), statistics(b))


class KernelDistance(Metric):
    """Kernel distance (KID) of N samples to N reference images, evenly spread over the split, by their features."""

    name, elsewhere, better, compared_by = "kid", "kd", "lower", "ratio"
    needs = frozenset({"features"})

    def __call__(self, given: Given) -> float:
        return given.once(kernel_distance)

    def settings(self, given: Given) -> dict[str, Any]:
        size = min(SUBSET_SIZE, given.num_samples, len(given.reference.features))
        return {"kernel": "(x.y/D+1)^3", "subset_size": size}


def kernel_distance(a: Tensor, b: Tensor, subset_size: int = SUBSET_SIZE, subsets: int = 100) -> float:
    """Kernel distance of features a (N,D) and b (M,D); about 0, also slightly negative, for equal distributions.

    Args:
        subset_size: rows per random subset, limited to min(N, M).
        subsets: number of random subsets.

    Differs from torch-fidelity's defaults: it raises with fewer rows than `subset_size`; here the subset becomes the
    smaller of the two sets. If a subset is all of both sets, it is computed only once. torch-fidelity computes in the
    features' float32, with a rounding error of 2e-7 of the distance; here float64 is used, as for the other metrics.
    """
    from torch_fidelity.metric_kid import KEY_METRIC_KID_MEAN, kid_features_to_metric

    same_dim(a, b)
    a, b = checked("a", a), checked("b", b)
    size = min(subset_size, len(a), len(b))
    subsets = 1 if size == len(a) == len(b) else subsets
    result = kid_features_to_metric(a.double(), b.double(), kid_subset_size=size, kid_subsets=subsets, verbose=False)
    return result[KEY_METRIC_KID_MEAN]


class PrecisionRecall(NamedTuple):
    """Both in [0, 1]."""

    precision: float
    recall: float


class _OfNeighbours(Metric):
    """Against as many reference images as there are samples, evenly spread over the split.

    Args:
        neighbours: k >= 1, number of the neighbour whose distance is the radius around an image; values for different k
            cannot be compared.

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

    def check(self, num_samples: int, data: ImageDataModule) -> None:
        if num_samples <= self.neighbours:
            raise ValueError(
                f"num_samples={num_samples} must be more than the {self.neighbours} neighbours of {self.name}; use 1000"
            )

    def settings(self, given: Given) -> dict[str, Any]:
        return {"neighbours": self.neighbours}


class Precision(_OfNeighbours):
    """Share of the samples that lie among the reference images: how good the samples are."""

    name = "precision"

    def __call__(self, given: Given) -> float:
        return self.both(given).precision


class Recall(_OfNeighbours):
    """Share of the reference images that lie among the samples: how varied the samples are."""

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
        raise ValueError(f"k={k} must be smaller than both sets ({len(a)} and {len(b)}); use more images")
    # save_cpu_ram: distances are computed in blocks of rows; all 50,000 x 50,000 would take 10 GB.
    result = prc_features_to_metric(a, b, prc_neighborhood=k, prc_batch_size=2000, save_cpu_ram=True, verbose=False)
    return PrecisionRecall(result["precision"], result["recall"])


class InceptionScore(Metric):
    """Inception score, in [1, K] for an extractor with K classes; uses no reference images."""

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
