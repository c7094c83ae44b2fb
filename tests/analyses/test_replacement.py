"""Generation with the true x0 at some timesteps, where the result is known."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from diffusion_lab.analyses import Replacement, Work
from diffusion_lab.analyses.samples.replacement import TrueDenoiser, distance
from diffusion_lab.data import Digits, GaussianMixture, ImageDataModule, SuperResolution
from diffusion_lab.diffusion import LearnedRange, cosine, linear
from diffusion_lab.metrics import ClassifierFeatures, InceptionFeatures
from diffusion_lab.plotting import style
from diffusion_lab.solvers import DDIM, DDPM, Guided
from diffusion_lab.streams import Streams
from diffusion_lab.training.self_conditioning import SelfConditionedDenoiser
from tests.analyses.models import Constant, Optimal, source, trained

T = 1000
DATA = source(images=4)


def model(network=None, steps=T, data=DATA, **given):
    return trained(network or Constant(0.1), data, schedule=linear(steps), **given)


def generated(solver, replaced, given=None, seed=0):
    """Samples (4,1,4,4) and their truth."""
    base = given or model()
    x0 = DATA.test().take(range(4))
    denoiser = TrueDenoiser(base.denoiser, x0, replaced).eval()
    streams = Streams(seed)
    return solver(denoiser, streams.normal((4, 1, 4, 4), "x"), noise=lambda k, like: torch.ones_like(like)), x0


def timesteps(first, end):
    mask = torch.zeros(T, dtype=torch.bool)
    mask[first : end + 1] = True
    return mask


@pytest.mark.parametrize("solver", [DDPM(), DDPM(50), DDIM(20, clip=False), DDIM(20, 1.0, False)])
def test_replaced_at_all_steps_is_the_truth(solver):
    found, x0 = generated(solver, timesteps(0, T - 1))
    assert torch.equal(found, x0)


def test_the_papers_range_is_the_truth_because_it_holds_the_last_step():
    """Steps 1 to 500, zero-based 0 to 499; and so is the last step alone, after 999 steps of a useless model."""
    for end in (499, 0):
        found, x0 = generated(DDPM(), timesteps(0, end))
        assert torch.equal(found, x0)
    for first in (1, 10):
        found, x0 = generated(DDPM(), timesteps(first, 499))
        assert not torch.isclose(found, x0, atol=1e-4).any()


def test_the_last_steps_are_left_out_by_default(tmp_path):
    data = {}
    for last in (0, 10):
        analysis, result = measured(
            [model()], tmp_path / str(last), last=last, ranges=[[1, 500]], solver=DDPM(clip=False)
        )
        data[last] = dict(zip(result.facts["sets"], result.data["psnr"][0], strict=True))
        assert result.data["replaced"][1].sum() == 500 - last
        words = {0: "a set with the last timestep", 10: "the last 10 timesteps are never replaced"}
        assert words[last] in analysis.sentence(result)
    assert np.allclose(data[0]["1 to 500"], 10 * np.log10(12 * 255**2))  # equal bytes
    assert (data[10]["1 to 500"] < 50).all() and np.array_equal(data[0]["nothing"], data[10]["nothing"])


def test_samples_that_are_not_finite_are_no_black_images(tmp_path):
    with pytest.raises(ValueError, match="4 of 4 samples are not finite"):
        measured([model(Constant(float("nan")))], tmp_path, solver=DDPM(10, clip=False), ranges=[[1, 500]])


def test_an_extractor_that_is_not_here_is_said_before_anything_is_generated():
    """After all images were: only then was a Fréchet distance due."""
    one = model(data=GaussianMixture([0.0], [0.04], image_size=4, num_images=8, num_test_images=4096))
    one.data = ImageDataModule(one.data.source, 16, features=InceptionFeatures("nowhere.pth"))
    one.data.source.value_range = (-1.0, 1.0)
    with pytest.raises(FileNotFoundError, match="nowhere.pth"):
        Replacement(DDIM(5, clip=False), images=4096).check([one])
    Replacement(DDIM(5, clip=False), images=4095).check([one])  # no distance is due


def test_nothing_replaced_is_the_model_itself():
    solver, noise = DDPM(20), torch.ones_like
    found, _ = generated(solver, torch.zeros(T, dtype=torch.bool))
    start = Streams(0).normal((4, 1, 4, 4), "x")
    assert torch.equal(found, solver(model().denoiser, start, noise=lambda k, like: noise(like)))


def test_a_step_by_hand():
    """C1 x0 + C2 x_t at replaced rows, the model's own mean at others, with a learned variance too."""
    x0, x_t, t = DATA.test().take(range(4)), Streams(0).normal((4, 1, 4, 4), "x"), torch.tensor([3, 3, 700, 700])
    base = model(Constant(0.1, heads=2)).denoiser
    base.variance = LearnedRange()
    found = TrueDenoiser(base, x0, timesteps(0, 10)).reverse(x_t, t)
    own, s = base.reverse(x_t, t), base.schedule
    c1, c2 = s.posterior_mean_coef1[3].float(), s.posterior_mean_coef2[3].float()
    assert torch.equal(found.mean[:2], c1 * x0[:2] + c2 * x_t[:2]) and torch.equal(found.mean[2:], own.mean[2:])
    assert torch.equal(found.log_variance, own.log_variance)


def measured(models, tmp_path, **given):
    analysis = Replacement(
        **({"solver": DDPM(20, clip=False), "images": 4, "ranges": [[1, 500], [500, 1000], [1, 10]]} | given)
    )
    analysis.check(models)
    return analysis, analysis.run(models, Work(tmp_path, Streams(0)))


def test_the_sets():
    sets = Replacement(DDPM(), last=10).sets(T)
    assert list(sets) == [
        *("nothing", "1 to 500", "500 to 1000", "10 to 100", "100 to 500"),
        *("all except 1 to 500", "all except 500 to 1000", "all except 10 to 100", "all except 100 to 500"),
        "all except 1 to 10",
    ]
    assert sets["1 to 500"].nonzero().flatten().tolist() == list(range(10, 500))
    assert sets["all except 10 to 100"].nonzero().flatten().tolist() == list(range(100, T))
    assert Replacement(DDPM(), [[0, 9]], index_base=0, last=0).sets(T)["0 to 9"].sum() == 10


def test_what_the_sentence_says_is_in_the_data(tmp_path):
    analysis, result = measured([model(Optimal(DATA, linear(T)))], tmp_path, last=10)
    assert result.facts["sets"][1:3] == ["1 to 500", "500 to 1000"] and "hue_error" not in result.data
    mean = result.data["psnr"][0].mean(1)
    gain = result.data["psnr"][0, 1] - result.data["psnr"][0, 0]
    said = analysis.sentence(result)
    assert said.startswith(
        f"The true x0 at timesteps 1 to 500 raises the PSNR most, from {mean[0]:.1f} to {mean[1]:.1f} dB, by "
        f"{gain.mean():.1f} \N{PLUS-MINUS SIGN} {gain.std(ddof=1):.1f} dB ({mean[2]:.1f} dB at 500 to 1000)"
    )  # two standard errors over four images are the standard deviation
    assert "which leaves nothing of 1 to 10; the truth is any test image" in said
    schedule = linear(T)
    assert np.array_equal(result.data["c1"], schedule.posterior_mean_coef1.numpy())
    with style():
        drawn = analysis.figure(result)
    points = drawn.axes[0].containers[0].lines[0].get_xdata()
    assert np.array_equal(points, mean)


def test_super_resolution_in_colour_and_its_hue_error(tmp_path):
    """A model that is given the small version; the hue error by hand."""

    class Upsampled(torch.nn.Module):
        def forward(self, x, t, low_res):
            seen.append(low_res)
            return 0.1 * x

    seen = []
    data = GaussianMixture([0.0], [0.04], channels=3, image_size=4, num_images=8, num_test_images=4)
    one = model(Upsampled(), data=data)
    one.data = ImageDataModule(data, batch_size=8, task=SuperResolution(factor=2))
    analysis, result = measured([one], tmp_path)
    truth = data.test().take(range(4))
    assert torch.equal(seen[0], torch.nn.functional.avg_pool2d(truth, 2))
    samples, pixels = (result.data[key].astype(float) for key in ("samples", "truth"))
    shift = (samples - pixels).mean((3, 4))
    assert np.allclose(result.data["hue_error"][0], np.linalg.norm(shift, axis=2) / 3**0.5)
    said = analysis.sentence(result)
    hue = result.data["hue_error"][0].mean(1)
    assert f"hue error, in grey levels, from {hue[0]:.3g} to" in said and "any test image" not in said


def test_the_frechet_distance_of_digits(tmp_path):
    """Of the training images themselves it is 0."""
    one = model(data=Digits(), steps=50)
    one.data = ImageDataModule(Digits(), batch_size=8, features=ClassifierFeatures("digits"))
    assert distance(one, Digits().train().take(range(Digits().train_size()))) == pytest.approx(0, abs=1e-6)
    analysis, few = measured([one], tmp_path, images=127, ranges=[[1, 50]], solver=DDPM(4, clip=False))
    assert "frechet" not in few.data
    assert "; a Fréchet distance would need 128 images; " in analysis.sentence(few)
    _, enough = measured([one], tmp_path / "b", images=128, ranges=[[1, 50]], solver=DDPM(4, clip=False), last=0)
    nothing, everything = enough.data["frechet"][0]
    assert everything < 1 < nothing


def self_conditioned():
    """A model whose network is given its own estimate in a sampling loop."""
    made = model()
    parts = made.denoiser.prediction, made.denoiser.variance
    return replace(made, denoiser=SelfConditionedDenoiser(made.denoiser.network, made.denoiser.schedule, *parts))


@pytest.mark.parametrize(
    ("models", "given", "message"),
    [
        ([model(), model(steps=900)], {}, "run=run must be runs with the same schedule and test images; use one"),
        ([model(), trained(Constant(), DATA, schedule=cosine(T))], {}, "run=run must be runs with the same schedule"),
        ([model(), model(data=source(seed=1))], {}, "run=run must be runs with the same schedule and test images"),
        ([model(steps=900)], {}, r"analysis.ranges=\[\[500, 1000\]\] must end at most at 900"),
        ([model()], {"images": 5}, "analysis.images=5 must be at most 4, the test images of run; use 4"),
        ([model()], {"solver": DDIM(1001)}, "analysis.solver.steps=1001 must"),
        ([model()], {"solver": Guided(DDIM())}, "run=run must be trained with label dropout"),
        ([self_conditioned()], {}, "run=run must have a network that is given x_t alone"),
    ],
)
def test_what_cannot_be_measured(models, given, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        Replacement(**({"solver": DDPM(clip=False), "images": 4} | given)).check(models)


@pytest.mark.parametrize(
    ("name", "value"), [("index_base", 2), ("last", -1), ("images", 1), ("batch_size", 0), ("ranges", [[5, 4]])]
)
def test_arguments_out_of_range(name, value):
    with pytest.raises(ValueError, match=f"^{name}="):
        Replacement(DDPM(), **{name: value})
