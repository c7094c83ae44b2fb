"""How far a model's loss on test images lies above the floor, at common log SNRs, in bits per dimension.

    excess = D / (2 ln 2) sum_k (E_k - floor_k),     D = (high - low) / K,     log SNR_k = low + (k + 1/2) D

E_k is the eps-loss at the timestep whose log SNR is nearest to level k, SNR |x0 estimate - x0|^2 per dimension, a mean
over the test images; floor_k is the least eps-loss there (`floor.py`). In continuous time the part of the bound between
two log SNRs is the integral of E / (2 ln 2) over log SNR, whatever the schedule (Kingma et al. 2021, "Variational
Diffusion Models", section 5.1): `excess` is what an exact model would save of it. All levels have the same weight
whatever sampler, weighting, prediction or schedule a model was trained with, so the loss decides between them.

The noise of an image at a level is a function of (seed, image, k), and the floor's of (seed, image): methods with one
seed differ in the model alone.

The floor is the closed form where the source has one, else that of the training images, a mean over some of them. The
latter lies in expectation below the loss on images that training never saw, also of the best model, so the excess of a
perfect model of their distribution is not 0.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from diffusion_lab.arguments import check_integer, check_number
from diffusion_lab.diffusion import Denoiser, NoiseSchedule
from diffusion_lab.distributed import raised_on_all, rank, sum_, world_size
from diffusion_lab.metrics.floor import formula_floor, image_floors
from diffusion_lab.metrics.metric import Given, Model
from diffusion_lab.metrics.noised_images import OfNoisedImages, noised_images
from diffusion_lab.metrics.sampling import SampleNoise


class ExcessLoss(OfNoisedImages):
    """The loss of `num_samples` test images above the floor, with `levels` network calls for each; no samples are
    generated.

    Args:
        levels: K, number of log SNRs.
        low: where they begin, log SNR.
        high: where they end, log SNR; at 6 the noise is a twentieth of the signal.
        floor_images: training images over which the floor is a mean, evenly spread. Before the first evaluation the
            training set is read once for as many of them as fit into 128 MB, 52 of 64 pixels and 24 levels.

    Raises:
        ValueError: an argument out of range; from `check_model`, a schedule that lacks some of the levels.
    """

    name, compared_by = "excess_loss", "ratio"

    def __init__(self, levels: int = 24, low: float = -6.0, high: float = 6.0, floor_images: int = 64) -> None:
        self.levels = check_integer("levels", levels, 1, "use 24")
        self.low = check_number("low", low, "()", -50, 50, "use -6")
        self.high = check_number("high", high, "()", low, 50, "use 6")
        self.floor_images = check_integer("floor_images", floor_images, 1, "use 64")
        self._floors: dict[tuple[Any, ...], Tensor] = {}  # of earlier snapshots

    def __call__(self, given: Given) -> float:
        model, schedule = given.model, given.model.denoiser.schedule
        t, width = self.timesteps(schedule), (self.high - self.low) / self.levels
        excess = eps_losses(model, t, self.count(given.num_samples, model.data)) - self._floor(model, t)
        return float(excess.sum()) * width / (2 * math.log(2))

    def check_model(self, model: Denoiser) -> None:
        least, most = float(model.schedule.log_snr[-1]), float(model.schedule.log_snr[0])
        first, last = self._log_snrs()[[0, -1]].tolist()
        if not least <= first <= last <= most:
            raise ValueError(
                f"names=[{self.name}] must have a schedule with log SNRs from {first:g} to {last:g}, and this "
                f"one has {least:.3g} to {most:.3g}; use another schedule, or a metric of your own with other `low` "
                "and `high`"
            )

    def timesteps(self, schedule: NoiseSchedule) -> Tensor:
        """(K,) int64 the timestep nearest to each level."""
        return (schedule.log_snr.cpu() - self._log_snrs()[:, None]).abs().argmin(1)

    def _log_snrs(self) -> Tensor:
        """(K,) float32 the levels, in rising order."""
        return self.low + (torch.arange(self.levels) + 0.5) * (self.high - self.low) / self.levels

    def calls(self, images: int, timesteps: int) -> int:
        return images * self.levels

    def noising(self, model: Model) -> dict[str, Any]:
        levels = {"count": self.levels, "log_snr": [self.low, self.high], "floor_images": self.floor_images}
        return {"levels": levels, "noises": "one for each image and level"}

    def _floor(self, model: Model, t: Tensor) -> Tensor:
        """(K,) float64 the least eps-loss at timesteps t."""
        data, schedule = model.data, model.denoiser.schedule
        snr = schedule.snr.cpu()[t]
        if (known := formula_floor(data, schedule)) is not None:
            return known[t] * snr

        def eps_of(i: int) -> Tensor:
            return SampleNoise(model.seed, [i], data.shape).start()

        key = (data.source.train().fingerprint(), data.flip, *sorted(data.conditions.names), model.seed, *snr.tolist())
        if key not in self._floors:
            whole = len(data.source.train())
            count = min(self.floor_images, whole)
            chosen = [k * whole // count for k in range(count)][rank() :: world_size()]
            total = torch.zeros(len(t), dtype=torch.float64)
            with raised_on_all():
                if chosen:  # there may be fewer than ranks
                    total = image_floors(data, chosen, eps_of, snr, model.progress).sum(0)
            self._floors[key] = sum_(total.to(model.device)).cpu() / count * snr
        return self._floors[key]


@torch.no_grad()
def eps_losses(model: Model, t: Tensor, images: int) -> Tensor:
    """Mean eps-loss of test images at timesteps t (K,): (K,) float64. Must be called on all ranks.

    Args:
        model: what is evaluated, and how; the noise of image i at t[k] is a function of (seed, i, k).
        t: (K,) int64.
        images: evenly spread over the test split.
    """
    schedule = model.denoiser.schedule
    total = torch.zeros(len(t), dtype=torch.float64, device=model.device)
    with raised_on_all():
        for x0, cond, noise in noised_images(model, images, len(t), "loss of test images"):
            for k, at in enumerate(t.tolist()):
                rows = torch.full((len(x0),), at, device=x0.device)
                x_t = schedule.perturb(x0, noise(k, x0), rows)
                error = model.denoiser.estimate(x_t, rows, **cond).x0.double() - x0
                total[k] += error.square().flatten(1).mean(1).sum()
    return (sum_(total) / images).cpu() * schedule.snr.cpu()[t]
