"""DPM-Solver++ of second order, multistep (Lu et al. 2022, "DPM-Solver++", algorithm 2)."""

from __future__ import annotations

import math

from torch import Tensor

from diffusion_lab.arguments import check_flag
from diffusion_lab.solvers.base import Noise
from diffusion_lab.solvers.noise_level import NoiseLevelSolver, Step, toward
from diffusion_lab.solvers.respacing import Steps
from diffusion_lab.solvers.spacing import Spacing


class DPMSolverPP(NoiseLevelSolver):
    """The estimate is extrapolated from the last two, with r_k = h_{k-1}/h_k, in the coordinates of `noise_level.py`:

        D  = (1 + 1/(2 r_k)) x0_k - 1/(2 r_k) x0_{k-1}
        z' = e^-h z + (1 - e^-h) D                                        the flow, of second order
        z' = e^-2h z + (1 - e^-2h) D + s' sqrt(1 - e^-2h) noise           the reverse process (`sde`)

    The first step, and the last, to s' = 0, are of first order: D = x0_k. The last adds no noise.

    Use: 10 to 25 steps, one network call each; with `sde` where there are more steps.

    Args:
        steps: number of steps N and of network calls, or a form of `space_timesteps`; None for all T.
        sde: whether noise is added, i.e. the reverse process is solved instead of the flow.
        spacing: which timesteps; None is `Trailing()`.
        clip: whether the estimate of x0 is clipped to [-1, 1].
    """

    def __init__(
        self, steps: Steps | None = 20, sde: bool = False, spacing: Spacing | None = None, clip: bool = True
    ) -> None:
        super().__init__(steps, spacing, clip)
        self.sde = check_flag("sde", sde, "use false for the deterministic solver")
        self.name = "dpmpp2m-sde" if sde else "dpmpp2m"

    def stepper(self, levels: list[float], noise: Noise) -> Step:
        last: list[Tensor] = []

        def step(k: int, z: Tensor, x0: Tensor) -> Tensor:
            ratio, final = levels[k + 1] / levels[k], levels[k + 1] == 0
            D = x0
            if last and not final:
                extra = math.log(ratio) / (2 * math.log(levels[k] / levels[k - 1]))  # 1/(2 r_k)
                D = x0 + extra * (x0 - last[0])
            last[:] = [x0]
            if not self.sde or final:
                return toward(z, D, ratio)
            std = levels[k + 1] * math.sqrt((1 - ratio) * (1 + ratio))
            return toward(z, D, ratio**2) + std * noise(k, z)

        return step
