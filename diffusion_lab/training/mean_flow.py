"""MeanFlow: a network that answers with the mean velocity of an interval, so that one call leads from noise to data.

On the straight path x_s = (1 - s) x0 + s eps, s = 0 at the data, with the velocity v = eps - x0, the mean velocity over
[r, s] along the flow is

    u(x_s, r, s) = 1/(s - r) int_r^s v(x_q, q) dq,       u(x_s, s, s) = v(x_s, s)

and d/ds of (s - r) u at fixed r gives what it is trained on, with the derivative along the path in forward mode,

    u = v - (s - r) du/ds,    du/ds = (v d/dx + d/ds) u
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from diffusion_lab.arguments import check_number
from diffusion_lab.data import Conditions
from diffusion_lab.diffusion import Denoiser, PathPosition, Plain, Velocity
from diffusion_lab.diffusion.schedule import working_dtype
from diffusion_lab.networks.checks import layer_fault
from diffusion_lab.networks.second_time import with_second_time
from diffusion_lab.streams import Streams
from diffusion_lab.training.model_kind import DiffusionModel, Parts
from diffusion_lab.training.module import DiffusionModule, Losses, Pairs
from diffusion_lab.training.run_module import seed_dropout


@dataclass(frozen=True)
class Intervals(Pairs):
    """Pairs with the beginning of an interval that ends at t.

    Attributes:
        r: (b,) int64 timesteps, r <= t.
    """

    r: Tensor


class MeanFlowModule(DiffusionModule):
    """The loss of the mean velocity, with the target's derivative held constant:

        l_i = |u(x_t, r, t) - (v - (s_t - s_r) stop(du/ds))|^2 / (C H W)

    t and r are the larger and the smaller of two draws of the run's sampler; in all rows but the share `share` of them
    r = t then, where the loss is that of flow matching. Which rows those are depends on their place in the global
    batch alone. A row's weight of the draw is the product of those of its two draws.

    The derivative costs a call of the network without gradients and its tangent, in float32, before the call that is
    trained.
    """

    calls_beside = 3  # a tangent of a convolution is two; 2 for networks of affine maps alone, such as DiT
    share: float = 0.25

    def pair(self, x0: Tensor, cond: dict[str, Tensor]) -> Intervals:
        one = super().pair(x0, cond)
        t, weight = self.draw_timesteps(x0, cond)
        first, last = torch.minimum(one.t, t), torch.maximum(one.t, t)
        start, n = self.position.rows(len(x0)).start, len(x0)
        place = torch.arange(start, start + n + 1, dtype=torch.float64, device=x0.device)
        apart = (place * self.share).floor().diff() > 0
        drawn = replace(one, t=last, weight=one.weight * weight)
        return Intervals(**vars(drawn), r=torch.where(apart, first, last))

    def losses(self, pairs: Intervals) -> Losses:  # pyright: ignore[reportIncompatibleMethodOverride]
        position = self.denoiser.schedule.position
        interval = (position[pairs.t] - position[pairs.r]).to(working_dtype(pairs.x0))
        # The target eps - x0 with another eps; at the input it stays the same.
        at_input = pairs.eps if pairs.at_input is None else pairs.at_input
        moved = pairs.eps - interval[:, None, None, None] * self.derivative(pairs, interval)
        cond = pairs.cond | {"interval": interval}
        return super().losses(replace(pairs, eps=moved, at_input=at_input, cond=cond))

    @torch.no_grad()
    def derivative(self, pairs: Intervals, interval: Tensor) -> Tensor:
        """du/ds (b,C,H,W) along the path at fixed r.

        Args:
            pairs: of the step.
            interval: (b,) s_t - s_r.
        """
        model, dtype = self.denoiser, working_dtype(pairs.x0)
        scale, s = model.time.scale, model.schedule.position[pairs.t].to(dtype)  # pyright: ignore
        x_t = model.schedule.perturb(pairs.x0, pairs.eps if pairs.at_input is None else pairs.at_input, pairs.t)

        def u(x_t: Tensor, s: Tensor, interval: Tensor) -> Tensor:
            return model.network(x_t, scale * s, interval=interval, **pairs.cond)

        along = model.target(pairs.x0, pairs.eps, pairs.t), torch.ones_like(s), torch.ones_like(s)
        # Fused attention has no derivative in forward mode, and autocast casts a weight there without its input.
        with sdpa_kernel(SDPBackend.MATH), torch.autocast(x_t.device.type, enabled=False):
            slope = torch.func.jvp(u, (x_t, s, interval), along)[1]
        seed_dropout(self.streams, self.position, x_t.device)  # the call that is trained has the same masks
        return slope.to(dtype)


class MeanFlow(DiffusionModel):
    """Mean flows (Geng et al., "Mean flows for one-step generative modeling", 2025, arXiv 2505.13447, equation 10 and
    algorithm 1): see `MeanFlowModule`. Sample with solver=meanflow. Without an interval the network answers with the
    velocity, so that every other solver, metric and analysis takes the model for one of flow matching.

    The paper's time is ours: t = 1 is noise, z_t = (1 - t) x + t eps. Its network is given t and t - r, and so is
    ours: the embedding of t - r is added to that of t (`networks.second_time`).

    Differs from the paper: times are those of the schedule, which end at 1 - 1/(2T); guidance is not trained into the
    network, as with guidance_eq=none in its code. Differs from its code: the rows with r = t are spread over the batch;
    there they are its first for ImageNet, and drawn for CIFAR-10.

    Args:
        share: of the rows with r != t, in [0, 1]; 0.25 for the paper's ImageNet, 0.75 for its CIFAR-10.
        layer: name of the network's layer to whose result the embedding of t - r is added: `time` of our U-Nets and
            DiT, `patches` of U-ViT, whose time has no layer.

    Raises:
        ValueError: a share out of range.
    """

    trains: ClassVar[type[MeanFlowModule]] = MeanFlowModule
    fixed = {"compile": (False, "a compiled network has no derivative in forward mode")}

    def __init__(self, share: float = 0.25, layer: str = "time") -> None:
        self.share = check_number("share", share, "[]", 0, 1, "use 0.25, or 0.75 as for CIFAR-10")
        self.layer = layer

    def faults(self, network: nn.Module, parts: Parts) -> Iterator[str]:
        yield from super().faults(network, parts)
        yield from _other_parts(parts)
        if fault := layer_fault(network, self.layer, "model.layer"):
            yield fault
        if fault := forward_mode_fault(network, parts["dataset"].conditions):
            yield fault

    def whole(self, network: nn.Module, parts: Parts) -> Denoiser:
        if any(name == self.layer for name, _ in network.named_modules()):  # not in a stand-in that counts calls
            with_second_time(network, self.layer, parts["time"].scale)
        return super().whole(network, parts)

    def module(self, whole: Denoiser, parts: Parts, streams: Streams) -> DiffusionModule:
        module: Any = super().module(whole, parts, streams)
        module.share = self.share
        return module


def _other_parts(parts: Parts) -> Iterator[str]:
    """The formulas above are those of one path, its velocity and its own time."""
    schedule = parts["schedule"]
    straight = bool((schedule.signal_slope == -1).all() and (schedule.noise_slope == 1).all())
    for group, fits, option in (
        ("schedule", straight, "rectified_flow"),
        ("prediction", type(parts["prediction"]) is Velocity, "velocity"),
        ("time", isinstance(parts["time"], PathPosition), "position"),
        ("preconditioning", isinstance(parts["preconditioning"], Plain | None), "none"),
        ("variance", not parts["variance"].channels, "fixed_large"),
    ):
        if not fits:
            yield f"{group}={type(parts[group]).__name__} must be {option} with model=meanflow; use {group}={option}"


def forward_mode_fault(network: nn.Module, conditions: Conditions) -> str | None:
    """The message for a network, on the meta device, that has no derivative in forward mode by image and time."""
    x, cond = conditions.blank(1, "meta")
    t = torch.zeros(1, device="meta")

    def answer(x: Tensor, t: Tensor) -> Any:
        return network(x, t, **cond)

    try:
        with warnings.catch_warnings(), torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
            warnings.simplefilter("ignore", FutureWarning)  # of PyTorch's own import at the first such derivative
            torch.func.jvp(answer, (x, t), (x, t))
    except Exception as error:  # of any class, also of a user's network
        said = " ".join(str(error).split())[:200]
        return (
            f"network={type(network).__name__} must have a derivative in forward mode by image and time with "
            f"model=meanflow, and torch.func.jvp says: {said}; use network=unet_tiny"
        )
    return None
