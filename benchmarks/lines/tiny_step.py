"""A training step of unet_tiny on 28 x 28 images in bfloat16 over float32.

`diffusion-lab train network=unet_tiny` with three levels, 267,313 parameters, 32 images of 1 x 28 x 28 a step, one
thread, with everything that runs in a step: in float32 (channels last), and in bfloat16 in the layout that it has by
default and in channels last. The trainings take turns of one step each in one process, in CPU seconds of their threads.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.loops import ours, terminal
from benchmarks.paired import ratio
from benchmarks.relay import relay
from benchmarks.table import Line, at_least, bfloat16_line
from diffusion_lab.cli.bfloat16 import has_bfloat16

WORDS = [
    "network=unet_tiny",
    "network.channel_multipliers=[1,2,2]",
    "dataset=gaussian",
    "dataset.source.channels=1",
    "dataset.source.image_size=28",
    "dataset.source.num_images=256",
    "batch_size=32",
]
ROUNDS = 9


def lines() -> Iterator[Line]:
    loops = {
        "float32": ours(None, WORDS),
        "bf16": ours(None, [*WORDS, "precision=bf16-mixed"]),
        "channels last": ours(None, [*WORDS, "precision=bf16-mixed", "channels_last=true"]),
    }
    with terminal():
        seconds = relay(loops, 1, ROUNDS if has_bfloat16() else 2, warmup=1)
    for name, what in (("bf16", ""), ("channels last", " with channels_last=true")):
        figure = ratio(seconds["float32"], seconds[name])
        yield bfloat16_line(f"float32's time over bf16-mixed's{what}", figure, at_least(1.25))
