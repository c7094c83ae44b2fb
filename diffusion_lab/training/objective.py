"""The loss of a trained model on a fixed set, as a differentiable function of its weights.

    L_k(theta) = 1/n sum_i L_ki(theta),     k = 1..K

What the K losses are is the model's: of a diffusion model the native loss at K timesteps, of another kind perhaps one.
Analyses that move the weights (interpolation, landscape) or differentiate twice (hessian) need nothing else of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from diffusion_lab.arguments import check_integer

TIMESTEP_SCALE = 1000  # timesteps of an objective count from 0 to this, whatever T is
TIMESTEPS = (0, 10, 50, 100, 300, 500, 900)  # closer to one another at little noise
Noise = Callable[..., Tensor]  # noise(shape, number): standard normal, a function of the number


class Objective(NamedTuple):
    """L(theta) at the weights that the model has when it is called.

    Attributes:
        names: of the K losses, e.g. "t = 10".
        parts: each returns L_ki (n_p,K) of some of the n rows, differentiable in the weights, and uses the memory of
            its rows alone; together they have every row once, in a fixed order.
    """

    names: tuple[str, ...]
    parts: Sequence[Callable[[], Tensor]]

    def rows(self) -> Tensor:
        """L_ki (n,K)."""
        return torch.cat([part() for part in self.parts])

    def loss(self) -> Tensor:
        """L_k (K,). Its gradient holds the activations of all parts at once; sum over `parts` to hold those of one."""
        return self.rows().mean(0)


def check_timesteps(timesteps: Sequence[int]) -> list[int]:
    """The timesteps of an objective.

    Raises:
        ValueError: there is none, or one outside 0..999.
    """
    if not timesteps:
        raise ValueError(
            f"timesteps={timesteps} must name at least one timestep; use [{','.join(map(str, TIMESTEPS))}]"
        )
    cure = "they count on a scale of 1000, whatever T is"
    return [check_integer("timesteps", t, 0, cure, TIMESTEP_SCALE - 1) for t in timesteps]
