"""The native loss at every timestep, where it is known."""

import numpy as np
import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate

from diffusion_lab.analyses import PerTimestep, Work
from diffusion_lab.cli.config import conf_dir, register_resolvers
from diffusion_lab.data import Digits
from diffusion_lab.diffusion import X0, V, linear
from diffusion_lab.streams import Streams
from tests.analyses.models import Constant, Optimal, source, trained

T = 50


def measured(models, tmp_path, seed=0, **given):
    analysis = PerTimestep(**({"images": 16} | given))
    analysis.check(models)
    return analysis, analysis.run(models, Work(tmp_path / "pieces", Streams(seed)))


def noise(ids, shape, seed=0):
    """eps (n,C,H,W) of test images, as the module's docstring says."""
    return torch.stack([Streams(seed).normal(shape, "analysis", int(i)) for i in ids]).double()


def test_the_best_denoiser_of_gaussian_data_has_the_loss_of_its_closed_form(tmp_path):
    data, schedule = source(images=200, size=8), linear(T)
    models = [trained(Optimal(data, schedule, error), data, schedule=schedule) for error in (0.0, 0.3)]
    _, result = measured(models, tmp_path, images=200)
    floor = data.loss_floor(schedule).numpy()
    mean, error = (result.data[key][:, :, 0] for key in ("mean", "standard_error"))
    # One noise for all t: the 50 deviations are not independent, and 4 standard errors are beyond all of them.
    assert (np.abs(mean[0] - floor) < 4 * error[0]).all()
    assert (np.abs(mean[0] / floor - 1) < 0.06).all()
    # An error of 0.3 everywhere adds exactly 0.09 to the expected loss, at every t.
    assert (np.abs(mean[1] - floor - 0.09) < 4 * error[1]).all() and (mean[1] > floor + 4 * error[1]).all()


def test_the_same_noise_at_every_timestep(tmp_path):
    """Zero predicted in place of the noise: the loss is |eps|^2 / D, whatever t is."""
    _, result = measured([trained(Constant(), source())], tmp_path)
    losses = result.data["losses"][0, :, :, 0]
    expected = noise(result.data["image"], (1, 4, 4)).square().mean((1, 2, 3)).numpy()
    assert losses.shape == (16, T) and np.allclose(losses, expected[:, None], rtol=1e-6)
    assert len(set(expected)) == 16  # and another noise for every image
    _, other = measured([trained(Constant(), source())], tmp_path / "b", seed=1)
    assert not np.isclose(other.data["losses"], result.data["losses"]).any()


@pytest.mark.parametrize("prediction", [X0(), V()])
def test_in_the_space_of_the_prediction(prediction, tmp_path):
    data, schedule = source(), linear(T)
    _, result = measured([trained(Constant(), data, prediction, schedule)], tmp_path, every=7)
    x0 = data.test().take(torch.from_numpy(result.data["image"])).double()
    eps, t = noise(result.data["image"], (1, 4, 4)), torch.arange(0, T, 7)
    a = schedule.alphas_cumprod[t].view(-1, 1, 1, 1, 1)
    target = {"X0": x0 + 0 * a, "V": a.sqrt() * eps - (1 - a).sqrt() * x0}[type(prediction).__name__]
    expected = target.square().mean((2, 3, 4)).T.numpy()  # (n,K)
    assert np.array_equal(result.data["timesteps"], t.numpy())
    assert np.allclose(result.data["losses"][0, :, :, 0], expected, rtol=1e-5)
    assert np.allclose(result.data["mean"][0, :, 0], expected.mean(0), rtol=1e-5)
    assert np.allclose(result.data["standard_error"][0, :, 0], expected.std(0, ddof=1) / 4, rtol=1e-5)


def test_each_head_of_three_has_its_own_loss(tmp_path):
    register_resolvers()
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        prediction = instantiate(compose("train", overrides=["prediction=combined"]).prediction, _convert_="all")
    data, schedule = source(), linear(T)
    _, result = measured([trained(Constant(heads=3), data, prediction, schedule)], tmp_path, every=10)
    heads = [trained(Constant(), data, one, schedule) for one in (X0(), V(), None)]
    for h, head in enumerate(heads):
        _, alone = measured([head], tmp_path / str(h), every=10)
        assert np.allclose(result.data["losses"][0, :, :, h], alone.data["losses"][0, :, :, 0], rtol=1e-6)
    assert [curve["name"] for curve in result.facts["curves"]] == ["x0", "v", "eps"]


def test_what_the_sentence_says(tmp_path):
    """The loss of x0 = 0 predicted as v is |x0|^2 at t = T-1 of a schedule that ends in noise: read off by hand."""
    data = source()
    analysis, result = measured([trained(Constant(), data, V())], tmp_path)
    mean = result.data["mean"][0, :, 0]
    said = analysis.sentence(result)
    assert f"at t = {mean.argmax()} ({mean.max():.3g})" in said and f"at t = {mean.argmin()} ({mean.min():.3g})" in said
    assert f"is {mean.max() / mean.min():,.3g} times the smallest" in said
    worst = 100 * (result.data["standard_error"][0, :, 0] / mean).max()
    assert said.endswith(f"standard errors over 16 images are at most {worst:.2g} % of the mean.")


def test_what_the_figure_draws(tmp_path):
    data = source()
    models = [trained(Constant(value), data, step=step) for step, value in enumerate((0.0, 0.5), start=1)]
    analysis, result = measured(models, tmp_path, every=10)
    (axis,) = analysis.figure(result).axes
    assert axis.get_yscale() == "log"
    for line, mean, name in zip(axis.lines, result.data["mean"][:, :, 0], ("step 1", "step 2"), strict=True):
        assert np.array_equal(line.get_xdata(), range(0, T, 10)) and np.array_equal(line.get_ydata(), mean)
        assert line.get_label() == name and name in [text.get_text() for text in axis.texts]


def test_several_models_see_the_same_images_and_noise(tmp_path):
    data = source()
    models = [trained(Constant(value), data, step=step) for step, value in enumerate((0.0, 0.5), start=1)]
    analysis, result = measured(models, tmp_path)
    zero, half = result.data["losses"][:, :, :, 0]
    eps = noise(result.data["image"], (1, 4, 4))
    # |eps - b|^2 - |eps|^2 = b^2 - 2 b mean(eps), which independent noises would miss by far
    assert np.allclose(half - zero, (0.25 - eps.mean((1, 2, 3)))[:, None], atol=1e-6)
    assert "step 1: the largest" in analysis.sentence(result) and "step 2: the largest" in analysis.sentence(result)


@pytest.mark.parametrize(
    "other",
    [
        lambda: trained(Constant(), source(), X0()),
        lambda: trained(Constant(), source(), schedule=linear(40)),
        lambda: trained(Constant(), source(seed=1)),
        lambda: trained(Constant(), Digits()),
    ],
)
def test_models_whose_losses_cannot_be_compared_are_refused(other):
    with pytest.raises(ValueError, match="must be runs with the same prediction, timesteps and test images"):
        PerTimestep().check([trained(Constant(), source()), other()])


@pytest.mark.parametrize(("name", "value"), [("images", 1), ("images", 2.0), ("every", 0), ("batch_size", 0)])
def test_arguments_out_of_range(name, value):
    with pytest.raises(ValueError, match=f"^{name}={value} must be an integer >="):
        PerTimestep(**{name: value})
