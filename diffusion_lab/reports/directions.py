"""Which direction of a metric is better, and its units, from the records; no list of metrics is needed."""

from __future__ import annotations

import re
from collections.abc import Sequence

from diffusion_lab.printable import one_line
from diffusion_lab.reports.groups import Group

# For old records without directions: a larger value of these metrics is better, and a smaller value of all others.
_RISING_BEFORE = ("is", "precision", "recall", "psnr", "agreement")


def rising(groups: Sequence[Group], metric: str) -> bool:
    """Whether a larger value is better."""
    better = next((word for group in groups for run in group.runs if (word := run.better(metric))), None)
    return family(metric) in _RISING_BEFORE if better is None else better == "higher"


def directed(groups: Sequence[Group], metric: str) -> bool:
    """Whether one of the directions is better: not of a metric whose best value is that of the data."""
    return not any(run.better(metric) == "neither" for group in groups for run in group.runs)


def with_direction(groups: Sequence[Group], metric: str) -> str:
    """`psnr1k [dB] (higher is better)`"""
    word = ("higher" if rising(groups, metric) else "lower") if directed(groups, metric) else "neither direction"
    return f"{with_units(groups, metric)} ({word} is better)"


def with_units(groups: Sequence[Group], metric: str) -> str:
    """`psnr1k [dB]`, or the name alone if no record has units."""
    units = next((word for group in groups for run in group.runs if (word := run.units(metric))), "")
    return one_line(f"{metric} [{units}]" if units else metric)


def with_arrow(groups: Sequence[Group], metric: str) -> str:
    """`psnr1k [dB] ↑`; no arrow where neither direction is better."""
    arrow = ("↑" if rising(groups, metric) else "↓") if directed(groups, metric) else ""
    return f"{with_units(groups, metric)} {arrow}".rstrip()


def family(metric: str) -> str:
    """The name without the number of samples and the extractor, `fd` of `fd1k_digits`."""
    match = re.match(r"[a-z_]+(?<!_)", metric)
    return match[0] if match else metric


def samples(metric: str) -> int:
    """The number of samples in the name, 1000 of `fd1k_digits`; 0 without one."""
    match = re.match(r"[a-z_]+(\d+)(k?)", metric)
    return int(match[1]) * (1000 if match[2] else 1) if match else 0
