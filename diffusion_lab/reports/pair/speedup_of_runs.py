"""The speed-up of one group of runs over another, paired by seed, and its sentences, which leave nothing out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from diffusion_lab.reports.comparison.groups import Group
from diffusion_lab.reports.comparison.hours import same_devices, same_hours
from diffusion_lab.reports.comparison.metrics import directed, protocols, rising, shared_protocol, time_of
from diffusion_lab.reports.pair.speedup import NEAREST, MetricCurve, SpeedUp, speed_up
from diffusion_lab.runs.names import metric_key
from diffusion_lab.runs.run import Run

FEWEST_POINTS = 4  # fewer are not smoothed but joined by a line, in which their noise is all of the answer
NO_CURVE = MetricCurve(np.zeros(0), np.zeros(0))
HOW = (
    "Single evaluations are noisy, so both curves are smoothed first: local cubic regression in the "
    f"logarithms over the nearest evaluations, up to {NEAREST}."
)


class RunsSpeedUp(NamedTuple):
    """A speed-up, or the reason why there is none.

    Attributes:
        found: the speed-up, None if there is none.
        why: the reason, "" with a speed-up.
        left_out: common seeds with fewer than `FEWEST_POINTS` evaluations in one of the runs.
        courses: (baseline's, method's) curve of each factor.
    """

    found: SpeedUp | None
    why: str = ""
    left_out: int = 0
    courses: tuple[tuple[MetricCurve, MetricCurve], ...] = ()


def in_images(base: Group, own: Group, metric: str) -> RunsSpeedUp:
    """The factor of images by a metric or a logged key such as val/loss, over the seeds that both have finished."""

    def course(run: Run) -> MetricCurve:
        curve = run.curve(metric_key(metric))
        return _usable(curve.images, curve.values)

    return _paired(base, own, metric, course)


def in_seconds(base: Group, own: Group, metric: str) -> RunsSpeedUp:
    """The factor of training time without evaluations, which contains the cost of the method itself. It has no interval
    if the two were not trained in the same hours: the drift of the machine would be in it."""
    if any(all(run.training_clock is None for run in group.done) for group in (base, own)):
        return RunsSpeedUp(None, "the runs have not recorded the time of training without evaluations")
    if not same_devices(base.done, own.done):
        return RunsSpeedUp(None, "a seed was trained on a CPU by one and on a GPU by the other")

    def course(run: Run) -> MetricCurve:
        timed = time_of(run, metric_key(metric))
        return _usable(timed.clock.values, timed.curve.values) if timed else NO_CURVE

    of_runs = _paired(base, own, metric, course)
    if of_runs.found is None or same_hours(base.done, own.done):
        return of_runs
    return of_runs._replace(found=replace(of_runs.found, low=None, high=None))


def _paired(base: Group, own: Group, metric: str, course) -> RunsSpeedUp:
    if not directed([base, own], metric):
        return RunsSpeedUp(None, f"neither direction of {metric} is better")
    mixed = any(len(protocols(group, metric)) > 1 for group in (base, own))
    if mixed or shared_protocol(base, metric) != shared_protocol(own, metric):
        return RunsSpeedUp(None, "it was measured differently")
    theirs = {run.seed: run for run in base.done}
    common = [(theirs[run.seed], run) for run in own.done if run.seed is not None and run.seed in theirs]
    if not common:
        return RunsSpeedUp(None, "they have no finished run with a common seed")
    courses = [(course(one), course(other)) for one, other in common]
    whole = [pair for pair in courses if min(len(pair[0].x), len(pair[1].x)) >= FEWEST_POINTS]
    if not whole:
        more = "a smaller snapshot_every" if "/" in metric else "metrics_every=0"
        return RunsSpeedUp(
            None, f"it needs a curve of {FEWEST_POINTS} evaluations or more; train longer, or with {more}"
        )
    better = "higher" if rising([base, own], metric) else "lower"
    ours = speed_up([pair[0] for pair in whole], [pair[1] for pair in whole], better)
    return RunsSpeedUp(ours, "", len(common) - len(whole), tuple(whole))


def _usable(x: np.ndarray, values: np.ndarray) -> MetricCurve:
    """The evaluations with a finite value, after the start of training."""
    if values.ndim != 1:
        return NO_CURVE
    x, at = np.unique(x, return_index=True)
    used = (x > 0) & np.isfinite(values[at])
    return MetricCurve(x[used].astype(np.float64), values[at][used])


def sentences(found: SpeedUp, base: str, own: str, metric: str, unit: str) -> list[str]:
    """The factor of `own` over `base` in "images" or "seconds" with its interval, then what makes it less certain."""
    many = f"many {unit}" if unit == "images" else "much training time"
    target = f"the final {metric} of {base}"
    seeds = "1 seed" if found.total == 1 else f"{found.total} seeds"
    factors = ", ".join(f"{one.bound} {number(one.value)}".strip() for one in found.factors)
    by_seed = f"; by seed {factors}" if found.total > 1 else ""
    if found.factor is None:
        return [f"To {target}, no common factor of {unit} can be given{by_seed}.", *_counts(found, base, own)]
    text = f"To reach {target}, {base} needs {_bounded(found)} times as {many} as {own} ({_of(found, seeds)}{by_seed})."
    return [text, *_counts(found, base, own)]


def none_of(found: SpeedUp, base: str, own: str, metric: str) -> str:
    """Why there is nothing to say of a speed-up, for "No speed-up: ...": the method does not reach the level, or ends
    above it in most seeds; "" if it does neither."""
    seeds = "" if found.total == 1 else f" in {found.total} of {found.total} seeds"
    if not found.reached:
        return f"{own} does not reach the final {metric} of {base}{seeds}"
    if 2 * found.ends_worse > found.total:
        return f"{own} ends with a worse {metric} than {base}{_seeds(found.ends_worse, found)}"
    return ""


def number(value: float) -> str:
    """Three digits: 0.874, 2.51, 12.3."""
    return f"{value:#.3g}".rstrip(".") if value < 1000 else f"{value:.0f}"


def cell(found: SpeedUp) -> str:
    """`2.50 [1.93, 3.24]`, `at most 1.42 (final value not reached by 1 of 3 seeds)`, `final value not reached by ..`,
    `ends worse in 2 of 2 seeds`."""
    missed = found.total - found.reached
    if 2 * found.ends_worse > found.total:
        return f"ends worse in {found.ends_worse} of {found.total} seeds"
    note = f"final value not reached by {missed} of {found.total} seeds"
    if found.factor is None:
        return note if missed == found.total else f"no common factor, {note}"
    return f"{_bounded(found)} ({note})" if missed else _bounded(found)


def turned(found: Sequence[SpeedUp], base: str) -> str:
    """A sentence about a baseline whose curve turns, over the factors of all its rows; empty if it does not."""
    worst = max(found, key=lambda one: one.reached_before, default=None)
    if worst is None or not worst.reached_before:
        return ""
    seeds = f"{worst.reached_before} of {worst.total} seeds"
    return f"{base} reached its final value before the end of training in {seeds}, so the factors are too large."


def _bounded(found: SpeedUp) -> str:
    begin = f"{found.bound} " if found.bound else ""
    ends = f" [{number(found.low)}, {number(found.high)}]" if found.low is not None and found.high is not None else ""
    return f"{begin}{number(found.factor or 0.0)}{ends}"


def _of(found: SpeedUp, seeds: str) -> str:
    """How the factor was averaged, and the kind of its interval."""
    if found.total == 1:
        return f"{seeds}, no interval"
    mean = f"geometric mean of {seeds}"
    if not found.bound and found.low is None:
        return f"{mean}, no interval, because the runs of the two were not trained in the same hours"
    if not found.bound:
        return f"{mean}, 95 % interval of Student's t of the logarithms"
    end = found.high if found.bound == "at most" else found.low
    if end is None:
        return f"{mean}, bounds counted as values, so there is no interval"
    side = "below" if found.bound == "at most" else "above"
    return f"{mean}, bounds counted as values; the median is {side} {number(end)} with 95 % certainty, by the sign test"


def _counts(found: SpeedUp, base: str, own: str) -> list[str]:
    """What makes the factor less certain, a sentence each."""
    missed = found.total - found.reached
    early = sum(one.bound == "at least" for one in found.factors)
    said = []
    if missed:
        said.append(f"Not reached by {own}{_seeds(missed, found)}: upper bound.")
    if early:
        said.append(f"Reached by {own} before its first evaluation{_seeds(early, found)}: lower bound.")
    if found.rises_again:
        said.append(f"Later evaluations of {own} are worse than that value again{_seeds(found.rises_again, found)}.")
    if found.reached_before:
        said.append(
            f"{base} reached its final value before the end of training{_seeds(found.reached_before, found)}, so the "
            "factor is too large."
        )
    return said


def _seeds(count: int, found: SpeedUp) -> str:
    """` in 1 of 3 seeds`; nothing for a single seed."""
    return f" in {count} of {found.total} seeds" if found.total > 1 else ""
