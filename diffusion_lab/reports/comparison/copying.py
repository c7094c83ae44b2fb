"""When a better Fréchet distance may come from copied training images.

A distance to the training images rewards a model that copies them. A row that is better by it is suspected if

    its share of copies (`metrics.copying`) is larger than the baseline's, so that the interval of the difference paired
    by seed excludes 0, and the interval of the share itself, its ends averaged over the seeds, excludes 0.5; or
    the distance to training images falls by more than that to held-out ones: the interval of the difference of the two
    differences, all paired by seed, is below 0, and that of the held-out difference includes 0 or is above it.

The ends are averaged because all seeds are compared with the same images, whose choice is part of the interval. Few
held-out images enlarge their distance for all methods alike, which a difference cancels. Neither shows that there are
copies.
"""

from __future__ import annotations

import re
from statistics import fmean

from diffusion_lab.intervals import Interval, mean_interval, paired_difference
from diffusion_lab.reports.comparison.groups import Group
from diffusion_lab.reports.comparison.metrics import pairs, values
from diffusion_lab.reports.comparison.rows import Table

DISTANCE = re.compile(r"(?:fid|fd)(\d+k?)")  # and the number of samples


def copying_notes(table: Table) -> list[str]:
    """A sentence for each row whose better distance may come from copies; empty if the metric is no Fréchet distance to
    training images, or if neither copies nor the distance to held-out images were measured."""
    rows, found = table.rows, DISTANCE.match(table.metric)
    place = next((i for i, row in enumerate(rows) if row.is_baseline), None)
    if place is None or found is None:
        return []
    groups = table.without_diverged([row.group for row in rows])  # as the verdicts are
    base, notes = groups[place], []
    for row, group in zip(rows, groups, strict=True):
        if row.verdict is None or row.verdict.word != "better":
            continue
        reasons = [_more_copies(group, base, found[1]), _not_held_out(group, base, table.metric)]
        if said := " and ".join(filter(None, reasons)):
            notes.append(f"The difference of {group.label} to {base.label} may come from copied images: {said}.")
    return notes


def _more_copies(group: Group, base: Group, count: str) -> str:
    """How much larger the share of copies is; "" if it is not."""
    name = next((name for name in group.done[0].metric_names if re.match(rf"copying{count}(?!\d)", name)), "")
    difference = _paired(group, base, name)
    ends = [interval for run in group.done if (interval := run.interval(name)) is not None]
    if difference is None or not difference.low or difference.low <= 0 or not ends:
        return ""
    low, high = (fmean(end) for end in zip(*ends, strict=True))
    if low <= 0.5:
        return ""
    share, other = (fmean(values(one, name).values()) for one in (group, base))
    return (
        f"{share:.2f} [{low:.2f}, {high:.2f}] of its samples are nearer to training images than to as many held-out "
        f"ones, of {base.label} {other:.2f}"
    )


def _not_held_out(group: Group, base: Group, metric: str) -> str:
    """That the distance to held-out images does not show the difference; "" if it does, or was not measured."""
    gains = {name: _gains(group, base, name) for name in (metric, f"test_{metric}")}
    common = gains[metric].keys() & gains[f"test_{metric}"].keys()
    if not common:
        return ""
    held_out = mean_interval([gains[f"test_{metric}"][seed] for seed in common])
    beyond = mean_interval([gains[metric][seed] - gains[f"test_{metric}"][seed] for seed in common])
    if held_out.high is None or held_out.high < 0 or beyond.high is None or beyond.high >= 0:
        return ""
    ends = f"{held_out.low:+.2g}, {held_out.high:+.2g}"
    return f"the distance to held-out images, test_{metric}, does not show it ({held_out.mean:+.2g} [{ends}])"


def _gains(group: Group, base: Group, name: str) -> dict[int, float]:
    """Seed -> difference of the two groups' values; runs without a recorded seed are left out."""
    own, other = values(group, name), values(base, name)
    return {seed: own[seed] - other[seed] for seed in own.keys() & other.keys() if seed is not None}


def _paired(group: Group, base: Group, name: str) -> Interval | None:
    common = pairs(values(group, name), values(base, name)) if name else []
    return paired_difference([own for own, _ in common], [other for _, other in common]) if common else None
