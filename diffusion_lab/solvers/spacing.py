"""The timesteps that a solver visits, as a part of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from diffusion_lab.diffusion import NoiseSchedule
from diffusion_lab.solvers.respacing import Steps


class Spacing(ABC):
    """timesteps = spacing.indices(schedule, steps).

    A spacing chooses among the T grid points of the schedule, because the network is defined at these only: a noise
    level between two of them is moved to one of them, never interpolated.
    """

    @abstractmethod
    def indices(self, schedule: NoiseSchedule, steps: Steps | None) -> Tensor:
        """Timesteps (S,) int64 on the CPU, falling (the noisiest first).

        Args:
            schedule: of the model.
            steps: how many, or a form of `space_timesteps`; None for all, or as many as the spacing lists.

        Raises:
            ValueError: `steps` is invalid, or the timesteps do not exist in the schedule.
        """

    @abstractmethod
    def describe(self) -> str:
        """All settings in one word, for `Solver.describe`."""


def nearest(values: Tensor, table: Tensor) -> Tensor:
    """Index of the entry of `table` (T,) nearest to each of `values` (N,): (N,) int64."""
    return (values[:, None] - table).abs().argmin(1)


def check_falling(timesteps: Tensor, num_timesteps: int, key: str) -> Tensor:
    """`timesteps` (S,) int64 if they fall and lie in [0, T).

    Args:
        timesteps: to check.
        num_timesteps: T.
        key: what the message calls them.

    Raises:
        ValueError: they do not.
    """
    shown = timesteps.tolist()
    if not shown or not all(0 <= t < num_timesteps for t in shown):
        raise ValueError(f"{key}={shown} must be timesteps of the schedule, 0 to {num_timesteps - 1}; use some of them")
    if not (timesteps.diff() < 0).all():
        raise ValueError(f"{key}={shown} must fall, with the noisiest timestep first; sort them and name each once")
    return timesteps


def distinct(indices: Tensor) -> Tensor:
    """Falling timesteps (N,), each once: (S,) with S <= N."""
    return torch.unique_consecutive(indices)
