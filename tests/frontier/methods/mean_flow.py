"""MeanFlow (Geng et al. 2025): the mean velocity between two times, for samples in one step."""

import torch
from torch import Tensor, nn

from diffusion_lab.diffusion import Denoiser
from diffusion_lab.networks import UNet
from diffusion_lab.solvers import Solver
from diffusion_lab.training import DiffusionModel, DiffusionModule, Losses, Pairs


class TwoTimes(nn.Module):
    """u(z, t, r): a U-Net with one more channel, which holds t - r; r = t, where it is left out, is the velocity."""

    def __init__(self, in_channels: int, out_channels: int, image_size: int, **of_unet) -> None:
        super().__init__()
        self.unet = UNet(in_channels + 1, out_channels, image_size, **of_unet)

    def forward(self, x: Tensor, t: Tensor, span: Tensor | None = None) -> Tensor:
        span = torch.zeros(len(x), device=x.device) if span is None else span
        return self.unet(torch.cat([x, span.view(-1, 1, 1, 1).expand_as(x[:, :1]).to(x)], 1), t)


class MeanStep(DiffusionModule):
    """|u - sg(v - (t - r) du/dt)|^2 with v = eps - x0 and t >= r, both from the sampler; r = t for every second row."""

    def losses(self, pairs: Pairs) -> Losses:
        net, schedule = self.denoiser.network, self.denoiser.schedule
        other = self.draw_timesteps(pairs.x0, pairs.cond).t
        same = torch.arange(len(other), device=other.device) % 2 == 0
        t, r = torch.maximum(pairs.t, other), torch.minimum(pairs.t, other)
        s, span = schedule.position[t].float(), (schedule.position[t] - schedule.position[r]).float()
        span = torch.where(same, 0.0, span)
        z, v = schedule.perturb(pairs.x0, pairs.eps, t), pairs.eps - pairs.x0
        u, slope = torch.func.jvp(  # pyright: ignore[reportAssignmentType]
            lambda z, s, span: net(z, 1000 * s, span), (z, s, span), (v, torch.ones_like(s), torch.ones_like(s))
        )
        loss = (u - (v - span.view(-1, 1, 1, 1) * slope).detach()).square().flatten(1).mean(1)
        return Losses(loss, loss / (loss.detach() + 1e-3))


class MeanFlow(DiffusionModel):
    """A denoiser that is trained with it; at r = t it is that of flow matching."""

    trains = MeanStep


class OneStep(Solver):
    """x0 = z - s u(z, t, r = 0) at the last timestep, of position s."""

    def describe(self) -> str:
        return "mean-flow-1"

    def check(self, schedule) -> None:
        pass

    def solve(self, denoiser: Denoiser, x_T: Tensor, noise, bar, cond: dict[str, Tensor]) -> Tensor:
        s = denoiser.schedule.position[-1:].float().expand(len(x_T))
        return x_T - s.view(-1, 1, 1, 1) * denoiser.network(x_T, 1000 * s, s, **cond)
