"""A second time for any network: what it means is added to the result of one of the network's own layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from diffusion_lab.networks.layers import linear, timestep_embedding

WAVES = 128  # sines and cosines of an interval


class SecondTime(nn.Module):
    """e(d) of an interval d that ends at the network's own time: (B,) -> (B,E).

        e(d) = A (h(d) - h(0)),   h(d) = SiLU(affine(sines and cosines of scale d)),   A = 0 at first

    e(0) = 0 always, and e = 0 before training. So without an interval the network is the one that it was, and one that
    starts from trained weights starts with their answers.

    Args:
        features: E, of what it is added to.
        scale: of d before its sines and cosines, > 0; that of the network's own time.
        layer: name of the network's layer to whose result it is added.
    """

    def __init__(self, features: int, scale: float, layer: str) -> None:
        super().__init__()
        self.scale, self.layer = scale, layer
        self.hidden = linear(WAVES, features)
        self.out = nn.Linear(features, features, bias=False)
        nn.init.zeros_(self.out.weight)
        self._interval: Tensor | None = None

    def forward(self, interval: Tensor) -> Tensor:
        dtype = self.hidden.weight.dtype
        both = (interval, torch.zeros_like(interval))  # of equal shape: rows of another one may have other last bits
        waves = (timestep_embedding(self.scale * d, WAVES) for d in both)
        h, h_0 = (F.silu(self.hidden(wave.to(dtype))) for wave in waves)
        return self.out(h - h_0)

    def take(self, network: nn.Module, inputs: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Before a call of the network: its keyword `interval` is kept here."""
        self._interval = named.get("interval")
        return inputs, {key: value for key, value in named.items() if key != "interval"}

    def add(self, layer: nn.Module, inputs: Any, result: Tensor) -> Tensor:
        """After a call of the layer: (B,E), (B,L,E) or (B,E,H,W) -> the same."""
        if self._interval is None:
            return result
        e = self(self._interval).to(result.dtype)
        return result + (e[:, None] if result.ndim == 3 else e.reshape(*e.shape, *[1] * (result.ndim - 2)))


def with_second_time(network: nn.Module, layer: str, scale: float) -> nn.Module:
    """The network itself, which from now on takes the keyword `interval` (B,) besides its others.

    Its layers keep their names and its class is the same; the new weights are `second_time`.

    Args:
        network: any one.
        layer: name of the module inside it to whose result the embedding is added, such as that of the time; its last
            affine map or convolution says how many features it has.
        scale: see `SecondTime`.

    Raises:
        ValueError: the layer has no affine map and no convolution.
    """
    part = network.get_submodule(layer)
    widths = [
        inner.out_features if isinstance(inner, nn.Linear) else inner.out_channels
        for inner in part.modules()
        if isinstance(inner, nn.Linear | nn.Conv2d)
    ]
    if not widths:
        raise ValueError(f"layer={layer} must have an affine map or a convolution inside, and is {part}; name another")
    second = SecondTime(widths[-1], scale, layer)
    network.add_module("second_time", second)
    # Methods, not functions: a copy of the network has hooks of its own.
    network.register_forward_pre_hook(second.take, with_kwargs=True)
    part.register_forward_hook(second.add)
    return network


def takes_interval(network: nn.Module) -> bool:
    """Whether the network, or one that it calls, has a second time."""
    return any(isinstance(part, SecondTime) for part in network.modules())


def own_second_time(network: nn.Module) -> SecondTime | None:
    """What `with_second_time` gave the network; None for others."""
    return next((part for part in network.children() if isinstance(part, SecondTime)), None)
