"""The Fréchet distance of two feature sets, between Gaussians with their means and covariances.

    |mu_a - mu_b|^2 + tr(S_a + S_b - 2 (S_a S_b)^(1/2))          Heusel et al. (2017), eq. 6

Features a (N,D) are of generated images, b (M,D) of reference images. The distance is biased upwards by a term of order
1/N that depends on the model (Chong and Forsyth 2019), so values for different N cannot be compared; fewer than 2 D
features are refused.

The trace is the sum of the square roots of the eigenvalues of S_a S_b, which are those of the symmetric L^T S_b L with
S_a = L L^T. This takes a tenth of the time of a matrix root or of eigenvalues of a product that is not symmetric.
"""

from __future__ import annotations

import torch
from torch import Tensor

from diffusion_lab.data import ImageDataModule
from diffusion_lab.metrics.feature_checks import checked, same_dim
from diffusion_lab.metrics.metric import Given, Metric
from diffusion_lab.metrics.moments import Moments, Statistics

_ROWS = 4096  # rows added to the sums at a time, so that their float64 copy stays small


class FrechetDistance(Metric):
    """Between N >= 2 D samples and all images of the reference split, as is common."""

    name, elsewhere, better = "fid", "fd", "lower"
    needs = frozenset({"moments"})

    def __call__(self, given: Given) -> float:
        return frechet_from_statistics(given.statistics, given.reference.statistics)

    def check(self, num_samples: int, data: ImageDataModule) -> None:
        extractor = data.features
        least = 2 * extractor.feature_dim
        if num_samples < least:
            raise ValueError(
                f"num_samples={num_samples} must be at least {least}, twice the {extractor.feature_dim} "
                f"dimensions of {extractor.name}'s features; raise it, or take fid out of names"
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
