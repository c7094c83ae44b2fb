"""Power-function averages against closed forms."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from diffusion_lab.averaging import PowerFunction, coefficients, exponent, name_of, std_of

STEPS, EVERY = 400, 20
TRACKED = (0.05, 0.1)


def std(g: float) -> float:
    """The standard deviation of a Beta(g + 1, 1) variable: that of the profile."""
    return math.sqrt((g + 1) / ((g + 2) ** 2 * (g + 3)))


@pytest.mark.parametrize("width", [1e-3, 0.01, 0.05, 0.1, 0.2, 0.288])
def test_the_exponent_gives_the_width(width: float) -> None:
    assert std(exponent(width)) == pytest.approx(width, rel=1e-9)


def test_published_exponents() -> None:
    assert exponent(0.05) == pytest.approx(16.97, abs=0.005)
    assert exponent(0.1) == pytest.approx(6.94, abs=0.005)


@pytest.mark.parametrize("width", [0.0, -0.1, 0.2887, 0.5, float("nan"), True])
def test_widths_beyond_the_uniform_average_are_refused(width: float) -> None:
    with pytest.raises(ValueError, match="std=.* must lie in"):
        exponent(width)
    with pytest.raises(ValueError, match="stds=.* must lie in"):
        PowerFunction([width])


@pytest.mark.parametrize("width", [0.00005, 0.0123456789])
def test_a_width_that_no_file_can_be_named_by_is_refused(width: float) -> None:
    """Its snapshots would be written and never found."""
    assert std_of(name_of(width)) != width
    with pytest.raises(ValueError, match=r"stds=.* must be at least 0.0001 and have at most six digits; use 0\.0"):
        PowerFunction([0.05, width])
    assert PowerFunction([0.05, width], snapshot_every=0).names  # of a run that writes no files


def test_names() -> None:
    assert [std_of(name_of(width)) for width in TRACKED] == list(TRACKED)
    assert [std_of(name) for name in ("0.9999", "std-", "std--1", "std-1e3", "std-0.05/../x")] == [None] * 5


def test_the_weight_of_a_step_is_the_integral_of_the_profile() -> None:
    rule, last = PowerFunction(TRACKED), 50
    weights = torch.zeros(2, last, dtype=torch.float64)
    for step in range(1, last + 1):
        shares = torch.tensor(rule.shares(step), dtype=torch.float64)
        weights *= 1 - shares[:, None]
        weights[:, step - 1] = shares
    edges = torch.arange(last + 1, dtype=torch.float64) / last
    for row, width in zip(weights, TRACKED, strict=True):
        assert torch.allclose(row, (edges ** (exponent(width) + 1)).diff(), rtol=1e-9, atol=1e-15)


def path() -> Tensor:
    """(STEPS, 64) weights of a training in which each parameter drifts and fluctuates."""
    noise = torch.randn(STEPS, 64, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return noise.cumsum(0) / 20 + noise


def averaged(theta: Tensor, width: float, step: int) -> Tensor:
    """The direct average in closed form: a weighted sum with the profile's integral over each step."""
    edges = torch.arange(step + 1, dtype=torch.float64) / step
    return (edges ** (exponent(width) + 1)).diff() @ theta[:step]


def rebuilt(theta: Tensor, width: float, every: int = EVERY) -> Tensor:
    pairs = [(step, one) for step in range(every, STEPS + 1, every) for one in TRACKED]
    found = coefficients([step for step, _ in pairs], [one for _, one in pairs], STEPS, width)
    saved = torch.stack([averaged(theta, one, step) for step, one in pairs]).float()  # as in the files
    return torch.from_numpy(found.values) @ saved.double()


@pytest.mark.parametrize("width", [0.05, 0.06, 0.07, 0.08, 0.09, 0.1])
def test_reconstruction_equals_the_direct_average(width: float) -> None:
    theta = path()
    direct = averaged(theta, width, STEPS)
    distance = (direct - theta[-1]).norm()
    miss = (rebuilt(theta, width) - direct).norm()
    assert miss < 0.02 * distance
    other = width + 0.01  # the control: another width misses by more
    assert (rebuilt(theta, other) - direct).norm() > 2 * miss + 0.01 * distance


def test_a_profile_proportional_to_a_power_of_the_step() -> None:
    theta = path()
    weights = torch.arange(1, STEPS + 1, dtype=torch.float64) ** exponent(0.08)
    direct = weights / weights.sum() @ theta
    assert (rebuilt(theta, 0.08) - direct).norm() < 0.02 * (direct - theta[-1]).norm()


def test_errors_of_the_profile() -> None:
    steps = [step for step in range(EVERY, STEPS + 1, EVERY) for _ in TRACKED]
    errors = {w: coefficients(steps, TRACKED * 20, STEPS, w).error for w in (0.05, 0.07, 0.1, 0.2)}
    assert errors[0.05] < 1e-6 and errors[0.1] < 1e-6
    assert errors[0.07] < 0.005 and errors[0.2] > 4 * errors[0.07]  # EDM2 extrapolates to 0.2 4 to 7 times less exactly


def test_hundreds_of_snapshots_are_combined_without_amplifying_rounding() -> None:
    steps = [step for step in range(10, 2001, 10) for _ in TRACKED]
    found = coefficients(steps, TRACKED * 200, 2000, 0.07)
    assert found.values.sum() == pytest.approx(1) and abs(found.values).sum() < 100 and found.error < 0.01


def test_too_few_and_too_late() -> None:
    with pytest.raises(ValueError, match="snapshots=1 must be at least 2"):
        coefficients([10], [0.05], 10, 0.06)
    with pytest.raises(ValueError, match="step=10 must not lie before the snapshot of step 20"):
        coefficients([10, 20], [0.05, 0.05], 10, 0.06)
