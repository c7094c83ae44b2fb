"""The interface of auxiliary losses, which are added to the loss of the prediction:

    loss = mean_i w_i objective_i  +  sum_j lambda_j(k) mean_i l_ji,     l_j = rows of the auxiliary loss j

with i over the rows of the batch and k the optimizer step. The draw's weights w do not apply to auxiliary losses.

An auxiliary loss is an `nn.Module`: its parameters, such as a projector's, are trained with the network's and are in
the checkpoint, but not in the averages, which are of the model alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from diffusion_lab.arguments import check_integer, check_number
from diffusion_lab.diffusion.step import Step
from diffusion_lab.failure import WrongResult


class Auxiliary(nn.Module):
    """A loss of each row besides that of the prediction. A subclass defines `rows`.

    The weight rises from 0 to `weight` over the first `ramp` steps and is 0 from step `stop` on, where the loss is no
    longer computed:

        lambda(k) = weight min(1, (k + 1)/ramp)  for k < stop,   0 after

    Attributes:
        layers: names of modules inside the network, as `named_modules` has them, whose results are in `step.features`.
        of_batch: whether a row's loss depends on other rows; then the whole batch must be there at once, so it cannot
            be accumulated, and `rows` must use `step.gather` with several processes.

    Args:
        weight: lambda, a finite number; a negative one turns the loss round.
        ramp: optimizer steps over which the weight rises, >= 0; 0: it is there from the first step.
        stop: optimizer steps after which it ends, >= 1; null: it stays.
    """

    layers: Sequence[str] = ()
    of_batch: bool = False

    def __init__(self, weight: float = 1.0, ramp: int = 0, stop: int | None = None) -> None:
        super().__init__()
        if type(self).rows is Auxiliary.rows:
            raise ValueError(f"{type(self).__name__} must define rows(step), the loss of each row, (b,)")
        self.weight = check_number("weight", weight, "()", -math.inf, math.inf, "use 1.0")
        self.ramp = check_integer("ramp", ramp, 0, "use 0 for the whole weight from the first step")
        self.stop = None if stop is None else check_integer("stop", stop, 1, "use null to keep it")

    def rows(self, step: Step) -> Tensor:
        """The loss of each row: -> (b,)."""
        raise NotImplementedError

    def check(self, shape: tuple[int, int, int]) -> None:
        """Called before training with the (C,H,W) of an image: raise ValueError or FileNotFoundError if the loss cannot
        be used with such images, or lacks a file. By default nothing."""

    def build(self, features: Mapping[str, Tensor], x0: Tensor) -> None:
        """Called once before training, to make weights of the loss whose shapes follow from the layers': by default
        nothing.

        Args:
            features: name of a layer -> what it returns for one image, (1,...) on the meta device.
            x0: (1,C,H,W) an image of zeros.
        """

    def weight_at(self, step: int) -> float:
        """lambda after `step` optimizer steps."""
        if self.stop is not None and step >= self.stop:
            return 0.0
        return self.weight * min(1.0, (step + 1) / self.ramp) if self.ramp else self.weight

    def forward(self, step: Step) -> Tensor:
        """`rows`, checked."""
        values, wanted = self.rows(step), (len(step.x0),)
        if not isinstance(values, Tensor) or values.shape != wanted:
            raise WrongResult.of(self, "rows", f"a tensor of shape {wanted}", values)
        return values


class Frozen(nn.Module):
    """A trained network that an auxiliary loss asks, such as a teacher or an encoder of images.

    It is in eval mode, its answers have no gradient, and it follows the run to its device. It is neither among the
    weights that are trained nor in checkpoints and averages: a run that goes on builds it again.

    Args:
        network: with its weights.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self._held = [network.eval().requires_grad_(False)]  # in a list, so that it is not registered as a submodule

    @torch.no_grad()
    def forward(self, *arguments: Any, **named: Any) -> Any:
        return self._held[0](*arguments, **named)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Frozen:
        super()._apply(fn, recurse)
        self._held[0]._apply(fn)
        return self


def places(features: Tensor) -> Tensor:
    """What a layer returns, by place: (b,D,h,w), (b,n,D) with n >= h^2, or (b,D) -> (b,D,h,w).

    Raises:
        ValueError: it has another number of dimensions.
    """
    if features.ndim == 4:
        return features
    if features.ndim == 3:
        side = math.isqrt(features.shape[1])
        return features[:, -(side**2) :].transpose(1, 2).unflatten(2, (side, side))
    if features.ndim == 2:
        return features[..., None, None]
    raise ValueError(
        f"layers must name a layer that returns (b,D,h,w), (b,n,D) or (b,D), and it returns {tuple(features.shape)}; "
        "use a block of the network"
    )
