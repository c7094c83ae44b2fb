"""Metrics of what a model makes of noised test images, evenly spread over the split; no samples are generated."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from diffusion_lab.data import ImageDataModule
from diffusion_lab.data.conditions import Cond
from diffusion_lab.diffusion import Denoiser
from diffusion_lab.distributed import rank, world_size
from diffusion_lab.eval_mode import eval_mode
from diffusion_lab.metrics.metric import Given, Metric, Model
from diffusion_lab.metrics.result import of_test_images
from diffusion_lab.metrics.sampling import SampleNoise
from diffusion_lab.progress import progress

Noise = Callable[[int, Tensor], Tensor]


class OfNoisedImages(Metric):
    """A mean over `num_samples` test images, or all if there are fewer, in bits per dimension."""

    better, units = "lower", "bits/dim"
    needs = frozenset({"model"})
    models = Denoiser

    def count(self, num_samples: int, data: ImageDataModule) -> int:
        return min(num_samples, len(data.source.test()))

    def settings(self, given: Given) -> dict[str, Any]:
        data, count = given.model.data, self.count(given.num_samples, given.model.data)
        ends = {"seed": given.model.latents.rule, "reference": of_test_images(data, count)}
        return {"images": count} | self.noising(given.model) | ends

    @abstractmethod
    def noising(self, model: Model) -> dict[str, Any]:
        """Plain values for the record: at which noise levels the images are seen, and how."""


def noised_images(model: Model, images: int, calls: int, what: str) -> Iterator[tuple[Tensor, Cond, Noise]]:
    """This rank's share of so many test images, with the model in eval mode: x0 (b,C,H,W) and the conditions on the
    device, batch by batch, and the noise of network call k, a function of (seed, image, k).

    Args:
        model: what is evaluated, and how.
        images: of all ranks, evenly spread over the split.
        calls: for each image, to show the progress of `what`.
    """
    data, split = model.data, model.data.source.test()
    mine = (torch.arange(images) * len(split) // images)[rank() :: world_size()]
    shown = progress(what, len(mine) * calls, "network calls", show=model.progress)
    with eval_mode(model.denoiser), shown as task:
        for ids in mine.split(model.batch_size):
            x0, cond = data.conditions.of_images(split, ids)
            drawn = SampleNoise(model.seed, ids.tolist(), tuple(x0.shape[1:]))

            def noise(k: int, like: Tensor, drawn: SampleNoise = drawn) -> Tensor:
                task.advance(len(like))
                return drawn(k, like)

            yield x0.to(model.device), {key: value.to(model.device) for key, value in cond.items()}, noise
