"""The timesteps that a solver visits: `space_timesteps`, and spacings by name."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from itertools import accumulate

import torch
from torch import Tensor

from diffusion_lab.arguments import check_integer, check_number
from diffusion_lab.diffusion import NoiseSchedule

Steps = int | str | list[int]
PUBLISHED = "use {} for the published setting"


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


class Spacing(ABC):
    """timesteps = spacing.indices(schedule, steps).

    A spacing chooses among the T grid points of the schedule, because the network is defined at these only: a noise
    level between two of them is moved to one of them, never interpolated.
    """

    @abstractmethod
    def indices(self, schedule: NoiseSchedule, steps: Steps | None) -> Tensor:
        """Timesteps (S,) int64 on the CPU, falling (the noisiest first).

        Args:
            schedule: of the model.
            steps: how many, or a form of `space_timesteps`; None for all, or as many as the spacing lists.

        Raises:
            ValueError: `steps` is invalid, or the timesteps do not exist in the schedule.
        """

    @abstractmethod
    def describe(self) -> str:
        """All settings in one word, for `Solver.describe`."""


def nearest(values: Tensor, table: Tensor) -> Tensor:
    """Index of the entry of `table` (T,) nearest to each of `values` (N,): (N,) int64."""
    return (values[:, None] - table).abs().argmin(1)


def check_falling(timesteps: Tensor, num_timesteps: int, key: str) -> Tensor:
    """`timesteps` (S,) int64 if they fall and lie in [0, T).

    Args:
        timesteps: to check.
        num_timesteps: T.
        key: what the message calls them.

    Raises:
        ValueError: they do not.
    """
    shown = timesteps.tolist()
    if not shown or min(shown) < 0 or max(shown) >= num_timesteps:
        raise ValueError(f"{key}={shown} must be timesteps of the schedule, 0 to {num_timesteps - 1}; use some of them")
    if not (timesteps.diff() < 0).all():
        raise ValueError(f"{key}={shown} must fall, with the noisiest timestep first; sort them and name each once")
    return timesteps


def distinct(indices: Tensor) -> Tensor:
    """Falling timesteps (N,), each once: (S,) with S <= N."""
    return torch.unique_consecutive(indices)


class Uniform(Spacing):
    """Evenly spaced from T-1 to 0, as `space_timesteps` spaces them, then shifted towards more noise.

    A shift S divides the SNR by S^2: each timestep t becomes the one whose log SNR is nearest to ln SNR_t - 2 ln S. On
    the linear path that is tau -> S tau / (1 + (S-1) tau) (Esser et al. 2024, equation 23), up to the rounding to the
    grid. What it asks of the noisy end beyond the schedule is left out, and timesteps that coincide are taken once, so
    a shifted spacing may have fewer steps than were asked for. Shift in training and in sampling are separate choices.

    Args:
        shift: S > 0, divides the SNR by S^2; 1 is none, 3 is SD3's at 1024 x 1024 pixels.
    """

    word = "uniform"

    def __init__(self, shift: float = 1.0) -> None:
        self.shift = check_number("shift", shift, "()", 0, math.inf, "use 1.0 for none, 3.0 for SD3's at 1024 pixels")

    def even(self, num_timesteps: int, steps: Steps | None) -> Tensor:
        """Timesteps (S,) int64, increasing, before the shift."""
        return torch.arange(num_timesteps) if steps is None else space_timesteps(num_timesteps, steps)

    def indices(self, schedule: NoiseSchedule, steps: Steps | None) -> Tensor:
        kept = self.even(schedule.num_timesteps, steps).flip(0)
        if self.shift == 1:
            return kept
        table = schedule.log_snr.cpu()
        return distinct(nearest(table[kept] - 2 * math.log(self.shift), table))

    def describe(self) -> str:
        return self.word + (f"-shift{self.shift:g}" if self.shift != 1 else "")


class Trailing(Uniform):
    """T-1, T-1-T/N, .., T/N-1, rounded: N equal steps of which the last, from T/N-1, goes to the data (Lin et al. 2024,
    section 3.3). On a linear path these are the noise levels 1, 1-1/N, .., 1/N of SD3's pipelines, to half a grid
    point.

    `Uniform` spends a step between timestep 0 and the data, where nothing is left to do, and multiplies the noise level
    before it by a large factor, over which a multistep solver must not extrapolate: on gaussian data the error of
    DPM-Solver++ with 15 steps is 0.19 with `Uniform` and 0.016 with `Trailing` (cosine schedule, T = 1000).
    """

    word = "trailing"

    def even(self, num_timesteps: int, steps: Steps | None) -> Tensor:
        wanted = check_integer(
            "steps", num_timesteps if steps is None else steps, 1, "use 50, or null for all T", num_timesteps
        )
        return (torch.arange(1, wanted + 1, dtype=torch.float64) * (num_timesteps / wanted)).round().long() - 1


class Karras(Spacing):
    """The noise levels s = sigma/alpha of Karras et al. 2022, equation 5, for i = 0..N-1,

        (max^(1/rho) + i/(N-1) (min^(1/rho) - max^(1/rho)))^rho

    with min and max clamped to the model's range, and each level moved to the nearest one of the model; equal ones are
    taken once.

    Differs from diffusers: it rounds the timestep that the network receives and keeps the level between grid points;
    here both are those of the grid point, so that the network is asked about the noise that its input has.

    Args:
        rho: >= 1; the larger, the shorter are the steps at low noise.
        sigma_min: lowest noise level before 0, in units of the signal, > 0; clamped to the model's range.
        sigma_max: highest noise level, in units of the signal; clamped to the model's range.
    """

    def __init__(self, rho: float = 7.0, sigma_min: float = 0.002, sigma_max: float = 80.0) -> None:
        self.rho = check_number("rho", rho, "[)", 1, math.inf, PUBLISHED.format("7.0"))
        self.sigma_max = check_number("sigma_max", sigma_max, "()", 0, math.inf, PUBLISHED.format("80.0"))
        cure = "it must be below sigma_max, 0.002 in the paper"
        self.sigma_min = check_number("sigma_min", sigma_min, "()", 0, self.sigma_max, cure)

    def indices(self, schedule: NoiseSchedule, steps: Steps | None) -> Tensor:
        wanted = check_integer("steps", steps, 1, "Karras's spacing needs their number; 18 is EDM's for CIFAR-10")
        return distinct(self.with_repeats(schedule, wanted))

    def with_repeats(self, schedule: NoiseSchedule, steps: int) -> Tensor:
        """Timesteps (N,) in which those that coincide stand several times.

        Raises:
            ValueError: the range of noise levels does not meet the model's.
        """
        table = schedule.noise_level.cpu()
        low, high = max(self.sigma_min, table[0].item()), min(self.sigma_max, table[-1].item())
        if low >= high:
            raise ValueError(
                f"sigma_min={self.sigma_min:g} must leave a range up to sigma_max={self.sigma_max:g} inside the "
                f"model's noise levels {table[0]:.4g}..{table[-1]:.4g}; use 0.002 and 80.0"
            )
        ramp = torch.linspace(0, 1, steps, dtype=torch.float64)
        root = 1 / self.rho
        return nearest((high**root + ramp * (low**root - high**root)) ** self.rho, table)

    def describe(self) -> str:
        return f"karras-rho{self.rho:g}-sigma{self.sigma_min:g}-{self.sigma_max:g}"


class Listed(Spacing):
    """The timesteps of an explicit list; `steps` of the solver must be null.

    Args:
        timesteps: falling, each in [0, T).
    """

    def __init__(self, timesteps: list[int]) -> None:
        cure = "use timesteps of the schedule, such as [999, 600, 300, 0]"
        whole = [check_integer("timesteps", t, 0, cure) for t in timesteps]
        self.timesteps = check_falling(torch.tensor(whole, dtype=torch.int64), max(whole, default=0) + 1, "timesteps")

    def indices(self, schedule: NoiseSchedule, steps: Steps | None) -> Tensor:
        if steps is not None:
            raise ValueError(f"steps={steps!r} must be null where the timesteps are listed; use steps=null")
        return check_falling(self.timesteps, schedule.num_timesteps, "spacing.timesteps")

    def describe(self) -> str:
        return "listed-" + ",".join(map(str, self.timesteps.tolist()))
