"""The native loss at every timestep, where it is known."""

import numpy as np
import pytest
import torch
from hydra import compose
from hydra.utils import instantiate
from torch import nn

from diffusion_lab.analyses import PerTimestep, Work
from diffusion_lab.analyses.base import Result
from diffusion_lab.analyses.losses.floor import least_losses
from diffusion_lab.cli.config import register_resolvers
from diffusion_lab.cli.hydra_version import initialized
from diffusion_lab.data import ArrayImages, Digits, ImageDataModule, ImageSource
from diffusion_lab.diffusion import (
    X0,
    Epsilon,
    FixedLarge,
    V,
    bound_weights,
    cosine,
    empirical_floor,
    linear,
    vlb_terms,
)
from diffusion_lab.metrics.floor import image_floors
from diffusion_lab.streams import Streams
from tests.analyses.models import Constant, Copy, Optimal, source, trained

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
    with initialized():
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
    floor = data.loss_floor(linear(T)).numpy() / linear(T).alphas_cumprod.numpy()
    assert f"the floor is {100 * floor.sum() / mean.sum():.3g} % of the loss summed over t" in said
    assert f"the excess is largest at t = {(mean - floor).argmax()} ({(mean - floor).max():.3g})" in said
    worst = 200 * (result.data["standard_error"][0, :, 0] / mean).max()
    assert said.endswith(f"(two standard errors over 16 images) are at most {worst:.2g} % of the mean to each side.")


def test_seeds_are_one_curve_with_an_interval(tmp_path):
    data = source()
    models = [trained(Constant(0.1 * seed), data, folder=f"digits-uniform-s{seed}") for seed in range(3)]
    for seed, model in enumerate(models):
        model.config = {"seed": seed, "sampler": "uniform"}
    analysis, result = measured(models, tmp_path, every=10)
    (curve,) = result.facts["curves"]
    assert curve["members"] == [0, 1, 2] and "95 % intervals over 3 seeds" in analysis.sentence(result)
    line = analysis.figure(result).axes[0].lines[0]
    assert np.allclose(line.get_ydata(), result.data["mean"][:, :, 0].mean(0), rtol=1e-12)
    half = 4.302653 * result.data["mean"][:, :, 0].std(0, ddof=1) / 3**0.5  # t(0.95, 2)
    widest = (half / result.data["mean"][:, :, 0].mean(0)).max()
    assert curve["relative_half_width"] == pytest.approx(widest, rel=1e-6)


def test_what_the_figure_draws(tmp_path):
    data = source()
    models = [trained(Constant(value), data, step=step) for step, value in enumerate((0.0, 0.5), start=1)]
    analysis, result = measured(models, tmp_path, every=10)
    figure = analysis.figure(result)
    for axis, key in zip(figure.axes, ("mean", "excess", "bound_mean"), strict=True):
        assert axis.get_yscale() == "log"
        lines = [line for line in axis.lines if line.get_linestyle() != ":"]
        for m, (line, name) in enumerate(zip(lines, ("step 1", "step 2"), strict=True)):
            assert np.array_equal(line.get_xdata(), range(0, T, 10)) and line.get_label() == name
            drawn, values = line.get_ydata(), result.data[key][m].ravel()
            assert np.array_equal(drawn[values > 0], values[values > 0]) and np.isnan(drawn[values <= 0]).all()
    (floor,) = (line for line in figure.axes[0].lines if line.get_linestyle() == ":")
    expected, drawn = result.data["floor"][0, :, 0], floor.get_ydata()
    assert drawn[0] == expected[0] and np.isnan(drawn[-1])  # far below every loss it would set the axis
    assert np.array_equal(drawn[~np.isnan(drawn)], expected[~np.isnan(drawn)])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "step 1",
        "step 2",
        "floor of the distribution of the data",
    ]


def test_several_models_see_the_same_images_and_noise(tmp_path):
    data = source()
    models = [trained(Constant(value), data, step=step) for step, value in enumerate((0.0, 0.5), start=1)]
    analysis, result = measured(models, tmp_path)
    zero, half = result.data["losses"][:, :, :, 0]
    eps = noise(result.data["image"], (1, 4, 4))
    # |eps - b|^2 - |eps|^2 = b^2 - 2 b mean(eps), which independent noises would miss by far
    assert np.allclose(half - zero, (0.25 - eps.mean((1, 2, 3)))[:, None], atol=1e-6)
    assert "step 1: the largest" in analysis.sentence(result) and "step 2: the largest" in analysis.sentence(result)


@pytest.mark.parametrize("prediction", [Epsilon(), X0(), V()])
def test_the_same_answer_in_other_spaces(prediction, tmp_path):
    """The errors of x0, eps and v from the estimate itself, and the bound's term from its own definition."""
    data, schedule = source(), linear(T)
    model = trained(Copy(0.7), data, prediction, schedule)
    _, result = measured([model], tmp_path, every=7)
    ids, t = torch.from_numpy(result.data["image"]), torch.arange(0, T, 7)
    x0, eps = data.test().take(ids), noise(ids, (1, 4, 4)).float()
    for k, one in enumerate(t):
        steps = one.expand(len(x0))
        alpha, sigma = schedule.alpha(steps, 4), schedule.sigma(steps, 4)
        found = model.denoiser.estimate(schedule.perturb(x0, eps, steps), steps)
        errors = {"x0": found.x0 - x0, "eps": found.eps - eps}
        errors["v"] = alpha * errors["eps"] - sigma * errors["x0"]
        for space, error in errors.items():
            each = error.square().mean((1, 2, 3))
            assert result.data[f"{space}_mean"][0, k, 0] == pytest.approx(each.mean().item(), rel=2e-3)
            standard_error = result.data[f"{space}_standard_error"][0, k, 0]
            assert standard_error == pytest.approx(each.std().item() / 4, rel=2e-3)
        terms = vlb_terms(model.denoiser, x0, eps, steps)
        assert result.data["bound_mean"][0, k] == pytest.approx(terms.mean().item(), rel=1e-4)
        assert result.data["bound_standard_error"][0, k] == pytest.approx(terms.std().item() / 4, rel=1e-4)


@pytest.mark.parametrize(("prediction", "power"), [(Epsilon(), 0), (X0(), 1), (V(), 2)])
def test_the_floor_of_gaussian_data_in_the_models_space(prediction, power, tmp_path):
    data, schedule = source(), linear(T)
    _, result = measured([trained(Constant(), data, prediction, schedule)], tmp_path)
    eps_floor, a = data.loss_floor(schedule).numpy(), schedule.alphas_cumprod.numpy()
    expected = eps_floor * [1, (1 - a) / a, 1 / a][power]
    assert np.allclose(result.data["floor"][0, :, 0], expected, rtol=1e-10)
    assert not result.data["floor_standard_error"].any()
    assert np.array_equal(result.data["excess"], result.data["mean"] - result.data["floor"])
    assert np.array_equal(result.data["excess_standard_error"], result.data["standard_error"])


def test_the_floor_of_the_bound_is_the_term_of_the_best_denoiser(tmp_path):
    data, schedule = source(images=200, size=8), linear(T)
    _, result = measured([trained(Optimal(data, schedule), data, schedule=schedule)], tmp_path, images=200)
    floor, mean, error = (result.data[key][0] for key in ("bound_floor", "bound_mean", "bound_standard_error"))
    assert np.isnan(floor[0]) and np.isfinite(floor[1:]).all()
    assert (np.abs(mean - floor) < 4 * error)[1:].all() and (np.abs(mean / floor - 1) < 0.06)[1:].all()
    # The excess of a term is c_t times that of the loss, with another model too.
    _, worse = measured([trained(Constant(0.5), data, schedule=schedule)], tmp_path / "worse")
    weights = bound_weights(schedule, Epsilon(), FixedLarge()).numpy()
    excess = worse.data["bound_mean"][0] - worse.data["bound_floor"][0]
    assert np.allclose(excess[1:], (weights * worse.data["excess"][0, :, 0])[1:], rtol=1e-4)


class Pictures(ImageSource):
    """Given training images; one test image more than two."""

    name, channels, image_size, num_classes = "pictures", 1, 2, 2

    def __init__(self, images, labels):
        super().__init__()
        self.sets = {"train": ArrayImages(images, labels), "test": ArrayImages(images[:1].repeat(3, 1, 1, 1))}

    def train_size(self):
        return len(self.sets["train"])

    def load(self, split):
        return self.sets[split]


def pictures(count, flip=False, conditional=False):
    images = Streams(5).normal((count, 1, 2, 2), "test").clamp(-1, 1)
    model = trained(Constant(), Pictures(images, torch.arange(count) % 2))
    model.data = ImageDataModule(model.data.source, batch_size=1, flip=flip, conditional=conditional)
    return images, model


def exact(images, rows, snr):
    """Mean floor over the given rows, from all images at once."""
    eps = [Streams(0).normal((1, 1, 2, 2), "analysis", i, 1) for i in rows]
    return torch.stack([empirical_floor(images[i], e, snr, [images]) for i, e in zip(rows, eps, strict=True)])


def test_the_floor_of_a_finite_set(tmp_path):
    """Over all images, mirrored ones too where training mirrors, and only those of the class where it is given."""
    images, plain = pictures(6)
    snr, t = linear(T).snr, torch.arange(T)
    both = torch.cat([images, images.flip(-1)])
    rows = {"plain": exact(images, range(6), snr), "flip": exact(both, range(6), snr)}
    for name, model in {"plain": plain, "flip": pictures(6, flip=True)[1]}.items():
        (floor,) = least_losses([model], t, 64, Work(tmp_path / name, Streams(0)))
        assert np.allclose(floor.mean, rows[name].mean(0), rtol=1e-12)
        assert np.allclose(floor.standard_error, rows[name].std(0) / 6**0.5, rtol=1e-10)
        assert floor.of == "the 6 training images"
    (given,) = least_losses([pictures(2, conditional=True)[1]], t, 64, Work(tmp_path / "label", Streams(0)))
    assert not given.mean.any()  # one image of each class: the label says which
    (alone,) = least_losses([pictures(1)[1]], t, 64, Work(tmp_path / "one", Streams(0)))
    assert not alone.mean.any()


def test_little_memory_gives_the_same_floor(tmp_path, monkeypatch):
    """Chunks of one image, whose floors are held for one image at three timesteps."""
    images, model = pictures(6, flip=True)
    whole, small = (tmp_path / name for name in ("whole", "small"))
    (expected,) = least_losses([model], torch.arange(T), 4, Work(whole, Streams(0)))
    for name in ("ENTRIES", "HELD"):
        monkeypatch.setitem(image_floors.__globals__, name, 3 * images[0].numel())
    (found,) = least_losses([model], torch.arange(T), 4, Work(small, Streams(0)))
    assert np.allclose(found.mean, expected.mean, rtol=1e-9, atol=1e-300)


def test_models_that_are_shown_the_same_share_a_floor(tmp_path):
    plain, again, flipped = pictures(6)[1], pictures(6)[1], pictures(6, flip=True)[1]
    fewer = pictures(5)[1]
    models = [plain, again, flipped, fewer]
    first, second, third, fourth = least_losses(models, torch.arange(T), 4, Work(tmp_path, Streams(0)))
    assert first is second and not np.allclose(first.mean, third.mean)
    assert not np.allclose(first.mean, fourth.mean)


def learned(data, schedule, steps=300):
    """A network with a factor for each timestep, trained briefly."""
    torch.manual_seed(0)
    network = nn.ModuleDict({"scale": nn.Embedding(T, 1), "shift": nn.Embedding(T, 1)})
    optimizer = torch.optim.Adam(network.parameters(), lr=0.05)

    def answer(x, t):
        return network["scale"](t)[..., None, None] * x + network["shift"](t)[..., None, None]

    for step in range(steps):
        x0, _ = data.sample(64, 10 + step)
        eps, t = torch.randn_like(x0), torch.randint(0, T, (64,))
        loss = (answer(schedule.perturb(x0, eps, t), t) - eps).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    network.forward = answer
    return network


def test_no_trained_model_is_below_its_floor(tmp_path):
    data, schedule = source(images=200, size=8), linear(T)
    _, result = measured([trained(learned(data, schedule), data, schedule=schedule)], tmp_path, images=200)
    excess, error = (result.data[key][0, :, 0] for key in ("excess", "excess_standard_error"))
    assert (excess > -3 * error).all() and result.facts["curves"][0]["lowest_in_half_widths"] > -1.5
    assert (excess < 0.1).mean() > 0.8  # it has learned: close enough to the floor that the test could fail
    # Negative control: a tenth less than the least possible loss is noticed.
    optimal = trained(Optimal(data, schedule), data, schedule=schedule)
    _, best = measured([optimal], tmp_path / "best", images=200)
    assert (0.9 * best.data["mean"] - best.data["floor"] < -3 * best.data["standard_error"]).any()


@pytest.mark.parametrize(
    "other",
    [
        lambda: trained(Constant(), source(), X0()),
        lambda: trained(Constant(), source(), schedule=linear(40)),
        lambda: trained(Constant(), source(), schedule=cosine(T)),
        lambda: trained(Constant(), source(seed=1)),
        lambda: trained(Constant(), Digits()),
    ],
)
def test_models_whose_losses_cannot_be_compared_are_refused(other):
    with pytest.raises(ValueError, match="must be runs with the same prediction, schedule and test images"):
        PerTimestep().check([trained(Constant(), source()), other()])


def test_more_images_than_there_are():
    with pytest.raises(ValueError, match="^analysis.images=64 must be at most 20, the test images of run; use 20$"):
        PerTimestep().check([trained(Constant(), source(images=20))])


@pytest.mark.parametrize(("name", "value"), [("images", 1), ("images", 2.0), ("every", 0), ("batch_size", 0)])
def test_arguments_out_of_range(name, value):
    with pytest.raises(ValueError, match=f"^{name}={value} must be an integer >="):
        PerTimestep(**{name: value})


def test_a_loss_below_the_floor_is_explained_and_points_that_are_not_drawn_are_counted(tmp_path):
    """A floor of training images above the losses of test images, which are other images."""
    analysis, result = measured([trained(Constant(), source())], tmp_path, every=10)
    assert "training images" not in analysis.sentence(result)  # a floor that is a formula
    data = dict(result.data) | {"floor_standard_error": np.full_like(result.data["floor"], 0.1)}
    data["excess"] = np.where(np.arange(T // 10)[:, None] >= T // 10 - 3, -0.1, data["excess"])
    above = Result(data, result.facts | {"floor_of": "the 108 training images"})
    why = "the floor is a mean over training images, so that a loss of test images may lie below it"
    assert f"at 3 of {T // 10} timesteps a loss lies below the floor; {why}" in analysis.sentence(above)
    figure = analysis.figure(above)
    assert why in " ".join(figure.get_suptitle().split())
    assert figure.axes[1].get_title().endswith("\n3 points at or below 0 are not drawn")
    assert "not drawn" not in figure.axes[0].get_title()
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["loss of the test images", "floor of the 108 training images"]
