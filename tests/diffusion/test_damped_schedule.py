"""The critically damped schedule against the oscillator's mean, and its two limits."""

from __future__ import annotations

import math

import pytest
import torch

from diffusion_lab.diffusion import cosine, damped, edm, fdm, linear, rectified_flow


@pytest.mark.parametrize(("multiplier", "index"), [(0.5, 3108), (1.0, 2400), (2.0, 1768)])
def test_index_where_signal_equals_noise(multiplier, index):
    assert int(fdm(4000, multiplier).log_snr.abs().argmin()) == index
    assert int(cosine(4000).log_snr.abs().argmin()) == 1983


@pytest.mark.parametrize("multiplier", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("host", [cosine(4000), linear(), rectified_flow(1000), edm(1000)], ids=str)
def test_signal_is_the_squared_mean_of_the_oscillator(host, multiplier):
    schedule = damped(host, multiplier)
    a = host.alphas_cumprod
    S = torch.exp(multiplier * a.log()) * (1 - multiplier * a.log())
    clipped = schedule.betas >= 0.999
    assert int(clipped.sum()) <= 1 and not clipped[:-1].any()  # the last step alone
    got = schedule.alphas_cumprod[~clipped]
    # The host's first step stands in front: A' = A_0 S^2/S_0^2.
    torch.testing.assert_close(got, (a[0] * (S / S[0]) ** 2)[~clipped], rtol=1e-9, atol=0)
    torch.testing.assert_close(got[100:], (S**2)[~clipped][100:], rtol=2e-4, atol=0)


@pytest.mark.parametrize("multiplier", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("steps", [1, 2, 10, 1000, 4000])
def test_least_noise_is_the_hosts_and_float32_holds_it(multiplier, steps):
    host, schedule = cosine(steps), fdm(steps, multiplier)
    assert schedule.alphas_cumprod[0] == host.alphas_cumprod[0]
    assert bool((1 - schedule.alphas_cumprod >= 1 - host.alphas_cumprod[0]).all())
    assert bool(torch.isfinite(schedule.snr.float()).all()) and float(schedule.betas.max()) <= 0.999


def test_betas_near_the_start_keep_their_digits():
    # ln S = -z^2/2 + z^3/3 - ..., z = -m ln A; b_t = 1 - S_t^2/S_{t-1}^2 = z_t^2 - z_{t-1}^2 to first order.
    host, schedule = cosine(4000), fdm(4000, 0.5)
    z = [-0.5 * sum(math.log1p(-b) for b in host.betas[: t + 1].tolist()) for t in range(3)]
    for t in (1, 2):
        log_s = [-(x**2) / 2 + x**3 / 3 - x**4 / 4 for x in z[t - 1 : t + 1]]
        assert schedule.betas[t].item() == pytest.approx(-math.expm1(2 * (log_s[1] - log_s[0])), rel=1e-6)
        assert schedule.betas[t].item() < 1e-9


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fdm(multiplier=0.0), r"^multiplier=0.0 must lie in \(0, inf\); use 1.0"),
        (lambda: fdm(num_timesteps=0), r"^num_timesteps=0 must be an integer in \[1, 1000000\]"),
        (lambda: fdm(max_beta=1.0), r"^max_beta=1.0 must lie in \(0, 1\); use 0.999"),
    ],
)
def test_bad_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
