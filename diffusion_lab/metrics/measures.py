"""Every metric of two feature sets, under the names that users see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from diffusion_lab.distributed import gather_rows, sum_
from diffusion_lab.metrics.features import FeatureExtractor, Features, extract
from diffusion_lab.metrics.fidelity import frechet_from_statistics, kernel_distance, precision_recall, statistics
from diffusion_lab.metrics.moments import Moments, ScoreSums, Statistics

METRICS = ("fid", "kid", "is", "precision", "recall")
COMPARE_POINTS = {"kid", "precision", "recall"}  # need every image's feature
AGREEMENT = "agreement"  # share of the samples whose class, to the extractor, is the one that was asked for
SPLITS, NEIGHBOURS = 10, 3  # of the inception score; of precision and recall
Names = list[str] | tuple[str, ...]


def metric_names(extractor: FeatureExtractor, num_samples: int, names: Names = METRICS) -> list[str]:
    """Public names, e.g. ["fd1k_digits", "kd1k_digits", ...]; Inception's are ["fid50k", "kid50k", ...]."""
    return [extractor.metric_name(name, num_samples) for name in names]


class Summary:
    """What the metrics need to know of an image set, from features that come in batches.

        fid                      sums, see `Moments`
        is                       sums, see `ScoreSums`
        agreement                two counts
        kid, precision, recall   compare points, so every image's feature stays: N D float32 numbers

    Without the last three its size does not depend on the number of images, but for a byte of each.

    Args:
        names: which of `METRICS`.
        total: N images.
        feature_dim: D.
        device: of the sums, that of the features.

    Raises:
        ValueError: too few images for the inception score.
    """

    def __init__(self, names: Names, total: int, feature_dim: int, device: torch.device | str = "cpu") -> None:
        self.names, self.total, self.device = tuple(names), total, device
        self.moments = Moments(feature_dim, device) if "fid" in names else None
        self.scores = ScoreSums(total, SPLITS) if "is" in names else None
        self._agreed = torch.zeros(2, dtype=torch.float64, device=device)  # images of the right class, images
        self._points: list[Tensor] = []

    def update(self, ids: Sequence[int], found: Features) -> None:
        """Add images number `ids` (n,), which grow. Those >= N fill up a rank's share and enter no sum."""
        if set(self.names) & COMPARE_POINTS:
            self._points.append(found.features.cpu())
        rows = self._real(ids)
        if self.moments is not None:
            self.moments.update(found.features[rows])
        if self.scores is not None:
            self.scores.update(torch.tensor(ids, dtype=torch.int64)[rows], found.logits[rows])

    def compare_classes(self, ids: Sequence[int], logits: Tensor, asked: Tensor) -> None:
        """Count images number `ids` (n,) whose largest logit (n,K) is the class that was asked for (n,)."""
        right = (logits.argmax(1) == asked.to(logits.device))[self._real(ids)]
        self._agreed += torch.stack([right.sum(), right.new_ones(len(right)).sum()])

    def across_ranks(self) -> Summary:
        """Itself, with what all ranks have seen; every rank must call, with the same number of images."""
        for sums in (self._agreed, *(part.sums for part in (self.moments, self.scores) if part is not None)):
            sum_(sums)
        if self._points:
            # On the device: NCCL cannot gather CPU tensors.
            self._points = [gather_rows(self.points.to(self.device)).cpu()[: self.total]]
        return self

    @property
    def points(self) -> Tensor:
        """(N,D) float32 on the CPU, in order."""
        return torch.cat(self._points)

    @property
    def nbytes(self) -> int:
        """Bytes of all that is kept."""
        kept = [self._agreed, *self._points]
        kept += [self.moments.sums] if self.moments is not None else []
        kept += [self.scores.sums, self.scores.split] if self.scores is not None else []
        return sum(tensor.nbytes for tensor in kept)

    @property
    def agreement(self) -> float | None:
        """Share of the images that have the class that was asked for; None if no classes were compared."""
        right, compared = self._agreed.tolist()
        return right / compared if compared else None

    def _real(self, ids: Sequence[int]) -> slice:
        return slice(sum(number < self.total for number in ids))


def measure(generated: Summary, real: Statistics, points: Tensor) -> dict[str, float]:
    """Metrics of generated images.

    Args:
        generated: what is known of them; its names say what is measured.
        real: mean and covariance of all reference images, for the Fréchet distance.
        points: (M,D) reference features, for the kernel distance, precision and recall.

    Returns:
        a value for each name, in order.
    """
    names, values = generated.names, {}
    if generated.moments is not None:
        values["fid"] = frechet_from_statistics(generated.moments.statistics(), real)
    if "kid" in names:
        values["kid"] = kernel_distance(generated.points, points)
    if generated.scores is not None:
        values["is"] = generated.scores.score()
    if "precision" in names or "recall" in names:
        values |= precision_recall(generated.points, points, NEIGHBOURS)._asdict()
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
    summary = Summary(names, len(generated), extractor.feature_dim)
    summary.update(range(len(generated)), ours)
    values = measure(summary, statistics(theirs.features), theirs.features)
    return {extractor.metric_name(name, len(generated)): value for name, value in values.items()}


def check_same_shape(ours: tuple[int, ...], theirs: tuple[int, ...]) -> None:
    """Raise unless generated and reference images have one shape (C,H,W)."""
    if tuple(ours) != tuple(theirs):
        raise ValueError(
            f"generated images are {tuple(ours)} and reference images {tuple(theirs)}; resize neither: compare with "
            "the data set at the resolution that was trained on"
        )
