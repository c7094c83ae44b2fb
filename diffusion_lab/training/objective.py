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
