"""Schedules of any Gaussian path, against the variance-preserving one and against conditioning by hand."""

from __future__ import annotations

import pytest
import torch

from diffusion_lab.diffusion.path import GaussianPath
from diffusion_lab.diffusion.schedule import NoiseSchedule
from diffusion_lab.diffusion.schedules import cosine, linear

S = (torch.arange(50, dtype=torch.float64) + 0.5) / 50
PATHS = {
    "rectified flow": (1 - S, S),
    "variance exploding": (torch.ones(50, dtype=torch.float64), torch.logspace(-2, 2, 50, dtype=torch.float64)),
}


@pytest.mark.parametrize("schedule", [linear(100), cosine(100)], ids=["linear", "cosine"])
def test_the_variance_preserving_path_has_the_tables_of_its_betas(schedule: NoiseSchedule) -> None:
    made = GaussianPath(schedule.signal_scale, schedule.noise_scale)
    for name, table in schedule.named_buffers():
        torch.testing.assert_close(made.get_buffer(name), table, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
def test_the_posterior_is_that_of_conditioning_a_gaussian(path: tuple[torch.Tensor, torch.Tensor]) -> None:
    """Given x_0, (x_{t-1}, x_t) is Gaussian with covariance r sigma_{t-1}^2; conditioning on x_t by the textbook."""
    made, (alpha, sigma) = GaussianPath(*path), path
    for t in (1, 7, 49):
        covariance = alpha[t] / alpha[t - 1] * sigma[t - 1] ** 2
        gain = covariance / sigma[t] ** 2
        torch.testing.assert_close(made.posterior_mean_coef2[t], gain)
        torch.testing.assert_close(made.posterior_mean_coef1[t], alpha[t - 1] - gain * alpha[t])
        torch.testing.assert_close(made.posterior_variance[t], sigma[t - 1] ** 2 - gain * covariance)
    assert (made.posterior_mean_coef1[0], made.posterior_mean_coef2[0], made.posterior_variance[0]) == (1, 0, 0)


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
def test_a_respaced_path_has_the_same_scales(path: tuple[torch.Tensor, torch.Tensor]) -> None:
    kept = torch.tensor([3, 20, 49])
    made = GaussianPath(*path).respace(kept)
    assert torch.equal(made.signal_scale, path[0][kept]) and torch.equal(made.noise_scale, path[1][kept])


def test_paths_with_one_snr_have_one_alphas_cumprod() -> None:
    alpha, sigma = PATHS["rectified flow"]
    n = (alpha**2 + sigma**2).sqrt()
    flow, preserving = GaussianPath(alpha, sigma), GaussianPath(alpha / n, sigma / n)
    for name in ("snr", "log_snr", "alphas_cumprod", "noise_level"):
        torch.testing.assert_close(flow.get_buffer(name), preserving.get_buffer(name), rtol=1e-12, atol=0)


@pytest.mark.parametrize(
    ("alpha", "sigma", "sentence"),
    [
        ([1.0, 0.0], [0.1, 1.0], r"alpha\[1\]=0.0 must be positive and finite: no weight"),
        ([1.0, 0.5], [0.0, 1.0], r"sigma\[0\]=0.0 must be positive"),
        ([0.5, 0.9], [0.5, 0.1], r"alpha\[1\]/sigma\[1\] must be below that of timestep 0"),
        ([0.5], [0.5, 0.1], "must be two lists of T numbers"),
    ],
)
def test_what_is_no_path_is_one_sentence(alpha: list[float], sigma: list[float], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        GaussianPath(alpha, sigma)
