"""DiffusionNFT (Zheng et al. 2025, arXiv 2509.16117): rewards for a model's own samples, by the forward process."""

import copy
from typing import Any

import torch
from torch import Tensor

from diffusion_lab.solvers import Euler
from diffusion_lab.training import DiffusionModel, DiffusionModule, Losses, Pairs


class RewardedStep(DiffusionModule):
    """r |v+ - v|^2 + (1 - r) |v- - v|^2 with v+- = (1 -+ b) v_old +- b v_new; images are samples of the old model.

    The reward r is the rank of an image's brightness in the batch. The old model follows the new one slowly.
    """

    of_batch, beta, decay = True, 1.0, 0.9

    def __init__(self, denoiser, *parts, **named) -> None:
        super().__init__(denoiser, *parts, **named)
        self.old = copy.deepcopy(denoiser).requires_grad_(False)

    @torch.no_grad()
    def pair(self, x0: Tensor, cond: dict[str, Tensor]) -> Pairs:
        if self.position.micro == 0:
            for mean, now in zip(self.old.parameters(), self.denoiser.parameters(), strict=True):
                mean.lerp_(now, 1 - self.decay)
        start = self.noise(x0, draw=1)
        given: Any = {"noise": None, **cond}  # the solver is deterministic
        samples = Euler(steps=4)(self.old, start, **given)
        return super().pair(samples, cond)

    def losses(self, pairs: Pairs) -> Losses:
        of, bright = self.denoiser, pairs.x0.flatten(1).mean(1)
        reward = bright.argsort().argsort().float() / max(1, len(bright) - 1)
        x_t, target = of.schedule.perturb(pairs.x0, pairs.eps, pairs.t), of.target(pairs.x0, pairs.eps, pairs.t)
        new = of.answer(x_t, pairs.t, **pairs.cond)
        with torch.no_grad():
            old = self.old.answer(x_t, pairs.t, **pairs.cond)
        good, bad = (((1 - b) * old + b * new - target).square().flatten(1).mean(1) for b in (self.beta, -self.beta))
        return Losses(good.detach(), reward * good + (1 - reward) * bad)


class Rewarded(DiffusionModel):
    """A model of the velocity that is trained with it; begin with init_from=RUN."""

    trains = RewardedStep
