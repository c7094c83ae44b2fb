"""Distances between two sets of features, with the values of torch-fidelity's own functions.

Features a (N,D) are of generated images, b (M,D) of reference images.

    Fréchet distance    |mu_a - mu_b|^2 + tr(S_a + S_b - 2 (S_a S_b)^(1/2))          Heusel et al. (2017), eq. 6
    kernel distance     unbiased MMD^2 with the kernel (x.y/D + 1)^3, mean over random subsets
                                                                                     Binkowski et al. (2018)
    precision, recall   share of a (b) that lies within the distance of some b (a) to its k-th neighbour in its own
                        set                                                          Kynkäänniemi et al. (2019)
    inception score     exp E_x KL(p(y|x) || p(y)), mean over splits                 Salimans et al. (2016)

Lower is better for the first two, higher for the others. The Fréchet distance is biased upwards by a term of order
1/N that depends on the model (Chong and Forsyth 2019), so numbers of different N do not compare; fewer than 2 D
features are refused.

The eigenvalues of S_a S_b, whose roots the trace adds up, are those of the symmetric L^T S_b L with S_a = L L^T, which
takes a tenth of the time of a matrix root or of eigenvalues of a product that is not symmetric.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from diffusion_lab.metrics.moments import Moments, ScoreSums, Statistics

_ROWS = 4096  # added to the sums at a time: their float64 copy stays small


class PrecisionRecall(NamedTuple):
    """Both in [0, 1]."""

    precision: float
    recall: float


def statistics(features: Tensor) -> Statistics:
    """Mean and covariance (divisor N - 1) of features (N,D).

    Raises:
        ValueError: fewer than 2 D rows, not a (N,D) floating tensor, or a number that is not finite.
    """
    features = _checked("features", features)
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
    """L with L L^T = S: Cholesky's, or where S is singular (a feature that is always 0) that of its eigenvectors."""
    factor, failed = torch.linalg.cholesky_ex(covariance)
    if not failed:
        return factor
    values, vectors = torch.linalg.eigh(covariance)
    return vectors * values.clamp(min=0).sqrt()


def frechet_distance(a: Tensor, b: Tensor) -> float:
    """Fréchet distance of features a (N,D) and b (M,D), >= 0 up to rounding; N, M >= 2 D."""
    _same_dim(a, b)
    return frechet_from_statistics(statistics(a), statistics(b))


def kernel_distance(a: Tensor, b: Tensor, subset_size: int = 1000, subsets: int = 100) -> float:
    """Kernel distance of features a (N,D) and b (M,D); about 0, also slightly negative, for equal distributions.

    Args:
        subset_size: rows per random subset, at most min(N, M): a larger one is cut to that.
        subsets: number of random subsets.

    Differs from torch-fidelity's defaults: with fewer rows than `subset_size` it raises; here the subset becomes the
    smaller of the two sets. When it is both sets there is one subset only, so it is computed once. It computes in the
    features' float32, whose rounding is 2e-7 of the distance; here in float64, as the other metrics are.
    """
    from torch_fidelity.metric_kid import KEY_METRIC_KID_MEAN, kid_features_to_metric

    _same_dim(a, b)
    a, b = _checked("a", a), _checked("b", b)
    size = min(subset_size, len(a), len(b))
    subsets = 1 if size == len(a) == len(b) else subsets
    result = kid_features_to_metric(a.double(), b.double(), kid_subset_size=size, kid_subsets=subsets, verbose=False)
    return result[KEY_METRIC_KID_MEAN]


def precision_recall(a: Tensor, b: Tensor, k: int = 3) -> PrecisionRecall:
    """Improved precision and recall of generated features a (N,D) against reference features b (M,D).

    Args:
        k: neighbours that make a ball's radius; N, M > k. Compare only at equal N, M and k.
    """
    from torch_fidelity.metric_prc import prc_features_to_metric

    _same_dim(a, b)
    a, b = _checked("a", a), _checked("b", b)
    if min(len(a), len(b)) <= k:
        raise ValueError(f"k={k} must be smaller than both sets ({len(a)} and {len(b)}); generate more samples")
    # save_cpu_ram: the distances are made in blocks of rows; all of 50,000 x 50,000 would take 10 GB.
    result = prc_features_to_metric(a, b, prc_neighborhood=k, prc_batch_size=2000, save_cpu_ram=True, verbose=False)
    return PrecisionRecall(result["precision"], result["recall"])


def inception_score(logits: Tensor, splits: int = 10) -> float:
    """Inception score of class logits (N,K), in [1, K].

    Args:
        splits: the score is the mean over this many equal parts of the shuffled rows; N >= splits.
    """
    logits = _checked("logits", logits)
    sums = ScoreSums(len(logits), splits)
    sums.update(torch.arange(len(logits)), logits)
    return sums.score()


def _checked(name: str, x: Tensor) -> Tensor:
    """x (N,D) on the CPU, floating, finite, with at least two rows."""
    if x.ndim != 2 or not x.is_floating_point() or len(x) < 2:
        raise ValueError(
            f"{name} of shape {tuple(x.shape)} and {x.dtype} must be a floating (N,D) tensor with N >= 2; "
            "use the output of diffusion_lab.metrics.extract"
        )
    if not torch.isfinite(x).all():
        rows = (~torch.isfinite(x).all(1)).nonzero().flatten()
        raise ValueError(
            f"{name} must be finite, but {len(rows)} of {len(x)} rows are not, first {rows[:5].tolist()}; "
            "look at those images: the model has probably diverged"
        )
    return x.detach().cpu()


def _same_dim(a: Tensor, b: Tensor) -> None:
    if a.shape[-1] != b.shape[-1]:
        raise ValueError(f"a has {a.shape[-1]} dimensions and b {b.shape[-1]}; use one extractor for both")
