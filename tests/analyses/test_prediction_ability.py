"""The x0-space error of predictions and heads, where it is known."""

import numpy as np
import pytest
import torch
from hydra import compose
from hydra.utils import instantiate
from torch import nn

from diffusion_lab.analyses import PredictionAbility, Work
from diffusion_lab.analyses.samples.lowest_line import crossings, segments, winners
from diffusion_lab.analyses.samples.prediction_ability import mean_hue, paired_hue
from diffusion_lab.analyses.words import plus_minus
from diffusion_lab.cli.config import register_resolvers
from diffusion_lab.cli.hydra_version import initialized
from diffusion_lab.data import GaussianMixture, ImageDataModule, SuperResolution
from diffusion_lab.diffusion import X0, Epsilon, V, cosine, linear
from diffusion_lab.metrics.sample_metrics import HueError
from diffusion_lab.plotting import style
from diffusion_lab.solvers import DDIM, Guided
from diffusion_lab.streams import Streams
from tests.analyses.models import Constant, of_seeds, source, trained

T = 50
SCHEDULE = linear(T)


class Off(nn.Module):
    """Answers the truth of flat images of 0.5, in the space of a prediction, plus an error."""

    def __init__(self, prediction, error):
        super().__init__()
        self.prediction, self.error = prediction, error

    def forward(self, x, t):
        x0 = torch.full_like(x, 0.5)
        alpha, sigma = SCHEDULE.alpha(t, 4), SCHEDULE.sigma(t, 4)
        return self.prediction.target(x0, (x - alpha * x0) / sigma, alpha, sigma) + self.error


FLAT = GaussianMixture([0.5], [1e-20], image_size=4, num_images=8, num_test_images=8)


def off(prediction, error, folder):
    return trained(Off(prediction, error), FLAT, prediction, SCHEDULE, folder=folder)


def measured(models, tmp_path, **given):
    analysis = PredictionAbility(**({"solver": DDIM(5, clip=False), "images": 8, "every": 1, "samples": 6} | given))
    analysis.check(models)
    return analysis, analysis.run(models, Work(tmp_path, Streams(0)))


def test_an_error_of_the_same_size_is_another_one_in_each_prediction(tmp_path):
    """|x0_hat - x0|^2 = b^2/SNR for eps, b^2 for x0, b^2/(1 + SNR) for v: v is best, eps and x0 cross at SNR = 1."""
    models = [off(Epsilon(), 0.3, "eps"), off(X0(), 0.3, "x0"), off(V(), 0.3, "v")]
    analysis, result = measured(models, tmp_path)
    snr = SCHEDULE.snr.numpy()
    expected = 0.09 * np.stack([1 / snr, np.ones(T), 1 / (1 + snr)])
    assert np.allclose(result.data["line_mean"], expected, rtol=1e-3)
    assert (result.data["best"] == 2).all() and result.data["decided"].all()
    at = int((snr > 1).sum())  # the first timestep with SNR < 1
    assert result.facts["crossings"] == [[0, 1, at - 1, at]]
    ratio = (expected / expected.min(0)).max(1)
    assert np.allclose(result.data["worst_ratio"], ratio, rtol=1e-3)
    said = analysis.sentence(result)
    assert said.startswith("The true image is best known by v at t = 0 to 49 (one is better than all others at 100 %")
    assert f"eps is better than x0 up to t = {at - 1} and worse from {at} on" in said
    assert f"eps {result.data['worst_ratio'][0]:,.0f} times at t = 49" in said
    assert f"x0 {result.data['worst_ratio'][1]:.3g} times at t = 0" in said
    assert "the hue error is left out, because the images do not have three colours" in said


def test_each_head_and_the_answer_of_all(tmp_path):
    """Three heads that answer as models of one head do, and the estimate of the denoiser itself."""
    register_resolvers()
    with initialized():
        combined = instantiate(compose("train", overrides=["prediction=combined"]).prediction, _convert_="all")
    data = source()
    many = trained(Constant(0.2, heads=3), data, combined, SCHEDULE)
    analysis, result = measured([many], tmp_path, every=7)
    assert [line["name"] for line in result.facts["lines"]] == ["x0", "v", "eps", "all heads"]
    for row, prediction in enumerate((X0(), V(), Epsilon())):
        _, alone = measured([trained(Constant(0.2), data, prediction, SCHEDULE)], tmp_path / str(row), every=7)
        assert np.allclose(result.data["errors"][row], alone.data["errors"][0], rtol=1e-6)
    ids = torch.from_numpy(result.data["image"])
    x0, t = data.test().take(ids), torch.full((len(ids),), 14)
    eps = torch.stack([Streams(0).normal((1, 4, 4), "analysis", int(i)) for i in ids])
    answer = many.denoiser.estimate(SCHEDULE.perturb(x0, eps, t), t).x0
    assert np.allclose(result.data["errors"][3, :, 2], (answer - x0).square().mean((1, 2, 3)).detach(), rtol=1e-5)
    assert "all heads" in analysis.sentence(result)


def test_the_lowest_line_and_where_it_is_decided():
    """Two seeds of line 0 and one of line 1, by hand; the second place is too close to call."""
    errors = np.zeros((3, 4, 3))
    errors[0], errors[1], errors[2] = [1.0, 1.0, 4.0], [1.1, 1.4, 4.1], [3.0, 1.1, 2.0]
    found = winners(errors, [[0, 1], [2]])
    assert np.allclose(found["line_mean"], [[1.05, 1.2, 4.05], [3.0, 1.1, 2.0]])
    assert np.allclose(found["line_half"][0], 12.7062047 * np.array([0.05, 0.2, 0.05]))  # t(0.95, 1) s / sqrt(2)
    assert found["best"].tolist() == [0, 1, 1] and found["decided"].tolist() == [True, False, True]
    assert found["lower"][0, 1].tolist() == [1, 0, -1] and found["lower"][1, 0].tolist() == [-1, 0, 1]
    assert crossings(np.array([0, 5, 10]), found["lower"]) == [[0, 1, 0, 10]]
    assert segments(np.array([0, 5, 10]), found["best"], found["decided"]) == [[0, 0, 0], [10, 10, 1]]
    assert np.allclose(found["worst_ratio"], [4.05 / 2, 3 / 1.05]) and found["worst_at"].tolist() == [2, 0]


def test_common_noise_decides_between_two_models_of_one_seed():
    """Differences of 0.1 with a spread of 0.01, in errors that spread by 1 over the images."""
    spread = np.linspace(0, 3, 10)[:, None]
    errors = np.stack([spread, spread + 0.1 + 0.01 * np.cos(5 * spread)])
    assert winners(errors, [[0], [1]])["decided"].all()
    assert not winners(np.stack([spread, spread[::-1] + 0.1]), [[0], [1]])["decided"].any()


def test_hue_of_pairs_and_of_means():
    samples = torch.full((2, 3, 4, 4), 100, dtype=torch.uint8)
    truths = samples.clone()
    truths[0, 0] += 9  # |(9, 0, 0)| / sqrt(3) in one of two images
    assert paired_hue(samples, truths) == pytest.approx((9 / 3**0.5 / 2, 9 / 3**0.5 / 2))
    # The means differ by (4.5, 0, 0), whose square is that of the noise: the truths' red has the variance 9^2 / 2.
    assert mean_hue(samples, truths) == (0, pytest.approx((81 / 2 / 2 / 3) ** 0.5))
    assert mean_hue(samples, samples) == (0, 0)
    red = torch.tensor([109, 109, 109, 105], dtype=torch.uint8)  # 8 more, with the variance 4
    tinted = torch.full((4, 3, 4, 4), 100, dtype=torch.uint8)
    tinted[:, 0] = red[:, None, None]
    mean, error = mean_hue(samples, tinted)
    assert mean == pytest.approx(((8**2 - 4 / 4) / 3) ** 0.5) and error == pytest.approx((4 / 4 / 3) ** 0.5)


def test_the_hue_error_of_equal_colours_is_not_above_0_in_the_mean():
    """It was a norm, 4.7 grey levels for a perfect model: of 5 seeds the interval excluded 0 in 7 of 8 cases."""
    random = torch.Generator().manual_seed(0)
    colours = (128 + 40 * torch.randn(200, 80, 3, 1, 1, generator=random)).clamp(0, 255).round().to(torch.uint8)
    found = torch.tensor([mean_hue(some[:16], some[16:]) for some in colours])
    assert (found[:, 0] < 2 * found[:, 1]).float().mean() > 0.9 and (found[:, 0] == 0).float().mean() > 0.3


@pytest.mark.parametrize("paired", [True, False])
def test_the_hue_error_of_colour_images(paired, tmp_path):
    class Given(nn.Module):
        def forward(self, x, t, low_res=None):
            return 0.1 * x

    data = GaussianMixture([0.0], [0.04], channels=3, image_size=4, num_images=8, num_test_images=8)
    one = trained(Given(), data, schedule=SCHEDULE)
    one.data = ImageDataModule(data, batch_size=8, task=SuperResolution(factor=2) if paired else None)
    analysis, result = measured([one], tmp_path)
    samples = one.samples(range(6), 0, DDIM(5, clip=False))
    if paired:
        truths = one.data.conditions.given_and_truth(range(6))[1]
        batch = type("Batch", (), {"samples": samples, "truths": truths})
        errors = HueError().of(batch)
        expected = float(errors.mean()), float(errors.std() / 6**0.5)
    else:
        expected = mean_hue(samples, data.to_pixels(data.test().take(range(8))))
    assert (result.data["hue_error"][0], result.data["hue_standard_error"][0]) == pytest.approx(expected)
    said = f"the hue error of the samples in grey levels is {plus_minus(expected[0], 2 * expected[1])}"
    assert said in analysis.sentence(result)
    with style():
        assert len(analysis.figure(result).axes) == 3


def test_the_samples_of_a_hue_error_start_from_the_latents_of_the_models_seed(tmp_path):
    class Given(nn.Module):
        def forward(self, x, t):
            return 0.1 * x + 0.5  # a tint, which is no noise

    data = GaussianMixture([0.0], [0.04], channels=3, image_size=4, num_images=8, num_test_images=8)
    one, other = models = of_seeds(lambda seed, folder: trained(Given(), data, schedule=SCHEDULE, folder=folder))
    hue = measured(models, tmp_path)[1].data["hue_error"]
    for seed, model in enumerate(models):
        samples = model.samples(range(6), seed, DDIM(5, clip=False))
        assert hue[seed] == pytest.approx(mean_hue(samples, data.to_pixels(data.test().take(range(8))))[0])
    assert hue[0] != hue[1]
    other.config["seed"] = one.config["seed"]
    again = measured([one, other], tmp_path / "one seed")[1]
    assert again.data["hue_error"].tolist() == [hue[0], hue[0]] and again.facts["latents"] == "the run's"


def test_what_the_figure_draws(tmp_path):
    models = [off(Epsilon(), 0.3, "eps"), off(X0(), 0.3, "x0")]
    analysis, result = measured(models, tmp_path, every=10)
    with style():
        first, second = analysis.figure(result).axes
    for i, name in enumerate(("eps", "x0")):
        assert first.lines[i].get_label() == name
        assert np.array_equal(first.lines[i].get_ydata(), result.data["line_mean"][i])
        ratio = result.data["line_mean"][i] / result.data["line_mean"].min(0)
        assert np.array_equal(second.lines[i].get_ydata(), ratio)


@pytest.mark.parametrize(
    ("other", "given", "message"),
    [
        (lambda: trained(Constant(), source(), schedule=cosine(T)), {}, "run=run must be runs with the same schedule"),
        (lambda: trained(Constant(), source(seed=1)), {}, "run=run must be runs with the same schedule, test images"),
        (
            lambda: trained(Constant(), source()),
            {"images": 65},
            "analysis.images=65 must be at most 64, the test images",
        ),
        (lambda: trained(Constant(), source(), X0()), {"solver": DDIM(51)}, "analysis.solver.steps=51 must"),
        (lambda: trained(Constant(), source(), X0()), {"solver": Guided(DDIM())}, "run=run must be trained with label"),
    ],
)
def test_what_cannot_be_compared(other, given, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        PredictionAbility(**({"solver": DDIM(5)} | given)).check([trained(Constant(), source()), other()])


@pytest.mark.parametrize(("name", "value"), [("images", 1), ("every", 0), ("samples", 1), ("batch_size", 0)])
def test_arguments_out_of_range(name, value):
    with pytest.raises(ValueError, match=f"^{name}={value} must be an integer >="):
        PredictionAbility(DDIM(), **{name: value})
