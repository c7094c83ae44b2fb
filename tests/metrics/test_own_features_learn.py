"""Trained features mean something: whatever is done to images, the more of it the larger the distance."""

import pytest

from diffusion_lab.data import Digits, Photos
from diffusion_lab.metrics import ClassifierFeatures
from experiments.own_features import distances, own, ranks, strengths, unlabelled, whole

pytestmark = pytest.mark.learning


@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize("kind", [Digits, Photos])
def test_the_distance_rises_with_every_strength_and_real_images_are_near(kind, labelled):
    source, flip = (Photos(32, 1600), True) if kind is Photos else (Digits(), False)
    held_out = whole(Photos(32, 800, seed=1).train() if kind is Photos else source.test())
    extractor, images = own(source if labelled else unlabelled(source), flip), whole(source.train())
    assert extractor.has_classes == labelled
    (real,) = distances(extractor, images[::2], images[1::2])
    for name, sets in strengths(held_out).items():
        found = distances(extractor, images, held_out, *sets)
        assert found == sorted(found) and len(set(found)) == len(found), (name, found)
        if name != "upside down":  # a part of a photograph hardly is another one then
            assert found[-1] > 3 * max(found[0], real), (name, found, real)


@pytest.mark.parametrize("labelled", [True, False])
def test_sets_of_digits_are_ordered_as_by_the_classifier_of_the_package(labelled):
    source, held_out = Digits(), whole(Digits().test())
    images, sets = whole(source.train()), [each for of_kind in strengths(held_out).values() for each in of_kind]
    ours = distances(own(source if labelled else unlabelled(source)), images, *sets)
    assert ranks(ours, distances(ClassifierFeatures("digits"), images, *sets)) > 0.8
