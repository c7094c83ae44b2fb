"""Which row of a table is the baseline."""

from __future__ import annotations

from collections.abc import Sequence

from diffusion_lab.reports.comparison.groups import Group
from diffusion_lab.reports.comparison.metrics import values


def baseline(groups: Sequence[Group], metric: str) -> Group:
    """The first group with a finished run that has the metric, else the first."""
    return next((group for group in groups if values(group, metric)), groups[0])


def with_baseline(groups: Sequence[Group], metric: str, label: str | None = None) -> list[Group]:
    """The groups with the one with this label first, which makes it the baseline; None: unchanged. ValueError if no
    group has the label, or it has no finished run with the metric while others have."""
    if label is None:
        return list(groups)
    able = able_baselines(groups, metric)
    if label not in able:
        raise no_baseline(label, able)
    return sorted(groups, key=lambda group: group.label != label)


def able_baselines(groups: Sequence[Group], metric: str) -> list[str]:
    """Names of the groups that have finished runs with the metric; if none has, of all groups."""
    return [group.label for group in groups if values(group, metric)] or [group.label for group in groups]


def no_baseline(label: str, able: Sequence[str]) -> ValueError:
    """The error for a name that no row has."""
    listed = ", ".join(able) or "a folder with runs that have started"
    return ValueError(f"baseline={label} must be the name of a row with finished runs; use one of {listed}")
