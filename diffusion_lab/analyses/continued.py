"""A copy of a trained model that is trained on, with the run's optimizer, on draws of the analysis.

    loss = mean_i (l_i + variance term_i),    l_i the native loss of training image i at t_i with noise eps_i

in training mode, with dropout and with the run's gradient clipping. The model itself does not change.

Differs from the run's own training: the weighting of the losses, the annealing of the rate, the dropout of labels and
the augmentation are left out, so that continuations of different runs differ in their weights and optimizer alone.
"""

from __future__ import annotations

import copy
from typing import NamedTuple

import torch
from torch import Tensor, nn

from diffusion_lab.analyses.work import Work
from diffusion_lab.optimizers import Weights
from diffusion_lab.training import Trained


class Batch(NamedTuple):
    """Rows of one step: x0 and eps (B,C,H,W), t (B,) int64, the conditions, and a key for the dropout masks."""

    x0: Tensor
    eps: Tensor
    t: Tensor
    cond: dict[str, Tensor]
    key: int


class Continued:
    """A copy of a model and an optimizer for it.

    Args:
        model: the model, which stays as it is.
        lr: learning rate; None for that of the run, or where the state is loaded, of its last step.
        fresh: whether the optimizer starts without the state of the checkpoint. It does so anyway where the weights
            have none: averaged ones.

    Attributes:
        denoiser: the copy, in training mode.
        optimizer: its optimizer.
        fresh: whether it started without a state.
    """

    def __init__(self, model: Trained, lr: float | None = None, fresh: bool = False) -> None:
        self.denoiser = copy.deepcopy(model.denoiser).train()
        self.parameters = [p for p in self.denoiser.parameters() if p.requires_grad]
        self.clip = model.continuation.clip
        self.optimizer, self.fresh = model.continuation.optimizer(Weights(self.denoiser), fresh)
        for group in self.optimizer.param_groups if lr is not None else ():
            group["lr"] = lr

    @property
    def lr(self) -> float:
        """The learning rate."""
        return float(self.optimizer.param_groups[0]["lr"])

    @property
    def words(self) -> str:
        """The optimizer in words, e.g. "Adam at 0.0002 with the run's state"."""
        state = "without a state, so that its first steps have about equal size in every weight"
        return f"{type(self.optimizer).__name__} at {self.lr:g} {state if self.fresh else 'with the state of the run'}"

    @torch.enable_grad()
    def step(self, batch: Batch) -> None:
        """One update."""
        torch.manual_seed(batch.key)  # dropout takes the global generator
        self.optimizer.zero_grad()
        loss = self.denoiser.loss(batch.x0, batch.eps, batch.t, **batch.cond)
        (loss.native + loss.vlb).mean().backward()
        if self.clip:
            nn.utils.clip_grad_norm_(self.parameters, self.clip)
        self.optimizer.step()


def draw(model: Trained, work: Work, size: int, window: tuple[int, int], *position: int) -> Batch:
    """A batch of training images at timesteps that are uniform in a window, a function of seed and position alone.

    Args:
        model: provides the images.
        work: provides the random numbers, of streams that other functions of `work` do not use.
        size: B, images with replacement.
        window: first timestep, and the one behind the last.
        *position: integers.
    """
    split, first, last = model.data.source.train(), *window
    u, v = (work.streams.uniform(size, name, *position) for name in ("continued images", "continued timesteps"))
    x0, cond = model.data.conditions.of_images(split, (u * len(split)).long())
    t = first + (v * (last - first)).long()
    eps = work.streams.normal(tuple(x0.shape), "continued noise", *position)
    device = work.device
    cond = {key: value.to(device) for key, value in cond.items()}
    return Batch(x0.to(device), eps.to(device), t.to(device), cond, work.streams.key("continued dropout", *position))
