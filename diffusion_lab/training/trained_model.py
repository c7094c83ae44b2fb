"""A trained model loaded from a run, for solvers, metrics and analyses.

Its `FixedSetLoss` is the loss on a fixed set as a differentiable function of its weights:

    L_k(theta) = 1/n sum_i L_ki(theta),     k = 1..K

What the K losses are is the model's: of a diffusion model the native loss at K timesteps, of another kind perhaps one.
Analyses that move the weights (interpolation, landscape) or differentiate twice (hessian) need nothing else of it.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from diffusion_lab.arguments import check_integer
from diffusion_lab.averaging import Name, short
from diffusion_lab.data import ImageDataModule
from diffusion_lab.data.conditions import Cond
from diffusion_lab.diffusion import Denoiser
from diffusion_lab.diffusion.schedule import working_dtype
from diffusion_lab.metrics.sampling import generate
from diffusion_lab.solvers import Solver
from diffusion_lab.training.continuation import Continuation

TIMESTEP_SCALE = 1000  # timesteps of a loss on a fixed set count from 0 to this, whatever T is
TIMESTEPS = (0, 10, 50, 100, 300, 500, 900)  # closer to one another at little noise
Noise = Callable[..., Tensor]  # noise(shape, number): standard normal, a function of the number


class FixedSetLoss(NamedTuple):
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


def check_timesteps(timesteps: Sequence[int]) -> list[int]:
    """The timesteps of a loss on a fixed set.

    Raises:
        ValueError: there is none, or one outside 0..999.
    """
    if not timesteps:
        raise ValueError(
            f"timesteps={timesteps} must name at least one timestep; use [{','.join(map(str, TIMESTEPS))}]"
        )
    cure = "they count on a scale of 1000, whatever T is"
    return [check_integer("timesteps", t, 0, cure, TIMESTEP_SCALE - 1) for t in timesteps]


class TrainedModel(ABC):
    """One checkpoint of a run, with the requested weights, whatever kind of model it trained.

    Attributes:
        folder: the run folder.
        config: the run's configuration, plain values.
        config_hash: hash of that configuration, as in run.json.
        data: its training data.
        step: number of optimizer steps of the weights.
        decay: decay, or another name, of the moving average of the weights; None for the raw weights.
        kind: what it is, in the plural, for messages.
        own_solver: makes the solver of the run's configuration; None for a model that is not from a run folder.
    """

    folder: Path
    config: dict[str, Any]
    config_hash: str
    data: ImageDataModule
    step: int
    decay: Name | None
    kind: ClassVar[str]
    own_solver: Callable[[], Solver] | None = None

    @property
    @abstractmethod
    def module(self) -> nn.Module:
        """The module that holds the loaded weights, in eval mode."""

    @property
    def name(self) -> str:
        """Name of the run folder."""
        return self.folder.resolve().name

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Device of the weights."""

    def check_images(self, count: int) -> None:
        """For the check of an analysis with an argument `images`.

        Raises:
            ValueError: the test split has fewer than `count` images.
        """
        n = len(self.data.source.test())
        if count > n:
            raise ValueError(f"analysis.images={count} must be at most {n}, the test images of {self.name}; use {n}")

    def samples(
        self,
        ids: Sequence[int],
        seed: int = 0,
        solver: Solver | None = None,
        batch_size: int = 64,
        labels: int | str | Sequence[int | str] | None = None,
    ) -> Tensor:
        """Generated images with the given numbers.

        Args:
            ids: the images' numbers. The latents of image i are a function of (seed, i) alone, and its conditions of i.
            seed: seed of the latents, >= 0.
            solver: how a diffusion model samples; other kinds of models do not use it. None: as the run itself.
            batch_size: images at a time.
            labels: classes of a conditional model, numbers or names, which the images take in turn; None: image i has
                class i mod K.

        Returns:
            (n,C,H,W) uint8 on the CPU, in the shape of the pixels.

        Raises:
            ValueError: an image is not finite, a label is no class, or no solver is known.
        """
        if solver is None:
            if self.own_solver is None:
                raise ValueError("solver=None must be a solver for a model that is not from a run folder; use DDIM()")
            solver = self.own_solver()
        return generate(
            self.module,
            self.solver(solver),
            ids,
            seed,
            self.data.shape,
            batch_size=batch_size,
            device=self.device,
            conditions=self.data.conditions.of_samples_with(ids, labels),
            to_pixels=self.data.source.to_pixels,
        )

    def solver(self, given: Solver) -> Solver:
        """How `module` generates, given the solver of diffusion models."""
        return given

    @abstractmethod
    def fixed_set_loss(
        self, timesteps: Sequence[int], images: int, noise: Noise, batch_size: int = 256
    ) -> FixedSetLoss:
        """The loss that the weights of `module` were trained for, on a fixed set, in eval mode.

        Args:
            timesteps: where a diffusion model is evaluated, 0 <= t < 1000 whatever its T; other models ignore them.
            images: number of rows: test images, or latents of a model that has no images to compare with.
            noise: `work.normal`; called with the shape of one row and the row's number.
            batch_size: largest number of rows of one network call; a part has whole images, up to as many rows.
        """

    def test_images(self, count: int) -> tuple[Tensor, Tensor, Cond]:
        """Test images, evenly spread over the test split; all of them if there are fewer than `count`.

        Returns:
            ids (n,) int64, their numbers in the split; and, on the device of the model, images (n,C,H,W) float32 in the
            range of the model, and their conditions.
        """
        split, device = self.data.source.test(), self.device
        n = min(count, len(split))
        ids = torch.arange(n) * len(split) // n
        x0, cond = self.data.conditions.of_images(split, ids)
        return ids, x0.to(device), {key: value.to(device) for key, value in cond.items()}

    def identity(self) -> dict[str, Any]:
        """Plain values that identify this model; independent of the location of its folder."""
        return {
            "run": self.name,
            "config_hash": self.config_hash,
            "step": self.step,
            "weights": "raw" if self.decay is None else f"ema {short(self.decay)}",
            "digest": digest(self.module.state_dict()),
        }


@dataclass
class TrainedDiffusion(TrainedModel):
    """One checkpoint of a diffusion model.

    Attributes:
        denoiser: the model, in eval mode.
        sampler: state of the timestep sampler that it was trained with, by name; empty if that is unknown.
        continuation: how the run would train on.
    """

    folder: Path
    config: dict[str, Any]
    config_hash: str
    denoiser: Denoiser
    data: ImageDataModule
    step: int
    decay: Name | None
    sampler: Mapping[str, Any] = field(default_factory=dict)
    continuation: Continuation = Continuation()
    kind = "diffusion models"

    @property
    def module(self) -> Denoiser:
        return self.denoiser

    @property
    def device(self) -> torch.device:
        return self.denoiser.timesteps.device

    def fixed_set_loss(
        self, timesteps: Sequence[int], images: int, noise: Noise, batch_size: int = 256
    ) -> FixedSetLoss:
        """The native loss at timesteps floor(t T / 1000), each once; without the bound's term of a learned variance.

        Image i of the test split has the noise numbered i at every t, as in the analysis `per_timestep`. Images, noise
        and losses have the precision of the weights at the time of the call.
        """
        ids, x0, cond = self.test_images(images)
        eps = torch.stack([noise(tuple(x0.shape[1:]), int(i)) for i in ids])
        t = torch.tensor(list(dict.fromkeys(s * self.denoiser.num_timesteps // TIMESTEP_SCALE for s in timesteps)))
        t = t.to(x0.device)

        def losses(rows: slice) -> Tensor:
            """(n_p,K), in network calls of at most `batch_size` rows."""
            dtype = working_dtype(next(self.denoiser.parameters(), x0))
            given = {"x0": x0, "eps": eps} | cond
            given = {k: v[rows].to(dtype) if v.is_floating_point() else v[rows] for k, v in given.items()}
            given = {k: v.repeat_interleave(len(t), 0) for k, v in given.items()}
            given["t"] = t.repeat(len(given["x0"]) // len(t))
            cuts = _slices(len(given["t"]), batch_size)
            native = [self.denoiser.loss(**{k: v[cut] for k, v in given.items()}).native for cut in cuts]
            return torch.cat(native).unflatten(0, (-1, len(t)))

        parts = [partial(losses, rows) for rows in _slices(len(x0), max(1, batch_size // len(t)))]
        return FixedSetLoss(tuple(f"t = {int(step)}" for step in t), parts)


def _slices(count: int, size: int) -> list[slice]:
    """Consecutive slices of at most `size` that cover `count` rows."""
    return [slice(start, start + size) for start in range(0, count, size)]


def digest(state: Mapping[str, Tensor]) -> str:
    """Hash of the names and bytes of tensors, 12 hexadecimal digits."""
    hasher = hashlib.blake2b(digest_size=6)
    for name, value in state.items():
        hasher.update(name.encode())
        hasher.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return hasher.hexdigest()


def labels(trained: Sequence[TrainedModel]) -> list[str]:
    """Names that distinguish models in a figure: the run, the step, or both."""
    folders, steps = [model.folder.resolve() for model in trained], [f"step {model.step}" for model in trained]
    runs = set(folders)
    if len(runs) == 1:
        return steps
    unique = len({folder.name for folder in runs}) == len(runs)
    names = [folder.name if unique else f"{folder.parent.name}/{folder.name}" for folder in folders]
    if len(runs) == len(trained):
        return names
    return [f"{name}, {step}" for name, step in zip(names, steps, strict=True)]
