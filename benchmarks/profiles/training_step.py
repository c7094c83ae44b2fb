"""A float32 training step of unet_ddpm and of diffusers, by kind of operator.

torch.profiler's own time of every operator (wall time, without the operators that it calls), the median of 3
interleaved steps of batch 16, as in `make bench ONLY=training_step`. Copies are the concatenations of the decoder,
gradients that are stored and reorderings. Our attention projects by 1 x 1 convolutions, diffusers' by linear layers;
its Adam, which updates one tensor after the other, is counted in sums and products.
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
    profiled_loops = {name: profiled(loop, profiles[name].start, profiles[name].stop) for name, loop in loops.items()}
    with terminal():
        relay(profiled_loops, steps=1, rounds=3, warmup=0)
    spent = [[by_kind(step) for step in one.steps] for one in profiles.values()]
    yield "kind", *(cell for name in loops for cell in (f"{name}, ms", "share"))
    for kind in [*KINDS, "everything else", "all"]:
        yield kind, *(cell for steps in spent for cell in _cells(steps, kind))


def _cells(steps: Sequence[Mapping[str, float]], kind: str) -> tuple[str, str]:
    """Medians of the milliseconds and of the share."""
    milliseconds = statistics.median(step[kind] for step in steps)
    share = statistics.median(100 * step[kind] / step["all"] for step in steps)
    return f"{milliseconds:.0f}", f"{share:.1f} %"


class _Profiles:
    """Profiles of single steps by torch.profiler; `steps` has operator -> milliseconds of each."""

    def __init__(self) -> None:
        self.steps: list[dict[str, float]] = []

    def start(self) -> None:
        self._current = profile(activities=[ProfilerActivity.CPU])
        self._current.start()

    def stop(self) -> None:
        self._current.stop()
        self.steps.append({event.key: event.self_cpu_time_total / 1e3 for event in self._current.key_averages()})
