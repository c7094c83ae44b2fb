"""Diffusion forcing (Chen et al. 2024) for images: every pixel has a noise level of its own."""

import torch
from torch import Tensor, nn

from diffusion_lab.networks import UNet
from diffusion_lab.training import DiffusionModel, DiffusionModule, Losses, Pairs


class WithLevels(nn.Module):
    """A U-Net with one more channel, the timestep of each pixel as a share of 1000; where it is left out, that of t."""

    def __init__(self, in_channels: int, out_channels: int, image_size: int, **of_unet) -> None:
        super().__init__()
        self.unet = UNet(in_channels + 1, out_channels, image_size, **of_unet)

    def forward(self, x: Tensor, t: Tensor, levels: Tensor | None = None) -> Tensor:
        levels = t.view(-1, 1, 1, 1).expand_as(x[:, :1]) if levels is None else levels
        return self.unet(torch.cat([x, levels.to(x) / 1000], 1), t)


class ForcedStep(DiffusionModule):
    """|eps - out|^2 at x_t of independent timesteps for all pixels, of which half the rows have one and the same."""

    def losses(self, pairs: Pairs) -> Losses:
        of, (b, _, h, w) = self.denoiser.schedule, pairs.x0.shape
        rows = torch.stack([self.draw_timesteps(pairs.x0, pairs.cond).t for _ in range(h * w)], 1).view(b, 1, h, w)
        levels = torch.where(
            (torch.arange(b, device=rows.device) % 2 == 0).view(-1, 1, 1, 1), pairs.t.view(-1, 1, 1, 1), rows
        )
        alpha = of.alphas_cumprod[levels].sqrt().float()
        x_t = alpha * pairs.x0 + (1 - alpha.square()).sqrt() * pairs.eps
        out = self.denoiser.network(x_t, pairs.t, levels, **pairs.cond)
        loss = (out - pairs.eps).square().flatten(1).mean(1)
        return Losses(loss, loss)


class Forcing(DiffusionModel):
    """A denoiser that is trained with it, and sampled at one level for all pixels."""

    trains = ForcedStep
