"""Images of analyses: on which models are evaluated, each with its noise, and which models generate."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from diffusion_lab.analyses.base import Work
from diffusion_lab.data.conditions import Cond
from diffusion_lab.diffusion import Denoiser, bound_weights
from diffusion_lab.metrics import Latents
from diffusion_lab.solvers import Solver
from diffusion_lab.training import TrainedDiffusion, TrainedModel

Images = tuple[Tensor, Tensor, Cond]  # numbers (n,), x0 (n,C,H,W), conditions; as `TrainedModel.test_images` gives them


def training_images(model: TrainedDiffusion, count: int) -> Images:
    """`count` training images, evenly spread over the split and not mirrored."""
    split = model.data.source.train()
    ids = torch.arange(count) * len(split) // count
    x0, cond = model.data.conditions.of_images(split, ids)
    return ids, x0.to(model.device), {key: value.to(model.device) for key, value in cond.items()}


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


def latents_of(model: TrainedModel, work: Work) -> Latents:
    """The latents of the seed that a model was trained with; with the analysis's seed 0, those of the run's metrics.

    For numbers that are averaged over seeds, whose interval then has the effect of the latents in it.
    """
    return Latents.of_run(model.config.get("seed", 0), work.streams.seed)


def samples_of(
    trained: Sequence[TrainedModel],
    seeds: Sequence[int],
    count: int,
    batch_size: int,
    solver: Solver,
    work: Work,
) -> Tensor:
    """(M,count,C,H,W) uint8 of M models, from the latents of `seeds` (M,); `batch_size` images are a piece of work."""
    chunks = torch.arange(count).split(batch_size)

    def one(m: int, ids: Tensor) -> Mapping[str, np.ndarray]:
        return {"samples": trained[m].samples(ids.tolist(), seeds[m], solver, batch_size).numpy()}

    pieces = work.map("samples", one, [(m, ids) for m in range(len(trained)) for ids in chunks])
    return torch.from_numpy(np.concatenate([p["samples"] for p in pieces])).unflatten(0, (len(trained), count))


def check_alike(trained: Sequence[TrainedModel], kinds: Sequence[Hashable], must: str) -> None:
    """Raise unless what is given of each model is the same for all.

    Raises:
        ValueError: it is not; the models `must` be what the text says, with what to use instead.
    """
    if len({*kinds}) > 1:
        raise ValueError(f"run={','.join(dict.fromkeys(model.name for model in trained))} must {must}")


def schedule_and_images(model: TrainedDiffusion) -> tuple[Hashable, ...]:
    """What makes losses at one timestep comparable: the schedule and the test images."""
    return tuple(model.denoiser.schedule.snr.tolist()), model.data.source.test().fingerprint()


def check_training_images(trained: Sequence[TrainedDiffusion], images: int, key: str = "analysis.images") -> None:
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


def weights_of_bound(model: TrainedDiffusion) -> Tensor:
    """`diffusion.bound_weights` of a model: (T,) float64.

    Raises:
        ValueError: its prediction has several heads; called by `Analysis.check`, too, so that this is said first.
    """
    denoiser = model.denoiser
    return bound_weights(denoiser.schedule, denoiser.prediction, denoiser.variance)


def check_solver(solver: Solver, trained: Sequence[TrainedModel]) -> None:
    """Raise unless every diffusion model can be sampled with the solver `analysis.solver`.

    Raises:
        ValueError: its steps do not fit a schedule, it needs another model or label dropout, or it would clip.
    """
    for model in trained:
        if not isinstance(model, TrainedDiffusion):
            continue
        try:
            solver.check(model.denoiser.schedule)
            solver.check_model(model.denoiser)
        except ValueError as error:
            raise ValueError(f"analysis.solver.{error}") from error
        if solver.needs_null_label and model.denoiser.null_label is None:
            raise ValueError(
                f"run={model.name} must be trained with label dropout for analysis.solver={type(solver).__name__}; use "
                "another solver"
            )
        source = model.data.source
        if fault := solver.clip_fault("analysis.solver", source.name, source.value_range):
            raise ValueError(fault)
