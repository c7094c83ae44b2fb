"""What training by one method costs over another, and whether the two shared the hours of a machine."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from diffusion_lab.intervals import Interval, ratio_interval
from diffusion_lab.reports.comparison.groups import Group
from diffusion_lab.reports.comparison.metrics import pairs
from diffusion_lab.runs.run import Run


def cost_of(group: Group, base: Group) -> Interval | None:
    """Interval of the baseline's images/s over the group's, paired by seed."""
    ours, theirs = ({run.seed: run.images_per_second or 0.0 for run in timed(one)} for one in (group, base))
    ratios = [reference / own for own, reference in pairs(ours, theirs)]
    return ratio_interval(ratios) if ratios else None


def timed(group: Group) -> list[Run]:
    """The finished runs whose rate is recorded."""
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
    """
    spans = [{run.seed: span(run) for run in runs if run.seed is not None} for runs in (ours, theirs)]
    pairs = [(spans[0][seed], spans[1][seed]) for seed in spans[0].keys() & spans[1].keys()]
    starts = [one.start for pair in pairs for one in pair if one is not None]
    return all(one is not None and other is not None and _together(one, other, starts) for one, other in pairs)


def _together(one: Span, other: Span, starts: Sequence[float]) -> bool:
    first, last = sorted([one, other])
    return last.start < first.end or not any(first.start < start < last.start for start in starts)
