"""What all U-Nets share: their structure, how time and label enter, and the pass through them.

    encoder level l = 0 .. L-1      R x [block]      then halve the size, except after the last level
    middle                          block, with attention, and block
    decoder level l = L-1 .. 0      (R+1) x [block]  then double the size, except after level 0

Every output of the encoder, including its input and the halvings, is kept; each of the decoder's (R+1) L blocks
concatenates one of them, newest first, to its input.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from diffusion_lab.networks.checks import check_label
from diffusion_lab.networks.kernels import in_full_precision, run, to_autocast_type
from diffusion_lab.networks.layers import TimeEmbedding


class Layers(Protocol):
    """Makes the parts of one network; each is called with features (B,C,H,W) and the time embedding (B,E)."""

    def block(self, in_channels: int, out_channels: int, attend: bool) -> nn.Module:
        """Keeps the size; attention at its end if `attend`."""
        ...

    def down(self, channels: int) -> nn.Module:
        """Halves the size."""
        ...

    def up(self, channels: int) -> nn.Module:
        """Doubles the size."""
        ...


class Level(nn.Module):
    """The blocks of one size and the change of size behind them, or None; `UNetPlan.run_blocks` runs them."""

    def __init__(self, blocks: Iterable[nn.Module], resample: nn.Module | None) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.resample = resample

    def parts(self) -> list[nn.Module]:
        """Blocks and change of size, in the order in which they run."""
        return [*self.blocks, *([] if self.resample is None else [self.resample])]


class Block(nn.Module):
    """A residual block, and the attention behind it if there is one."""

    def __init__(self, res: nn.Module, attention: nn.Module | None) -> None:
        super().__init__()
        self.res = res
        self.attention = nn.Identity() if attention is None else attention

    def forward(self, x: Tensor, e: Tensor) -> Tensor:
        return self.attention(self.res(x, e))


class UNetPlan(nn.Module):
    """A network with `encoder`, `middle` and `decoder`, which a subclass makes by `lay`, and its other parts."""

    checkpointing: bool = False  # whether training recomputes the activations of each block instead of storing them
    time: TimeEmbedding
    num_classes: int | None
    label: nn.Embedding | None
    conv_in: nn.Conv2d
    norm_out: nn.GroupNorm
    conv_out: nn.Conv2d

    def forward(self, x: Tensor, t: Tensor, label: Tensor | None = None) -> Tensor:
        """x (B,in_channels,H,W), t (B,) timesteps, label (B,) int64 in 0..num_classes-1 -> (B,out_channels,H,W).

        Where the blocks take a map of times (`takes_time_map`), t may be (B,1,H,W)."""
        h = self.run_blocks(to_autocast_type(in_full_precision(self.conv_in, x)), F.silu(self._embed(t, label)))
        return in_full_precision(self.conv_out, F.silu(self.norm_out(h)))

    def _embed(self, t: Tensor, label: Tensor | None) -> Tensor:
        """(B,E), or (B,E,H,W) of a map: time, plus class as in Dhariwal and Nichol (2021)."""
        check_label(label, self.num_classes)
        if self.label is None:
            return self.time(t)
        e = self.label(label)
        return self.time(t) + (e if t.ndim == 1 else e[:, :, None, None])

    def lay(
        self, layers: Layers, first: int, widths: Sequence[int], attends: Sequence[bool], num_res_blocks: int
    ) -> int:
        """Make the parts.

        Args:
            layers: makes each of them.
            first: channels that come into the encoder.
            widths: channels of each level.
            attends: whether each level's blocks have attention.
            num_res_blocks: R.

        Returns:
            channels that come out of the decoder.
        """
        channels, skips, last = first, [first], len(widths) - 1
        self.encoder = nn.ModuleList()
        for level, (width, attend) in enumerate(zip(widths, attends, strict=True)):
            inputs = [channels] + [width] * (num_res_blocks - 1)
            # Made before the blocks: initial weights are drawn in the order in which parts are made.
            resample = layers.down(width) if level < last else None
            self.encoder.append(Level([layers.block(n, width, attend) for n in inputs], resample))
            skips += [width] * (num_res_blocks + (level < last))
            channels = width

        self.middle = nn.ModuleList([layers.block(channels, channels, attend) for attend in (True, False)])

        self.decoder = nn.ModuleList()
        for level in range(last, -1, -1):
            width = widths[level]
            inputs = [before + skips.pop() for before in [channels] + [width] * num_res_blocks]
            resample = layers.up(width) if level > 0 else None
            self.decoder.append(Level([layers.block(n, width, attends[level]) for n in inputs], resample))
            channels = width
        return channels

    def run_blocks(self, h: Tensor, e: Tensor) -> Tensor:
        """(B,first,H,W), (B,E) -> (B,C,H,W)."""
        skips, recompute = [h], self.checkpointing
        for level in cast("Iterable[Level]", self.encoder):
            for part in level.parts():
                h = run(part, h, e, recompute=recompute)
                skips.append(h)
        for block in self.middle:
            h = run(block, h, e, recompute=recompute)
        for level in cast("Iterable[Level]", self.decoder):
            for block in level.blocks:
                h = run(block, torch.cat([h, skips.pop()], dim=1), e, recompute=recompute)
            if level.resample is not None:
                h = run(level.resample, h, e, recompute=recompute)
        return h
