"""The grid on which learned Beta measures: where its points lie, and that it selects what all timesteps would."""

from __future__ import annotations

import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from diffusion_lab.diffusion import Denoiser, Epsilon, FixedLarge, bound_weights, cosine, linear, quadratic
from diffusion_lab.networks.layers import timestep_embedding
from diffusion_lab.streams import Streams
from diffusion_lab.timesteps import LearnedBeta
from diffusion_lab.timesteps.grid import interpolated, masses, placed, strided
from diffusion_lab.training import DenoiserProbe

T = 1000
SCHEDULES = [linear, quadratic, cosine]
ROWS, EVERY, BATCH = 12, 25, 32  # of the queue; steps between two; images of a step


def weights(schedule) -> torch.Tensor:
    return bound_weights(schedule(T), Epsilon(), FixedLarge())


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("arguments", [{}, {"grid_stride": 10}, {"grid_stride": 7}, {"grid_stride": 999}])
def test_the_grid_has_both_ends(schedule, arguments):
    grid = LearnedBeta(T, weights(schedule), num_selected=2, **arguments)._grid
    assert grid[0] == 0 and grid[-1] == T - 1 and bool((grid.diff() > 0).all())
    assert arguments or len(grid) == 100


def test_the_cosine_grid_has_nearly_all_of_the_weight():
    """The last timestep alone has 97 %, which every tenth one from 0 on does not see."""
    c = weights(cosine)
    share = lambda points: float(c[points].sum() / c.sum())  # noqa: E731
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


class Small(nn.Module):
    """A multilayer perceptron on 8 x 8 pixels with the sines and cosines of t."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64 + 32, 128), nn.SiLU(), nn.Linear(128, 128), nn.SiLU())
        self.out = nn.Linear(128, 64)

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        h = torch.cat([x.flatten(1), timestep_embedding(t.float(), 32)], 1)
        return self.out(self.layers(h)).view_as(x)


def measured_changes(schedule, seed: int, shared: bool = True) -> torch.Tensor:
    """(ROWS, T): the change of one image's loss at every timestep by an update, from time to time in a training on
    digits, with one noise for all timesteps or one for each."""
    torch.manual_seed(seed)
    images = torch.tensor(load_digits().images).float()[:, None] / 8 - 1
    denoiser = Denoiser(Small(), schedule(T), Epsilon(), FixedLarge())
    optimizer = torch.optim.Adam(denoiser.parameters(), lr=4e-3)
    probe, steps = DenoiserProbe(denoiser, Streams(seed), max_rows=T), torch.arange(T)
    rows = []
    for k in range(ROWS * EVERY):
        x0 = images[torch.randint(len(images), (BATCH,))]
        loss = denoiser.loss(x0, torch.randn_like(x0), torch.randint(T, (BATCH,))).native.mean()
        optimizer.zero_grad()
        loss.backward()
        number, total = (torch.zeros_like(steps), 1) if shared else (steps, T)
        pairs = (x0[:1].expand(T, -1, -1, -1), steps, number, total)
        before = probe.pairs(*pairs, seed=k).double() if k % EVERY == 0 else None
        optimizer.step()
        if before is not None:
            rows.append(before - probe.pairs(*pairs, seed=k).double())
    return torch.stack(rows)


def selection(changes: torch.Tensor, c: torch.Tensor, **arguments) -> tuple[torch.Tensor, torch.Tensor]:
    """S of the sampler that is given these changes on its grid, and at each timestep the distance of the two points
    of the grid around it."""
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


@pytest.mark.slow
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_default_selects_what_all_timesteps_select(schedule):
    """From the same measured changes, in at least 8 of 10 seeds; with a noise for each timestep in fewer than half."""
    c, found = weights(schedule), {True: 0, False: 0}
    for shared in found:
        for seed in range(10):
            changes = measured_changes(schedule, seed, shared)
            full, _ = selection(changes, c, grid_stride=1)
            s, gap = selection(changes, c)
            found[shared] += agrees(s, full, gap)
    print(schedule.__name__, found)
    assert found[True] >= 8 and found[False] < 5
