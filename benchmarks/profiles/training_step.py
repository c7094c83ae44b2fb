"""A float32 training step of unet_ddpm, by what its operators are for, beside diffusers.

torch.profiler's own time of every operator (without the operators that it calls), the median of 3 steps of batch 16
that both take in turn, as `make bench ONLY=training_step` trains them. Copies are the concatenations on the way up,
gradients that are put where they belong, and reorderings. Our attention projects by 1 x 1 convolutions, diffusers' by
linear layers; its Adam, one tensor after the other, stands among the sums and products.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.kinds import KINDS, by_kind
from benchmarks.lines.training_step import BATCH, WORDS, diffusers
from benchmarks.loops import ours, terminal
from benchmarks.relay import Loop, relay

ROUNDS = 3


def rows() -> Iterator[tuple[str, ...]]:
    steps: dict[str, list[dict[str, float]]] = {"ours": [], "diffusers": []}
    loops = {"ours": ours(None, [*WORDS, f"batch_size={BATCH}"]), "diffusers": diffusers(torch.randn(BATCH, 3, 32, 32))}
    with terminal():
        relay({name: _watched(loop, steps[name]) for name, loop in loops.items()}, 1, ROUNDS, warmup=0)
    spent = {name: [by_kind(one) for one in steps[name]] for name in steps}
    yield "operators for", *(cell for name in steps for cell in (f"{name}, ms", "share"))
    for kind in [*KINDS, "everything else", "all"]:
        cells = (
            (
                statistics.median(one[kind] for one in some),
                statistics.median(100 * one[kind] / one["all"] for one in some),
            )
            for some in spent.values()
        )
        yield kind, *(cell for ms, share in cells for cell in (f"{ms:.0f}", f"{share:.1f} %"))


def _watched(loop: Loop, steps: list[dict[str, float]]) -> Loop:
    """The loop with a profile of every step after the first; each is operator -> milliseconds."""
    watches: list[profile] = []

    def run(baton: Callable[[], None], number: int) -> None:
        def watched() -> None:
            if watches:
                watches[-1].stop()
                steps.append({event.key: event.self_cpu_time_total / 1e3 for event in watches[-1].key_averages()})
            baton()
            if len(steps) < number - 1:
                watches.append(profile(activities=[ProfilerActivity.CPU]))
                watches[-1].start()
            else:
                watches.clear()

        loop(watched, number)

    return run
