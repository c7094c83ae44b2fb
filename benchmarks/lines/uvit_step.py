"""A training step of U-ViT in bfloat16 over float32.

`diffusion-lab train network=uvit_small`, 44,255,328 parameters, 2 images of 3 x 32 x 32 a step (each is 257 tokens),
one thread, with everything that runs in a step; the two trainings take turns of one step each in one process, in CPU
seconds of their threads. Only `precision` differs.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.loops import ours, terminal
from benchmarks.paired import ratio
from benchmarks.relay import relay
from benchmarks.table import Line, at_least, bfloat16_line
from diffusion_lab.cli.bfloat16 import has_bfloat16

WORDS = [
    "network=uvit_small",
    "dataset=gaussian",
    "dataset.source.channels=3",
    "dataset.source.image_size=32",
    "dataset.source.num_images=256",
    "batch_size=2",
]


def lines() -> Iterator[Line]:
    loops = {precision: ours(None, [*WORDS, f"precision={precision}"]) for precision in ("32-true", "bf16-mixed")}
    native = has_bfloat16()
    with terminal():
        seconds = relay(loops, 1, rounds=3 if native else 1, warmup=0)
    figure = ratio(seconds["32-true"], seconds["bf16-mixed"])
    yield bfloat16_line("float32's time over bf16-mixed's", figure, at_least(2))
