"""The metrics of groups of runs: which there are, which direction is better, their values and how they were measured.

Directions and units are in the records, so that no list of metrics is needed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from diffusion_lab.intervals import Interval, mean_interval
from diffusion_lab.printable import one_line
from diffusion_lab.reports.comparison.groups import Group
from diffusion_lab.runs.curve import Curve
from diffusion_lab.runs.run import Run

VAL_LOSS = "val/loss"
INDIFFERENT = ("every", "batch_size")  # of a validation: when, and how many images at a time


def metric_names(groups: Sequence[Group]) -> list[str]:
    """All evaluation metrics of the report, in the order in which the runs have them."""
    return list(dict.fromkeys(name for group in groups for run in group.runs for name in run.metric_names))


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


def rising(groups: Sequence[Group], metric: str) -> bool:
    """Whether a larger value is better; of a loss, which has no record of it, a smaller one is."""
    words = (run.better(metric) for group in groups for run in group.runs)
    return next(filter(None, words), "lower") == "higher"


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


def values(group: Group, metric: str) -> dict[int | None, float]:
    """seed -> final value, of the finished runs that have one."""
    lasts = {run.seed: run.last(metric) for run in group.done}
    return {seed: value for seed, value in lasts.items() if value is not None}


def pairs(ours: Mapping[int | None, float], theirs: Mapping[int | None, float]) -> list[tuple[float, float]]:
    """(ours, theirs) of the seeds that both have, by seed; runs without a recorded seed are left out."""
    common = sorted(seed for seed in ours if seed is not None and seed in theirs)
    return [(ours[seed], theirs[seed]) for seed in common]


def interval(numbers: Sequence[float | None]) -> Interval | None:
    """Interval of the numbers that are not None."""
    present = [number for number in numbers if number is not None]
    return mean_interval(present) if present else None


def protocols(group: Group, metric: str) -> list[dict[str, Any]]:
    """The distinct protocols of a metric in the finished runs; normally one."""
    distinct: list[dict[str, Any]] = []
    for run in group.done:
        if run.last(metric) is not None and run.protocol(metric) not in distinct:
            distinct.append(run.protocol(metric))
    return distinct


def shared_protocol(group: Group, metric: str) -> list[dict[str, Any]]:
    """The settings that two groups must share to be compared: extractor, reference, samples, whose latents these start
    from, levels of noise, but not the solver; and the schedule for a metric of the model's own timesteps.

    For a loss these are the data set, the prediction, the noise schedule and the settings of validation.
    """
    shared = {"extractor": "extractor", "samples": "samples", "reference": "reference", "latents": "seed"}
    shared |= {"levels": "levels", "timesteps": "timesteps"}
    measured = [
        {name: protocol.get(key) for name, key in shared.items()}
        | ({"schedule": group.config.get("schedule")} if "timesteps" in protocol else {})
        for protocol in protocols(group, metric)
        if protocol
    ]
    if measured:
        return measured
    config = group.config
    validation = (config.get("callbacks") or {}).get("validation")
    if isinstance(validation, dict):
        validation = {key: value for key, value in validation.items() if key not in INDIFFERENT}
    parts = {key: config.get(key) for key in ("prediction", "schedule")}
    return [{"dataset": group.data_key or group.runs[0].info.get("dataset"), **parts, "validation": validation}]


class Timed(NamedTuple):
    """A curve, and a curve of the same steps whose values are seconds."""

    curve: Curve
    clock: Curve


def time_of(run: Run, key: str) -> Timed | None:
    """The curve of a logged key, one number per step, with the time of training without evaluations; None if the run
    has no such curve, or no time."""
    curve, clock = run.curve(key), run.training_clock
    if clock is None or curve.values.ndim != 1 or not len(curve.steps):
        return None
    return Timed(curve, Curve(curve.steps, curve.images, clock.at(curve.steps)))
