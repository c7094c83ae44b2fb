"""Inductive moment matching (Zhou et al. 2025, arXiv 2503.07565): two jumps to a time s have one distribution."""

import torch
from mean_flow import MeanFlow
from torch import Tensor

from diffusion_lab.training import DiffusionModule, Losses, Pairs


def kernel_distance(a: Tensor, b: Tensor) -> Tensor:
    """(n,) each row's part of the squared maximum mean discrepancy of a and b (n,D), with a Laplace kernel."""

    def k(x: Tensor, y: Tensor) -> Tensor:
        return (-torch.cdist(x, y).clamp(min=1e-4) / x.shape[1]).exp().mean(1)

    return k(a, a) + k(b, b) - k(a, b) - k(b, a)


class MomentStep(DiffusionModule):
    """MMD of f(z_t, t, s) and sg f(z_r, r, s), s < r < t, with f(z, t, s) = z - (t - s) u; the batch is one group."""

    of_batch = True

    def losses(self, pairs: Pairs) -> Losses:
        net, of = self.denoiser.network, self.denoiser.schedule
        t = pairs.t[:1].expand_as(pairs.t).clamp(min=2)  # one time for the whole group
        s = self.draw_timesteps(pairs.x0, pairs.cond).t[:1] % (t - 1)
        r = (t - max(1, self.denoiser.num_timesteps // 16)).clamp(min=0).maximum(s + 1)

        def jump(t: Tensor) -> Tensor:
            z, at = of.perturb(pairs.x0, pairs.eps, t), of.position[t].float()
            span = at - of.position[s].float()
            return (z - span.view(-1, 1, 1, 1) * net(z, 1000 * at, span)).flatten(1)

        with torch.no_grad():
            goal = jump(r)
        loss = kernel_distance(jump(t), goal)
        return Losses(loss, loss)


class MomentMatching(MeanFlow):
    """A denoiser that is trained with it, and sampled in one step as MeanFlow is."""

    trains = MomentStep
