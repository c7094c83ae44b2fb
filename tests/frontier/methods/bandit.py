"""Timesteps as the arms of a bandit: Exp3 (Auer et al. 2002), rewarded by how high the losses are."""

import torch
from torch import Tensor

from diffusion_lab.timesteps import Context, StepRecord, TimestepSampler


class Bandit(TimestepSampler):
    """p = (1 - g) softmax(gain) + g/K over K equal ranges of t; gain_k += g/K mean(loss in k)/(K p_k max loss)."""

    gain: Tensor

    def __init__(self, num_timesteps: int, arms: int = 8, explore: float = 0.1, reweight: bool = False) -> None:
        super().__init__(num_timesteps, reweight)
        self.arms, self.explore = arms, explore
        self.register_buffer("gain", torch.zeros(arms, dtype=torch.float64))

    def of_arms(self) -> Tensor:
        return (1 - self.explore) * self.gain.softmax(0) + self.explore / self.arms

    def probabilities(self, step: int) -> Tensor:
        arm = torch.arange(self.num_timesteps, device=self.gain.device) * self.arms // self.num_timesteps
        p = self.of_arms()[arm]
        return p / p.sum()

    def observe(self, record: StepRecord, context: Context) -> None:
        t, loss = record.gathered()
        one_hot = torch.nn.functional.one_hot(t * self.arms // self.num_timesteps, self.arms).double()
        mean = (one_hot * loss[:, None]).sum(0) / one_hot.sum(0).clamp(min=1)
        self.gain += self.explore * mean / (loss.max() * self.arms * self.of_arms())
