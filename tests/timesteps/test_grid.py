"""The grid of learned Beta: its points, and that it selects the same timesteps as the full grid."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from diffusion_lab.diffusion import Epsilon, FixedLarge, bound_weights, cosine, linear, quadratic
from diffusion_lab.timesteps import LearnedBeta, f_statistic
from diffusion_lab.timesteps.grid import interpolated, masses, placed, strided

T = 1000
SCHEDULES = [linear, quadratic, cosine]


def weights(schedule) -> torch.Tensor:
    return bound_weights(schedule(T), Epsilon(), FixedLarge())


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("arguments", [{}, {"grid_stride": 10}, {"grid_stride": 7}, {"grid_stride": 999}])
def test_the_grid_has_both_ends(schedule, arguments):
    grid = LearnedBeta(T, weights(schedule), num_selected=2, **arguments)._grid
    assert grid[0] == 0 and grid[-1] == T - 1 and bool((grid.diff() > 0).all())
    assert arguments or len(grid) == 100


def test_the_cosine_grid_has_nearly_all_of_the_weight():
    """The last timestep has 97 %; a grid of every tenth one from 0 on does not contain it."""
    c = weights(cosine)

    def share(points):
        return float(c[points].sum() / c.sum())

    assert share(LearnedBeta(T, c)._grid) > 0.97 and share(torch.arange(0, T, 10)) < 0.01


def test_points_follow_the_mass_and_none_is_taken_twice():
    assert placed(torch.ones(1000), 100).diff().float().mean() == pytest.approx(999 / 99)
    ramp = placed(torch.arange(1, 1001).double(), 100)
    assert int((ramp >= 500).sum()) == pytest.approx(75, abs=1)  # three quarters of the mass of a ramp
    spike = torch.full((1000,), 1e-9)
    spike[700:705] = 1.0
    points = placed(spike, 100)
    assert set(range(700, 705)) <= set(points.tolist()) and len(points.unique()) == 100
    assert placed(torch.ones(30), 100).tolist() == list(range(30))
    assert strided(10, 4).tolist() == [0, 4, 8, 9] and strided(9, 4).tolist() == [0, 4, 8]


def test_a_sum_over_the_grid_is_exact_for_a_function_that_is_linear_between_its_points():
    grid, c = torch.tensor([0, 3, 10, 19]), torch.rand(20, dtype=torch.float64)
    values = torch.randn(5, 4, dtype=torch.float64)
    whole = interpolated(values, grid)
    torch.testing.assert_close(whole[:, grid], values)
    torch.testing.assert_close(whole[:, 5], values[:, 1] + (values[:, 2] - values[:, 1]) * 2 / 7)
    torch.testing.assert_close(values @ masses(c, grid), (whole * c).sum(1))
    torch.testing.assert_close(masses(c, torch.arange(20)), c)


def measured_changes(schedule) -> torch.Tensor:
    """(10, 12, T): seed, row, timestep: change of the loss of one image by one update.

    Measured 2026-11-22 on U-Nets of base width 8 (two levels, one block) on digits, uniform timesteps, Adam at 4e-3,
    32 images a step, gradient norm 1: at steps 0, 25, .., 275, by `DenoiserProbe.pairs` before and after the update,
    with the same noise on both sides and at all timesteps. float16 of each row over its scale.
    """
    stored = np.load(Path(__file__).parent / "data" / "changes_digits.npz")
    name = schedule.__name__
    return torch.tensor(stored[name]).double() * torch.tensor(stored[f"{name}_scale"]).double()[:, :, None]


def selection(changes: torch.Tensor, c: torch.Tensor, **arguments) -> tuple[torch.Tensor, torch.Tensor]:
    """S of the sampler for these changes on its grid, and for each timestep the distance between the two grid points
    around it."""
    sampler = LearnedBeta(T, c, **arguments)
    for row in changes:
        sampler._select(row[sampler._grid])
    gaps = sampler._grid.diff()
    right = torch.searchsorted(sampler._grid, torch.arange(T), right=True).clamp(1, len(gaps))
    return sampler.selected, gaps[right - 1]


def agrees(s: torch.Tensor, full: torch.Tensor, gap: torch.Tensor) -> bool:
    """Whether each timestep of S is within one stride of one of the full grid's."""
    near = (s[:, None] - full).abs() <= torch.maximum(gap[s][:, None], gap[full])
    return bool(near.any(1).all())


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_default_selects_what_all_timesteps_select(schedule):
    """From the same measured changes, in at least 8 of 10 seeds; with an unweighted sum over every tenth timestep, in
    at most 2."""
    c, agreeing, every_tenth, old = weights(schedule), 0, 0, torch.arange(0, T, 10)
    for changes in measured_changes(schedule):
        full, _ = selection(changes, c, grid_stride=1)
        s, gap = selection(changes, c)
        agreeing += agrees(s, full, gap)
        columns = (changes * c)[:, old]
        s = old[f_statistic(columns, columns.sum(1)).argsort(stable=True)[-3:]]
        every_tenth += agrees(s, full, torch.full((T,), 10))
    assert agreeing >= 8 and every_tenth <= 2
