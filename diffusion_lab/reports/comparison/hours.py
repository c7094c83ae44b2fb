"""What training by one method costs over another, and whether the two shared the machine and its hours."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from diffusion_lab.intervals import Interval, ratio_interval
from diffusion_lab.reports.comparison.groups import Group
from diffusion_lab.reports.comparison.metrics import pairs
from diffusion_lab.runs.run import Run


def cost_of(group: Group, base: Group) -> Interval | None:
    """Interval of the baseline's images/s over the group's, paired by seed; None if a pair is of a CPU and a GPU."""
    if not same_devices(timed(group), timed(base)):
        return None
    ours, theirs = ({run.seed: run.images_per_second or 0.0 for run in timed(one)} for one in (group, base))
    ratios = [reference / own for own, reference in pairs(ours, theirs)]
    return ratio_interval(ratios) if ratios else None


def timed(group: Group) -> list[Run]:
    """The finished runs whose rate is recorded."""
    return [run for run in group.done if run.images_per_second]


def device_of(run: Run) -> str:
    """cpu, cuda, ..; "" if it is not recorded."""
    return str(run.info.get("device") or "").partition(":")[0]


def same_devices(ours: Sequence[Run], theirs: Sequence[Run]) -> bool:
    """Whether no seed was trained on a CPU by one method and on a GPU by the other."""
    devices = [{run.seed: device_of(run) for run in runs if device_of(run)} for runs in (ours, theirs)]
    return all(devices[0][seed] == devices[1][seed] for seed in devices[0].keys() & devices[1].keys())


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
