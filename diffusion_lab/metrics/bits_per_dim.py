"""The variational bound of a model on test images, in bits per dimension.

    mean over images of  sum_t L_t + L_T,   one noise for each image and timestep, estimates clipped to [-1, 1]

`diffusion.likelihood.bits_per_dim` computes it for one batch, with T network calls per image. For data that are not
bytes, L_0 is the probability of a cell of width 2/255 around the value.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from diffusion_lab.data import ImageDataModule
from diffusion_lab.diffusion import Denoiser, bits_per_dim
from diffusion_lab.distributed import rank, sum_, world_size
from diffusion_lab.eval_mode import eval_mode
from diffusion_lab.metrics.metric import Given, Metric
from diffusion_lab.metrics.result import of_test_images
from diffusion_lab.metrics.sampling import SampleNoise
from diffusion_lab.progress import progress as shown


class BitsPerDim(Metric):
    """Variational bound of `num_samples` test images, with T network calls for each; no samples are generated."""

    name, better, units = "bits_per_dim", "lower", "bits/dim"
    needs = frozenset({"model"})
    models = Denoiser

    def __call__(self, given: Given) -> float:
        model = given.model
        how = (model.batch_size, model.seed, model.device, model.progress)
        return mean_bits_per_dim(model.denoiser, model.data, given.num_samples, *how)

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

    def count(self, num_samples: int, data: ImageDataModule) -> int:
        return min(num_samples, len(data.source.test()))

    def calls(self, images: int, timesteps: int) -> int:
        return images * timesteps

    def settings(self, given: Given) -> dict[str, Any]:
        data, count = given.model.data, self.count(given.num_samples, given.model.data)
        return {
            "images": count,
            "timesteps": given.model.denoiser.num_timesteps,
            "noises": "one for each image and timestep",
            "clip": True,
            "seed": given.model.latents.rule,
            "reference": of_test_images(data, count),
        }


def mean_bits_per_dim(
    denoiser: Denoiser,
    data: ImageDataModule,
    images: int,
    batch_size: int = 250,
    seed: int = 0,
    device: torch.device | str = "cpu",
    progress: bool = False,
) -> float:
    """The mean of the bound over test images. Must be called on all ranks; each computes its share of the images.

    Args:
        denoiser: the model, on `device`, with the weights to evaluate; used in eval mode.
        data: provides the test images and their conditions.
        images: N, evenly spread over the test split; all of them if there are fewer.
        batch_size: images of one network call; does not change the noise.
        seed: seed of the noise: that of image i at timestep t is a function of (seed, i, t).
        device: device of the computation.
        progress: whether to show it.
    """
    split = data.source.test()
    count = min(images, len(split))
    chosen = torch.arange(count) * len(split) // count
    mine, total = chosen[rank() :: world_size()], torch.zeros(2, dtype=torch.float64, device=device)
    calls = len(mine) * denoiser.num_timesteps
    with eval_mode(denoiser), shown(BitsPerDim.name, calls, "network calls", show=progress) as task:
        for ids in mine.split(batch_size):
            x0, cond = data.conditions.of_images(split, ids)
            drawn = SampleNoise(seed, ids.tolist(), tuple(x0.shape[1:]))

            def noise(k: int, like: Tensor, drawn: SampleNoise = drawn) -> Tensor:
                task.advance(len(like))
                return drawn(k, like)

            here = {key: value.to(device) for key, value in cond.items()}
            bound = bits_per_dim(denoiser, x0.to(device), noise, **here).total.double()
            total += torch.stack([bound.sum(), torch.full_like(bound, 1.0).sum()])
    bits, measured = sum_(total).tolist()
    return bits / measured
