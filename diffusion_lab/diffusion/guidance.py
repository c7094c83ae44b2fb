"""Classifier-free guidance (Ho and Salimans, "Classifier-free diffusion guidance", 2022)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from diffusion_lab.arguments import check_integer, check_number


class Guidance(nn.Module):
    """A network that is evaluated with the label and with the null label, in one call with twice the rows.

        out = out_null + scale (out_label - out_null)

    eps, x0 and v are affine in one another at given x_t and t, so guiding any of them is the same; with several heads
    each is guided. The reverse variance is that of the labelled answer.

    Ho and Salimans' w and U-ViT's "CFG scale" are scale - 1: their 0.4 is 1.4 here. scale = 1 is no guidance.

    With `channels` only the first of the image's channels are guided and the others are those of the labelled answer.
    The published code of DiT and SiT guides three of the four channels of its latents; the formula has no such
    exception, so all are guided by default.

    Args:
        network: trained with label dropout.
        scale: >= 0.
        null_label: the label that stands for no condition.
        heads: the prediction's channels per image channel; the channels behind them are the variance's.
        channels: largest number of guided channels of each head, >= 1; None: all.

    Raises:
        ValueError: a scale or a number of channels out of range.
    """

    def __init__(
        self, network: nn.Module, scale: float, null_label: int, heads: int = 1, channels: int | None = None
    ) -> None:
        super().__init__()
        self.network = network
        self.scale = check_number("scale", scale, "[)", 0, float("inf"), "use 1.5, or 1.0 for none")
        self.null_label, self.heads = null_label, heads
        self.channels = check_channels(channels)

    def forward(self, x: Tensor, t: Tensor, label: Tensor, **cond: Tensor) -> Tensor:
        """As the network's: x (B,C,H,W), t (B,), label (B,) -> (B,out_channels,H,W)."""
        labels = torch.cat([label, torch.full_like(label, self.null_label)])
        twice = {key: torch.cat([value, value]) for key, value in cond.items()}
        out, out_null = self.network(torch.cat([x, x]), torch.cat([t, t]), label=labels, **twice).chunk(2)
        guided = self.heads * x.shape[1]
        prediction = out_null[:, :guided] + self.scale * (out[:, :guided] - out_null[:, :guided])
        if self.channels is not None:
            channel = torch.arange(guided, device=x.device) % x.shape[1]
            prediction = torch.where((channel < self.channels)[:, None, None], prediction, out[:, :guided])
        return torch.cat([prediction, out[:, guided:]], dim=1)


def check_channels(channels: int | None) -> int | None:
    """`channels` if it is None or an integer >= 1, else ValueError."""
    return channels if channels is None else check_integer("channels", channels, 1, "use 3 as DiT, or null for all")
