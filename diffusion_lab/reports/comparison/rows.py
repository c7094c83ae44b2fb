"""The comparison as rows: mean and interval over seeds, paired difference and relative cost to a baseline.

    mean        of the finished runs, with the 95 % interval of Student's t over seeds
    difference  to the baseline, over the seeds that both have; whether the groups differ is decided by this interval,
                not by the overlap of the two others
    cost        time per image relative to the baseline, over the seeds that both have: r_i = v_i(baseline)/v_i with v
                in images/s; geometric mean of the r_i, with the interval of the mean of their logarithms, whose ends
                are positive, where both shared the hours (`same_hours`)
    verdict     of all rows together, corrected for their number (`verdicts`); bold if there is a difference

A single finished run (n=1) has no interval. Values with different protocols are neither averaged nor compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from diffusion_lab.intervals import Interval, mean_interval, paired_difference, ratio_interval
from diffusion_lab.reports.comparison.groups import Group
from diffusion_lab.reports.comparison.metrics import (
    VAL_LOSS,
    directed,
    interval,
    pairs,
    protocols,
    rising,
    shared_protocol,
    values,
)
from diffusion_lab.reports.comparison.verdicts import Verdict, judge, usual_size
from diffusion_lab.runs.run import Run

BASELINE = "baseline"


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
    def tested(self) -> bool:
        """Whether its difference has a p-value."""
        return self.verdict is not None and self.verdict.p is not None

    @property
    def bold(self) -> bool:
        """Whether the difference may be claimed."""
        return self.verdict is not None and self.verdict.decided


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
    if shared_protocol(group, metric) != shared_protocol(base, metric) or len(protocols(group, metric)) > 1:
        return None, "n/a (measured differently)"
    a, b = zip(*common, strict=True)
    return paired_difference(a, b), ""


def _cost(group: Group, base: Group) -> Interval | None:
    """Interval of the baseline's images/s over the group's, paired by seed."""
    ours, theirs = ({run.seed: run.images_per_second or 0.0 for run in _timed(one)} for one in (group, base))
    ratios = [reference / own for own, reference in pairs(ours, theirs)]
    return ratio_interval(ratios) if ratios else None


def _timed(group: Group) -> list[Run]:
    return [run for run in group.done if run.images_per_second]


class Span(NamedTuple):
    """When a run was trained: start and end in Unix seconds."""

    start: float
    end: float


def span(run: Run) -> Span | None:
    """From the start of a run to its end; None if the start is not recorded. A run that was continued counts from its
    last start, with all of its seconds."""
    try:
        start = datetime.strptime(str(run.info.get("started")), "%Y-%m-%dT%H:%M:%S%z").timestamp()
    except ValueError:
        return None
    return Span(start, start + (run.seconds or 0.0))


def same_hours(ours: Sequence[Run], theirs: Sequence[Run]) -> bool:
    """Whether two methods shared the hours, so that the drift of a machine over a sweep is in both alike.

    They did if the two runs of each seed overlapped in time, or took turns: no run of another seed of the two methods
    started between them. With the seed in the outer loop, as the launcher has it, methods A, B and C of two seeds run
    as A0 B0 C0 A1 B1 C1, and any two take turns. A0 A1 C0 C1 do not: other work on the machine in the second half
    would be a cost of C.

    Args:
        ours: runs of one method, one per seed.
        theirs: runs of the other method; seeds that only one of them has are left out.
    """
    spans = [{run.seed: span(run) for run in runs if run.seed is not None} for runs in (ours, theirs)]
    pairs = [(spans[0][seed], spans[1][seed]) for seed in spans[0].keys() & spans[1].keys()]
    starts = [one.start for pair in pairs for one in pair if one is not None]
    return all(one is not None and other is not None and _together(one, other, starts) for one, other in pairs)


def _together(one: Span, other: Span, starts: Sequence[float]) -> bool:
    first, last = sorted([one, other])
    return last.start < first.end or not any(first.start < start < last.start for start in starts)
