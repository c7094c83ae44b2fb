"""Distributions of ln SNR against their densities, and against what papers state in other coordinates."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from diffusion_lab.diffusion import GaussianPath, cosine, laplace, linear, rectified_flow
from diffusion_lab.timesteps import Cauchy, Distribution, Laplace, LogNormal, LogSNR, Normal
from diffusion_lab.timesteps.base import TimestepSampler
from tests.timesteps.densities import drawn, integrated, misfit

SCHEDULE = linear(200)
CASES = {
    "normal": (Normal(1.0, 2.4), lambda x: np.exp(-(((x - 1) / 2.4) ** 2) / 2), Normal(1.0, 2.36)),
    "laplace": (Laplace(-1.0, 0.8), lambda x: np.exp(-np.abs(x + 1) / 0.8), Laplace(-0.98, 0.8)),
    "cauchy": (Cauchy(0.5, 1.2), lambda x: 1 / (1 + ((x - 0.5) / 1.2) ** 2), Cauchy(0.5, 1.16)),
}


def distance(a: TimestepSampler, b: TimestepSampler) -> float:
    """Largest difference of the cumulative probabilities (Kolmogorov's)."""
    return float((a.probabilities(0) - b.probabilities(0)).cumsum(0).abs().max())


def edges_of(log_snr: Tensor) -> Tensor:
    inner = (log_snr[1:] + log_snr[:-1]) / 2
    return torch.cat([2 * log_snr[:1] - inner[:1], inner, 2 * log_snr[-1:] - inner[-1:]])


@pytest.mark.parametrize(("distribution", "density", "other"), CASES.values(), ids=CASES)
def test_a_million_draws_follow_the_density_and_not_one_beside_it(distribution, density, other) -> None:
    """Of the truncated distribution, the kink of Laplace's density at a bin's edge or inside it."""
    edges = torch.cat([edges_of(SCHEDULE.log_snr), torch.tensor([-1.0], dtype=torch.float64)]).sort().values
    parts = integrated(density, edges)  # from low to high ln SNR; -1 divides one bin into two
    at = int(torch.searchsorted(edges, -1.0)) - 1
    masses = torch.cat([parts[:at], parts[at : at + 2].sum()[None], parts[at + 2 :]]).flip(0)
    assert misfit(drawn(LogSNR(SCHEDULE, distribution)), masses) < 4.9
    assert misfit(drawn(LogSNR(SCHEDULE, other)), masses) > 10


def test_what_lies_outside_is_left_out_or_belongs_to_the_ends() -> None:
    """Cauchy: P(|x| > z) = 1 - (2/pi) atan(z)."""
    schedule = rectified_flow(1000)
    inside, ends = (LogSNR(schedule, Cauchy(), outside).probabilities(0) for outside in ("renormalize", "clamp"))
    edges = edges_of(schedule.log_snr)
    cdf = 0.5 + edges.atan() / math.pi
    assert float(ends[-1]) == pytest.approx(float(cdf[-2]), rel=1e-9)
    assert float(ends[0]) == pytest.approx(1 - float(cdf[1]), rel=1e-9)
    expected = -cdf.diff() / (cdf[0] - cdf[-1])
    assert torch.allclose(inside, expected, rtol=1e-9, atol=1e-15)
    assert float(inside[-1]) < 0.2 * float(ends[-1])


@pytest.mark.parametrize(
    "schedule", [linear(1000), cosine(1000), rectified_flow(1000)], ids=["linear", "cosine", "flow"]
)
def test_edm_is_the_normal_distribution_at_minus_two_m_and_two_d(schedule) -> None:
    """ln SNR = -2 ln sigma; the bins of `LogNormal` are halfway in sigma, these in ln sigma."""
    edm = LogNormal(schedule, -1.2, 1.2)
    assert distance(LogSNR(schedule, Normal(2.4, 2.4), "clamp"), edm) < 2e-3
    assert distance(LogSNR(schedule, Normal(-2.4, 2.4), "clamp"), edm) > 0.3
    assert distance(LogSNR(schedule, Normal(2.4, 1.2), "clamp"), edm) > 0.05


def test_the_logit_normal_of_sd3_is_normal_on_rectified_flow() -> None:
    """logit s ~ N(m + ln S, d^2): ln SNR = -2 logit s, at the bin edges of s."""
    schedule, (m, d, shift) = rectified_flow(2000), (0.3, 0.8, 3.0)
    p = LogSNR(schedule, Normal(-2 * (m + math.log(shift)), 2 * d), "clamp").probabilities(0)
    z = (torch.logit(torch.arange(1, 2000, dtype=torch.float64) / 2000) - m - math.log(shift)) / d
    assert float((p.cumsum(0)[:-1] - torch.special.ndtr(z)).abs().max()) < 2e-4


def test_the_laplace_schedule_has_it_under_uniform_t() -> None:
    """Hang et al. (2024) put the distribution into the schedule: there it is nearly uniform over the timesteps."""
    even = torch.arange(1, 1001, dtype=torch.float64) / 1000
    matching, wider = (LogSNR(laplace(1000, 0.0, 0.5), Laplace(0.0, b)).probabilities(0).cumsum(0) for b in (0.5, 0.6))
    assert float((matching - even).abs().max()) < 3e-3 < 0.02 < float((wider - even).abs().max())


class Sech(Distribution):
    """Of one's own: density 1/(2 pi cosh(x/2)), with nothing but a CDF."""

    def cdf(self, x: Tensor) -> Tensor:
        return 2 / math.pi * (x / 2).exp().atan()


def test_a_distribution_of_ones_own_is_one_class() -> None:
    p = LogSNR(rectified_flow(400), Sech()).probabilities(0)
    masses = integrated(lambda x: 1 / np.cosh(x / 2), edges_of(rectified_flow(400).log_snr).flip(0)).flip(0)
    assert torch.allclose(p, masses / masses.sum(), atol=1e-12)


def test_the_upper_tail_keeps_its_digits() -> None:
    """P(ln SNR > 19.6 standard deviations), of which 1 - cdf has nothing."""
    schedule = linear(1000)
    p = LogSNR(schedule, Normal(-10.0, 1.0), "clamp").probabilities(0)
    z = float((schedule.log_snr[0] + schedule.log_snr[1]) / 2) + 10
    assert float(p[0]) == pytest.approx(0.5 * math.erfc(z / math.sqrt(2)), rel=1e-9) and 0 < float(p[0]) < 1e-70


@pytest.mark.parametrize("outside", ["clamp", "renormalize"])
def test_a_single_timestep_has_all(outside: str) -> None:
    schedule = GaussianPath([0.7], [0.7])
    assert LogSNR(schedule, Normal(), outside).probabilities(0).tolist() == [1.0]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Normal(scale=0.0), "scale=0.0 must lie in (0, inf)"),
        (lambda: Cauchy(location=math.nan), "location=nan must lie in (-inf, inf)"),
        (lambda: LogSNR(SCHEDULE, Normal(), "fold"), "outside=fold must be one of renormalize, clamp"),
        (
            lambda: LogSNR(SCHEDULE, Laplace(9e4, 1.0)),
            "distribution=Laplace must have mass between the schedule's",
        ),
        (lambda: LogSNR(SCHEDULE, Normal(8.0, 0.1), reweight=True), "reweight=True must not divide by a probability"),
    ],
)
def test_bad_arguments_are_named(make, words) -> None:
    with pytest.raises(ValueError) as error:
        make()
    assert str(error.value).startswith(words)
