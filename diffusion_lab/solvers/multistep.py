"""Multistep solvers, which use earlier estimates in place of further network calls: DPM-Solver++ and UniPC.

In the coordinates of `noise_level.py` the exact step from lambda to lambda + h is

    z' = e^-h z + int_0^h e^(u-h) D(lambda + u) du

With the differences d_m = (D_m - D_0)/r_m of the estimate at the other points lambda + r_m h, the integral of the
polynomial through them is

    z' = e^-h z + (1 - e^-h) D_0 + sum_m a_m d_m,    sum_m a_m r_m^(n-1) = w_n,  n = 1, 2, ..
    w_n = int_0^h e^(u-h) (u/h)^n du

UniPC's predictor (UniP) has earlier points, r_m < 0; its corrector (UniC) has the new one too, r = 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from diffusion_lab.arguments import check_choice, check_flag, check_integer
from diffusion_lab.solvers.base import Noise
from diffusion_lab.solvers.noise_level import NoiseLevelSolver, Step, toward
from diffusion_lab.solvers.spacing import Spacing, Steps


class DPMSolverPP(NoiseLevelSolver):
    """DPM-Solver++ of second order (Lu et al. 2022, algorithm 2) extrapolates the estimate from the last two. With
    z = x_t/alpha_t, the noise level s = sigma_t/alpha_t, h = ln(s/s') and r_k = h_{k-1}/h_k,

        D  = (1 + 1/(2 r_k)) x0_k - 1/(2 r_k) x0_{k-1}
        z' = e^-h z + (1 - e^-h) D                                        the flow, of second order
        z' = e^-2h z + (1 - e^-2h) D + s' sqrt(1 - e^-2h) noise           the reverse process (`sde`)

    The first step, and the last, to s' = 0, are of first order: D = x0_k. The last adds no noise.

    Use: for 10 to 25 steps, one network call each; with more steps also with `sde`.

    Args:
        sde: whether noise is added, i.e. the reverse process is solved instead of the flow.
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


class UniPC(NoiseLevelSolver):
    """UniPC (Zhao et al. 2023): UniP of order p, corrected by UniC of order p once the new point's estimate is there.

    With a single point the paper takes a_1 = B(h)/2 instead of w_1, which is where the two choices of B differ,

        bh1   B(h) = h            bh2   B(h) = 1 - e^-h

    in the predictor of order 2 and in the first corrector; with more points the weights are those of the system, and B
    cancels. The corrector raises the order by one: p + 1, where the first steps, which have fewer points, allow it. The
    history begins with one point, and the last step, to s' = 0, is of first order and not corrected.

    Use: for 5 to 15 steps, when as few network calls as possible are wanted.

    Args:
        order: p, order of the predictor, 1 to 3; in the paper 2 for guided and 3 for unguided sampling. The corrector
            raises the order by one.
        variant: bh1 or bh2; in the paper bh1 is better for few steps without guidance.
    """

    def __init__(
        self,
        steps: Steps | None = 20,
        order: int = 2,
        variant: str = "bh2",
        spacing: Spacing | None = None,
        clip: bool = True,
    ) -> None:
        super().__init__(steps, spacing, clip)
        self.order = check_integer("order", order, 1, "2 and 3 are the paper's", 3)
        self.variant = check_choice("variant", variant, ("bh1", "bh2"), "use bh2")
        self.name = f"unipc{order}-{variant}"

    def stepper(self, levels: list[float], noise: Noise) -> Step:
        history: list[Tensor] = []  # estimates at levels k, k-1, .., the newest first
        start: list[Tensor] = []  # the corrected state at level k-1

        def advance(z: Tensor, k: int, new: Tensor | None) -> Tensor:
            """From level k to k+1, the points being `history` and where there is one the new estimate."""
            h = math.log(levels[k] / levels[k + 1])
            earlier = range(1, min(self.order, len(history)))
            points = [math.log(levels[k] / levels[k - m]) / h for m in earlier]
            values = [history[m] for m in earlier]
            if new is not None:
                points, values = [*points, 1.0], [*values, new]
            z = toward(z, history[0], math.exp(-h))
            for weight, point, value in zip(self.weights(h, points), points, values, strict=True):
                z = z + (weight / point) * (value - history[0])
            return z

        def step(k: int, z: Tensor, x0: Tensor) -> Tensor:
            if k > 0 and levels[k + 1] > 0:
                z = advance(start[0], k - 1, x0)
            start[:], history[:] = [z], [x0, *history[: self.order - 1]]
            return toward(z, x0, 0.0) if levels[k + 1] == 0 else advance(z, k, None)

        return step

    def weights(self, h: float, points: Sequence[float]) -> list[float]:
        """a_m for the points r_m."""
        if len(points) < 2:
            return [0.5 * (h if self.variant == "bh1" else -math.expm1(-h))] * len(points)
        r = torch.tensor(points, dtype=torch.float64)
        powers = torch.stack([r**n for n in range(len(points))])
        moments = torch.tensor([moment(n, h) for n in range(1, len(points) + 1)], dtype=torch.float64)
        return torch.linalg.solve(powers, moments).tolist()


def moment(n: int, h: float) -> float:
    """w_n = int_0^h e^(u-h) (u/h)^n du, for h > 0."""
    if h < 1:  # h sum_j (-h)^j n!/(n+j+1)!, in which nothing cancels
        term, total = h / (n + 1), 0.0
        for j in range(20):
            total += term
            term *= -h / (n + j + 2)
        return total
    value = -math.expm1(-h)  # by parts, w_n = 1 - (n/h) w_{n-1}
    for m in range(1, n + 1):
        value = 1 - m / h * value
    return value
