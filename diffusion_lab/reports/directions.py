"""Which direction of a metric is better, and its units: as the records say, so no report knows a metric by its name."""

from __future__ import annotations

import re
from collections.abc import Sequence

from diffusion_lab.reports.groups import Group

# Records that are older than the directions in them: there a larger value of these is better, of all others a smaller.
_RISING_BEFORE = ("is", "precision", "recall", "psnr", "agreement")


def rising(groups: Sequence[Group], metric: str) -> bool:
    """Whether a larger value is better."""
    said = next((word for group in groups for run in group.runs if (word := run.better(metric))), None)
    return family(metric) in _RISING_BEFORE if said is None else said == "higher"


def with_units(groups: Sequence[Group], metric: str) -> str:
    """`psnr1k [dB]`, or the name alone where no record has units."""
    units = next((word for group in groups for run in group.runs if (word := run.units(metric))), "")
    return f"{metric} [{units}]" if units else metric


def with_arrow(groups: Sequence[Group], metric: str) -> str:
    """`psnr1k [dB] ↑`"""
    return f"{with_units(groups, metric)} {'↑' if rising(groups, metric) else '↓'}"


def family(metric: str) -> str:
    """The name without the number of samples and the extractor, `fd` of `fd1k_digits`."""
    found = re.match(r"[a-z_]+(?<!_)", metric)
    return found[0] if found else metric


def samples(metric: str) -> int:
    """The number of samples in the name, 1000 of `fd1k_digits`; 0 without one."""
    found = re.match(r"[a-z_]+(\d+)(k?)", metric)
    return int(found[1]) * (1000 if found[2] else 1) if found else 0
