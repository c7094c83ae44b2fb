"""Gradients of single pairs of image and noise: what a batch's gradient is the mean of.

g_i is the gradient of the native loss E(x0_i, eps_i, t_i), unweighted, in all trained parameters, in eval mode.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from diffusion_lab.data.conditions import Cond
from diffusion_lab.diffusion import Denoiser
from diffusion_lab.training import Trained


class _Loss(nn.Module):
    """The native loss of one row, as a `forward`, which `functional_call` needs."""

    def __init__(self, denoiser: Denoiser) -> None:
        super().__init__()
        self.denoiser = denoiser

    def forward(self, x0: Tensor, eps: Tensor, t: Tensor, cond: Cond) -> Tensor:
        row = {key: value[None] for key, value in cond.items()}
        return self.denoiser.loss(x0[None], eps[None], t[None], **row).native.sum()


def row_gradients(denoiser: Denoiser, x0: Tensor, eps: Tensor, t: Tensor, cond: Cond, batch_size: int = 32) -> Tensor:
    """The gradient of each row: (N,C,H,W), (N,C,H,W), (N,) -> (N,P), P the number of trained parameters.

    The rows of one call are differentiated together (`vmap`), which on a CPU takes a third of the time of a backward
    pass for each. They need N P numbers of memory.

    Args:
        denoiser: in eval mode.
        x0: images.
        eps: their noise.
        t: their timesteps.
        cond: their conditions.
        batch_size: rows of one call.
    """
    loss = _Loss(denoiser)
    parameters = {name: p.detach() for name, p in loss.named_parameters() if p.requires_grad}

    def of_one(values: dict[str, Tensor], *row: Tensor | Cond) -> Tensor:
        return functional_call(loss, values, row)

    of_all = vmap(grad(of_one), in_dims=(None, 0, 0, 0, 0))
    parts = []
    with sdpa_kernel(SDPBackend.MATH):  # the other kernels have no batching rule
        for some in torch.arange(len(x0), device=x0.device).split(batch_size):
            rows = of_all(parameters, x0[some], eps[some], t[some], {key: value[some] for key, value in cond.items()})
            parts.append(torch.cat([rows[name].flatten(1) for name in parameters], dim=1))
    return torch.cat(parts)


def training_images(model: Trained, count: int) -> tuple[Tensor, Tensor, Cond]:
    """`count` training images, evenly spread over the split and not mirrored: their numbers, images and conditions."""
    split = model.data.source.train()
    ids = torch.arange(count) * len(split) // count
    x0, cond = model.data.conditions.of_images(split, ids)
    return ids, x0.to(model.device), {key: value.to(model.device) for key, value in cond.items()}


def check_same_images(trained: Sequence[Trained], images: int, least: str = "analysis.images") -> None:
    """ValueError unless all models have the same number of timesteps, and at least `images` training images."""
    steps = {model.denoiser.num_timesteps for model in trained}
    if len(steps) > 1:
        names = ",".join(dict.fromkeys(model.name for model in trained))
        raise ValueError(f"run={names} must have the same number of timesteps, for one axis; use one at a time")
    for model in trained:
        there = len(model.data.source.train())
        if there < images:
            raise ValueError(
                f"{least}={images} must be at most the {there} training images of {model.name}; use {there}"
            )
