"""The variational bound of a model on test images, in bits per dimension.

    mean over images of  sum_t L_t + L_T,   one noise for each image and timestep, estimates clipped to [-1, 1]

`diffusion.likelihood.bits_per_dim` computes it for one batch, with T network calls per image. For data that are not
bytes, L_0 is the probability of a cell of width 2/255 around the value.
"""

from __future__ import annotations

from typing import Any

import torch

from diffusion_lab.data import ImageDataModule
from diffusion_lab.diffusion import bits_per_dim
from diffusion_lab.distributed import raised_on_all, sum_
from diffusion_lab.metrics.metric import Given, Model
from diffusion_lab.metrics.noised_images import OfNoisedImages, noised_images


class BitsPerDim(OfNoisedImages):
    """Variational bound of `num_samples` test images, with T network calls for each; no samples are generated."""

    name = "bits_per_dim"

    def __call__(self, given: Given) -> float:
        model, images = given.model, self.count(given.num_samples, given.model.data)
        total = torch.zeros((), dtype=torch.float64, device=model.device)
        with raised_on_all():
            for x0, cond, noise in noised_images(model, images, model.denoiser.num_timesteps, self.name):
                total += bits_per_dim(model.denoiser, x0, noise, **cond).total.double().sum()
        return float(sum_(total)) / images

    def check(self, num_samples: int, data: ImageDataModule) -> None:
        if data.source.decoding() is not None:
            raise ValueError(
                f"names=[{self.name}] must be measured on images, and this model generates latents; leave it out"
            )
        bounds = data.source.value_range
        if bounds is None or bounds[0] < -1 or bounds[1] > 1:
            raise ValueError(
                f"names=[{self.name}] must be measured on values in [-1, 1], to which its estimates are clipped, and "
                f"those of {data.source.name} have other bounds; leave it out"
            )

    def calls(self, images: int, timesteps: int) -> int:
        return images * timesteps

    def noising(self, model: Model) -> dict[str, Any]:
        timesteps = model.denoiser.num_timesteps
        return {"timesteps": timesteps, "noises": "one for each image and timestep", "clip": True}
