"""The variance of a batch's gradient, where gradients are known functions of the timestep, the noise or the image.

The loss of a row is theta . f(x0, eps, t), so f is its gradient.
"""

import numpy as np
import pytest
import torch
from torch import nn

from diffusion_lab.analyses import BatchNoise, Work
from diffusion_lab.analyses.gradients.batch_draws import coverages, informed, sampler_draw
from diffusion_lab.analyses.gradients.rows import GradientTable, Sketch, gradient_blocks
from diffusion_lab.analyses.words import plus_minus
from diffusion_lab.diffusion import Denoiser, Epsilon, FixedLarge, V, linear
from diffusion_lab.diffusion.denoiser import Loss
from diffusion_lab.streams import Streams
from diffusion_lab.timesteps import (
    Antithetic,
    Context,
    EqualLossSlots,
    LossSecondMoment,
    Position,
    Power,
    Stratified,
    Uniform,
)
from tests.analyses.models import Constant, half_width, of_seeds, source, trained
from tests.analyses.test_gradient_variance import Linear

T, SIZES = 50, [5, 10]


class Theta(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.theta = nn.Parameter(torch.zeros(size))


class Known(Denoiser):
    """A row's gradient is f(x0, eps, t) (n,size)."""

    def __init__(self, f, size):
        super().__init__(Theta(size), linear(T), Epsilon(), FixedLarge())
        self.f = f

    def loss(self, x0, eps, t, **cond):
        native = (self.f(x0, eps, t) * self.network.theta).sum(1)
        return Loss(native, native, None, None, None)


def known(f, size):
    one = trained(nn.Identity(), source(), schedule=linear(T))
    one.denoiser = Known(f, size).eval()
    return one


def measured(model, folder, samplers=None, sizes=SIZES, **given):
    uniform = Uniform(T)
    samplers = samplers or {"uniform": uniform, "stratified": Stratified(uniform), "power": Power(T, 1.0)}
    settings = {"images": 16, "points": T, "draws": 400} | given
    analysis = BatchNoise(T, samplers, sizes, **settings)
    analysis.check([model])
    return analysis, analysis.run([model], Work(folder, Streams(0)))


def of_time(x0, eps, t):
    return (t / T)[:, None].float()


def test_a_gradient_of_the_timestep_alone(tmp_path):
    """f = t/T: iid draws have Var t / (B T^2), and those from B strata of m = T/B timesteps (m^2 - 1)/(12 B T^2), which
    falls as B^-3."""
    _, result = measured(known(of_time, 1), tmp_path)
    parts, error = result.data["parts"][0], result.data["parts_error"][0]
    assert np.abs(parts[..., 1:]).max() < 1e-12
    t = np.arange(T)
    p = (t + 1) / (t + 1).sum()
    for r, rows in enumerate(SIZES):
        assert parts[0, r, 0] == pytest.approx(t.var() / T**2 / rows, rel=1e-5)
        assert parts[2, r, 0] == pytest.approx(((p * t**2).sum() - (p * t).sum() ** 2) / T**2 / rows, rel=1e-5)
        expected = ((T / rows) ** 2 - 1) / 12 / rows / T**2
        assert abs(parts[1, r, 0] - expected) < 4 * error[1, r, 0] and error[1, r, 0] < expected / 10
        assert parts[1, r, 0] < parts[0, r, 0] / rows
    assert parts[1, 1, 0] / parts[1, 0, 0] == pytest.approx((24 / 99) / 2, rel=0.3)
    assert np.allclose(result.data["squared_mean"][0, [0, 1]], (t.mean() / T) ** 2, rtol=1e-5)
    assert np.allclose(result.data["share"][0], [1, 0, 0], atol=1e-9)


def test_a_gradient_of_the_noise_alone(tmp_path):
    """f = eps of 16 pixels: variance 16/B, whatever the draws."""
    _, result = measured(known(lambda x0, eps, t: eps.flatten(1), 16), tmp_path, images=32)
    parts, error = result.data["parts"][0], result.data["parts_error"][0]
    expected = np.zeros_like(parts)
    expected[:, :, 1] = 16 / np.array(SIZES)
    assert (np.abs(parts - expected) < 4 * error + 1e-12).all() and (error[..., 1] < 0.05 * parts[..., 1]).all()


def test_a_gradient_of_the_image_alone(tmp_path):
    """f = x0: the variance over the images that were used, and none over timesteps, as weights are 1."""
    model = known(lambda x0, eps, t: x0.flatten(1), 16)
    _, result = measured(model, tmp_path, images=64)
    parts = result.data["parts"][0]
    x0, _ = model.data.conditions.of_images(model.data.source.train(), torch.arange(64))
    of_one = float(x0.double().flatten(1).var(0).sum())
    assert np.allclose(parts[:, :, 2], of_one / np.array(SIZES), rtol=1e-5)
    assert np.abs(parts[:, :, :2]).max() < 1e-6 * of_one


def test_independent_draws_have_one_over_b_and_simulated_ones_agree(tmp_path):
    _, result = measured(trained(Linear(), source()), tmp_path, sizes=[4, 8, 32], points=12)
    parts = result.data["parts"][0]
    for s in (0, 2):
        assert np.allclose(parts[s] * np.array([[4], [8], [32]]), parts[s, 0] * 4, rtol=1e-10)
    one = sampler_draw(Power(T, 1.0), 0, torch.tensor([0, 7, 30, 49]))
    drawn = coverages(Power(T, 1.0), one, 4, 3000, 0, Work(tmp_path, Streams(0)))
    found, expected = drawn.T @ drawn / 3000, one.independent() / 4
    assert np.allclose(found, expected, atol=0.1 * expected.max())
    assert np.abs(drawn.mean(0)).max() < 4 * drawn.std(0).max() / 3000**0.5


def simulated(model, sampler, rows, count):
    """Variance of the gradient of batches that were really drawn, and its standard error."""
    split, generator = model.data.source.train(), torch.Generator().manual_seed(5)
    gradients = []
    for r in range(count):
        ids = torch.randint(0, len(split), (rows,), generator=generator)
        t, weight = sampler.draw(torch.zeros(rows, 1, 1, 1), Context(Position(r), Streams(9)))
        gradients.append((ids, t, weight))
    ids, t, weight = (torch.cat([some[k] for some in gradients]) for k in range(3))
    x0, _ = model.data.conditions.of_images(split, ids)
    eps = torch.randn(x0.shape, generator=generator)
    g = torch.cat([*gradient_blocks(model.denoiser, x0, eps, t, {}, 4000)]).double() * weight[:, None]
    batches = g.view(count, rows, -1).mean(1)
    distance = (batches - batches.mean(0)).square().sum(1)
    return float(distance.sum() / (count - 1)), float(distance.std() / count**0.5)


@pytest.mark.slow
def test_the_parts_add_up_to_the_variance_of_real_batches(tmp_path):
    model, uniform = trained(Linear(), source()), Uniform(T)
    samplers = {"uniform": uniform, "antithetic": Antithetic(uniform), "power": Power(T, 0.3, reweight=True)}
    _, result = measured(model, tmp_path, samplers, [4], images=64, noises=4)
    for s, sampler in enumerate(samplers.values()):
        direct, error = simulated(model, sampler, 4, 2500)
        total = result.data["parts"][0, s, 0].sum()
        of_parts = np.hypot.reduce(result.data["parts_error"][0, s, 0])
        assert abs(total - direct) < 4 * np.hypot(error, of_parts) and error < 0.05 * direct


def test_the_limit_has_the_least_variance_of_independent_unbiased_draws(tmp_path):
    samplers = {"uniform": Uniform(T), "loss": LossSecondMoment(T), "power": Power(T, -0.5, reweight=True)}
    analysis, result = measured(trained(Linear(), source()), tmp_path, samplers)
    relative = result.data["relative"][0, :, 0]
    assert result.data["same"].all() and relative[0] == pytest.approx(1)
    assert relative[-1] < relative[:-1].min()
    p = result.data["probability"][0, 1]
    assert p.std() > 0  # it has learned from the losses
    said = analysis.sentence(result)
    best = int(relative[:-1].argmin())
    names = result.facts["samplers"]
    error = result.data["relative_error"][0, best, 0]
    assert f"{plus_minus(relative[best], 2 * error)} of it at B = 5 ({names[best]})" in said
    assert f"independent draws: at least {relative[-1]:.3g}" in said
    share, error = (100 * result.data[key][0, 0] for key in ("share", "share_error"))
    assert f"{plus_minus(share, 2 * error)} % come from the timesteps" in said
    assert said.endswith("(\N{PLUS-MINUS SIGN}: two standard errors over 16 images).")
    assert analysis.figure(result).axes


def test_seeds_are_one_group_with_their_interval(tmp_path):
    models = of_seeds(lambda seed, **given: trained(Linear(seed), source(), **given), 3)
    samplers = {"uniform": Uniform(T), "power": Power(T, -0.5, reweight=True)}
    analysis = BatchNoise(T, samplers, SIZES, images=16, points=8)
    analysis.check(models)
    result = analysis.run(models, Work(tmp_path, Streams(0)))
    said, relative = analysis.sentence(result), result.data["relative"]  # (M,S,R)
    share = 100 * result.data["share"][:, 0]
    assert f"{plus_minus(share.mean(), half_width(share))} % come from the timesteps" in said
    best = int(relative[:, :-1, 0].mean(0).argmin())
    seeds = relative[:, best, 0]
    assert f"{plus_minus(seeds.mean(), half_width(seeds))} of it at B = 5 ({['uniform', 'power'][best]})" in said
    assert said.endswith("(\N{PLUS-MINUS SIGN}: 95 % intervals over 3 seeds).")
    whiskers = analysis.figure(result).axes[0].containers[-1].lines[2][0].get_segments()
    assert np.allclose(np.ptp(whiskers[1], 0), [2 * half_width(relative[:, 1, 0]), 0])


def test_another_objective_is_relative_to_its_own_mean(tmp_path):
    """f = (1, eps): |E g|^2 = 1 for every density, and no sampler of weight 1 changes the variance."""

    def f(x0, eps, t):
        return torch.cat([torch.ones_like(t[:, None]).float(), 3 + eps.flatten(1)[:, :1]], 1)

    _, result = measured(known(f, 2), tmp_path, images=32)
    assert not result.data["same"][0, 2] and result.data["same"][0, :2].all()
    assert result.data["squared_mean"][0, 2] == pytest.approx(10, rel=0.1)
    assert result.data["relative"][0, 2] == pytest.approx(1, abs=4 * result.data["relative_error"][0, 2].max())
    lost = known(lambda x0, eps, t: eps.flatten(1), 16)
    _, result = measured(lost, tmp_path / "lost")
    assert np.isnan(result.data["relative"][0, 2]).all()  # no expected gradient
    assert np.allclose(result.data["relative"][0, 0], 1)


def test_the_table_without_an_image_is_the_table_of_the_others():
    draw = np.random.default_rng(0)
    mean, within = draw.normal(size=(5, 3, 4)), draw.normal(size=(5, 3)) ** 2
    _, without = GradientTable(mean, within, 2).parts()
    for i in range(5):
        rest, _ = GradientTable(np.delete(mean, i, 0), np.delete(within, i, 0), 2).parts()
        for one, other in zip(without, rest, strict=True):
            assert np.allclose(one[i], other)


def test_a_sketch_keeps_products_within_its_error(tmp_path):
    """|g|^2 has the relative standard deviation sqrt(2/s) over sketches, and no bias."""
    rows, found = torch.randn(2, 3000, generator=torch.Generator().manual_seed(0)), []
    for seed in range(400):
        a, b = Sketch(Work(tmp_path, Streams(seed)), 64)(rows)
        found.append([float(a @ a), float(a @ b)])
    norm, product = np.array(found).T
    square = float(rows[0] @ rows[0])
    assert norm.std() / square == pytest.approx((2 / 64) ** 0.5, rel=0.15)
    assert norm.mean() == pytest.approx(square, rel=4 * (2 / 64 / 400) ** 0.5)
    assert product.mean() == pytest.approx(float(rows[0] @ rows[1]), abs=4 * product.std() / 20)
    assert torch.equal(Sketch(Work(tmp_path, Streams(0)), 3000)(rows), rows)


def test_a_sampler_that_learns_at_longer_intervals_is_not_shown_as_it_begins(tmp_path):
    model = trained(Constant(), source(), V(), schedule=linear(T))
    given = {"mine": EqualLossSlots(T, update_every=1), "other": Stratified(Uniform(T))}
    (learned,) = informed(given, [model], 8, Work(tmp_path, Streams(0)))
    assert not torch.equal(learned["mine"].probabilities(0), given["mine"].probabilities(0))
    with pytest.raises(ValueError, match=r"analysis.samplers.mine must learn from 10 losses at each .*update_every=1"):
        informed({"mine": EqualLossSlots(T)}, [model], 8, Work(tmp_path / "other", Streams(0)))


def test_what_cannot_be_measured_is_refused():
    from diffusion_lab.timesteps import GradientVariance

    model = trained(Linear(), source())

    def check(words, steps=T, samplers=None, **given):
        with pytest.raises(ValueError, match=words):
            BatchNoise(steps, samplers or {"uniform": Uniform(steps)}, **given).check([model])

    check("analysis.num_timesteps=1000 must be those of the runs; use 50", 1000)
    check("analysis.images=65 must be at most the 64 training images", images=65)
    check("analysis.samplers.v must draw without evaluations", samplers={"v": GradientVariance(T)})
    check("analysis.samplers.u must have the runs' 50 timesteps", samplers={"u": Uniform(60)})


@pytest.mark.parametrize(
    "given", [{"batch_sizes": [8, 4]}, {"batch_sizes": [0]}, {"images": 2}, {"noises": 1}, {"draws": 1}, {"sketch": 0}]
)
def test_arguments_out_of_range(given):
    with pytest.raises(ValueError, match=f"^{next(iter(given))}=.* must"):
        BatchNoise(T, {"uniform": Uniform(T)}, **given)
