"""A float32 training step of unet_ddpm, by what its operators are for, beside diffusers.

torch.profiler's own time of every operator (by the clock, without the operators that it calls), the median of 3 steps
of batch 16 that both take in turn, as `make bench ONLY=training_step` trains them. Copies are the concatenations on the
way up, gradients that are put where they belong, and reorderings. Our attention projects by 1 x 1 convolutions,
diffusers' by linear layers; its Adam, one tensor after the other, stands among the sums and products.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.kinds import KINDS, by_kind
from benchmarks.lines.training_step import BATCH, WORDS, diffusers
from benchmarks.loops import ours, terminal
from benchmarks.relay import profiled, relay


def rows() -> Iterator[tuple[str, ...]]:
    loops = {
        "ours": ours(None, [*WORDS, f"batch_size={BATCH}"]),
        "diffusers": diffusers(torch.randn(BATCH, 3, 32, 32)),
    }
    profiles = {name: _Profiles() for name in loops}
    told = {name: profiled(loop, profiles[name].start, profiles[name].stop) for name, loop in loops.items()}
    with terminal():
        relay(told, steps=1, rounds=3, warmup=0)
    spent = [[by_kind(step) for step in one.steps] for one in profiles.values()]
    yield "operators for", *(cell for name in loops for cell in (f"{name}, ms", "share"))
    for kind in [*KINDS, "everything else", "all"]:
        yield kind, *(cell for steps in spent for cell in _cells(steps, kind))


def _cells(steps: Sequence[Mapping[str, float]], kind: str) -> tuple[str, str]:
    """Medians of the milliseconds and of the share."""
    milliseconds = statistics.median(step[kind] for step in steps)
    share = statistics.median(100 * step[kind] / step["all"] for step in steps)
    return f"{milliseconds:.0f}", f"{share:.1f} %"


class _Profiles:
    """One of torch.profiler for each step; `steps` is operator -> milliseconds for each."""

    def __init__(self) -> None:
        self.steps: list[dict[str, float]] = []

    def start(self) -> None:
        self._current = profile(activities=[ProfilerActivity.CPU])
        self._current.start()

    def stop(self) -> None:
        self._current.stop()
        self.steps.append({event.key: event.self_cpu_time_total / 1e3 for event in self._current.key_averages()})
