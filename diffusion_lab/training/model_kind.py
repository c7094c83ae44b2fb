"""What a run trains: from the parts of a configuration to a module that trains, and back from a checkpoint.

network + parts -> whole     what has all the weights: a denoiser, or the two networks of a GAN
whole + parts -> module      what Lightning trains
whole -> generating          the part that generates, whose weights are averaged and evaluated

The usual kind is `DiffusionModel`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, ClassVar, Protocol

from torch import nn

from diffusion_lab.averaging import Name
from diffusion_lab.data import Conditions, ImageDataModule
from diffusion_lab.diffusion import Denoiser
from diffusion_lab.diffusion.time_map import takes_time_map
from diffusion_lab.networks import AdversarialNetworks
from diffusion_lab.networks.checks import keywords
from diffusion_lab.solvers import Solver
from diffusion_lab.streams import Streams
from diffusion_lab.training.continuation import Continuation
from diffusion_lab.training.module import DiffusionModule
from diffusion_lab.training.run_module import RunModule
from diffusion_lab.training.trained_model import TrainedDiffusion, TrainedModel

Identity = tuple[Path, dict[str, Any], str]  # run folder, configuration and its hash


class Parts(Protocol):
    """The parts of a configuration by the names of their nodes."""

    def __getitem__(self, path: str, /) -> Any: ...


class ModelKind(ABC):
    """A kind of model.

    Attributes:
        trains: class of the module.
        generates: class of the part that generates.
        prefix: beginning of the whole's names in a checkpoint.
        parts: nodes of the whole, besides data set and network.
        unused: nodes that have no meaning for this kind and must be null.
        fixed: dotted setting -> the only value that this kind allows, and why.
        chosen_by: what chooses this kind with the parts that go with it.
        why_unused: why the nodes of `unused` have no meaning.
    """

    trains: ClassVar[type[RunModule]]
    generates: ClassVar[type[nn.Module]]
    prefix: ClassVar[str]
    parts: ClassVar[tuple[str, ...]] = ()
    unused: ClassVar[tuple[str, ...]] = ()
    fixed: ClassVar[Mapping[str, tuple[Any, str]]] = {}
    chosen_by: ClassVar[str] = ""
    why_unused: ClassVar[str] = ""

    def faults(self, network: nn.Module, parts: Parts) -> Iterator[str]:
        """One sentence for each reason why this network, on the meta device, cannot be trained with these parts."""
        yield from ()

    def in_channels(self, channels: int) -> int:
        """Input channels of a network for images of so many channels; by default the same."""
        return channels

    def called(self, network: nn.Module) -> nn.Module:
        """The network with its parts in place, as it is called with x_t (B,C,H,W); by default itself."""
        return network

    @abstractmethod
    def out_channels(self, channels: int, parts: Parts) -> int:
        """Output channels of a network for images of so many channels."""

    @abstractmethod
    def whole(self, network: nn.Module, parts: Parts) -> nn.Module:
        """What has all weights, from the network and the other `parts`."""

    @abstractmethod
    def generating(self, whole: Any) -> nn.Module:
        """The part of the whole that generates."""

    @abstractmethod
    def module(self, whole: Any, parts: Parts, streams: Streams) -> RunModule:
        """What Lightning trains."""

    @abstractmethod
    def trained(
        self,
        identity: Identity,
        whole: Any,
        data: ImageDataModule,
        step: int,
        decay: Name | None,
        callbacks: Mapping[str, Any],
        continuation: Continuation,
    ) -> TrainedModel:
        """The model of a checkpoint.

        Args:
            identity: of the run.
            whole: with the weights, in eval mode.
            data: the training data.
            step: number of optimizer steps.
            decay: of the average that the weights are; None for the raw ones.
            callbacks: the state of the callbacks in the checkpoint.
            continuation: how the run would train on.
        """

    @abstractmethod
    def solver(self, parts: Parts) -> Solver:
        """How the run samples."""


class DiffusionModel(ModelKind):
    """A denoiser that is trained at sampled timesteps, and sampled by a solver.

    A subclass that names a `DiffusionModule` or a `Denoiser` of its own in `trains` and `generates` trains with these.
    """

    trains: ClassVar[type[DiffusionModule]] = DiffusionModule
    generates: ClassVar[type[Denoiser]] = Denoiser
    prefix = "denoiser."
    parts = ("schedule", "prediction", "variance", "preconditioning", "time")
    time_maps: ClassVar[bool] = False  # whether its step draws a map of times

    def faults(self, network: nn.Module, parts: Parts) -> Iterator[str]:
        if isinstance(network, AdversarialNetworks):
            yield (
                f"network={type(network).__name__} must be a denoiser, and is a generator with its discriminator; use "
                "task=gan, or network=unet_tiny"
            )
        else:
            yield from condition_faults(network, parts["dataset"].conditions)
            if self.time_maps and not takes_time_map(network):
                yield (
                    f"network={type(network).__name__} must take a map of times with model={type(self).__name__}, and "
                    "does not say takes_time_map = True; use network=unet_any or dit_tiny"
                )

    def out_channels(self, channels: int, parts: Parts) -> int:
        return channels * (parts["prediction"].heads + parts["variance"].channels)

    def whole(self, network: nn.Module, parts: Parts, **more: Any) -> Denoiser:
        """The denoiser; `more` are further arguments of `generates`."""
        schedule, prediction, variance, preconditioning, time = [parts[name] for name in self.parts]
        null_label = parts["dataset"].conditions.null_label
        given = schedule, prediction, variance, None, preconditioning, null_label, time
        return self.generates(network, *given, **more)

    def generating(self, whole: Denoiser) -> Denoiser:
        return whole

    def module(self, whole: Denoiser, parts: Parts, streams: Streams, **more: Any) -> DiffusionModule:
        """What Lightning trains; `more` are further arguments of `trains`."""
        weighting, optimizer, coupling = (parts[name] for name in ("weighting", "optimizer", "coupling"))
        auxiliary = {name: loss for name, loss in (parts["auxiliary"] or {}).items() if loss is not None}
        module = self.trains(whole, weighting, optimizer, streams, coupling, auxiliary, **more)
        if module.auxiliary.unbuilt:
            x0, cond = parts["dataset"].conditions.blank(1)
            module.auxiliary.build(whole.network, x0, cond, streams)
        return module

    def trained(
        self,
        identity: Identity,
        whole: Denoiser,
        data: ImageDataModule,
        step: int,
        decay: Name | None,
        callbacks: Mapping[str, Any],
        continuation: Continuation,
    ) -> TrainedDiffusion:
        sampler = next((state for key, state in callbacks.items() if key.startswith("TimestepSampling/")), {})
        # A copy of the sampler's state, because the file of the checkpoint is to be free.
        return TrainedDiffusion(*identity, whole, data, step, decay, deepcopy(sampler), continuation)

    def solver(self, parts: Parts) -> Solver:
        return parts["solver"]


def condition_faults(network: nn.Module, conditions: Conditions) -> Iterator[str]:
    """The network must accept the keywords of the batches and require no others."""
    name = type(network).__name__
    taken = keywords(network.forward, behind=2)
    lacking = {key for key in conditions.names if not taken.takes(key)}
    for key in sorted(lacking, key=lambda key: (key != "label", key)):
        yield (
            f"dataset.conditional=true must have a network that takes labels, and {name} takes none; set "
            "dataset.conditional=false or another network"
            if key == "label"
            else f"task={type(conditions.task).__name__} must have a network that takes {key}, and {name} does not; "
            "use network=adm_sr_tiny, or task=image_generation"
        )
    for key in sorted(taken.needed - conditions.names):
        cure = "set dataset.conditional=true" if key == "label" else "use task=super_resolution"
        yield f"network={name} must be given {key}, which this run does not have; {cure} or another network"
