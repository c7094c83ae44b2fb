"""A training step of unet_ddpm over diffusers, the plainest loop, and the convolutions' limit.

35,746,307 parameters, batch 16 of 3 x 32 x 32, one thread. A step is noise and timesteps, forward, mean square error,
backward, clip at norm 1, Adam, average of the weights:

    diffusers   UNet2DModel of the same shapes, in the steps of diffusers' example: DDPMScheduler, torch's default Adam,
                EMAModel, loss.item(); always float32, the default of the example
    plain       our network in a minimal PyTorch loop, with a fused Adam and a foreach average
    ours        `diffusion-lab train network=unet_ddpm` with everything that runs in a step; no validation and samples

The loops take turns of one step each in one process, in CPU seconds of their threads, after one warm-up step; a figure
is the median over rounds of the ratio in one round. bfloat16 has its own rounds. On a processor without bfloat16
instructions this is one round of batch 4, because a step of 16 images would take half a minute.

The limit is a 3 x 3 convolution of the network, forward and backward, measured in the same rounds: the fastest of its
large shapes in the faster of both layouts. The speed of the step is the network's number of floating point operations
(torch.utils.flop_counter, 2 per multiplication) over the time of the whole step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import peers
from benchmarks.loops import bare, ours, terminal
from benchmarks.paired import Ratio, interleaved, ratio
from benchmarks.relay import Loop, relay
from benchmarks.table import Line, at_least, bfloat16_line
from diffusion_lab.cli.bfloat16 import has_bfloat16
from diffusion_lab.networks import UNet

BATCH, FEW, ROUNDS = 16, 4, 5
SHAPES = ((128, 128, 32), (256, 128, 32), (256, 256, 32), (256, 256, 16))  # channels in, out, pixels per side
REPEATS = 4  # convolutions of a turn
WORDS = [
    "network=unet_ddpm",
    "dataset=gaussian",
    "dataset.source.channels=3",
    "dataset.source.image_size=32",
    "dataset.source.num_images=256",
]

Pass = Callable[[], None]


def lines() -> Iterator[Line]:
    images = torch.randn(256, 3, 32, 32)
    loops = {
        "diffusers": diffusers(images[:BATCH]),
        "plain": bare(lambda: UNet(3, 3, 32), images, BATCH),
        "ours": ours(None, [*WORDS, f"batch_size={BATCH}"]),
        "limit": (limit := Convolution(torch.float32, BATCH)),
    }
    with terminal():
        seconds = relay(loops, 1, ROUNDS, warmup=0)
    yield Line("float32: diffusers' time over ours", ratio(seconds["diffusers"], seconds["ours"]), at_least(1.15))
    yield Line("float32: the plain loop's time over ours", ratio(seconds["plain"], seconds["ours"]))
    line = partial(Line, goal=at_least(0.65))
    yield from _limit("float32", BATCH, seconds["ours"], limit.per_operation(seconds["limit"]), line)
    yield from _bfloat16(images)


def _bfloat16(images: Tensor) -> Iterator[Line]:
    native = has_bfloat16()
    batch = BATCH if native else FEW
    words = [*WORDS, f"batch_size={batch}", "precision=bf16-mixed"]
    loops = {
        "diffusers": diffusers(images[:batch]),
        "ours": ours(None, words),
        "channels last": ours(None, [*words, "channels_last=true"]),
        "limit": (limit := Convolution(torch.bfloat16, batch)),
    }
    with terminal():
        seconds = relay(loops, 1, ROUNDS if native else 1, warmup=0)
    note = "" if native else f"batch {FEW}"
    for name, what in (("ours", ""), ("channels last", " with channels_last=true")):
        figure = ratio(seconds["diffusers"], seconds[name])
        yield bfloat16_line(f"bf16-mixed{what}: diffusers' float32 time over ours", figure, at_least(3.6), note)
    line = partial(bfloat16_line, goal=at_least(0.4))
    yield from _limit("bf16-mixed", batch, seconds["ours"], limit.per_operation(seconds["limit"]), line)


def _limit(
    name: str, batch: int, step: list[float], limit: list[float], line: Callable[[str, Ratio], Line]
) -> Iterator[Line]:
    """Speed over that of the convolution, as a `line`, and both speeds; `limit` is seconds per 1e9 operations."""
    speeds = [operations(batch) / 1e9 / seconds for seconds in step]
    most = [1 / seconds for seconds in limit]
    yield line(f"{name}: speed over the convolution's", ratio(speeds, most))
    yield Line(f"{name}: speed", Ratio.of(speeds), unit="GFLOP/s")
    yield Line(f"{name}: the convolution's speed", Ratio.of(most), unit="GFLOP/s")


def operations(batch: int) -> int:
    """Floating point operations of the network in one step of `batch` images: forward and backward."""
    with torch.device("meta"):
        network, x, t = UNet(3, 3, 32), torch.zeros(1, 3, 32, 32), torch.zeros(1, dtype=torch.int64)
    with FlopCounterMode(display=False) as counter:
        network(x, t).sum().backward()
    return batch * counter.get_total_flops()


def diffusers(images: Tensor) -> Loop:
    """diffusers' training of its unet_ddpm, always on the same batch."""

    def run(baton: Callable[[], None], steps: int) -> None:
        step = peers.training_step(peers.unet_ddpm(), images)
        for _ in range(steps):
            step()
            baton()

    return run


class Convolution:
    """A loop for `relay` over the best of `SHAPES`, forward and backward, `REPEATS` times a step."""

    def __init__(self, dtype: torch.dtype, batch: int) -> None:
        self.dtype, self.batch = dtype, batch

    def __call__(self, baton: Callable[[], None], steps: int) -> None:
        layouts = (torch.contiguous_format, torch.channels_last)
        tries = [self._passes(*shape, layout) for shape in SHAPES for layout in layouts]
        seconds = interleaved({str(i): one for i, (one, _) in enumerate(tries)}, rounds=1)
        both, self.operations = min(tries, key=lambda one: seconds[str(tries.index(one))][0] / one[1])
        for _ in range(steps):
            for _ in range(REPEATS):
                both()
            baton()

    def per_operation(self, seconds: list[float]) -> list[float]:
        """Seconds of a step -> seconds of 1e9 operations."""
        return [value / (REPEATS * self.operations / 1e9) for value in seconds]

    def _passes(self, inputs: int, outputs: int, size: int, layout: torch.memory_format) -> tuple[Pass, int]:
        """Both passes, and their floating point operations."""

        def random(*shape: int) -> Tensor:
            return torch.randn(shape, dtype=self.dtype).contiguous(memory_format=layout)

        x = random(self.batch, inputs, size, size).requires_grad_()
        w = random(outputs, inputs, 3, 3).requires_grad_()
        gradient = random(self.batch, outputs, size, size)

        def both() -> None:
            torch.autograd.grad(F.conv2d(x, w, padding=1), (x, w), gradient)

        return both, 3 * 2 * self.batch * size * size * inputs * outputs * 9
