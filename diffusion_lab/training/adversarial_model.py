"""GANs as a kind of model, and a trained one."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from diffusion_lab.arguments import check_integer, check_number
from diffusion_lab.averaging import Name
from diffusion_lab.data import ImageDataModule
from diffusion_lab.networks import AdversarialNetworks, Generator
from diffusion_lab.solvers import OneCall, Solver
from diffusion_lab.streams import Streams
from diffusion_lab.training.adversarial import AdversarialModule
from diffusion_lab.training.continuation import Continuation
from diffusion_lab.training.model_kind import Identity, ModelKind, Parts
from diffusion_lab.training.objective import Noise, Objective
from diffusion_lab.training.trained import TrainedModel


@dataclass
class TrainedGAN(TrainedModel):
    """One checkpoint of a GAN.

    Attributes:
        networks: generator, discriminator and their losses, in eval mode; the generator may have averaged weights.
    """

    folder: Path
    config: dict[str, Any]
    config_hash: str
    networks: AdversarialNetworks
    data: ImageDataModule
    step: int
    decay: Name | None
    kind = "GANs"

    @property
    def module(self) -> Generator:
        return self.networks.generator

    @property
    def device(self) -> torch.device:
        return next(self.networks.parameters()).device

    def solver(self, given: Solver) -> Solver:
        return OneCall()

    def objective(self, timesteps: Sequence[int], images: int, noise: Noise, batch_size: int = 256) -> Objective:
        """The generator's loss, with the discriminator of the checkpoint, on so many latents and the labels of samples.

        Latents, labels and losses have the precision of the generator's weights at the time of the call.
        """
        z = torch.stack([noise((self.module.latent_dim,), i) for i in range(images)]).to(self.device)
        labels = {key: value.to(self.device) for key, value in self.data.conditions.of_samples(range(images)).items()}
        judge = copy.deepcopy(self.networks.discriminator).requires_grad_(False)

        def losses(rows: slice) -> Tensor:
            """(n_p,1)"""
            dtype = next(self.module.parameters()).dtype
            cond = {key: value[rows] for key, value in labels.items()}
            fake = judge.to(z.device, dtype)(self.module(z[rows].to(dtype), **cond), **cond)
            return self.networks.loss.generator(fake)[:, None]

        starts = range(0, images, batch_size)
        return Objective(("generator loss",), [partial(losses, slice(i, i + batch_size)) for i in starts])


class AdversarialModel(ModelKind):
    """A generator that is trained against a discriminator: see `AdversarialModule`.

    Args:
        discriminator_steps: of the discriminator for one step of the generator, >= 1; a divisor of the batch size.
        discriminator_lr: the discriminator's learning rate, in units of the generator's, > 0.

    Raises:
        ValueError: a number out of range.
    """

    trains, generates = AdversarialModule, Generator
    prefix = "networks."
    unused = (
        "schedule",
        "prediction",
        "variance",
        "preconditioning",
        "time",
        "coupling",
        "weighting",
        "sampler",
        "solver",
    )
    chosen_by = "task=gan"
    why_unused = "a GAN has no timesteps"
    fixed = {
        "accumulate": (1, "a GAN's norms are of a whole batch"),
        "gradient_clip": (None, "a GAN's two networks are updated in turn"),
        "precision": ("32-true", "a GAN's two losses are not scaled"),
        "compile": (False, "a GAN's two networks are updated in turn"),
        "trainer.devices": (1, "a GAN's norms are of a whole batch"),
        "trainer.num_nodes": (1, "a GAN's norms are of a whole batch"),
        "trainer.strategy": ("auto", "a GAN trains in one process"),
        "init_from": (None, "a GAN's two networks learn from one another from the start"),
        "dry_run": (False, "only the cost of a denoiser is estimated"),
    }

    def __init__(self, discriminator_steps: int = 1, discriminator_lr: float = 1.0) -> None:
        self.discriminator_steps = check_integer("discriminator_steps", discriminator_steps, 1, "use 1")
        self.discriminator_lr = check_number("discriminator_lr", discriminator_lr, "()", 0, 1e6, "use 1.0")

    def faults(self, network: nn.Module, data: ImageDataModule) -> Iterator[str]:
        if not isinstance(network, AdversarialNetworks):
            yield (
                f"network={type(network).__name__} must be a generator with its discriminator, and is a denoiser; use "
                "network=dcgan, or task=image_generation"
            )
        if data.conditions.task.paired:
            yield f"dataset.task={type(data.conditions.task).__name__} must be ImageGeneration; use task=gan for both"
        if data.batch_size % self.discriminator_steps:
            yield (
                f"model.discriminator_steps={self.discriminator_steps} must divide batch_size={data.batch_size}, whose "
                "images are shared by the steps; use 1"
            )
        bounds = data.source.value_range
        if bounds is None or bounds[0] < -1 or bounds[1] > 1:
            yield (
                f"dataset.source={data.source.name} must have values in [-1, 1], which a generator gives, and has "
                "others; use a data set of images"
            )

    def out_channels(self, channels: int, parts: Parts) -> int:
        return channels

    def whole(self, network: nn.Module, parts: Parts) -> nn.Module:
        return network

    def generating(self, whole: AdversarialNetworks) -> Generator:
        return whole.generator

    def module(self, whole: AdversarialNetworks, parts: Parts, streams: Streams) -> AdversarialModule:
        ratio = self.discriminator_steps, self.discriminator_lr
        return AdversarialModule(whole, parts["optimizer"], streams, *ratio)

    def trained(
        self,
        identity: Identity,
        whole: AdversarialNetworks,
        data: ImageDataModule,
        step: int,
        decay: Name | None,
        callbacks: Mapping[str, Any],
        continuation: Continuation,
    ) -> TrainedGAN:
        return TrainedGAN(*identity, whole, data, step, decay)

    def solver(self, parts: Parts) -> Solver:
        return OneCall()
