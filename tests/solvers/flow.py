"""Gaussian data on any path, with z = x_t/alpha_t = x0 + s eps: the best denoiser and the exact solutions.

With data N(MEAN, V) the estimate is D(z, s) = (V z + s^2 MEAN)/(V + s^2), which gives, from level s to s',

    flow              z' = MEAN + (z - MEAN) sqrt((V + s'^2)/(V + s^2))
    reverse process   z' ~ N(MEAN, V + s'^2) if z ~ N(MEAN, V + s^2)
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from diffusion_lab.diffusion import NoiseSchedule, cosine
from diffusion_lab.diffusion.path import GaussianPath
from diffusion_lab.diffusion.prediction import Estimate
from diffusion_lab.solvers import Karras, Solver
from tests.solvers.gaussian import no_noise

MEAN, V = 0.3, 0.25
T = 20_000  # many levels, so that rounding to them does not matter
RANGE = Karras(7.0, 0.1, 5.0)


def rectified(num_timesteps: int = T) -> GaussianPath:
    tau = (torch.arange(num_timesteps, dtype=torch.float64) + 0.5) / num_timesteps
    return GaussianPath(1 - tau, tau)


def edm(num_timesteps: int = T) -> GaussianPath:
    sigma = torch.linspace(math.log(0.002), math.log(80), num_timesteps, dtype=torch.float64).exp()
    return GaussianPath(torch.ones_like(sigma), sigma)


PATHS: dict[str, Callable[[], NoiseSchedule]] = {"cosine": lambda: cosine(T), "rectified": rectified, "edm": edm}


class Exact(nn.Module):
    """The denoiser of N(MEAN, V) in the path's own coordinates. `seen` has the timestep of each call."""

    def __init__(self, schedule: NoiseSchedule, factor: float = 1.0) -> None:
        super().__init__()
        self.schedule, self.factor, self.seen = schedule, factor, []

    @property
    def num_timesteps(self) -> int:
        return self.schedule.num_timesteps

    def respace(self, timesteps: Tensor) -> Exact:
        return Exact(self.schedule.respace(timesteps), self.factor)

    def guided(self, scale: float, channels: int | None = None, interval: object = None) -> Exact:
        return Exact(self.schedule, scale)

    def estimate(self, x_t: Tensor, t: Tensor) -> Estimate:
        self.seen.append(int(t[0]))
        a, b = self.schedule.signal_scale[t[0]].item(), self.schedule.noise_scale[t[0]].item()
        x0 = self.factor * (MEAN + a * V * (x_t - a * MEAN) / (a**2 * V + b**2))
        return Estimate(x0, (x_t - a * x0) / b)


def before_the_last_step(x: Tensor, s: float) -> Tensor:
    """The state at the last level s, of which x = D(z, s) is the result."""
    return ((V + s**2) * x - s**2 * MEAN) / V


def ends(path: NoiseSchedule) -> tuple[float, float]:
    """Highest and lowest level that RANGE has on the path."""
    first, last = RANGE.indices(path, 2).tolist()
    return path.noise_level[first].item(), path.noise_level[last].item()


def flow_error(solver: Solver, path: NoiseSchedule, start: Callable[[float], float]) -> float:
    """Distance from the exact flow at the lowest level, after a start at z = start(highest level)."""
    high, low = ends(path)
    z = before_the_last_step(solver(Exact(path), torch.ones(1, 1, 1, 1).double(), noise=no_noise), low).item()
    return abs(z - MEAN - (start(high) - MEAN) * math.sqrt((V + low**2) / (V + high**2)))


class Impulses:
    """noise(k, like) that is 1 in row k+2, so that the rows show what each noise contributes to the result."""

    def __call__(self, k: int, like: Tensor) -> Tensor:
        z = torch.zeros_like(like)
        z[k + 2] = 1
        return z


def marginal(solver: Solver, path: NoiseSchedule, scale: Callable[[float], float]) -> tuple[float, float]:
    """Mean and variance at the lowest level of samples that start from N(MEAN, V + s^2) at the highest one, without
    drawing any: the solver is linear, so that its mean is the row without noise, and its variance the sum of squared
    responses. It starts from scale(s) x_T."""
    (high, low), steps = ends(path), len(RANGE.indices(path, 400))
    x_T = torch.zeros(steps + 2, 1, 1, 1).double()
    x_T[1] = 1
    z = before_the_last_step(solver(Exact(path), x_T, noise=Impulses()), low).flatten()
    response = (z[1:] - z[0]).tolist()
    first = response[0] / scale(high)
    return z[0].item() + first * MEAN, first**2 * (V + high**2) + sum(x**2 for x in response[1:])


def slope(errors: list[float], steps: list[int]) -> float:
    """-d ln error / d ln steps."""
    return -float(np.polyfit(np.log(steps), np.log(errors), 1)[0])
