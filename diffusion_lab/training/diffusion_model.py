"""Diffusion models as a kind of model."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from torch import nn

from diffusion_lab.averaging import Name
from diffusion_lab.data import Conditions, ImageDataModule
from diffusion_lab.diffusion import Denoiser
from diffusion_lab.networks import AdversarialNetworks
from diffusion_lab.solvers import Solver
from diffusion_lab.streams import Streams
from diffusion_lab.training.continuation import Continuation
from diffusion_lab.training.model_kind import Identity, ModelKind, Parts
from diffusion_lab.training.module import DiffusionModule
from diffusion_lab.training.trained import Trained


class DiffusionModel(ModelKind):
    """A denoiser that is trained at sampled timesteps, and sampled by a solver."""

    trains, generates = DiffusionModule, Denoiser
    prefix = "denoiser."
    parts = ("schedule", "prediction", "variance", "preconditioning", "time")

    def faults(self, network: nn.Module, data: ImageDataModule) -> Iterator[str]:
        if isinstance(network, AdversarialNetworks):
            yield (
                f"network={type(network).__name__} must be a denoiser, and is a generator with its discriminator; use "
                "task=gan, or network=unet_tiny"
            )
        else:
            yield from condition_faults(network, data.conditions)

    def out_channels(self, channels: int, parts: Parts) -> int:
        return channels * (parts["prediction"].heads + parts["variance"].channels)

    def whole(self, network: nn.Module, parts: Parts) -> Denoiser:
        schedule, prediction, variance, preconditioning, time = (parts[name] for name in self.parts)
        null_label = parts["dataset"].conditions.null_label
        return Denoiser(network, schedule, prediction, variance, None, preconditioning, null_label, time)

    def generating(self, whole: Denoiser) -> Denoiser:
        return whole

    def module(self, whole: Denoiser, parts: Parts, streams: Streams) -> DiffusionModule:
        return DiffusionModule(whole, parts["weighting"], parts["optimizer"], streams, parts["coupling"])

    def trained(
        self,
        identity: Identity,
        whole: Denoiser,
        data: ImageDataModule,
        step: int,
        decay: Name | None,
        callbacks: Mapping[str, Any],
        continuation: Continuation,
    ) -> Trained:
        sampler = next((state for key, state in callbacks.items() if key.startswith("TimestepSampling/")), {})
        return Trained(*identity, whole, data, step, decay, sampler, continuation)

    def solver(self, parts: Parts) -> Solver:
        return parts["solver"]


def condition_faults(network: nn.Module, conditions: Conditions) -> Iterator[str]:
    """The network must accept the keywords of the batches and require no others."""
    name = type(network).__name__
    taken = dict(list(inspect.signature(network.forward).parameters.items())[2:])  # behind x and t
    needed = set()
    for key, parameter in taken.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            return
        if parameter.default is parameter.empty:
            needed.add(key)
    for key in sorted(conditions.names - taken.keys(), key=lambda key: (key != "label", key)):
        yield (
            f"dataset.conditional=true must have a network that takes labels, and {name} takes none; set "
            "dataset.conditional=false or another network"
            if key == "label"
            else f"task={type(conditions.task).__name__} must have a network that takes {key}, and {name} does not; "
            "use network=adm_sr_tiny, or task=image_generation"
        )
    for key in sorted(needed - conditions.names):
        cure = "set dataset.conditional=true" if key == "label" else "use task=super_resolution"
        yield f"network={name} must be given {key}, which this run does not have; {cure} or another network"
