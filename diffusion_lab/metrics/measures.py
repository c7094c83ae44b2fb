"""Every metric of two feature sets, under the names that users see."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from diffusion_lab.metrics.features import FeatureExtractor, Features, extract
from diffusion_lab.metrics.fidelity import (
    Statistics,
    frechet_from_statistics,
    inception_score,
    kernel_distance,
    precision_recall,
    statistics,
)

METRICS = ("fid", "kid", "is", "precision", "recall")
AGREEMENT = "agreement"  # share of the samples whose class, to the extractor, is the one that was asked for
SPLITS, NEIGHBOURS = 10, 3  # of the inception score; of precision and recall
Names = list[str] | tuple[str, ...]


def metric_names(extractor: FeatureExtractor, num_samples: int, names: Names = METRICS) -> list[str]:
    """Public names, e.g. ["fd1k_digits", "kd1k_digits", ...]; Inception's are ["fid50k", "kid50k", ...]."""
    return [extractor.metric_name(name, num_samples) for name in names]


def measure(generated: Features, real: Statistics, points: Tensor, names: Names = METRICS) -> dict[str, float]:
    """Metrics of generated features.

    Args:
        generated: features (N,D) and logits (N,K).
        real: mean and covariance of all reference images, for the Fréchet distance.
        points: (M,D) reference features, for the kernel distance, precision and recall.
        names: which of `METRICS`.

    Returns:
        a value for each name, in the given order.
    """
    values: dict[str, float] = {}
    if "fid" in names:
        values["fid"] = frechet_from_statistics(statistics(generated.features), real)
    if "kid" in names:
        values["kid"] = kernel_distance(generated.features, points)
    if "is" in names:
        values["is"] = inception_score(generated.logits, SPLITS)
    if "precision" in names or "recall" in names:
        values |= precision_recall(generated.features, points, NEIGHBOURS)._asdict()
    return {name: values[name] for name in names}


def evaluate_images(
    generated: Tensor,
    real: Tensor,
    extractor: FeatureExtractor,
    names: Names = METRICS,
    **extraction: Any,
) -> dict[str, float]:
    """Metrics of one image set against another, without a model.

    Args:
        generated: (N,C,H,W) uint8.
        real: (M,C,H,W) uint8.
        extractor: what to measure with.
        names: which of `METRICS`.
        **extraction: batch_size, device and progress of `extract`.

    Returns:
        public name -> value.

    Raises:
        ValueError: the two have different shapes, or there are too few images.
    """
    check_same_shape(generated.shape[1:], real.shape[1:])
    ours, theirs = (extract(extractor, images, **extraction) for images in (generated, real))
    values = measure(ours, statistics(theirs.features), theirs.features, names)
    return {extractor.metric_name(name, len(generated)): value for name, value in values.items()}


def check_same_shape(ours: tuple[int, ...], theirs: tuple[int, ...]) -> None:
    """Raise unless generated and reference images have one shape (C,H,W)."""
    if tuple(ours) != tuple(theirs):
        raise ValueError(
            f"generated images are {tuple(ours)} and reference images {tuple(theirs)}; resize neither: compare with "
            "the data set at the resolution that was trained on"
        )
