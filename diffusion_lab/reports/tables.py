"""The comparison as a table: mean and interval over seeds, paired difference and relative cost to a baseline.

    mean        of the finished runs, with the 95 % interval of Student's t over seeds
    difference  to the baseline, over the seeds that both have; whether the groups differ is decided by this interval,
                not by the overlap of the two others
    cost        time per image relative to the baseline, over the seeds that both have: r_i = v_i(baseline)/v_i with v
                in images/s; geometric mean of the r_i, with the interval of the mean of their logarithms, whose ends
                are positive, where both shared the hours (`hours`)
    verdict     of all rows together, corrected for their number (`verdicts`); bold if there is a difference

A single finished run (n=1) has no interval. Values with different protocols are neither averaged nor compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from diffusion_lab.intervals import Interval, mean_interval, paired_difference, ratio_interval
from diffusion_lab.reports.directions import directed, family, rising, samples
from diffusion_lab.reports.groups import Group
from diffusion_lab.reports.hours import same_hours
from diffusion_lab.reports.verdicts import Verdict, judge, usual_size
from diffusion_lab.runs.run import STATUSES, Run

VAL_LOSS = "val/loss"
BASELINE = "baseline"
INDIFFERENT = ("every", "batch_size")  # of a validation: when, and how many images at a time


@dataclass(frozen=True)
class Row:
    """One group in the table; values are None if they do not exist, and `note` says why.

    Args:
        group: the runs.
        metric: interval of the chosen metric.
        difference: paired, to the baseline; None for the baseline itself.
        cost: time per image over the baseline's, paired; exactly 1 for the baseline itself.
        val_loss, images_per_second, seconds: intervals over the same finished runs.
        note: why metric is None.
        unpaired: why difference is None; "baseline" for the baseline.
        verdict: the verdict on the difference, corrected for the number of rows; None without a difference.
        same_hours: whether the runs that the cost compares were trained in the same hours; otherwise the drift of the
            machine is in its interval, which is not shown.
    """

    group: Group
    metric: Interval | None
    difference: Interval | None
    cost: Interval | None
    val_loss: Interval | None
    images_per_second: Interval | None
    seconds: Interval | None
    note: str = ""
    unpaired: str = ""
    verdict: Verdict | None = None
    same_hours: bool = True

    @property
    def is_baseline(self) -> bool:
        return self.unpaired == BASELINE

    @property
    def bold(self) -> bool:
        """Whether the difference may be claimed."""
        return self.verdict is not None and self.verdict.decided


def choose_metric(groups: Sequence[Group], name: str | None = None) -> str:
    """The metric for the comparison: `name`, or the first metric, on the most samples, of those that most runs have.

    The first metric is the first one listed by a run, usually the Fréchet distance; one of which neither direction is
    better is only compared if it is named.

    Args:
        name: a metric (fd1k_digits), with or without `metrics/`, a logged key (val/loss), or a unique prefix.

    Raises:
        ValueError: no run has it, or the prefix is not unique.
    """
    runs = [run for group in groups for run in group.runs]
    have = Counter(metric for run in runs for metric in run.metric_names)
    if name is None:
        have = Counter({metric: count for metric, count in have.items() if directed(groups, metric)})
        first = list(dict.fromkeys(map(family, have)))
        rank = {metric: (have[metric], -first.index(family(metric)), samples(metric)) for metric in have}
        return max(rank, key=rank.__getitem__, default=VAL_LOSS)
    wanted = name.removeprefix("metrics/")
    logged = "/" in wanted and any(run.last(wanted) is not None for run in runs)
    if wanted in have or logged or (wanted == VAL_LOSS and not have):
        return wanted
    begin = [metric for metric in have if metric.startswith(wanted)]
    if len(begin) == 1:
        return begin[0]
    listed = ", ".join(sorted(begin or have)) or VAL_LOSS
    raise ValueError(f"metric={name} must be one that the runs have; use one of {listed}")


def summarise(groups: Sequence[Group], metric: str, size: float | None = None) -> list[Row]:
    """One row per group; the first group that has the metric is the baseline of the differences.

    Args:
        groups: groups of one section.
        metric: from `choose_metric`.
        size: difference for which `verdict.seeds` is computed; None: `visible_size`.
    """
    base = baseline(groups, metric)
    rows = [_row(group, base, metric) for group in groups]
    judgeable = directed(groups, metric)
    compared = [
        pairs(values(row.group, metric), values(base, metric)) if row.difference and judgeable else [] for row in rows
    ]
    judged = judge(compared, rising(groups, metric), size or visible_size(groups, metric))
    return [replace(row, verdict=verdict) for row, verdict in zip(rows, judged, strict=True)]


def visible_size(groups: Sequence[Group], metric: str) -> float | None:
    """The default difference for which the table gives the number of seeds."""
    base = baseline(groups, metric)
    own = interval(list(values(base, metric).values()))
    found = [_difference(group, base, metric)[0] for group in groups]
    return usual_size(own.mean, [one.half_width or 0.0 for one in found if one]) if own else None


def baseline(groups: Sequence[Group], metric: str) -> Group:
    """The first group with a finished run that has the metric, else the first."""
    return next((group for group in groups if values(group, metric)), groups[0])


def with_baseline(groups: Sequence[Group], metric: str, label: str | None = None) -> list[Group]:
    """The groups with the one with this label first, which makes it the baseline; None: unchanged.

    Raises:
        ValueError: no group has this label, or it has no finished run with the metric while others have.
    """
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


def values(group: Group, metric: str) -> dict[int | None, float]:
    """seed -> final value, of the finished runs that have one."""
    lasts = {run.seed: run.last(metric) for run in group.done}
    return {seed: value for seed, value in lasts.items() if value is not None}


def protocols(group: Group, metric: str) -> list[dict[str, Any]]:
    """The distinct protocols of a metric in the finished runs; normally one."""
    distinct: list[dict[str, Any]] = []
    for run in group.done:
        if run.last(metric) is not None and run.protocol(metric) not in distinct:
            distinct.append(run.protocol(metric))
    return distinct


def interval(numbers: Sequence[float | None]) -> Interval | None:
    """Interval of the numbers that are not None."""
    present = [number for number in numbers if number is not None]
    return mean_interval(present) if present else None


def status_words(runs: Sequence[Run]) -> str:
    """`2 done, 1 failed`."""
    counts = Counter(run.status for run in runs)
    return ", ".join(f"{counts[status]} {status}" for status in STATUSES if counts[status])


def _row(group: Group, base: Group, metric: str) -> Row:
    own = values(group, metric)
    note = ""
    if not own:
        strange = any(run.is_not_finite(metric) for run in group.done)
        why = "none finished" if not group.done else "not finite" if strange else "not measured"
        note = f"n/a ({why})"
    elif len(protocols(group, metric)) > 1:
        note = "n/a (mixed protocols)"
    difference, unpaired = _difference(group, base, metric)
    done = group.done
    return Row(
        group=group,
        metric=None if note else mean_interval(list(own.values())),
        difference=difference,
        cost=_cost(group, base),
        val_loss=interval([run.last(VAL_LOSS) for run in done]),
        images_per_second=interval([run.images_per_second for run in done]),
        seconds=interval([run.seconds for run in done]),
        note=note,
        unpaired=unpaired,
        same_hours=same_hours(_timed(group), _timed(base)),
    )


def _difference(group: Group, base: Group, metric: str) -> tuple[Interval | None, str]:
    """The paired difference group - base, or why there is none."""
    if group is base:
        return None, BASELINE
    ours, theirs = values(group, metric), values(base, metric)
    if not ours or not theirs:
        return None, "n/a"
    common = pairs(ours, theirs)
    if not common:
        return None, "n/a (no common seed)"
    if ruler(group, metric) != ruler(base, metric) or len(protocols(group, metric)) > 1:
        return None, "n/a (measured differently)"
    a, b = zip(*common, strict=True)
    return paired_difference(a, b), ""


def pairs(ours: Mapping[int | None, float], theirs: Mapping[int | None, float]) -> list[tuple[float, float]]:
    """(ours, theirs) of the seeds that both have, by seed; runs without a recorded seed are left out."""
    common = sorted(seed for seed in ours if seed is not None and seed in theirs)
    return [(ours[seed], theirs[seed]) for seed in common]


def _cost(group: Group, base: Group) -> Interval | None:
    """Interval of the baseline's images/s over the group's, paired by seed."""
    ours, theirs = ({run.seed: run.images_per_second or 0.0 for run in _timed(one)} for one in (group, base))
    ratios = [reference / own for own, reference in pairs(ours, theirs)]
    return ratio_interval(ratios) if ratios else None


def _timed(group: Group) -> list[Run]:
    return [run for run in group.done if run.images_per_second]


def ruler(group: Group, metric: str) -> list[dict[str, Any]]:
    """The settings that two groups must share to be compared: extractor, reference, samples, but not the solver.

    For a loss these are the data set, the prediction, the noise schedule and the settings of validation.
    """
    shared = ("extractor", "samples", "reference", "seed")
    measured = [{key: protocol.get(key) for key in shared} for protocol in protocols(group, metric) if protocol]
    if measured:
        return measured
    config = group.config
    validation = (config.get("callbacks") or {}).get("validation")
    if isinstance(validation, dict):
        validation = {key: value for key, value in validation.items() if key not in INDIFFERENT}
    parts = {key: config.get(key) for key in ("prediction", "schedule")}
    return [{"dataset": group.data_key or group.runs[0].info.get("dataset"), **parts, "validation": validation}]
