"""Whether a model copies its training images: the share of its samples that lie nearer to them than to held-out images.

With n training images T, as many held-out images H of the same distribution, and d(x, A) the Euclidean distance of a
sample x to its nearest image of A,

    share = 1/N sum_i [d(x_i, T) < d(x_i, H)],   a tie counts 1/2;   in [0, 1]

Of a model that knows the distribution and not its images, T and H could be exchanged: the share is 0.5 on average. If a
share c of the samples are copies of training images, of which there are M, it is about 0.5 + c n/(2 M).

The interval is that of Wilson (1927), at 95 %, with the effective number of samples

    N_eff = N^2 (1 - 1/(2n)) / (sum_j c_j^2 - N^2/(2n)),   at most N,

c_j the number of samples whose nearest one of the 2n images is j. 1/(4 N_eff) is the variance of the share when the 2n
images are dealt to T and H at random, because all samples with the same nearest image are on the side of that image. A
binomial interval for N independent samples holds for these very images alone, and excludes 0.5 far too often: on
digits, with real images as samples and three disjoint parts at random (1,000 times each), in 8 % of the cases for
N = 600 and n = 360, 31 % for 1000 and 100, 58 % for 1000 and 20; the interval here in 5, 6 and 5 %. Wilson's, unlike
the exact one of Clopper and Pearson, is defined for a number of samples that is no integer.

n is the smaller of the two splits, at most `IMAGES`; the images are the first n of each split in an order that is a
function of `SEED` alone. Distances are between pixels where an image has at most `PIXELS` numbers, else between
features of the run's extractor if it has one: a small classifier has been trained on T itself, and distances of pixels
mean little in large images. A mirrored copy of a training image is not seen.

Sources: Meehan, Chaudhuri and Dasgupta (2020, "A Non-Parametric Test to Detect Data-Copying in Generative Models")
compare d(x, T) of samples with that of held-out images, in cells of the space, by a Mann-Whitney test. Here each sample
is compared with both sets, so that a model whose samples are all too far from the data, or too near to its mean, has no
other share. Alaa et al. (2022, "How Faithful is your Synthetic Data?", authenticity) ask whether a sample is nearer to
its nearest training image than the next training image is, which needs no held-out images and has no value that
means "no copying". Stein et al. (2023, "Exposing flaws of generative model evaluation metrics") compare such measures
with features of DINOv2.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from diffusion_lab.data import ImageDataModule, ImageSet, ImageSource
from diffusion_lab.metrics.features import FeatureExtractor
from diffusion_lab.metrics.metric import OF_EXTRACTOR, Given, Metric
from diffusion_lab.metrics.reference import features_of_some
from diffusion_lab.streams import Streams

IMAGES = 10_000  # of each split, at most
PIXELS = 3 * 32 * 32  # numbers of an image up to which distances are between pixels
SEED = 0
LEVEL = 1.959964  # two-sided 95 % of a normal distribution
_ROWS = 4096  # real images at a time, so that their float64 copy stays small


class Copying(Metric):
    """Share of the samples that are nearer to training images than to as many held-out ones; 0.5 without copying."""

    name, better = "copying", "neither"
    needs = frozenset({"nearest"})

    def __call__(self, given: Given) -> float:
        return share(given.nearest)

    def interval(self, given: Given) -> tuple[float, float]:
        effective = effective_samples(given.nearest[:, 2].long(), 2 * images_of_each(given.model.data.source.pixels()))
        return wilson(share(given.nearest), effective)

    def settings(self, given: Given) -> dict[str, Any]:
        data = given.model.data
        source, extractor = data.source.pixels(), nearest_extractor(data)
        of = {"name": extractor.name, "weights_sha256": extractor.weights_sha256} if extractor else {"name": "pixels"}
        fingerprints = [split.fingerprint() for split in (source.train(), source.test())]
        real = {"dataset": source.name, "split": "train and test", "fingerprint": fingerprints}
        return {"extractor": of, "reference": real | {"n": images_of_each(source), "seed": SEED}}


def nearest_extractor(data: ImageDataModule) -> FeatureExtractor | None:
    """The extractor between whose features distances are measured; None if they are between pixels."""
    return None if data.features is None or math.prod(data.source.pixels().shape) <= PIXELS else data.features


def used_extractor(metric: Metric, data: ImageDataModule) -> FeatureExtractor | None:
    """The extractor whose output a metric uses; None if it uses none."""
    if metric.needs & OF_EXTRACTOR:
        return data.features
    return nearest_extractor(data) if "nearest" in metric.needs else None


def images_of_each(source: ImageSource) -> int:
    """n, the number of training images and of held-out ones."""
    return min(len(source.train()), len(source.test()), IMAGES)


class RealImages(NamedTuple):
    """Rows (n,D) of training images and of held-out ones, in any type of numbers."""

    train: Tensor
    held_out: Tensor

    def nearest(self, samples: Tensor) -> Tensor:
        """Samples (b,D) -> (b,3) float64: squared distances to the nearest image of each set, and the number in 0..2n-1
        of the nearest image of both, training images first. Exact for bytes, so equal in every batch."""
        found = [_nearest(samples.double(), rows) for rows in self]
        (train, of_train), (held_out, of_held_out) = found
        number = torch.where(train <= held_out, of_train, of_held_out + len(self.train))
        return torch.stack([train, held_out, number.double()], 1)


def _nearest(samples: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    """Squared distances (b,) of samples (b,D) to their nearest row, and its number (b,)."""
    distances = []
    for rows in real.split(_ROWS):
        rows = rows.double()
        distances.append(rows.square().sum(1) - 2 * samples @ rows.T)
    least, number = torch.cat(distances, 1).min(1)
    return (least + samples.square().sum(1)).clamp(min=0), number


def real_images(data: ImageDataModule, device: torch.device | str = "cpu", progress: bool = False) -> RealImages:
    """The training and held-out images of the data set, as pixels or features, on a device."""
    source, extractor = data.source.pixels(), nearest_extractor(data)
    count, sets = images_of_each(source), []
    for split, images in (("train", source.train()), ("test", source.test())):
        ids = chosen(images, split, count)
        if extractor is None:
            found = images.take(ids)
            found = (found if found.dtype == torch.uint8 else source.to_pixels(found)).flatten(1)
        else:
            found = features_of_some(images, ids, extractor, source.name, split, device, progress)
        sets.append(found.to(device))
    return RealImages(*sets)


def chosen(images: ImageSet, split: str, count: int) -> Tensor:
    """(count,) int64: the numbers of the images of a split that are compared with."""
    return torch.randperm(len(images), generator=Streams(SEED).generator("cpu", f"copying {split}"))[:count]


def share(nearest: Tensor) -> float:
    """The share for rows (N, >= 2) of `RealImages.nearest`."""
    train, held_out = nearest[:, 0], nearest[:, 1]
    return float(((train < held_out).double() + (train == held_out).double() / 2).mean())


def effective_samples(numbers: Tensor, images: int) -> float:
    """N_eff of samples whose nearest images have these numbers (N,), among `images` = 2n; in [1, N]."""
    count = len(numbers)
    squares = float(torch.bincount(numbers).double().square().sum())
    together = squares - count**2 / images  # 0 if every image has as many samples
    return min(float(count), count**2 * (1 - 1 / images) / max(together, 1e-9))


def wilson(share: float, count: float) -> tuple[float, float]:
    """Wilson's interval of a share of `count` samples, at 95 %; inside [0, 1] and never empty."""
    ratio = LEVEL**2 / count
    middle = (share + ratio / 2) / (1 + ratio)
    half = math.sqrt(ratio * share * (1 - share) + ratio**2 / 4) / (1 + ratio)
    return middle - half, middle + half
