"""The share of samples nearer to training images than to held-out ones, with copies and without, and its interval."""

import math
from contextlib import nullcontext

import pytest
import torch

from diffusion_lab.data import ArrayImages, ImageDataModule, ImageSource
from diffusion_lab.metrics import ClassifierFeatures, Evaluation, MetricResult
from diffusion_lab.metrics import copying as module
from diffusion_lab.metrics.copying import (
    RealImages,
    chosen,
    effective_samples,
    images_of_each,
    real_images,
    share,
    wilson,
)
from diffusion_lab.solvers import DDIM
from tests.metrics.named import named


def test_nearest_is_by_hand_and_a_tie_counts_half():
    real = RealImages(torch.tensor([[0.0, 0.0], [10.0, 0.0]]), torch.tensor([[4.0, 0.0], [10.0, 6.0]]))
    samples = torch.tensor([[1.0, 0.0], [2.0, 0.0], [3.0, 1.0], [10.0, 1.0]])
    found = real.nearest(samples)
    assert found.tolist() == [[1, 9, 0], [4, 4, 0], [10, 2, 2], [1, 25, 1]]
    assert share(found) == (1 + 0.5 + 0 + 1) / 4
    assert share(RealImages(real.held_out, real.train).nearest(samples)) == 1 - share(found)


def test_bytes_are_compared_exactly_in_any_batch(monkeypatch):
    torch.manual_seed(0)
    train, held_out, samples = torch.randint(0, 256, (3, 40, 3072), dtype=torch.uint8)
    samples[0], train[5] = held_out[7], held_out[7]  # one image in both sets
    found = RealImages(train, held_out).nearest(samples)
    exact = [(samples.long()[:, None] - rows.long()).square().sum(2).min(1).values for rows in (train, held_out)]
    assert torch.equal(found[:, :2].long(), torch.stack(exact, 1)) and found[0].tolist() == [0, 0, 5]
    monkeypatch.setattr(module, "_ROWS", 3)
    assert torch.equal(RealImages(train, held_out).nearest(samples[:1]), found[:1])


def test_the_effective_number_is_that_of_distinct_images():
    assert effective_samples(torch.arange(4).repeat(5), images=10**9) == pytest.approx(4)  # four images, five samples
    assert effective_samples(torch.zeros(50, dtype=torch.long), images=8) == pytest.approx(1)  # a collapsed model
    assert effective_samples(torch.arange(6), images=10**9) == pytest.approx(6)
    assert effective_samples(torch.arange(6), images=6) == 6  # every image once: not more than the samples


def test_its_variance_is_that_of_images_dealt_at_random():
    generator = torch.Generator().manual_seed(0)
    numbers = torch.randint(0, 12, (60,), generator=generator).square() // 12  # some images have many of the samples
    nearer = [float((torch.randperm(12, generator=generator) < 6)[numbers].double().mean()) for _ in range(6000)]
    variance = torch.tensor(nearer).var().item()
    assert variance == pytest.approx(1 / (4 * effective_samples(numbers, 12)), rel=0.06)
    assert variance > 4 / (4 * 60)  # the control: of independent samples it would be less than a quarter


@pytest.mark.parametrize(("p", "count"), [(0.5, 100.0), (0.62, 431.7), (0.0, 20.0), (1.0, 3.5)])
def test_wilsons_interval_solves_its_equation(p, count):
    for end in (ends := wilson(p, count)):
        assert (p - end) ** 2 == pytest.approx(1.959964**2 * end * (1 - end) / count, abs=1e-12)
    assert 0 <= ends[0] + 1e-12 and ends[1] - 1e-12 <= 1 and ends[0] < ends[1]


def test_three_disjoint_parts_have_no_copies_and_the_interval_knows_it(digits):
    """Real images as samples: 0.5 on average, and in 95 % inside the interval, but in 75 % inside a binomial one."""
    images = torch.cat([split.take(range(len(split))) for split in (digits.source.train(), digits.source.test())])
    rows, generator = images.flatten(1).float(), torch.Generator().manual_seed(0)
    distances = torch.cdist(rows, rows)
    shares, covered, binomial = [], 0, 0
    for _ in range(120):
        order = torch.randperm(len(rows), generator=generator)
        numbers = distances[order[200:800, None], order[:200]].argmin(1)
        shares.append(float((numbers < 100).double().mean()))
        (low, high), (lower, higher) = (wilson(shares[-1], n) for n in (effective_samples(numbers, 200), 600))
        covered += low <= 0.5 <= high
        binomial += lower <= 0.5 <= higher
    assert sum(shares) / 120 == pytest.approx(0.5, abs=0.01)
    assert 0.9 <= covered / 120 and binomial / 120 < 0.85


def result(digits, denoiser) -> MetricResult:
    return Evaluation(500, metrics=named("copying"))(denoiser, DDIM(steps=10), digits).results[0]


def test_a_model_that_knows_its_training_images_by_heart_copies_and_another_does_not(digits, perfect, elementwise):
    found = result(digits, perfect)
    assert found.name == "copying500" and found.better == "neither"
    assert found.interval is not None and 0.53 < found.interval[0] < found.value < found.interval[1] < 0.7
    # A quarter of 1437 images is compared with, and a copy of one of the others is as near to either set.
    assert found.value == pytest.approx(0.5 + 360 / (2 * 1437), abs=0.05)
    assert found.line(3)["interval"] == list(found.interval)
    noise = result(digits, elementwise)
    assert noise.interval is not None and noise.interval[0] < 0.5 < noise.interval[1]
    assert found.protocol["extractor"] == {"name": "pixels"} and found.protocol["reference"]["n"] == 360


class Some(ImageSource):
    """Random images; the first 30 of the training images are compared with and copied."""

    name, channels, image_size = "some", 1, 8

    def train_size(self):
        return 200

    def load(self, split):
        generator = torch.Generator().manual_seed(len(split))
        shape = (200 if split == "train" else 30, 1, 8, 8)
        return ArrayImages(torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator))


@pytest.mark.parametrize("pixels", [64, 63])
def test_images_larger_than_that_are_compared_by_features(pixels, monkeypatch):
    monkeypatch.setattr(module, "PIXELS", pixels)
    data = ImageDataModule(Some(), batch_size=8, features=ClassifierFeatures("digits"))
    real = real_images(data)
    assert [part.shape for part in real] == [(30, 64)] * 2 and images_of_each(data.source) == 30
    assert real.train.dtype == (torch.uint8 if pixels == 64 else torch.float32)
    ids = chosen(data.source.train(), "train", 30)
    assert len(set(ids.tolist())) == 30 and torch.equal(ids, chosen(data.source.train(), "train", 200)[:30])
    copies = data.source.train().take(ids)
    rows = copies.flatten(1) if pixels == 64 else data.features(copies).features
    assert share(real.nearest(rows)) > 0.9
    monkeypatch.setattr(ClassifierFeatures, "forward", None)  # the second time the features are read
    assert torch.equal(real_images(data).train, real.train)
    assert Evaluation(128, metrics=named("copying")).result_names(data) == [
        "copying128" if pixels == 64 else "copying128_digits"
    ]


# -- beside a Fréchet distance ------------------------------------------------------------------------------------


def measured(digits, names, **options):
    return Evaluation(200, metrics=named(*names), **options).result_names(digits)


def test_it_is_measured_wherever_a_distance_is(digits, tmp_path):
    assert measured(digits, ["fid"]) == ["fd200_digits", "test_fd200_digits", "copying200"]
    assert measured(digits, ["precision"]) == ["precision200_digits"]
    assert measured(digits, ["fid"], split="test") == ["fd200_digits", "copying200"]
    assert measured(digits, ["copying", "fid"]) == ["copying200", "fd200_digits", "test_fd200_digits"]
    assert measured(digits, ["fid"], reference=str(tmp_path / "a.npz")) == ["fd200_digits"]


def test_the_distance_to_held_out_images_is_that_of_the_test_split(digits, perfect):
    found = Evaluation(200, metrics=named("fid"))(perfect, DDIM(steps=10), digits).results
    other = Evaluation(200, metrics=named("fid"), split="test")(perfect, DDIM(steps=10), digits).results
    assert found[1].name == "test_fd200_digits" and found[1].value == other[0].value
    assert found[1].protocol == other[0].protocol and found[1].protocol["reference"]["split"] == "test"
    assert found[0].protocol["reference"]["split"] == "train" and found[1].value > found[0].value


def test_too_few_test_images_are_left_out_and_refused_by_name(perfect):
    data = ImageDataModule(Some(), batch_size=8, features=ClassifierFeatures("digits"))
    results = Evaluation(128, metrics=named("fid"))(perfect, DDIM(steps=2), data).results
    assert [one.name for one in results] == ["fd128_digits", "copying128"] and math.isfinite(results[1].value)
    message = r"names=\[test_fid\] must have at least 128 test images, twice the dimensions of digits's features, and"
    with pytest.raises(ValueError, match=message):
        Evaluation(128, metrics=named("test_fid")).check(data)


def test_too_few_images_to_compare_with_are_refused_before_training(perfect):
    """Whichever the split: their mean and covariance would be refused after all samples were made. Metrics that compare
    points have neither."""
    data = ImageDataModule(Some(), batch_size=8, features=ClassifierFeatures("digits"))
    Evaluation(128, metrics=named("fid")).check(data)
    said = r"names=\[fid\] must have at least 128 test images, twice the .*; leave it out, or hold more"
    with pytest.raises(ValueError, match=said):
        Evaluation(128, metrics=named("fid", "kid"), split="test").check(data)
    points = Evaluation(128, metrics=named("kid", "precision"), split="test")
    values = [one.value for one in points(perfect, DDIM(steps=2), data).results]
    assert len(values) == 2 and all(map(math.isfinite, values))


@pytest.mark.parametrize(("name", "least"), [("precision", 4), ("recall", 4), ("kid", 2)])
def test_points_need_a_few_images_to_compare_with(name, least, monkeypatch):
    data = ImageDataModule(Some(), batch_size=8, features=ClassifierFeatures("digits"))
    for count in (least, least - 1):
        monkeypatch.setattr(type(data.source.test()), "__len__", lambda self, count=count: count)
        said = rf"names=\[{name}\] must have at least {least} test images to compare with, and there are {count}; leave"
        with pytest.raises(ValueError, match=said) if count < least else nullcontext():
            Evaluation(128, metrics=named(name), split="test").check(data)
