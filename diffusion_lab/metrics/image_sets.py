"""Metrics of one set of images against another, without a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from diffusion_lab.data import ImageSource
from diffusion_lab.metrics.features import FeatureExtractor, extract
from diffusion_lab.metrics.fidelity import statistics
from diffusion_lab.metrics.generated import Batch, Generated, Statistics
from diffusion_lab.metrics.metric import OF_CLASSES, Given, Metric
from diffusion_lab.metrics.reference import Reference, reference_from_file


def evaluate_images(
    generated: Tensor, real: Tensor, extractor: FeatureExtractor, metrics: Sequence[Metric], **extraction: Any
) -> dict[str, float]:
    """Metrics of one image set against another, without a model.

    Points are compared with all real images, as torch-fidelity does; `Evaluation` takes as many as there are samples.

    Args:
        generated: (N,C,H,W) uint8.
        real: (M,C,H,W) uint8.
        extractor: the feature extractor.
        metrics: metrics that need neither pairs, classes nor a model.
        **extraction: batch_size, device and progress of `extract`.

    Returns:
        public name -> value.

    Raises:
        ValueError: the two have different shapes, or there are too few images.
    """
    check_same_shape(generated.shape[1:], real.shape[1:])
    ours, theirs = (extract(extractor, images, **extraction) for images in (generated, real))
    needs = {need for metric in metrics for need in metric.needs}
    kept = Generated(len(generated), needs, feature_dim=extractor.feature_dim)
    kept.update(Batch(range(len(generated)), generated, *ours))
    compared = statistics(theirs.features) if "moments" in needs else Statistics(np.array([]), np.array([]))
    given = Given(len(generated), kept, lambda: Reference({}, compared, theirs.features))
    values = ((metric.public_name(len(generated), extractor), metric(given)) for metric in metrics)
    return {name: value for name, value in values if value is not None}


def check_extractor(extractor: FeatureExtractor, source: ImageSource, names: Sequence[str]) -> None:
    """Raise ValueError or FileNotFoundError unless the extractor is on this machine and takes the images of the source.

    Args:
        extractor: the feature extractor.
        source: what the model is trained on.
        names: the metrics that need features, for the message.
    """
    extractor.check()
    try:
        pixels = source.pixels()
    except ValueError:
        return  # latents without their images; the check of the data reports them
    if pixels.value_range is None:
        raise ValueError(
            f"names=[{','.join(names)}] must be measured on images, and the values of {pixels.name} have no bounds; "
            "use dataset.features=null, or leave these metrics out"
        )
    shape = pixels.shape
    if not extractor.takes(shape):
        ours, theirs = ("x".join(map(str, sides)) for sides in (extractor.input_shape, shape))
        raise ValueError(
            f"names=[{','.join(names)}] must be measured with features of {theirs} images, and dataset.features="
            f"{extractor.name} is for {ours}; use other features, or leave these metrics out"
        )


def too_few(names: str, split: str, count: int, extractor: FeatureExtractor) -> str | None:
    """The message about metrics that need mean and covariance of the features of `count` images of a split; None if
    these are at least twice the features' dimensions."""
    least = 2 * extractor.feature_dim
    if count >= least:
        return None
    kind, more = ("test", "hold more images out") if split == "test" else ("training", "take more images")
    return (
        f"names=[{names}] must have at least {least} {kind} images, twice the dimensions of {extractor.name}'s "
        f"features, and there are {count}; leave it out, or {more}"
    )


def check_images(extractor: FeatureExtractor, source: ImageSource, split: str, names: Sequence[str]) -> None:
    """Raise ValueError unless the split that samples are compared with has enough images; arguments as of
    `check_extractor`."""
    try:
        images = source.pixels()
    except ValueError:
        return  # as there
    count = images.train_size() if split == "train" else len(images.test())
    if fault := too_few(",".join(names), split, count, extractor):
        raise ValueError(fault)


def check_points(source: ImageSource, split: str, metrics: Sequence[Metric]) -> None:
    """Raise ValueError unless the split has enough images for the metrics that compare with the points of some of them:
    two, or one more than the neighbours that a metric counts."""
    try:
        images = source.pixels()
    except ValueError:
        return  # as there
    count = images.train_size() if split == "train" else len(images.test())
    for metric in metrics:
        least = 1 + getattr(metric, "neighbours", 1)
        if count < least:
            more = "hold more images out" if split == "test" else "take more images"
            raise ValueError(
                f"names=[{metric.name}] must have at least {least} {split} images to compare with, and there are "
                f"{count}; leave it out, or {more}"
            )


def check_weights(extractor: FeatureExtractor, featured: Sequence[str], rest: Sequence[str]) -> None:
    """Raise ValueError or FileNotFoundError unless the extractor is on this machine.

    Args:
        extractor: the feature extractor.
        featured: the metrics that need it.
        rest: metrics that can be measured without, for the message.
    """
    try:
        extractor.check()
    except FileNotFoundError as error:
        others = f"'metrics.names=[{','.join(rest)}]'"
        need = "which needs it" if len(featured) == 1 else "which need it"
        raise FileNotFoundError(
            f"{error}; or type features=own, for features that are trained from these images in about a minute; or "
            f"leave out {', '.join(featured)}, {need}: {others}"
        ) from error


def check_classes(extractor: FeatureExtractor | None, metrics: Sequence[Metric]) -> None:
    """Raise ValueError if a metric needs class scores and the extractor has none."""
    if extractor is None or extractor.has_classes or extractor.data_classes:
        return
    scored = [metric.name for metric in metrics if metric.needs & OF_CLASSES]
    if scored:
        rest = [metric.name for metric in metrics if metric.name not in scored]
        raise ValueError(
            f"names=[{','.join(scored)}] must be measured with an extractor that has class scores, and "
            f"{extractor.name} has none; use names=[{','.join(rest) or 'fid'}]"
        )


def check_reference(path: str, extractor: FeatureExtractor | None, metrics: Sequence[Metric]) -> None:
    """Raise ValueError or FileNotFoundError unless the file of statistics fits the metrics and the extractor."""
    points = [metric.name for metric in metrics if metric.needs & {"features", "held_out", "nearest"}]
    if points:
        rest = [metric.name for metric in metrics if metric.name not in points]
        raise ValueError(
            f"reference={path} must be compared by mean and covariance alone, and names=[{','.join(points)}] needs the "
            f"features of images; use names=[{','.join(rest) or 'fid'}]"
        )
    if extractor is not None and any("moments" in metric.needs for metric in metrics):
        reference_from_file(path, extractor)


def check_same_shape(ours: tuple[int, ...], theirs: tuple[int, ...]) -> None:
    """Raise ValueError unless generated and reference images have the same shape (C,H,W)."""
    if tuple(ours) != tuple(theirs):
        raise ValueError(
            f"generated images are {tuple(ours)} and reference images {tuple(theirs)}; resize neither: compare with "
            "the data set at the resolution that was trained on"
        )
