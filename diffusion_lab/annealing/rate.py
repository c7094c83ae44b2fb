"""Annealing: the learning rate and Adam's betas as pure functions of the optimizer step.

    Hyper(lr_factor, beta1, beta2) = annealing(step),   lr = base lr * lr_factor,   a beta that is None stays the
    optimizer's own.

`step` counts finished optimizer steps: 0 for the first update. A pure function has no state, so a resumed run continues
exactly, and the whole schedule can be plotted and checked before training. Here stand the annealings of the learning
rate; the betas are the optimizer's, or those of a wrapped annealing.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import NamedTuple

from diffusion_lab.arguments import check_integer, check_number


class Hyper(NamedTuple):
    """Factor on the base learning rate, >= 0, and Adam's betas in [0, 1) or None for the optimizer's own."""

    lr_factor: float
    beta1: float | None = None
    beta2: float | None = None


class Annealing(ABC):
    """step -> Hyper."""

    @abstractmethod
    def __call__(self, step: int) -> Hyper:
        """The learning-rate factor and the betas of update number `step` (0 is the first)."""


class Constant(Annealing):
    """The learning rate stays constant: lr_factor = 1."""

    def __call__(self, step: int) -> Hyper:
        return Hyper(1.0)


class Warmup(Annealing):
    """The learning rate rises linearly: lr_factor = min(1, (step + 1)/warmup_steps), times that of `then`.

    Args:
        warmup_steps: optimizer steps until the full learning rate, >= 1 (5000 in Kim et al. for CIFAR-10).
        then: the annealing that the ramp multiplies; None for a constant one.
    """

    def __init__(self, warmup_steps: int, then: Annealing | None = None) -> None:
        self.warmup_steps = check_integer("warmup_steps", warmup_steps, 1, "give a number of optimizer steps")
        self.then = then or Constant()

    def __call__(self, step: int) -> Hyper:
        hyper = self.then(step)
        return hyper._replace(lr_factor=hyper.lr_factor * min(1.0, (step + 1) / self.warmup_steps))


class Falling(Annealing):
    """lr_factor = f + (1 - f) share(tau),  tau = min(1, step/total_steps),  with a share that decreases from 1 to 0.

    Args:
        total_steps: optimizer steps until the final factor, >= 1.
        final: f in [0, 1], the factor on the base learning rate at the end.
    """

    def __init__(self, total_steps: int, final: float = 0.0) -> None:
        self.total_steps = check_integer("total_steps", total_steps, 1, "give a number of optimizer steps")
        self.final = check_number("final", final, "[]", 0, 1, "it is a factor on the base learning rate")

    def __call__(self, step: int) -> Hyper:
        tau = min(1.0, step / self.total_steps)
        return Hyper(self.final + (1.0 - self.final) * self.share(tau))

    @abstractmethod
    def share(self, tau: float) -> float:
        """Weight of the full rate against the final one at tau in [0, 1]: 1 at 0, 0 at 1."""


class Cosine(Falling):
    """The learning rate falls as half a cosine (Loshchilov & Hutter 2017, eq. 5).

    lr_factor = f + (1 - f)(1 + cos(pi tau))/2,  tau = min(1, step/total_steps)
    """

    def share(self, tau: float) -> float:
        return 0.5 * (1.0 + math.cos(math.pi * tau))


class Linear(Falling):
    """The learning rate falls linearly: lr_factor = f + (1 - f)(1 - tau),  tau = min(1, step/total_steps)."""

    def share(self, tau: float) -> float:
        return 1.0 - tau
