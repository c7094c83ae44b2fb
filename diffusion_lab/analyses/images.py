"""The images on which analyses evaluate models, each with its noise, and what models must share to be compared."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from diffusion_lab.analyses.base import Work
from diffusion_lab.data.conditions import Cond
from diffusion_lab.diffusion import Denoiser
from diffusion_lab.training import Trained, TrainedModel

Images = tuple[Tensor, Tensor, Cond]  # numbers (n,), x0 (n,C,H,W), conditions; as `Trained.test_images` gives them


def training_images(model: Trained, count: int) -> Images:
    """`count` training images, evenly spread over the split and not mirrored."""
    split = model.data.source.train()
    ids = torch.arange(count) * len(split) // count
    x0, cond = model.data.conditions.of_images(split, ids)
    return ids, x0.to(model.device), {key: value.to(model.device) for key, value in cond.items()}


def check_alike(trained: Sequence[TrainedModel], kinds: Sequence[Hashable], must: str) -> None:
    """Raise unless what is given of each model is the same for all.

    Raises:
        ValueError: it is not; the models `must` be what the text says, with what to use instead.
    """
    if len({*kinds}) > 1:
        raise ValueError(f"run={','.join(dict.fromkeys(model.name for model in trained))} must {must}")


def check_training_images(trained: Sequence[Trained], images: int, key: str = "analysis.images") -> None:
    """Raise unless all models have the same number of timesteps, and at least `images` training images.

    Raises:
        ValueError: they have not.
    """
    must = "have the same number of timesteps, for one axis; use one at a time"
    check_alike(trained, [model.denoiser.num_timesteps for model in trained], must)
    for model in trained:
        there = len(model.data.source.train())
        if there < images:
            raise ValueError(f"{key}={images} must be at most the {there} training images of {model.name}; use {there}")


def with_noise(images: Images, i: int, work: Work) -> tuple[Tensor, Tensor, Cond]:
    """x0 and eps (C,H,W) and the conditions of image i; eps depends on the seed and the image's number alone."""
    ids, x0, cond = images
    return x0[i], work.normal(tuple(x0.shape[1:]), int(ids[i])), {key: value[i] for key, value in cond.items()}


def at_timesteps(
    x0: Tensor, eps: Tensor, cond: Cond, t: Tensor, batch_size: int
) -> Iterator[tuple[Tensor, Tensor, Tensor, Cond]]:
    """x0, eps (b,C,H,W), t (b,) and conditions of one image (C,H,W) at all t (K,), at most `batch_size` at a time."""
    for some in t.to(x0.device).split(batch_size):
        images, noises, *given = (value.expand(len(some), *value.shape) for value in (x0, eps, *cond.values()))
        yield images, noises, some, dict(zip(cond, given, strict=True))


@torch.no_grad()
def native_losses(denoiser: Denoiser, images: Images, t: Tensor, batch_size: int, work: Work) -> np.ndarray:
    """(n,K) float64: the native loss of each image with its noise at all t (K,)."""
    losses = []
    for i in range(len(images[0])):
        rows = at_timesteps(*with_noise(images, i, work), t, batch_size)
        losses.append(torch.cat([denoiser.loss(*given, **cond).native for *given, cond in rows]))
    return torch.stack(losses).double().cpu().numpy()
