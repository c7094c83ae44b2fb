"""Self-conditioning: a network that is given its own earlier estimate of the image beside x_t.

    network([scale_t x_t, x0_hat] (B,2C,H,W), t, **cond)

Chen, Zhang and Hinton 2022, "Analog bits", arXiv 2208.04202, section 3.2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from diffusion_lab.arguments import check_flag, check_number
from diffusion_lab.diffusion import Denoiser, Estimate, Reverse
from diffusion_lab.diffusion.schedule import copied
from diffusion_lab.solvers.base import clip_fault
from diffusion_lab.streams import Streams
from diffusion_lab.training.model_kind import DiffusionModel, Parts
from diffusion_lab.training.module import DiffusionModule, Losses, Pairs

ESTIMATE = "x0_hat"  # keyword of a network after `take_estimate`


def take_estimate(network: nn.Module) -> nn.Module:
    """The network itself, made for 2C channels, which from now on is called with x (B,C,H,W) and the keyword `x0_hat`
    (B,C,H,W), zeros without it. The names of its parts stay."""
    if _join not in network._forward_pre_hooks.values():
        network.register_forward_pre_hook(_join, with_kwargs=True)
    return network


def _join(network: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    x, *rest = args
    estimate = named.pop(ESTIMATE, None)
    beside = torch.zeros_like(x) if estimate is None else estimate.to(x.dtype)
    return (torch.cat([x, beside], dim=1), *rest), named


class SelfConditionedDenoiser(Denoiser):
    """A denoiser whose network is also given an estimate of x0.

    In a sampling loop that is the estimate of the network call before, whatever the solver calls it for, and zeros at
    the first call: with one call for each step, the estimate of the step before, as in the paper; Heun's correction is
    given the estimate at the start of its step. With guidance both answers are given the guided estimate. Outside of a
    loop it is zeros, for which the network was trained too: in validation, bounds and analyses.

    Args:
        network, schedule, ...: as of `Denoiser`; the network has 2C input channels.
        clip: whether the estimate is cut to [-1, 1], the range of images; at high noise that of eps is far outside.
    """

    sees_only_x_t = False

    def __init__(self, network: nn.Module, *parts: Any, clip: bool = True, **named: Any) -> None:
        super().__init__(take_estimate(network), *parts, **named)
        self.clip = clip
        self._sampling, self._last = False, None

    def sampling(self) -> Self:
        made = copied(self)
        made._sampling, made._last = True, None
        return made

    def shown(self, x0: Tensor) -> Tensor:
        """(B,C,H,W): an estimate as the network is given it, without its graph."""
        return x0.detach().clamp(-1, 1) if self.clip else x0.detach()

    def estimate(self, x_t: Tensor, t: Tensor, **cond: Tensor) -> Estimate:
        made = super().estimate(x_t, t, **cond)
        self._remember(made.x0)
        return made

    def reverse(self, x_t: Tensor, t: Tensor, clip: bool = False, **cond: Tensor) -> Reverse:
        made = super().reverse(x_t, t, clip, **cond)
        self._remember(made.x0)
        return made

    def _remember(self, x0: Tensor) -> None:
        if self._sampling:
            self._last = self.shown(x0)

    def _answer(self, x_t: Tensor, t: Tensor, cond: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        return super()._answer(x_t, t, cond if self._last is None else {ESTIMATE: self._last} | cond)


class SelfConditionedModule(DiffusionModule):
    """The loss with the network's own estimate of x0 beside x_t, in a share p of the rows:

        x0_hat = estimate(x_t, 0, t), without gradient, with probability p, else 0
        loss of network([x_t, x0_hat], t)

    Which rows is drawn for the whole global batch from the stream "self_conditioning". All rows are estimated, so that
    shapes and the calls of all processes are equal: one pass without gradients more.

    Differs from Chen et al., who draw whether once for a batch: rows are drawn independently.

    Args:
        probability: p in [0, 1].
    """

    calls_beside = 1
    denoiser: SelfConditionedDenoiser

    def __init__(self, *args: Any, probability: float = 0.5, **named: Any) -> None:
        super().__init__(*args, **named)
        self.probability = probability

    def losses(self, pairs: Pairs) -> Losses:
        model, position, rows = self.denoiser, self.position, len(pairs.x0)
        x_t = model.schedule.perturb(pairs.x0, pairs.eps if pairs.at_input is None else pairs.at_input, pairs.t)
        with torch.no_grad():
            estimate = model.shown(model.estimate(x_t, pairs.t, **pairs.cond).x0)
        # PyTorch before its pull request 165068 would give the loss the copies of the weights that autocast made above,
        # which have no gradient.
        torch.clear_autocast_cache()
        drawn = self.streams.uniform(
            position.global_rows(rows), "self_conditioning", position.step, device=pairs.x0.device
        )
        given = (drawn[position.rows(rows)] < self.probability)[:, None, None, None]
        x0_hat = torch.where(given, estimate, estimate.new_zeros(()))
        return super().losses(replace(pairs, cond=pairs.cond | {ESTIMATE: x0_hat}))


class SelfConditionedModel(DiffusionModel):
    """A denoiser that is given its own estimate: see `SelfConditionedModule` and `SelfConditionedDenoiser`.

    Args:
        probability: share of the training rows that are given an estimate, in [0, 1]; 0.5 in the paper.
        clip: whether the estimate is cut to [-1, 1]; false for latents.

    Raises:
        ValueError: a probability out of range.
    """

    trains: ClassVar[type[SelfConditionedModule]] = SelfConditionedModule
    generates: ClassVar[type[SelfConditionedDenoiser]] = SelfConditionedDenoiser

    def __init__(self, probability: float = 0.5, clip: bool = True) -> None:
        self.probability = check_number("probability", probability, "[]", 0, 1, "use 0.5 for the published setting")
        self.clip = check_flag("clip", clip, "use true for images in [-1, 1], false for latents")

    def faults(self, network: nn.Module, parts: Parts) -> Iterator[str]:
        yield from super().faults(network, parts)
        data = parts["dataset"]
        if data.conditions.task.names:
            yield (
                f"task={type(data.conditions.task).__name__} must be image_generation with self-conditioning, as its "
                "network is given another image already; use model=diffusion"
            )
        if self.clip and (fault := clip_fault("model", data.source.name, data.source.value_range)):
            yield fault

    def in_channels(self, channels: int) -> int:
        return 2 * channels

    def called(self, network: nn.Module) -> nn.Module:
        return take_estimate(network)

    def whole(self, network: nn.Module, parts: Parts, **more: Any) -> Denoiser:
        return super().whole(network, parts, clip=self.clip, **more)

    def module(self, whole: Denoiser, parts: Parts, streams: Streams, **more: Any) -> DiffusionModule:
        return super().module(whole, parts, streams, probability=self.probability, **more)
