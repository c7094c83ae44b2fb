"""Averages with a constant decay."""

from __future__ import annotations

from collections.abc import Sequence

from diffusion_lab.arguments import check_number
from diffusion_lab.averaging.base import AveragingRule


class ConstantDecay(AveragingRule):
    """s_k = 1 - d,   d = decay, or min(decay, (1 + k)/(10 + k)) with warm-up.

    Args:
        decays: each in [0, 1); evaluations use the first. 0.9999 in most papers at 500k steps.
        warmup: whether the decay rises with the step, so that short runs forget the initial weights
            (ku-dmlab/Adaptive-Timestep-Sampler and ddpm-torch use it).

    Raises:
        ValueError: no decay, a decay outside [0, 1), or a repeated decay.
    """

    argument = "decays"

    def __init__(self, decays: Sequence[float] = (0.9999,), warmup: bool = True) -> None:
        if len(decays) == 0 or len(set(decays)) != len(decays):
            raise ValueError(f"decays={list(decays)} must name at least one decay, each once; use [0.9999]")
        for decay in decays:
            check_number("decays", decay, "[)", 0, 1, "use 0.9999 for the published setting")
        self.names, self.warmup = tuple(decays), warmup

    def shares(self, step: int) -> Sequence[float]:
        highest = (1 + step) / (10 + step) if self.warmup else 1.0
        return [1.0 - min(float(decay), highest) for decay in self.names]
