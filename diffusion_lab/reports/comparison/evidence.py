"""The numbers of a table on which its verdicts rest: of each method, seed -> value at the end and over training.

scale       ratios where the metric says so and all values are positive, else differences; of a metric that does not
            say so, ratios where lower is better and all values are positive
diverged    runs by `verdicts.lost_seeds`, of a metric that falls; of all others those whose last value is not finite
training    the mean over the snapshots, at equal images, that all runs of the table have (`verdicts.over_training`)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from diffusion_lab.reports.comparison.groups import Group
from diffusion_lab.reports.comparison.metrics import directed, rising
from diffusion_lab.runs.names import metric_key
from diffusion_lab.runs.run import Run
from diffusion_lab.verdicts import Course, Scale, diverged, lost_seeds, over_training

FEWEST = 2  # snapshots; one is the end

BySeed = dict[int, float]


class Evidence(NamedTuple):
    """What the finished runs of some groups say by one metric; runs without a recorded seed are left out.

    Attributes:
        scale: how two methods are compared.
        end: of each group, seed -> last value, without diverged runs.
        training: of each group, seed -> mean over the common snapshots; None with fewer than two of them.
        snapshots: images seen at the common snapshots.
        courses: of each group, seed -> its course, without diverged runs.
        diverged: of each group, the seeds that diverged.
    """

    scale: Scale
    end: list[BySeed]
    training: list[BySeed] | None
    snapshots: list[int]
    courses: list[dict[int, Course]]
    diverged: list[list[int]]


def evidence(groups: Sequence[Group], metric: str, compared: Sequence[bool], base: int = 0) -> Evidence:
    """The evidence of a table by a metric, or a logged key, with the baseline at the place `base`. Rows whose values
    may not be `compared` have no part in the scale and in the common snapshots."""
    everything = [{run.seed: course(run, metric) for run in group.done if run.seed is not None} for group in groups]
    courses = [{seed: one for seed, one in row.items() if one} for row in everything]
    falls = directed(groups, metric) and not rising(groups, metric)
    others = [i for i in range(len(courses)) if compared[i] and i != base]
    lost = lost_seeds(courses, base, others, diverged_where_positive if falls else is_not_finite)
    kept = [
        {seed: one for seed, one in row.items() if seed not in gone} for row, gone in zip(courses, lost, strict=True)
    ]
    used = [one for row, there in zip(kept, compared, strict=True) if there for one in row.values()]
    common = sorted(set.intersection(*map(set, used))) if used else []
    end = [{seed: one[max(one)] for seed, one in row.items()} for row in kept]
    scale = scale_of(groups, metric, [value for one in used for value in one.values()])
    if len(common) < FEWEST:
        return Evidence(scale, end, None, [], kept, lost)
    means = iter(over_training(used, scale))
    training = [{seed: next(means) for seed in row} if there else {} for row, there in zip(kept, compared, strict=True)]
    return Evidence(scale, end, training, common, kept, lost)


def scale_of(groups: Sequence[Group], metric: str, values: Sequence[float]) -> Scale:
    """The recorded scale, or the usual one of a metric that has none; differences where a value is not positive."""
    if not all(value > 0 for value in values):
        return "difference"
    for run in (run for group in groups for run in group.runs):
        if (recorded := run.compared_by(metric)) is not None:
            return recorded
    return "ratio" if directed(groups, metric) and not rising(groups, metric) else "difference"


def course(run: Run, metric: str) -> Course:
    """The values of a run that are finite, and its last one in any case; {} if it has none."""
    curve = run.curve(metric_key(metric))
    if curve.values.ndim == 1 and len(curve.values):
        last = int(curve.images[-1])
        found = zip(curve.images.tolist(), curve.values.tolist(), strict=True)
        return {at: value for at, value in found if at == last or math.isfinite(value)}
    value = run.last(metric)
    if value is None:
        return {run.step * run.batch: math.nan} if run.is_not_finite(metric) else {}
    return {run.step * run.batch: value}


def is_not_finite(one: Course, *_: Any) -> bool:
    """Whether the last value is not finite."""
    return not math.isfinite(one[max(one)])


def diverged_where_positive(one: Course, base: Course, others: Sequence[Course]) -> bool:
    """By `verdicts.diverged`, which compares ratios, where all values are positive."""
    values = [value for course in (one, base, *others) for value in course.values() if math.isfinite(value)]
    lowest = min(values, default=1.0)
    return diverged(one, base, others) if lowest > 0 else is_not_finite(one)
