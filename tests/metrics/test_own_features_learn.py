"""Trained features mean something: whatever is done to images, the more of it the larger the distance."""

import pytest
import torch
from torch.nn.functional import conv2d, pad

from diffusion_lab.data import ArrayImages, Digits, ImageDataModule, Photos
from diffusion_lab.metrics import ClassifierFeatures, OwnFeatures, extract, frechet_from_statistics, statistics

pytestmark = pytest.mark.learning
HELD_OUT = {Digits: Digits().test, Photos: Photos(32, 800, seed=1).train}


def noisy(images, deviation):
    noise = torch.randn(images.shape, generator=torch.Generator().manual_seed(0))
    return (images + deviation * noise).round().clamp(0, 255).to(torch.uint8)


def blurred(images, deviation):
    weights = torch.exp(-(torch.arange(-3.0, 4.0) ** 2) / (2 * deviation**2))
    row, count = (weights / weights.sum()).view(1, 1, 1, 7), images.shape[1]
    wide = pad(images.float(), (3, 3, 3, 3), mode="replicate")
    for kernel in (row, row.transpose(2, 3)):
        wide = conv2d(wide, kernel.expand(count, -1, -1, -1), groups=count)
    return wide.round().to(torch.uint8)


def mixed(images, others, share):
    count = round(share * len(images))
    return torch.cat([others[:count], images[count:]])


def strengths(images):
    """Sets of images of rising strength, without the images themselves."""
    return {
        "noise": [noisy(images, deviation) for deviation in (8, 16, 32, 64)],
        "blur": [blurred(images, deviation) for deviation in (0.5, 0.6, 0.8, 1.2)],
        "contrast": [((images - 127.5) * factor + 127.5).round().to(torch.uint8) for factor in (0.9, 0.8, 0.6, 0.4)],
        "other images": [mixed(images, noisy(torch.zeros_like(images), 128), share) for share in (0.1, 0.2, 0.4, 0.8)],
        "upside down": [mixed(images, images.flip(2), share) for share in (0.2, 0.4, 0.8)],
    }


class Unlabelled(Photos):
    """The same crops without the numbers of their photographs."""

    name, num_classes, classes = "unlabelled photos", None, None

    def load(self, split):
        return ArrayImages(super().load(split).images)


class UnlabelledDigits(Digits):
    """The same digits without their labels."""

    name, num_classes = "unlabelled digits", None

    def load(self, split):
        return ArrayImages(super().load(split).images)


def distances(extractor, images, *sets):
    """Fréchet distance of sets of images to all training images."""
    reference = statistics(extract(extractor, images).features)
    return [frechet_from_statistics(statistics(extract(extractor, each).features), reference) for each in sets]


def whole(images):
    return images.take(range(len(images)))


def own(source, flip):
    return ImageDataModule(source, 8, flip=flip, features=OwnFeatures()).features


@pytest.mark.parametrize(
    ("source", "flip"),
    [(Digits(), False), (UnlabelledDigits(), False), (Photos(32, 1600), True), (Unlabelled(32, 1600), True)],
    ids=lambda value: value.name if hasattr(value, "name") else "",
)
def test_the_distance_rises_with_every_strength_and_real_images_are_near(source, flip):
    extractor, images = own(source, flip), whole(source.train())
    held_out = next(whole(make()) for kind, make in HELD_OUT.items() if isinstance(source, kind))
    (real,) = distances(extractor, images[::2], images[1::2])
    for name, sets in strengths(held_out).items():
        found = distances(extractor, images, held_out, *sets)
        assert found == sorted(found) and len(set(found)) == len(found), (name, found)
        if name != "upside down":  # a part of a photograph hardly is another one then
            assert found[-1] > 3 * max(found[0], real), (name, found, real)


@pytest.mark.parametrize("source", [Digits(), UnlabelledDigits()], ids=lambda source: source.name)
def test_sets_of_digits_are_ordered_as_by_the_classifier_of_the_package(source):
    images, held_out = whole(source.train()), whole(Digits().test())
    sets = [each for of_kind in strengths(held_out).values() for each in of_kind]
    ours, theirs = (distances(one, images, *sets) for one in (own(source, False), ClassifierFeatures("digits")))
    ranks = torch.tensor([ours, theirs]).argsort(1).argsort(1).double()
    assert torch.corrcoef(ranks)[0, 1] > 0.8
