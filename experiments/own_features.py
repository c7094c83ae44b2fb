"""What features of a data set's own see: the tables of docs/metrics.md.

python -m experiments.own_features                     distances to digits and photographs to which something was done
python -m experiments.own_features digits RUNS         rank correlation over the numbered checkpoints of digits runs, of
    diffusion-lab train -m experiment=demo metrics.names=[] seed=0 checkpoint_every=70 keep_every=70
python -m experiments.own_features fashion_mnist14 RUNS   the same, over runs on dataset=fashion_mnist14
"""

from __future__ import annotations

import copy
import sys
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import conv2d, pad

from diffusion_lab.data import ArrayImages, Digits, ImageDataModule, ImageSet, ImageSource, Photos
from diffusion_lab.metrics import (
    ClassifierFeatures,
    FeatureExtractor,
    OwnFeatures,
    extract,
    frechet_from_statistics,
    statistics,
)

SAMPLES = 1000


def own(source: ImageSource, flip: bool = False) -> FeatureExtractor:
    """The features of a data set."""
    return ImageDataModule(source, 8, flip=flip, features=OwnFeatures()).features


def unlabelled(source: ImageSource) -> ImageSource:
    """The same images, without labels."""
    made = copy.copy(source)
    made.num_classes, made.classes, made._loaded = None, None, {}
    for split in ("train", "test"):
        made._loaded[split] = ArrayImages(whole(source.load(split)))
    return made


def whole(images: ImageSet) -> Tensor:
    """All images (N,C,S,S) of a split."""
    return images.take(range(len(images)))


def distances(extractor: FeatureExtractor, images: Tensor, *sets: Tensor) -> list[float]:
    """Fréchet distance of sets of images to `images`."""
    reference = statistics(extract(extractor, images).features)
    return [frechet_from_statistics(statistics(extract(extractor, each).features), reference) for each in sets]


def noisy(images: Tensor, deviation: float) -> Tensor:
    """With Gaussian noise of this deviation in grey levels."""
    noise = torch.randn(images.shape, generator=torch.Generator().manual_seed(0))
    return (images + deviation * noise).round().clamp(0, 255).to(torch.uint8)


def blurred(images: Tensor, deviation: float) -> Tensor:
    """Convolved with a Gaussian of this deviation in pixels."""
    weights = torch.exp(-(torch.arange(-3.0, 4.0) ** 2) / (2 * deviation**2))
    row, count = (weights / weights.sum()).view(1, 1, 1, 7), images.shape[1]
    wide = pad(images.float(), (3, 3, 3, 3), mode="replicate")
    for kernel in (row, row.transpose(2, 3)):
        wide = conv2d(wide, kernel.expand(count, -1, -1, -1), groups=count)
    return wide.round().to(torch.uint8)


def mixed(images: Tensor, others: Tensor, share: float) -> Tensor:
    """The images, this share of which is replaced by others."""
    count = round(share * len(images))
    return torch.cat([others[:count], images[count:]])


def strengths(images: Tensor) -> dict[str, list[Tensor]]:
    """Sets of images to which more and more was done, without the images themselves."""
    return {
        "noise": [noisy(images, deviation) for deviation in (8, 16, 32, 64)],
        "blur": [blurred(images, deviation) for deviation in (0.5, 0.6, 0.8, 1.2)],
        "contrast": [((images - 127.5) * factor + 127.5).round().to(torch.uint8) for factor in (0.9, 0.8, 0.6, 0.4)],
        "other images": [mixed(images, noisy(torch.zeros_like(images), 128), share) for share in (0.1, 0.2, 0.4, 0.8)],
        "upside down": [mixed(images, images.flip(2), share) for share in (0.2, 0.4, 0.8)],
    }


def ranks(*values: list[float]) -> float:
    """Spearman's correlation of two lists of different numbers."""
    return float(torch.corrcoef(torch.tensor(values).argsort(1).argsort(1).double())[0, 1])


def over_checkpoints(name: str, folder: Path) -> None:
    """Print the rank correlation of own features with the classifier of the package, over all numbered checkpoints of a
    folder's runs and over those of the second half of the training, whose distances are near to one another."""
    from diffusion_lab import load_run

    saved = sorted(folder.glob("*/checkpoints/step-*.ckpt"))
    if not saved:
        sys.exit(f"RUNS={folder} must hold runs with numbered checkpoints; train them with keep_every=70")
    runs = [load_run(path.parents[1], path.stem) for path in saved]
    pairs = ((run.samples(range(SAMPLES)), run.step) for run in runs)
    sets = {images.numpy().tobytes(): (images, step) for images, step in pairs}.values()  # runs may begin alike
    source, steps = runs[0].data.source, [step for _, step in sets]
    training = whole(source.train())
    (committed, labels, none) = (
        distances(one, training, *(images for images, _ in sets))
        for one in (ClassifierFeatures(name), own(source), own(unlabelled(source)))
    )
    for words, first in (("all", 0), ("later", max(steps) // 2 + 1)):
        kept = [k for k, step in enumerate(steps) if step >= first]
        theirs, classes, without = ([values[k] for k in kept] for values in (committed, labels, none))
        print(
            f"{name}, {words}: n={len(kept)}, classes {ranks(theirs, classes):.2f}, no classes "
            f"{ranks(theirs, without):.2f}; {max(theirs) / min(theirs):.1f} between the largest and the least distance"
        )


def main() -> None:
    """Print one of the tables."""
    if sys.argv[1:]:
        return over_checkpoints(sys.argv[1], Path(sys.argv[2]))
    photographs, held_out = Photos(32, 2048), whole(Photos(32, SAMPLES, seed=1).train())
    for source, others, flip in ((Digits(), whole(Digits().test()), False), (photographs, held_out, True)):
        for one in (source, unlabelled(source)):
            extractor, images = own(one, flip), whole(one.train())
            halves, real = *distances(extractor, images[::2], images[1::2]), *distances(extractor, images, others)
            print(f"{one.name}, {one.num_classes} classes: halves {halves:.3g}, held out {real:.3g}")
            for kind, sets in strengths(others).items():
                print(f"  {kind}: " + ", ".join(f"{value:.3g}" for value in distances(extractor, images, *sets)))


if __name__ == "__main__":
    main()
