"""AlphaFlow (Zhang et al. 2025, arXiv 2510.20771): from flow matching to MeanFlow over the training, by differences."""

import torch
from mean_flow import MeanFlow, MeanStep
from torch import Tensor

from diffusion_lab.training import Losses, Pairs


class AlphaStep(MeanStep):
    """|u(z_t, t, r) - a v - (1 - a) sg u(z_s, s, r)|^2 with s = a r + (1 - a) t, z_s = z_t - (t - s) v.

    a falls from 1, where it is flow matching along the whole path, to `least`, where it is nearly MeanFlow.
    """

    least, steps = 0.05, 1000

    def losses(self, pairs: Pairs) -> Losses:
        net, of = self.denoiser.network, self.denoiser.schedule
        other = self.draw_timesteps(pairs.x0, pairs.cond).t
        late, early = torch.maximum(pairs.t, other), torch.minimum(pairs.t, other)
        t, r = of.position[late].float(), of.position[early].float()
        a = max(self.least, 1 - self.position.step / self.steps)
        z, v = of.perturb(pairs.x0, pairs.eps, late), pairs.eps - pairs.x0
        s = a * r + (1 - a) * t
        with torch.no_grad():
            ahead = net(z - wide(t - s) * v, 1000 * s, s - r)
        loss = (net(z, 1000 * t, t - r) - a * v - (1 - a) * ahead).square().flatten(1).mean(1)
        return Losses(loss, a * loss / (loss.detach() + 1e-3))


def wide(rows: Tensor) -> Tensor:
    return rows.view(-1, 1, 1, 1)


class AlphaFlow(MeanFlow):
    """A denoiser that is trained with it, and sampled as MeanFlow is."""

    trains = AlphaStep
