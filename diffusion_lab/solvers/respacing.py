"""The subset of the T timesteps that a solver uses."""

from __future__ import annotations

from itertools import accumulate

import torch
from torch import Tensor

Steps = int | str | list[int]


def space_timesteps(num_timesteps: int, section_counts: Steps) -> Tensor:
    """Timesteps (S,) int64, increasing, as improved-diffusion's `space_timesteps` chooses them.

        250          one section of all T timesteps: the stride (T-1)/(250-1) added up from 0, each sum rounded; first
                     and last included
        "10,15,20"   or [10, 15, 20]: T cut into equal sections, so many timesteps evenly in each
        "ddim50"     every i-th timestep from 0, with the first i that gives exactly 50

    A single timestep is the last one, T-1, where samples start.

    Differs from improved-diffusion, where a single one is timestep 0, which takes pure noise for nearly clean data.

    Halves are rounded to the even neighbour. The stride is added up, not multiplied: where an exact multiple is a half,
    the rounding errors of the sum decide, in which 278 of the 999 counts from 2 to T = 1000 differ.

    Args:
        num_timesteps: T.
        section_counts: one of the forms above.

    Raises:
        ValueError: the form is invalid, or has more timesteps than there are. The message calls the argument `steps`,
            its name in the solvers.
    """
    if sum(parse_counts(section_counts)) == 1:
        return torch.tensor([num_timesteps - 1])
    if isinstance(section_counts, str) and section_counts.startswith("ddim"):
        return _integer_stride(num_timesteps, section_counts)
    counts = parse_counts(section_counts)
    if len(counts) > num_timesteps:
        raise ValueError(f"steps={section_counts!r} must have at most {num_timesteps} sections; give fewer")
    size, larger = divmod(num_timesteps, len(counts))
    taken, start = [], 0
    for i, count in enumerate(counts):
        length = size + (i < larger)
        if count > length:
            raise ValueError(
                f"steps={section_counts!r} must not take {count} of {length} timesteps; use at most {length} there"
            )
        stride = (length - 1) / (count - 1) if count > 1 else 1.0
        sums = accumulate([stride] * (count - 1), initial=0.0)
        taken += [start + round(s) for s in sums]
        start += length
    return torch.tensor(taken)


def parse_counts(section_counts: Steps) -> list[int]:
    """250, "250", "10,15,20" or [10, 15, 20] -> numbers of timesteps per section; "ddim50" -> [50]."""
    counts = section_counts
    if isinstance(counts, str):
        words = counts.removeprefix("ddim").split(",")
        counts = [int(word) if word.strip().isdecimal() else 0 for word in words]
    counts = counts if isinstance(counts, list) else [counts]
    valid = [isinstance(count, int) and not isinstance(count, bool) and count > 0 for count in counts]
    ddim = isinstance(section_counts, str) and section_counts.startswith("ddim")
    if not counts or not all(valid) or (ddim and len(counts) > 1):
        raise ValueError(
            f"steps={section_counts!r} must be a positive integer, a list of them or ddim<integer>; "
            'for example 250, "10,15,20" or ddim50'
        )
    return counts


def _integer_stride(num_timesteps: int, spec: str) -> Tensor:
    wanted = parse_counts(spec)[0]
    strides = {len(range(0, num_timesteps, i)): i for i in range(num_timesteps, 0, -1)}  # the smallest stride is kept
    if wanted not in strides:
        nearest = min(strides, key=lambda count: abs(count - wanted))
        raise ValueError(
            f"steps={spec!r} must be a number of timesteps that an integer stride through {num_timesteps} gives; "
            f"the nearest is ddim{nearest}, and steps={wanted} spaces any number evenly"
        )
    return torch.arange(0, num_timesteps, strides[wanted])
