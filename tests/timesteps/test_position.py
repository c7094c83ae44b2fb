"""Distributions on the path's parameter against their densities, and the shift."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from diffusion_lab.diffusion import linear, rectified_flow
from diffusion_lab.testing import check_sampler
from diffusion_lab.timesteps import Antithetic, Beta, CosMap, LogitNormal, Mixture, Mode, Stratified
from diffusion_lab.timesteps.continuous import STEEPEST
from tests.timesteps.densities import Density, drawn, integrated, misfit

SCHEDULE = linear(200)
EDGES = torch.linspace(0, 1, 201, dtype=torch.float64)


def mode_density(scale: float) -> Density:
    """1/(ds/dw), with w(s) from a table of s(w)."""
    w = np.linspace(0, 1, 200_001)
    table = (1 + scale) * w - scale * np.sin(np.pi * w / 2) ** 2
    return lambda s: 1 / (1 + scale - scale * np.pi / 2 * np.sin(np.pi * np.interp(s, table, w)))


def cosmap_density(s: np.ndarray) -> np.ndarray:
    return 2 / (np.pi * (1 - 2 * s + 2 * s**2))


def beta_density(a: float, b: float) -> Density:
    constant = math.gamma(a + b) / (math.gamma(a) * math.gamma(b))
    return lambda s: constant * s ** (a - 1) * (1 - s) ** (b - 1)


def shifted(density: Density, shift: float) -> Density:
    """The density of S s/(1 + (S - 1) s): that of s, times ds/ds'."""

    def of(moved: np.ndarray) -> np.ndarray:
        total = moved + shift * (1 - moved)
        return density(moved / total) * shift / total**2

    return of


CASES = [
    ("mode 1.29", Mode(SCHEDULE), mode_density(1.29), Mode(SCHEDULE, 1.25)),
    ("mode 0.81 shifted", Mode(SCHEDULE, 0.81, 3.0), shifted(mode_density(0.81), 3.0), Mode(SCHEDULE, 0.81, 2.9)),
    ("mode -0.5", Mode(SCHEDULE, -0.5), mode_density(-0.5), Mode(SCHEDULE, -0.45)),
    ("cosmap", CosMap(SCHEDULE), cosmap_density, CosMap(SCHEDULE, 1.03)),
    ("cosmap shifted", CosMap(SCHEDULE, 0.5), shifted(cosmap_density, 0.5), CosMap(SCHEDULE, 2.0)),
    ("beta", Beta(SCHEDULE, 2.0, 5.0), beta_density(2, 5), Beta(SCHEDULE, 5.0, 2.0)),
    ("beta shifted", Beta(SCHEDULE, 2.0, 3.0, 2.0), shifted(beta_density(2, 3), 2.0), Beta(SCHEDULE, 2.0, 3.0, 1.95)),
]


@pytest.mark.parametrize(("sampler", "density", "other"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_million_draws_follow_the_density_and_not_one_beside_it(sampler, density, other) -> None:
    masses = integrated(density, EDGES)
    assert float(masses.sum()) == pytest.approx(1, abs=1e-5)
    assert misfit(drawn(sampler), masses) < 4.9
    assert misfit(drawn(other), masses) > 10


def test_mode_is_uniform_at_zero_and_the_arcsine_distribution_at_minus_one() -> None:
    """s = sin^2(pi w/2) at k = -1, so that P(S <= s) = (2/pi) asin(sqrt(s)): the one case with a closed inverse."""
    assert torch.allclose(Mode(SCHEDULE, 0.0).probabilities(0), torch.full((200,), 0.005, dtype=torch.float64))
    arcsine = (2 / math.pi * EDGES.sqrt().asin()).diff()
    assert torch.allclose(Mode(SCHEDULE, -1.0).probabilities(0), arcsine, rtol=1e-11)


def test_mode_at_its_steepest_puts_most_in_the_middle() -> None:
    p = Mode(linear(201), STEEPEST).probabilities(0)
    assert int(p.argmax()) == 100 and torch.allclose(p, p.flip(0), rtol=1e-9)


def test_on_the_straight_path_cosmap_has_the_snr_of_the_cosine_path() -> None:
    """x = cos(pi u/2) x0 + sin(pi u/2) eps with uniform u has sigma = tan(pi u/2); s/(1 - s) = sigma."""
    sigma = EDGES[1:-1] / (1 - EDGES[1:-1])
    assert torch.allclose(CosMap(SCHEDULE).probabilities(0).cumsum(0)[:-1], 2 / math.pi * sigma.atan(), rtol=1e-12)


def test_a_shift_adds_its_logarithm_to_the_logit() -> None:
    """Of the median: s' = 3/4 where it was 1/2, whatever the distribution."""
    for sampler in (Mode(linear(1000), shift=3.0), CosMap(linear(1000), 3.0), Beta(linear(1000), shift=3.0)):
        assert float(sampler.probabilities(0)[:750].sum()) == pytest.approx(0.5, abs=1e-9)
    moved, by_mean = LogitNormal(1000, 0.3, shift=3.0), LogitNormal(1000, 0.3 + math.log(3))
    assert torch.equal(moved.probabilities(0), by_mean.probabilities(0))


def test_the_timesteps_of_a_shifted_schedule_do_not_move_the_distribution() -> None:
    """s of the least noisy half of the draws, found on both grids by interpolation of the CDF at the bin edges."""
    medians = []
    for schedule in (rectified_flow(1000), rectified_flow(1000, 3.0)):
        s, cdf = schedule.position, Beta(schedule, 2.0, 5.0).probabilities(0).cumsum(0)[:-1]
        medians.append(float(np.interp(0.5, cdf, (s[1:] + s[:-1]) / 2)))
    assert medians == pytest.approx([0.26445] * 2, abs=1e-4)


def test_a_shift_of_one_changes_no_bit() -> None:
    """Against the formula as it was before there was a shift."""
    inner = (torch.arange(1, 1000, dtype=torch.float64) - 0.5) / 999
    z = (torch.logit(inner) - 0.2) / 0.9
    zero, one = z.new_zeros(1), z.new_ones(1)
    lower = torch.cat([zero, 0.5 * torch.erfc(-z / math.sqrt(2)), one])
    upper = torch.cat([one, 0.5 * torch.erfc(z / math.sqrt(2)), zero])
    p = torch.where(lower[1:] < 0.5, lower.diff(), -upper.diff())
    assert torch.equal(LogitNormal(1000, 0.2, 0.9).probabilities(0), p / p.sum())


def test_both_far_tails_keep_their_digits() -> None:
    """P(s < 1/T) of Beta(8, 1) is T^-8, and P(s > 1 - 1/T) of Beta(1, 8) the same: 1e-24, far below 1e-16."""
    p, q = Beta(linear(1000), 8.0, 1.0).probabilities(0), Beta(linear(1000), 1.0, 8.0).probabilities(0)
    assert float(p[0]) == pytest.approx(1e-24, rel=1e-9) and float(q[-1]) == pytest.approx(1e-24, rel=1e-9)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Stratified(Mode(linear(40))),
        lambda: Antithetic(CosMap(linear(40), 3.0)),
        lambda: Mixture(Beta(linear(40), 0.5, 0.5), reweight=True),
    ],
)
def test_wrappers_keep_the_contract(make) -> None:
    check_sampler(make, draws=2000, updates=4)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Mode(SCHEDULE, 1.76), "scale=1.76 must lie in [-1, 1.75194]; use 1.29"),
        (lambda: Mode(SCHEDULE, -1.01), "scale=-1.01 must lie in [-1, 1.75194]"),
        (lambda: Mode(SCHEDULE, shift=0.0), "shift=0.0 must lie in (0, inf); use 1.0 for none"),
        (lambda: CosMap(SCHEDULE, -1.0), "shift=-1.0 must lie in (0, inf)"),
        (lambda: Beta(SCHEDULE, a=0.0), "a=0.0 must lie in (0, inf)"),
        (lambda: LogitNormal(10, shift=math.inf), "shift=inf must lie in (0, inf)"),
    ],
)
def test_bad_arguments_are_named(make, words) -> None:
    with pytest.raises(ValueError) as error:
        make()
    assert str(error.value).startswith(words)
