"""A denoiser that knows the images: at some timesteps its estimate of x0 is the true one."""

from __future__ import annotations

import torch
from torch import Tensor

from diffusion_lab.diffusion import Denoiser, Estimate, NoiseSchedule
from diffusion_lab.diffusion.denoiser import Reverse


class TrueDenoiser(Denoiser):
    """The model, except that x0_hat = x0 and eps_hat = (x_t - alpha x0)/sigma at the timesteps in R.

    Any solver can sample with it. The true x0 is not clipped. Where the whole batch is at timesteps in R, the network
    is not called, unless it is needed for a learned variance.

    Args:
        base: the model; shares its network.
        truth: x0 (B,C,H,W), one image per row of the batches that follow.
        replaced: (T,) bool, R, by original timestep, also with a respaced schedule.
    """

    def __init__(self, base: Denoiser, truth: Tensor, replaced: Tensor) -> None:
        parts = base.prediction, base.variance, base.timesteps, base.preconditioning, base.null_label, base.time
        super().__init__(base.network, base.schedule, *parts)
        self.truth, self.replaced = truth, replaced.to(base.timesteps.device)

    def estimate(self, x_t: Tensor, t: Tensor, **cond: Tensor) -> Estimate:
        known = self._known(t)
        x, alpha, sigma = self._point(x_t, t)
        eps = (x - alpha * self.truth) / sigma
        if known.all():
            return Estimate(self.truth, eps)
        found = super().estimate(x_t, t, **cond)
        return Estimate(torch.where(known, self.truth, found.x0), torch.where(known, eps, found.eps))

    def reverse(self, x_t: Tensor, t: Tensor, clip: bool = False, **cond: Tensor) -> Reverse:
        known = self._known(t)
        if known.all() and not self.variance.channels:
            mean = self.schedule.posterior_mean(self.truth, x_t, t)
            return Reverse(mean, self.variance.log_variance(x_t[:, :0], t, self.schedule), self.truth)
        found = super().reverse(x_t, t, clip, **cond)
        x0 = torch.where(known, self.truth, found.x0)
        return Reverse(self.schedule.posterior_mean(x0, x_t, t), found.log_variance, x0)

    def _known(self, t: Tensor) -> Tensor:
        """(B,1,1,1) bool."""
        return self.replaced[self.timesteps[t]].view(-1, 1, 1, 1)

    def _with(self, network: torch.nn.Module, schedule: NoiseSchedule, timesteps: Tensor) -> Denoiser:
        return TrueDenoiser(super()._with(network, schedule, timesteps), self.truth, self.replaced)
