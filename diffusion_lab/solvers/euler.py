"""Euler's method on the probability flow."""

from __future__ import annotations

from torch import Tensor

from diffusion_lab.solvers.base import Noise
from diffusion_lab.solvers.noise_level import NoiseLevelSolver, Step, toward


class Euler(NoiseLevelSolver):
    """z' = z + (s' - s) eps_hat, of first order, in the coordinates of `noise_level.py`.

    That is Euler's step x' = x + (tau' - tau) u_hat on the velocity of the linear path (Lipman et al. 2023; Liu et al.
    2023), EDM's Euler step in sigma (Karras et al. 2022), DDIM with eta = 0 (Song et al. 2021) and DPM-Solver++ of
    first order (Lu et al. 2022) at once: all four are the same update, on every Gaussian path.

    Differs from SiT on a path that is not linear: it takes Euler's step in the path's own time, which is another first
    order method; here a model does not depend on how its path is parameterised.

    Use: flow matching with 50 steps and more, and as the plainest solver to compare with.

    Args:
        steps: number of steps N and of network calls, or a form of `space_timesteps`; None for all T.
        spacing: which timesteps; None is `Trailing()`.
        clip: whether the estimate of x0 is clipped to [-1, 1].
    """

    name = "euler"

    def stepper(self, levels: list[float], noise: Noise) -> Step:
        def step(k: int, z: Tensor, x0: Tensor) -> Tensor:
            return toward(z, x0, levels[k + 1] / levels[k])

        return step
