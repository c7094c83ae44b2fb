"""Solvers in the coordinates in which every Gaussian path is the same; those of Runge and Kutta: Euler and Heun.

    z = x_t / alpha_t = x0 + s eps,     s = sigma_t / alpha_t     (Karras et al. 2022)

A step leads from the noise level s of one kept timestep to s' < s of the next, and from the last one to s' = 0. With
lambda = -ln s, h = ln(s/s') and r = s'/s = e^-h, the two equations to solve are, D(z, s) being the estimate of x0,

    dz/dlambda = D - z                                             probability flow
    dz         = 2 (D - z) dlambda + sqrt(2) s dw,   w a Wiener process in lambda        the reverse process

alpha and sigma of the path enter only where the network is called, with x_t = alpha_t z. Coefficients are Python
floats, computed in float64 once per batch.
"""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from diffusion_lab.arguments import check_flag, check_integer, check_number
from diffusion_lab.diffusion import Denoiser, Estimate, NoiseSchedule
from diffusion_lab.diffusion.schedule import working_dtype
from diffusion_lab.solvers.base import Bar, Noise, Spaced, describe_steps
from diffusion_lab.solvers.spacing import Karras, Spacing, Steps, nearest

_USE = "18 is EDM's number for CIFAR-10"

Step = Callable[[int, Tensor, Tensor], Tensor]  # step(k, z, x0) -> z at level k+1


class NoiseLevelSolver(Spaced):
    """Solvers with one network call per step: a subclass gives its name and its step; the steps are N network calls.

    The state is float64, and z starts as sqrt(1 + s^2) x_T at the noisiest timestep kept, which is
    x_t = sqrt(alpha_t^2 + sigma_t^2) x_T. Between grid points the network is not defined, so the result is as exact as
    the spacing allows: the order of a solver shows as long as T is well above the number of steps.

    Attributes:
        name: the solver's own settings in one word, for `describe`.

    Args:
        steps: number of steps N and of network calls; None for all T or, with spacing=listed, for the timesteps listed.
            Other forms of `space_timesteps` need spacing=uniform.
        spacing: which timesteps; None is `Trailing()`.
        clip: whether the estimate of x0 is clipped to [-1, 1]; false for latents.
    """

    name: str

    def __init__(self, steps: Steps | None = 50, spacing: Spacing | None = None, clip: bool = True) -> None:
        super().__init__(steps, spacing, clip)

    @abstractmethod
    def stepper(self, levels: list[float], noise: Noise) -> Step:
        """The step of one batch; it may keep earlier estimates.

        Args:
            levels: s_0 > .. > s_{N-1} > 0, and a last 0.
            noise: standard normal noise(k, like) of step k.
        """

    def describe(self) -> str:
        words = [self.name, self.spacing.describe(), *([] if self.clip else ["unclipped"])]
        return "-".join([words[0], *([] if self.steps is None else [describe_steps(self.steps)]), *words[1:]])

    def solve(self, denoiser: Denoiser, x_T: Tensor, noise: Noise, bar: Bar, cond: dict[str, Tensor]) -> Tensor:
        estimate, kept = estimator(denoiser, x_T, cond), self.indices(denoiser.schedule)
        levels = [*denoiser.schedule.noise_level.cpu()[kept].tolist(), 0.0]
        step = self.stepper(levels, noise)
        z = x_T.double() * math.hypot(1, levels[0])
        for k, t in zip(bar(len(kept)), kept.tolist(), strict=True):
            x0 = estimate(z, t).x0.double()
            z = step(k, z, x0.clamp(-1, 1) if self.clip else x0)
        return z.to(x_T.dtype)


def estimator(denoiser: Denoiser, x_T: Tensor, cond: dict[str, Tensor]) -> Callable[[Tensor, int], Estimate]:
    """estimate(z, t): of x0 and eps from z (B,C,H,W) float64 at timestep t, with the network in the type of x_T."""
    alphas, dtype = denoiser.schedule.signal_scale.tolist(), working_dtype(x_T)

    def estimate(z: Tensor, t: int) -> Estimate:
        return denoiser.estimate((alphas[t] * z).to(dtype), torch.full((len(z),), t, device=z.device), **cond)

    return estimate


def toward(z: Tensor, x0: Tensor, ratio: float) -> Tensor:
    """ratio z + (1 - ratio) x0, the exact solution where x0 does not depend on the noise level."""
    return ratio * z + (1 - ratio) * x0


class Euler(NoiseLevelSolver):
    """z' = z + (s' - s) eps_hat, of first order, with z = x_t/alpha_t and the noise level s = sigma_t/alpha_t.

    That is Euler's step x' = x + (tau' - tau) u_hat on the velocity of the linear path (Lipman et al. 2023; Liu et al.
    2023), EDM's Euler step in sigma (Karras et al. 2022), DDIM with eta = 0 (Song et al. 2021) and DPM-Solver++ of
    first order (Lu et al. 2022) at once: all four are the same update, on every Gaussian path.

    Differs from SiT on a path that is not linear: it takes Euler's step in the path's own time, which is another first
    order method; here a model does not depend on how its path is parameterised.

    Use: for flow matching with 50 steps and more, and as the simplest solver to compare with.
    """

    name = "euler"

    def stepper(self, levels: list[float], noise: Noise) -> Step:
        def step(k: int, z: Tensor, x0: Tensor) -> Tensor:
            return toward(z, x0, levels[k + 1] / levels[k])

        return step


class Heun(Spaced):
    """EDM's solver of second order (Karras et al. 2022, algorithms 1 and 2), for any path with z = x0 + s eps:

        dz/ds = (z - D(z, s))/s = eps_hat,    s = sigma_t/alpha_t.

    The levels are, for i = 0..N-1 and followed by 0,

        (max^(1/rho) + i/(N-1) (min^(1/rho) - max^(1/rho)))^rho

    with min and max clamped to the model's range, and each level moved to the nearest one of the model (`Karras`). Each
    step is an Euler step with a correction by the slope at its end, except the last, which has no correction: 2N-1
    network calls. The state is float64, and z starts as sigma_max x_T. A step between two equal levels changes nothing.

    With s_churn > 0 and s_min <= s <= s_max for the level s, noise is added before the step (algorithm 2),

        z <- z + sqrt(s_hat^2 - s^2) s_noise n,   n ~ N(0, I),   s_hat = (1 + min(s_churn/N, sqrt(2) - 1)) s

    and the step starts at s_hat, moved to the nearest level of the model.

    Differs from Karras et al.: s_hat is a level of the model, because the network is defined at these only, so where
    levels are sparse or s is the highest one less noise is added, or none.

    Use: on EDM's path with 18 to 40 steps, and when an accurate solution is wanted for a comparison.

    Args:
        steps: N >= 1.
        rho: >= 1; the larger, the shorter are the steps at low noise.
        sigma_min: lowest noise level before 0, in units of the signal, > 0; clamped to the model's range.
        sigma_max: highest noise level, in units of the signal; clamped to the model's range.
        clip: whether D is clipped to [-1, 1]; off in the paper.
        s_churn: how much noise is added over all steps, >= 0; 0 is deterministic. EDM has 40 for ImageNet-64, with
            s_min=0.05, s_max=50 and s_noise=1.003.
        s_min: lowest noise level at which noise is added, >= 0.
        s_max: highest noise level at which noise is added; None for no limit.
        s_noise: standard deviation of the noise added; a little above 1 makes up for denoising that removes too much.
    """

    spacing: Karras

    def __init__(
        self,
        steps: int = 18,
        rho: float = 7.0,
        sigma_min: float = 0.002,
        sigma_max: float = 80.0,
        clip: bool = False,
        s_churn: float = 0.0,
        s_min: float = 0.0,
        s_max: float | None = None,
        s_noise: float = 1.0,
    ) -> None:
        check_integer("steps", steps, 1, _USE)
        check_flag("clip", clip, "use false for the published setting")
        super().__init__(steps, Karras(rho, sigma_min, sigma_max), clip)
        self.s_churn = check_number("s_churn", s_churn, "[)", 0, math.inf, "use 0.0 for the deterministic solver")
        self.s_min = check_number("s_min", s_min, "[)", 0, math.inf, "use 0.0 for no lower limit")
        highest = math.inf if s_max is None else s_max
        self.s_max = check_number("s_max", highest, "[]", self.s_min, math.inf, "use null for no upper limit")
        self.s_noise = check_number("s_noise", s_noise, "()", 0, math.inf, "use 1.0, or 1.003 as in the paper")

    def with_steps(self, steps: Steps) -> Heun:
        solver = copy.copy(self)
        solver.steps = check_integer("steps", steps, 1, _USE)
        return solver

    def describe(self) -> str:
        word = self.spacing.describe().replace("karras", f"heun-{self.steps}")
        if self.s_churn > 0:
            word += f"-churn{self.s_churn:g}-{self.s_min:g}-{self.s_max:g}-noise{self.s_noise:g}"
        return word + ("" if self.clip else "-unclipped")

    def indices(self, schedule: NoiseSchedule) -> Tensor:
        """Timesteps (N,) int64 on the CPU, noisiest first.

        Raises:
            ValueError: the range of noise levels does not meet the model's.
        """
        return self.spacing.with_repeats(schedule, self.steps)

    def churned(self, table: Tensor, indices: Tensor) -> Tensor:
        """The timestep (N,) int64 at which each step starts, `indices` itself without churn.

        Args:
            table: (T,) noise levels of the model.
            indices: (N,) int64 timesteps before the noise is added.
        """
        if self.s_churn == 0:
            return indices
        levels = table[indices]
        factor = 1 + min(self.s_churn / self.steps, math.sqrt(2) - 1)
        inside = (levels >= self.s_min) & (levels <= self.s_max)
        return torch.where(inside, nearest(factor * levels, table), indices)

    def solve(self, denoiser: Denoiser, x_T: Tensor, noise: Noise, bar: Bar, cond: dict[str, Tensor]) -> Tensor:
        estimate, table = estimator(denoiser, x_T, cond), denoiser.schedule.noise_level.cpu()
        indices = self.indices(denoiser.schedule)
        starts = self.churned(table, indices)
        levels = [*table[indices].tolist(), 0.0]

        def slope(z: Tensor, t: int) -> Tensor:
            x0, eps = estimate(z, t)
            return (z - x0.clamp(-1, 1)) / table[t].item() if self.clip else eps.double()

        z = x_T.double() * levels[0]
        for k in bar(self.steps):
            start, s, after = int(starts[k]), levels[k], levels[k + 1]
            s_hat = table[start].item()
            if s_hat > s:
                z = z + math.sqrt(s_hat**2 - s**2) * self.s_noise * noise(k, z)
            d = slope(z, start)
            euler = z + (after - s_hat) * d
            z = euler if after == 0 else z + (after - s_hat) * (d + slope(euler, int(indices[k + 1]))) / 2
        return z.to(x_T.dtype)
