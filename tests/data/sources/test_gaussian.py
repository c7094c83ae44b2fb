from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from diffusion_lab.data import GaussianMixture
from diffusion_lab.diffusion import rectified_flow

LINEAR = SimpleNamespace(
    alphas_cumprod=(1 - torch.linspace(1e-4, 0.02, 1000, dtype=torch.float64)).cumprod(0), norm=None
)
COARSE = SimpleNamespace(alphas_cumprod=torch.tensor([0.999, 0.9, 0.5, 0.1, 0.001], dtype=torch.float64), norm=None)


def mixture(**kwargs) -> GaussianMixture:
    given = dict(means=[-0.6, 0.2, 0.8], variances=[0.05, 0.2, 0.01], weights=[1, 2, 3], channels=1, image_size=1)
    return GaussianMixture(**(given | kwargs))


def noised(data: GaussianMixture, n: int, t: int, schedule, seed: int = 5):
    """x_t, eps (n,C,H,H) at one timestep, from fresh draws."""
    x0 = data.sample(n, seed)[0].double()
    eps = torch.randn(x0.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    alpha_bar = schedule.alphas_cumprod[t]
    return alpha_bar.sqrt() * x0 + (1 - alpha_bar).sqrt() * eps, eps


def test_draws_have_the_moments_of_the_mixture():
    data = mixture(image_size=2, num_images=20_000)
    x0, labels = data.train().images.double(), data.train().labels
    assert x0.shape == (20_000, 1, 2, 2) and data.num_classes == 3
    for k, (mean, variance, weight) in enumerate(zip([-0.6, 0.2, 0.8], [0.05, 0.2, 0.01], [1, 2, 3], strict=True)):
        rows = x0[labels == k].flatten(1)
        n, p = len(rows), weight / 6
        assert abs(n / 20_000 - p) < 4 * math.sqrt(p * (1 - p) / 20_000)
        assert (rows.mean(0) - mean).abs().max() < 5 * math.sqrt(variance / n)
        assert (rows.var(0) / variance - 1).abs().max() < 5 * math.sqrt(2 / n)
        covariance = torch.cov(rows.T)
        assert (covariance - covariance.diag().diag()).abs().max() < 5 * variance / math.sqrt(n)


def test_the_data_do_not_depend_on_who_asks():
    assert torch.equal(mixture(num_images=50).train().images, mixture(num_images=50).train().images)
    assert not torch.equal(mixture(num_images=50).train().images, mixture(num_images=50, seed=1).train().images)
    both = mixture(num_images=50, num_test_images=50)
    assert not torch.equal(both.train().images, both.test().images)
    alone = mixture(means=[0.3], variances=[1.0], weights=None)
    assert alone.num_classes is None and alone.test().labels is None


def test_means_may_be_images():
    means = [np.arange(12.0).reshape(3, 2, 2).tolist(), 1.5]
    data = GaussianMixture(means, [1e-8, 1e-8], channels=3, image_size=2, num_images=100)
    image = data.train().images[data.train().labels == 0][0]
    torch.testing.assert_close(image, torch.arange(12.0).view(3, 2, 2), atol=1e-3, rtol=0)


def test_the_floor_of_one_gaussian_is_the_closed_form():
    """E|eps - E[eps|x_t]|^2 / D = a^2 v / (a^2 v + s^2)."""
    data = GaussianMixture([0.4], [0.25], channels=2, image_size=4)
    floor = data.loss_floor(LINEAR)
    a2 = LINEAR.alphas_cumprod
    torch.testing.assert_close(floor, a2 * 0.25 / (a2 * 0.25 + 1 - a2), rtol=1e-12, atol=0)
    for t in (0, 100, 500, 999):
        x_t, eps = noised(data, 4000, t, LINEAR)
        error = (eps - data.optimal_eps(x_t, torch.full((4000,), t), LINEAR)).square().flatten(1).mean(1)
        assert abs(error.mean() - floor[t]) < 4 * error.std() / math.sqrt(4000)


def test_the_floor_of_a_mixture_is_what_the_optimal_denoiser_reaches():
    data = mixture(means=[-0.5, 0.5], variances=[0.05, 0.1], weights=None, image_size=2)
    floor = data.loss_floor(COARSE, samples=20_000)
    for t in range(5):
        x_t, eps = noised(data, 40_000, t, COARSE)
        error = (eps - data.optimal_eps(x_t, torch.full((40_000,), t), COARSE)).square().flatten(1).mean(1)
        assert abs(error.mean() - floor[t]) < 4 * error.std() * math.sqrt(1 / 40_000 + 1 / 20_000)


@pytest.mark.parametrize("t", range(5))
def test_the_optimum_of_a_mixture_against_numerical_integration(t):
    """E[eps | x_t] = (x_t - a E[x0 | x_t]) / s with E[x0 | x_t] by integrating over x0 in one dimension."""
    data, alpha_bar = mixture(), float(COARSE.alphas_cumprod[t])
    a, s = math.sqrt(alpha_bar), math.sqrt(1 - alpha_bar)
    parts = [(1 / 6, -0.6, 0.05), (2 / 6, 0.2, 0.2), (3 / 6, 0.8, 0.01)]
    x0 = np.linspace(-4, 4, 200_001)
    prior = sum(w * stats.norm.pdf(x0, m, math.sqrt(v)) for w, m, v in parts)
    for x_t in (-1.3, -0.2, 0.1, 0.75, 2.0):
        joint = prior * stats.norm.pdf(x_t, a * x0, s)
        want = (x_t - a * integrate.simpson(x0 * joint, x=x0) / integrate.simpson(joint, x=x0)) / s
        got = data.optimal_eps(torch.full((1, 1, 1, 1), x_t, dtype=torch.float64), torch.tensor([t]), COARSE)
        assert got.item() == pytest.approx(want, rel=1e-6, abs=1e-8)


def test_the_optimum_in_two_dimensions_against_numerical_integration():
    """Components of unequal variance weigh differently as the dimension grows, which one dimension cannot show."""
    means, variances = [[[[-0.4]], [[0.3]]], [[[0.2]], [[0.5]]]], [0.02, 0.3]
    data = GaussianMixture(means, variances, weights=[3, 1], channels=2, image_size=1)
    grid = np.linspace(-3.5, 3.5, 1401)
    x0 = np.stack(np.meshgrid(grid, grid, indexing="ij"), 2)
    prior = 0.75 * stats.multivariate_normal.pdf(x0, [-0.4, 0.3], 0.02)
    prior += 0.25 * stats.multivariate_normal.pdf(x0, [0.2, 0.5], 0.3)
    a, s = math.sqrt(0.5), math.sqrt(0.5)
    for x_t in ([0.1, -0.4], [-0.5, 0.9]):
        joint = prior * np.exp(-((np.array(x_t) - a * x0) ** 2).sum(2) / (2 * s * s))
        mean = (x0 * joint[..., None]).sum((0, 1)) / joint.sum()
        got = data.optimal_eps(torch.tensor(x_t, dtype=torch.float64).view(1, 2, 1, 1), torch.tensor([2]), COARSE)
        np.testing.assert_allclose(got.flatten().numpy(), (np.array(x_t) - a * mean) / s, rtol=1e-6)


def test_the_floor_of_a_mixture_against_numerical_integration():
    """1 - E|E[eps|x_t]|^2 in one dimension, over a grid of x_t: no random numbers."""
    data, x = mixture(), torch.linspace(-8, 8, 40_001, dtype=torch.float64)
    floor = data.loss_floor(COARSE, samples=40_000)
    for t, alpha_bar in enumerate(COARSE.alphas_cumprod.tolist()):
        parts = [(1 / 6, -0.6, 0.05), (2 / 6, 0.2, 0.2), (3 / 6, 0.8, 0.01)]
        a, s2 = math.sqrt(alpha_bar), 1 - alpha_bar
        density = sum(w * stats.norm.pdf(x.numpy(), a * m, math.sqrt(alpha_bar * v + s2)) for w, m, v in parts)
        best = data.optimal_eps(x.view(-1, 1, 1, 1), torch.full((len(x),), t), COARSE).flatten().numpy()
        want = 1 - integrate.simpson(density * best**2, x=x.numpy())
        assert float(floor[t]) == pytest.approx(want, abs=0.01)


def test_the_optimum_keeps_shape_type_and_mixed_timesteps():
    data = mixture(image_size=3)
    x_t, t = torch.randn(4, 1, 3, 3), torch.tensor([0, 4, 2, 0])
    together = data.optimal_eps(x_t, t, COARSE)
    assert together.shape == x_t.shape and together.dtype == torch.float32
    for i in range(4):
        torch.testing.assert_close(together[i : i + 1], data.optimal_eps(x_t[i : i + 1], t[i : i + 1], COARSE))


def test_far_apart_components_do_not_overflow():
    data = mixture(means=[-50, 50], variances=[1e-6, 1e-6], weights=None, image_size=8)
    assert torch.isfinite(data.loss_floor(COARSE)).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(means=[]), "means=.* must name at least one"),
        (dict(variances=[0.1, -1, 1]), "variances=.* must be 3 positive numbers"),
        (dict(variances=[0.1]), "variances=.* must be 3 positive numbers"),
        (dict(weights=[1, 0, 1]), "weights=.* must be 3 positive numbers"),
        (dict(means=[[[1.0, 2.0]], 0, 0]), r"means=\(1, 2\) must be one number or have the shape \(1, 1, 1\)"),
        (dict(means=[0, float("nan"), 0]), "means=nan must be finite"),
        (dict(means=[0, 0, -1e300]), "means=-1e[+]300 must be finite"),
        (dict(variances=[0.1, 1e300, 1]), "variances=.* must be 3 positive numbers"),
        (dict(num_images=0), "num_images=0 must be an integer >= 1"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        mixture(**arguments)


def test_the_optimum_on_a_straight_path_is_that_of_its_variance_preserving_twin():
    data, path = mixture(), rectified_flow(20)
    twin = SimpleNamespace(alphas_cumprod=path.alphas_cumprod, norm=None)
    x0, _ = data.sample(20, 7)
    t = torch.arange(20)
    x_t = path.perturb(x0.double(), torch.randn(x0.shape, generator=torch.Generator().manual_seed(0)).double(), t)
    scaled = x_t / path.norm.reshape(-1, 1, 1, 1)
    torch.testing.assert_close(data.optimal_eps(x_t, t, path), data.optimal_eps(scaled, t, twin), rtol=1e-9, atol=0)
    assert not torch.allclose(data.optimal_eps(x_t, t, path), data.optimal_eps(x_t, t, twin), rtol=1e-2)
