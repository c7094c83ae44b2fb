"""The policy of the learned Beta sampler: from clean images to the two parameters of a Beta distribution each."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from diffusion_lab.arguments import check_integer


class BetaPolicy(nn.Module):
    """x0 (B,C,H,W) in [-1, 1] -> a (B,), b (B,), both positive (Kim et al. 2025; released code `network.py`).

        3 x [conv3x3, ReLU, maxpool 2]  (32, 64, 128 channels) -> mean over a 4 x 4 grid -> 2 x [linear, ReLU] -> linear
        (a, b) = softplus(last) + 1e-5

    The last layer starts at weight 0 and bias 1/2, so a = b = 0.97409 for every image: nearly uniform. With 3 x 32 x 32
    images it has 372,290 parameters at hidden 128 and 684,098 at 256.

    Differs from the released code: it flattens the 4 x 4 pixels that 32 x 32 images end at and accepts no other size;
    here they are averaged to 4 x 4, which changes nothing for 32 x 32.

    Args:
        in_channels: C.
        hidden: width of the linear layers, >= 1: 128 for CIFAR-10, 256 for the others.
        hidden_layers: number of them, >= 1.

    Raises:
        ValueError: hidden or hidden_layers below 1.
    """

    def __init__(self, in_channels: int, hidden: int = 128, hidden_layers: int = 2) -> None:
        super().__init__()
        check_integer("hidden", hidden, 1, "use 128 as published")
        check_integer("hidden_layers", hidden_layers, 1, "use 2 as published")
        widths = [in_channels, 32, 64, 128]
        self.convs = nn.ModuleList([nn.Conv2d(a, b, 3, padding=1) for a, b in zip(widths, widths[1:], strict=False)])
        sizes = [128 * 4 * 4] + [hidden] * hidden_layers
        self.hidden = nn.ModuleList([nn.Linear(a, b) for a, b in zip(sizes, sizes[1:], strict=False)])
        self.last = nn.Linear(hidden, 2)
        nn.init.zeros_(self.last.weight)
        nn.init.constant_(self.last.bias, 0.5)
        # Max pooling in the layout of the convolutions: on a CPU the other layout takes as long as the convolutions.
        self.convs.to(memory_format=torch.channels_last)

    def forward(self, x0: Tensor) -> tuple[Tensor, Tensor]:
        h = x0
        for conv in self.convs:
            # The maximum first, of a quarter as many numbers; ceil: an image of 1 pixel stays one.
            h = F.relu(F.max_pool2d(conv(h), 2, ceil_mode=True))
        h = _mean_over_grid(h, 4).flatten(1)
        for layer in self.hidden:
            h = F.relu(layer(h))
        a, b = (F.softplus(self.last(h)) + 1e-5).unbind(1)
        return a, b


def _mean_over_grid(h: Tensor, size: int) -> Tensor:
    """(B,C,H,W) -> (B,C,size,size): `adaptive_avg_pool2d` as two products, because its own kernel takes longer than the
    three convolutions together where the grid is finer than the image."""
    if h.shape[2:] == (size, size):
        return h
    rows, columns = (F.adaptive_avg_pool1d(torch.eye(n, dtype=h.dtype, device=h.device), size) for n in h.shape[2:])
    return rows.T @ h @ columns
