"""A model's evaluation from end to end."""

import json
import multiprocessing
import os

import pytest
import torch
import torch.distributed as dist
from torch import nn

from diffusion_lab import distributed
from diffusion_lab.callbacks.signals import Interrupted
from diffusion_lab.data import Digits, GaussianMixture, ImageDataModule
from diffusion_lab.diffusion import Denoiser, Epsilon, FixedLarge, linear
from diffusion_lab.metrics import (
    ClassifierFeatures,
    Evaluation,
    InceptionFeatures,
    Latents,
    evaluate_images,
    generate,
)
from diffusion_lab.solvers import DDIM
from tests.metrics.named import named


class Nothing(nn.Module):
    """An untrained model: it predicts no noise at all."""

    def forward(self, x_t, t, label=None):
        return torch.zeros_like(x_t)


def untrained():
    return Denoiser(Nothing(), linear(1000), Epsilon(), FixedLarge())


def values(evaluated):
    return {result.name: result.value for result in evaluated.results}


def test_a_perfect_model_scores_perfectly_and_an_untrained_one_does_not(digits, perfect):
    evaluation = Evaluation(num_samples=500, batch_size=250, metrics=named())
    good, bad = (values(evaluation(model, DDIM(steps=10), digits)) for model in (perfect, untrained()))
    names = [f"{name}500_digits" for name in ("fd", "kd", "is", "precision", "recall", "test_fd")]
    assert list(good) == [*names, "copying500"]
    assert good["fd500_digits"] < 1 and bad["fd500_digits"] > 20
    assert abs(good["kd500_digits"]) < 0.02 and bad["kd500_digits"] > 0.2
    assert good["is500_digits"] > 6 and bad["is500_digits"] < 3
    assert good["precision500_digits"] > 0.9 and good["recall500_digits"] > 0.8
    assert bad["precision500_digits"] < 0.2


def test_the_numbers_are_those_of_the_images(digits, perfect):
    """From generate() and evaluate_images(), with as many reference images as samples."""
    solver = DDIM(steps=10)
    found = values(
        Evaluation(num_samples=200, batch_size=64, metrics=named("fid", "is"), seed=4)(perfect, solver, digits)
    )
    images = generate(perfect, solver, range(200), 4, (1, 8, 8), batch_size=64)
    expected = evaluate_images(images, digits.source.train().images, digits.features, named("fid", "is"))
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-4)


def test_the_batch_size_changes_nothing_that_matters(digits, perfect):
    one, other = (
        values(Evaluation(num_samples=150, batch_size=size, metrics=named())(perfect, DDIM(steps=5), digits))
        for size in (150, 31)
    )
    assert one == pytest.approx(other, rel=1e-3, abs=1e-4)


def test_the_pictures_are_the_first_samples(digits, perfect):
    found = Evaluation(num_samples=150, batch_size=40, metrics=named("fid"))(perfect, DDIM(steps=5), digits, keep=50)
    assert torch.equal(found.images, generate(perfect, DDIM(steps=5), range(50), 0, (1, 8, 8), batch_size=40))
    assert found.images.shape == (50, 1, 8, 8)


def test_the_protocol_says_everything(digits, perfect):
    results = Evaluation(num_samples=150, batch_size=150, metrics=named(), seed=7, split="test")(
        perfect, DDIM(steps=5, eta=0.5), digits, ema_decay=0.999
    ).results
    assert json.loads(json.dumps([result._asdict() for result in results]))[0]["protocol"] == {
        "extractor": {"name": "digits", "weights_sha256": digits.features.weights_sha256},
        "samples": 150,
        "solver": "ddim-5-eta0.5",
        "ema_decay": 0.999,
        "reference": {
            "dataset": "digits",
            "split": "test",
            "fingerprint": digits.source.test().fingerprint(),
            "shape": [1, 8, 8],
            "n": 360,
        },
        "seed": 7,
    }
    kernel, score, precision = (results[i].protocol for i in (1, 2, 3))
    assert kernel["reference"]["n"] == 150 and kernel["subset_size"] == 150
    assert score["splits"] == 10 and score["reference"]["n"] == 0
    assert precision["neighbours"] == 3 and precision["reference"]["n"] == 150


def test_without_names_or_without_an_extractor_there_are_only_pictures(digits, perfect):
    none = Evaluation(num_samples=0, metrics=[])
    found = none(perfect, DDIM(steps=5), digits, keep=9)
    assert found.results == [] and found.images.shape == (9, 1, 8, 8)
    gaussian = ImageDataModule(GaussianMixture([0.0], [0.25], num_images=64), batch_size=8)
    found = Evaluation(metrics=named())(untrained(), DDIM(steps=5), gaussian, keep=4)
    assert found.results == [] and found.images.shape == (4, 1, 8, 8)


def test_values_without_bounds_have_no_features_of_images(digits):
    """Gaussian data as bytes would be nearly constant, and an extractor takes bytes."""
    gaussian = ImageDataModule(GaussianMixture([0.0], [0.25], num_images=640), batch_size=8, features=digits.features)
    with pytest.raises(ValueError, match=r"names=\[fid\] must be measured on images, and the values of .* no bounds"):
        Evaluation(num_samples=128, metrics=named("fid")).check(gaussian)


def test_a_conditional_model_is_asked_for_every_class_equally(digits, monkeypatch):
    asked = []

    class Spy(Nothing):
        def forward(self, x_t, t, label):
            asked.append(label)
            return torch.zeros_like(x_t)

    conditional = ImageDataModule(Digits(), batch_size=16, conditional=True, features=digits.features)
    denoiser = Denoiser(Spy(), linear(1000), Epsilon(), FixedLarge())
    Evaluation(num_samples=0, metrics=[])(denoiser, DDIM(steps=2), conditional, keep=20)
    assert asked[0].tolist() == [*range(10), *range(10)]


OF_TWO = {"keep": 20, "latents": Latents.of_run(3)}  # the picture is of other latents than the metrics


def two_ranks(rank, folder, digits, denoiser, queue):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    found = Evaluation(num_samples=151, batch_size=40, metrics=named())(denoiser, DDIM(steps=5), digits, **OF_TWO)
    queue.put((rank, values(found), found.images.tolist()))
    dist.destroy_process_group()


def test_two_processes_find_what_one_finds(digits, perfect, tmp_path):
    alone = Evaluation(num_samples=151, batch_size=40, metrics=named())(perfect, DDIM(steps=5), digits, **OF_TWO)
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    ranks = [context.Process(target=two_ranks, args=(r, tmp_path, digits, perfect, queue)) for r in range(2)]
    for process in ranks:
        process.start()
    found = dict((rank, (numbers, images)) for rank, numbers, images in (queue.get() for _ in ranks))
    for process in ranks:
        process.join(30)
        assert process.exitcode == 0
    assert found[0][0] == found[1][0]
    assert found[0][0] == pytest.approx(values(alone), rel=1e-3, abs=1e-4)
    assert torch.equal(torch.tensor(found[0][1], dtype=torch.uint8), alone.images)


class Diverged(nn.Module):
    def forward(self, x_t, t, label=None):
        return torch.full_like(x_t, float("nan"))


def diverged_on_one(rank, folder, digits, queue):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    denoiser = Denoiser(Diverged() if rank else Nothing(), linear(50), Epsilon(), FixedLarge())
    try:
        Evaluation(num_samples=151, batch_size=40, metrics=named("fid"))(denoiser, DDIM(steps=5), digits, keep=0)
    except Exception as error:
        queue.put((rank, type(error).__name__, str(error)))


def test_samples_that_are_not_finite_on_one_process_end_all_of_them_at_once(digits, tmp_path):
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    ranks = [context.Process(target=diverged_on_one, args=(r, tmp_path, digits, queue)) for r in range(2)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(60)
        assert process.exitcode == 0
    found = {rank: (kind, text) for rank, kind, text in (queue.get() for _ in ranks)}
    assert found[1][0] == "ValueError" and "40 of 40 samples are not finite" in found[1][1]
    assert found[0] == ("Failure", f"rank 1: {found[1][1]}")


def test_an_interruption_inside_is_raised_at_once_and_asks_no_other_process(monkeypatch):
    monkeypatch.setattr(distributed, "gather_objects", lambda x: pytest.fail("others would have to come to it"))
    with pytest.raises(Interrupted), distributed.raised_on_all():
        raise Interrupted(15, 1)


# -- what is refused, before training -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"num_samples": -1}, "num_samples=-1 must be an integer >= 0"),
        ({"num_samples": 1e5}, "num_samples=100000.0 must be an integer"),
        (
            {"num_samples": 0, "metrics": named("fid")},
            "num_samples=0 must be at least 1 to measure anything, and scale=smoke",
        ),
        ({"batch_size": 0}, "batch_size=0 must be an integer >= 1"),
        ({"seed": -3}, "seed=-3 must be an integer >= 0"),
        ({"metrics": named("fid", "fid")}, "names=.'fid', 'fid'. must be different metrics"),
        ({"split": "val"}, "split='val' must be 'train' or 'test'"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        Evaluation(**arguments)


@pytest.mark.parametrize(
    ("names", "num_samples", "message"),
    [
        ((), 100, "num_samples=100 must be at least 128, twice the 64 dimensions of digits"),
        (("is",), 9, "num_samples=9 must be at least 10, the parts of the inception score"),
        (("kid", "recall"), 3, "num_samples=3 must be more than the 3 neighbours of recall"),
        (("sample_variance",), 1, "num_samples=1 must be an integer >= 2"),
        (("psnr",), 100, "names=.psnr. must have a truth for each sample; use task=super_resolution"),
        (("is", "agreement"), 100, "names=.agreement. must have classes; use dataset.conditional=true"),
    ],
)
def test_check_refuses_what_cannot_be_measured(digits, names, num_samples, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        Evaluation(num_samples, metrics=named(*names)).check(digits)


def test_check_lets_pass_what_can(digits):
    Evaluation(num_samples=100, metrics=named("is", "bits_per_dim", "sample_variance")).check(digits)
    Evaluation(num_samples=128, metrics=named()).check(digits)
    Evaluation(metrics=named()).check(ImageDataModule(Digits(), batch_size=16))  # no extractor: left out


def test_check_refuses_missing_inception_weights():
    data = ImageDataModule(Digits(), batch_size=16, features=InceptionFeatures(os.devnull + "/none.pth"))
    with pytest.raises(FileNotFoundError, match="weights-inception"):
        Evaluation(num_samples=5000, metrics=named()).check(data)


@pytest.mark.parametrize("extractor", [ClassifierFeatures("fashion_mnist14"), ClassifierFeatures("fashion_mnist")])
def test_check_refuses_an_extractor_of_other_images_before_one_is_loaded(extractor, monkeypatch):
    monkeypatch.setattr(Digits, "load", None)
    data = ImageDataModule(Digits(), batch_size=16, conditional=True, features=extractor)
    shape = "x".join(map(str, extractor.input_shape))
    with pytest.raises(ValueError) as caught:
        Evaluation(num_samples=256, metrics=named("fid", "is", "sample_variance")).check(data)
    assert str(caught.value) == (
        f"names=[fid,is] must be measured with features of 1x8x8 images, and dataset.features={extractor.name} is for "
        f"{shape}; use other features, or leave these metrics out"
    )
    Evaluation(num_samples=256, metrics=named("sample_variance")).check(data)  # needs no features


def test_latents_without_their_images_are_left_to_the_check_of_the_data(digits):
    class Hidden(Digits):
        def pixels(self):
            raise ValueError("images=null must be the encoded image source")

    data = ImageDataModule(Hidden(), batch_size=16, features=digits.features)
    Evaluation(num_samples=128, metrics=named("fid")).check(data)
    with pytest.raises(ValueError, match="^source.images=null"):
        data.check()


def test_images_of_another_size_are_refused(digits):
    small = digits.source.test().images
    with pytest.raises(ValueError, match=r"generated images are \(1, 8, 8\) and reference images \(1, 16, 16\)"):
        evaluate_images(small, small.repeat_interleave(2, 2).repeat_interleave(2, 3), digits.features, named())


@pytest.mark.parametrize(
    ("names", "way_out"),
    [
        (("fid", "kid"), "or leave out fid, kid, which need it: 'metrics.names=[sample_variance]'"),
        (("fid", "bits_per_dim"), "or leave out fid, which needs it: 'metrics.names=[bits_per_dim]'"),
    ],
)
def test_missing_weights_name_what_can_be_measured_without(digits, names, way_out):
    data = ImageDataModule(digits, batch_size=16, features=InceptionFeatures(os.devnull + "/none.pth"))
    with pytest.raises(FileNotFoundError) as error:
        Evaluation(num_samples=5000, metrics=named(*names)).check_weights(data)
    assert str(error.value).startswith("weights=/dev/null/none.pth: there is no file") and way_out in str(error.value)
