"""DDPM, which samples the reverse process, and DDIM, which leaves out any share of its noise."""

from __future__ import annotations

import torch
from torch import Tensor

from diffusion_lab.arguments import check_number
from diffusion_lab.diffusion import Denoiser
from diffusion_lab.solvers.base import Bar, Noise, Spaced, describe_steps
from diffusion_lab.solvers.spacing import Steps, Uniform


class DDPM(Spaced):
    """Ancestral sampling (Ho et al. 2020, algorithm 2; respaced: Nichol & Dhariwal 2021, section 4):

        x_{t-1} = C1 x0_hat + C2 x_t + [t > 0] sqrt(V_t) z,   z ~ N(0, I).

    With fewer steps than T the schedule is respaced: same A at the timesteps kept, new betas between them, and the
    variance, fixed or learned, from those betas. The network still receives the original timesteps. On any path it
    starts from sqrt(alpha_{T-1}^2 + sigma_{T-1}^2) x_T.

    Use: to generate with all timesteps, as the papers do, and with a learned variance.

    Args:
        steps: number of steps, evenly spaced; [10, 15, 20] for so many in each of three equal sections, or another form
            of `space_timesteps`; None for all T.
        clip: whether x0_hat is clipped to [-1, 1] before the mean is computed from it; false for latents.
    """

    def __init__(self, steps: Steps | None = None, clip: bool = True) -> None:
        super().__init__(steps, Uniform(), clip)

    def describe(self) -> str:
        return f"ddpm-{describe_steps(self.steps)}" + ("" if self.clip else "-unclipped")

    def solve(self, denoiser: Denoiser, x_T: Tensor, noise: Noise, bar: Bar, cond: dict[str, Tensor]) -> Tensor:
        if self.steps is not None:
            denoiser = denoiser.respace(self.indices(denoiser.schedule).flip(0))
        total, norm = denoiser.num_timesteps, denoiser.schedule.norm
        x = x_T if norm is None else norm[-1].to(x_T) * x_T
        for k in bar(total):
            t = torch.full((len(x),), total - 1 - k, device=x.device)
            mean, log_variance, _ = denoiser.reverse(x, t, self.clip, **cond)
            x = mean if k == total - 1 else mean + torch.exp(0.5 * log_variance) * noise(k, x)
        return x


class DDIM(Spaced):
    """Song et al. 2021, equations 12 and 16, with A at the current timestep and A' at the next, less noisy one (A' = 1
    after the last):

        x' = sqrt(A') x0_hat + sqrt(1 - A' - s^2) eps_hat + s z,   z ~ N(0, I)
        s  = eta sqrt((1-A')/(1-A)) sqrt(1 - A/A')

    eta = 0 is deterministic; eta = 1 has the posterior's variance, i.e. ancestral sampling with FixedSmall.

    If x0_hat is clipped, eps_hat is computed again from x_t and the clipped x0_hat, so that both are consistent with
    x_t:

        eps_hat = (x_t - sqrt(A) clip(x0_hat)) / sqrt(1-A)

    as improved-diffusion does; Song et al. do not clip. On a path that does not preserve the variance x stands for
    x_t/sqrt(alpha_t^2 + sigma_t^2), with which the formulas hold; for eta = 0 it is Euler's step on the velocity.

    Use: as the usual choice for 20 to 100 steps, and the default. With eta = 0 the same noise gives the same image.

    Args:
        steps: number of steps, evenly spaced from the first to the last timestep; [10, 15, 20] for so many in each of
            three equal sections; ddim50 for Song et al.'s linear subsequence of 50, which leaves out the last timestep;
            None for all T.
        eta: in [0, 1]: 0 is deterministic, 1 is ancestral sampling.
        clip: whether x0_hat is clipped to [-1, 1], and eps_hat computed again from it; false for latents.
    """

    def __init__(self, steps: Steps | None = 50, eta: float = 0.0, clip: bool = True) -> None:
        super().__init__(steps, Uniform(), clip)
        self.eta = check_number("eta", eta, "[]", 0, 1, "0.0 is deterministic, 1.0 is ancestral sampling")

    def describe(self) -> str:
        return f"ddim-{describe_steps(self.steps)}-eta{self.eta:g}" + ("" if self.clip else "-unclipped")

    def solve(self, denoiser: Denoiser, x_T: Tensor, noise: Noise, bar: Bar, cond: dict[str, Tensor]) -> Tensor:
        kept = self.indices(denoiser.schedule)
        # Coefficients are Python floats, so that the loop gathers nothing and they stay float64.
        signal = [*denoiser.schedule.alphas_cumprod[kept.to(x_T.device)].tolist(), 1.0]
        norm = denoiser.schedule.norm
        norms = None if norm is None else norm[kept.to(x_T.device)].tolist()
        x = x_T
        for k in bar(len(kept)):
            a, a_next = signal[k], signal[k + 1]
            t = torch.full((len(x),), int(kept[k]), device=x.device)
            x0, eps = denoiser.estimate(x if norms is None else x * norms[k], t, **cond)
            if self.clip:
                x0 = x0.clamp(-1, 1)
                eps = (x - a**0.5 * x0) / (1 - a) ** 0.5
            variance = self.step_variance(a, a_next)
            x = a_next**0.5 * x0 + max(1 - a_next - variance, 0.0) ** 0.5 * eps
            if variance > 0:
                x = x + variance**0.5 * noise(k, x)
        return x

    def step_variance(self, a: float, a_next: float) -> float:
        """s^2 between two values of A; 0 at the last step, where a_next = 1."""
        return self.eta**2 * (1 - a_next) / (1 - a) * (1 - a / a_next)
