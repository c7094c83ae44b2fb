"""Self-conditioning (Chen et al. 2023, "Analog Bits"): the network is shown its former estimate of x0."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from diffusion_lab.diffusion import Denoiser, Estimate
from diffusion_lab.networks import UNet
from diffusion_lab.solvers import Around
from diffusion_lab.training import DiffusionModel, DiffusionModule, Losses, Pairs


class Shown(nn.Module):
    """A U-Net of twice the channels: x_t and the estimate, 0 where there is none."""

    def __init__(self, in_channels: int, out_channels: int, image_size: int, **of_unet) -> None:
        super().__init__()
        self.unet = UNet(2 * in_channels, out_channels, image_size, **of_unet)

    def forward(self, x: Tensor, t: Tensor, former: Tensor | None = None) -> Tensor:
        return self.unet(torch.cat([x, torch.zeros_like(x) if former is None else former.to(x)], 1), t)


class TwiceStep(DiffusionModule):
    """Half of the rows are shown the estimate of a pass without gradients."""

    def losses(self, pairs: Pairs) -> Losses:
        with torch.no_grad():
            x_t = self.denoiser.schedule.perturb(pairs.x0, pairs.eps, pairs.t)
            former = self.denoiser.estimate(x_t, pairs.t).x0.clamp(-1, 1)
        shown = torch.arange(len(former), device=former.device) % 2 == 0
        cond = pairs.cond | {"former": former * shown.view(-1, 1, 1, 1)}
        return super().losses(replace(pairs, cond=cond))


class SelfConditioned(DiffusionModel):
    """A denoiser that is trained with it."""

    trains = TwiceStep


class Remembering(Around):
    """The solver `base`, in which each call is shown the estimate of the one before."""

    def describe(self) -> str:
        return f"{self.base.describe()}-remembering"

    def model(self, denoiser: Denoiser) -> Denoiser:
        memory: dict[str, Tensor] = {}

        class Remembers(type(denoiser)):
            def estimate(self, x_t: Tensor, t: Tensor, **cond: Tensor) -> Estimate:
                found = super().estimate(x_t, t, **memory, **cond)
                memory["former"] = found.x0.clamp(-1, 1)
                return found

        made = denoiser.with_network(denoiser.network)
        made.__class__ = Remembers
        return made
