"""The framework around the training step, over a bare PyTorch loop.

Three loops train one network on the digits, interleaved in one process, in CPU time of each loop's thread: (a) a bare
loop, which draws timesteps and noise, clips by norm, and has a fused Adam and a foreach average of the weights; (b)
`diffusion-lab train` with everything that runs in a step (streams, sampler, timestep log, average, guard, progress bar)
but without validation, samples and checkpoints; (c) stock Lightning with `self.log` and its bar.

The tiny network is a perceptron of 20 thousand weights at batch 64. For the share at unet_ddpm's size the loops (a) and
(b) train unet_ddpm's 304 tensors, 35.7 million weights, on one 8 x 8 image a step, where the network is cheap and the
difference is measurable: the overhead depends on the number of tensors and weights, not on pixels. It is divided by the
time of a bare step of 16 images of 32 x 32 in the same process.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor, nn

from benchmarks.loops import bare, node, ours, stock, terminal
from benchmarks.paired import Ratio
from benchmarks.relay import relay
from benchmarks.table import Line, at_most
from diffusion_lab.data import Digits, to_float
from diffusion_lab.networks import UNet

BATCH = 64
UNET = partial(UNet, in_channels=1, out_channels=1)  # with the arguments' defaults it is unet_ddpm


class Perceptron(nn.Module):
    """(B,1,8,8), (B,) -> (B,1,8,8): three layers, conditioned on t by four sinusoids."""

    waves: Tensor

    def __init__(self, in_channels: int = 1, out_channels: int = 1, image_size: int = 8) -> None:
        super().__init__()
        self.register_buffer("waves", torch.logspace(0, -3, 4) * math.pi / 2, persistent=False)
        pixels = image_size**2
        self.layers = nn.Sequential(
            nn.Linear(in_channels * pixels + 4, 100), nn.SiLU(), nn.Linear(100, 64), nn.SiLU(),
            nn.Linear(64, out_channels * pixels), nn.Unflatten(1, (out_channels, image_size, image_size)),
        )  # fmt: skip

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        return self.layers(torch.cat([x.flatten(1), torch.sin(t[:, None] * self.waves)], dim=1))


def lines() -> Iterator[Line]:
    images = to_float(Digits().train().take(range(1437)))
    yield from _tiny(images)
    yield from _large(images)


def _tiny(images: Tensor) -> Iterator[Line]:
    loops = {
        "bare": bare(Perceptron, images, BATCH),
        "ours": ours(node(f"{__name__}.Perceptron"), [f"batch_size={BATCH}"]),
        "stock": stock(Perceptron, images, BATCH),
    }
    with terminal():
        seconds = relay(loops, steps=100, rounds=9)
    over = {name: [1e6 * (a - b) for a, b in zip(seconds[name], seconds["bare"], strict=True)] for name in loops}
    yield Line("tiny network: a bare step", Ratio.of([1e6 * value for value in seconds["bare"]]), unit="us")
    yield Line("tiny network: diffusion-lab adds to a step", Ratio.of(over["ours"]), unit="us")
    yield Line("tiny network: stock Lightning adds to a step", Ratio.of(over["stock"]), unit="us")
    added = [our / theirs for theirs, our in zip(over["stock"], over["ours"], strict=True)]
    share = [1e-6 * more / floor for more, floor in zip(over["ours"], seconds["bare"], strict=True)]
    yield Line("tiny network: diffusion-lab adds, over a bare step", Ratio.of(share))
    yield Line("tiny network: diffusion-lab adds, over what stock Lightning adds", Ratio.of(added), at_most(0.5))


def _large(images: Tensor) -> Iterator[Line]:
    small = partial(UNET, image_size=8, attention_resolutions=(4,))
    overrides = ["batch_size=1", "network=unet_ddpm", "network.attention_resolutions=[4]"]
    with terminal():
        seconds = relay({"bare": bare(small, images, 1), "ours": ours(None, overrides)}, steps=4, rounds=7)
    step = min(_bare_step())
    share = [100 * (our - floor) / step for our, floor in zip(seconds["ours"], seconds["bare"], strict=True)]
    yield Line("unet_ddpm: a bare step of 16 images", Ratio.of([step]), unit="s")
    yield Line("unet_ddpm: diffusion-lab adds, over a bare step of 16 images", Ratio.of(share), at_most(1), "%")


def _bare_step() -> list[float]:
    """Seconds of steps of unet_ddpm at batch 16."""
    loop = bare(partial(UNET, image_size=32, attention_resolutions=(16,)), torch.randn(64, 1, 32, 32), 16)
    return relay({"step": loop}, steps=1, rounds=2, warmup=0)["step"]
