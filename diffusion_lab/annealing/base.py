"""Annealing: the learning rate and Adam's first momentum as pure functions of the optimizer step.

    Hyper(lr_factor, beta1) = annealing(step),   lr = base lr * lr_factor,   beta1 = None leaves the optimizer's own.

`step` counts finished optimizer steps: 0 for the first update. A pure function has no state, so a resumed run continues
exactly, and the whole schedule can be plotted and checked before training.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple


class Hyper(NamedTuple):
    """Factor on the base learning rate, >= 0, and Adam's beta1 in [0, 1) or None for the optimizer's own."""

    lr_factor: float
    beta1: float | None = None


class Annealing(ABC):
    """step -> Hyper."""

    @abstractmethod
    def __call__(self, step: int) -> Hyper:
        """The learning-rate factor and beta1 of update number `step` (0 is the first)."""
