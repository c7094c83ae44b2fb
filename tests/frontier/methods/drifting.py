"""Drifting (Deng et al. 2026, arXiv 2602.04770): a generator of one step, whose samples drift towards the data."""

import torch
from torch import Tensor

from diffusion_lab.diffusion import Denoiser
from diffusion_lab.solvers import Solver
from diffusion_lab.training import DiffusionModel, DiffusionModule, Losses, Pairs


def drift(x: Tensor, data: Tensor, tau: float) -> Tensor:
    """(n,D) towards the data minus towards the other samples, with kernel exp(-distance/tau), normalised both ways."""
    others = torch.cat([data, x])
    distance = torch.cdist(x, others) / x.shape[1] ** 0.5
    distance[:, len(data) :] += 1e6 * torch.eye(len(x), device=x.device)
    logits = -distance / tau
    kernel = (logits.softmax(0) * logits.softmax(1)).sqrt()
    near, away = kernel[:, : len(data)], kernel[:, len(data) :]
    return (near * away.sum(1, keepdim=True)) @ data - (away * near.sum(1, keepdim=True)) @ x


class DriftStep(DiffusionModule):
    """|f(eps) - sg(f(eps) + V)|^2/D. The timesteps have no meaning; the network is given the last one."""

    of_batch, tau = True, 0.2

    def losses(self, pairs: Pairs) -> Losses:
        last = torch.full_like(pairs.t, self.denoiser.num_timesteps - 1)
        x = self.denoiser.network(pairs.eps, last, **pairs.cond).flatten(1)
        with torch.no_grad():
            goal = x + drift(x, pairs.x0.flatten(1), self.tau)  # of this process alone
        loss = (x - goal).square().mean(1)
        return Losses(loss, loss)


class Drifting(DiffusionModel):
    """A generator in the place of a denoiser."""

    trains = DriftStep


class OneCall(Solver):
    """f(x_T)."""

    def describe(self) -> str:
        return "drifting-1"

    def check(self, schedule) -> None:
        pass

    def solve(self, denoiser: Denoiser, x_T: Tensor, noise, bar, cond: dict[str, Tensor]) -> Tensor:
        last = torch.full((len(x_T),), denoiser.num_timesteps - 1, device=x_T.device)
        return denoiser.network(x_T, last, **cond)
