"""Annealings of the learning rate alone; beta1 stays the optimizer's, or what a wrapped annealing says."""

from __future__ import annotations

import math

from diffusion_lab.annealing.base import Annealing, Hyper, at_least_one


class Constant(Annealing):
    """lr_factor = 1."""

    def __call__(self, step: int) -> Hyper:
        return Hyper(1.0)


class Warmup(Annealing):
    """lr_factor = min(1, (step + 1)/warmup_steps), times what `then` gives.

    Args:
        warmup_steps: optimizer steps until the full rate, >= 1 (5000 in Kim et al. for CIFAR-10).
        then: the annealing that the ramp multiplies; None is constant.
    """

    def __init__(self, warmup_steps: int, then: Annealing | None = None) -> None:
        self.warmup_steps = at_least_one("warmup_steps", warmup_steps)
        self.then = then or Constant()

    def __call__(self, step: int) -> Hyper:
        hyper = self.then(step)
        return hyper._replace(lr_factor=hyper.lr_factor * min(1.0, (step + 1) / self.warmup_steps))


class Cosine(Annealing):
    """lr_factor = f + (1 - f)(1 + cos(pi tau))/2,  tau = min(1, step/total_steps)  (Loshchilov & Hutter 2017, eq. 5).

    Args:
        total_steps: optimizer steps until the final factor, >= 1.
        final: final factor f in [0, 1].
    """

    def __init__(self, total_steps: int, final: float = 0.0) -> None:
        self.total_steps = at_least_one("total_steps", total_steps)
        self.final = _fraction("final", final)

    def __call__(self, step: int) -> Hyper:
        tau = min(1.0, step / self.total_steps)
        return Hyper(self.final + (1.0 - self.final) * 0.5 * (1.0 + math.cos(math.pi * tau)))


class Linear(Annealing):
    """lr_factor = 1 - (1 - f) tau,  tau = min(1, step/total_steps).

    Args:
        total_steps: optimizer steps until the final factor, >= 1.
        final: final factor f in [0, 1].
    """

    def __init__(self, total_steps: int, final: float = 0.0) -> None:
        self.total_steps = at_least_one("total_steps", total_steps)
        self.final = _fraction("final", final)

    def __call__(self, step: int) -> Hyper:
        return Hyper(1.0 - (1.0 - self.final) * min(1.0, step / self.total_steps))


def _fraction(name: str, value: float) -> float:
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{name}={value} must lie in [0, 1]; it is a factor on the base learning rate")
    return value
