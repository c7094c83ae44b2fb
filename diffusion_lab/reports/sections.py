"""A folder of runs as sections: one per data set, task and way of measuring, because only within one a number compares.

Each section has its own metric, its own baseline and its own names. Groups that have not measured anything yet stand in
the largest section of their data set and task.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from diffusion_lab.reports.differences import MISSING, Reader, lookup, read_plainly, short
from diffusion_lab.reports.groups import Group, check_key, collect, configuration_words, label_groups
from diffusion_lab.reports.tables import able_baselines, choose_metric, no_baseline, ruler, values, with_baseline
from diffusion_lab.runs.run import Run


class Section(NamedTuple):
    """Groups that may be compared.

    Attributes:
        title: what distinguishes it from the other sections of the folder, and the metric.
        groups: named, the baseline first if one was asked for.
        metric: to compare by.
    """

    title: str
    groups: list[Group]
    metric: str


def sections_of(
    runs: Sequence[Run],
    metric: str | None = None,
    by: str | None = None,
    baseline: str | None = None,
    read: Reader = read_plainly,
) -> list[Section]:
    """The sections, in the order of their first run; none if no run has begun.

    Args:
        runs: from `read_runs`.
        metric: to compare by where a section has it; None or elsewhere: what `choose_metric` finds.
        by: configuration key that names the groups; None: the method.
        baseline: name of the row to compare to where a section has it; None or elsewhere: the first.
        read: what a run's options stand for.

    Raises:
        ValueError: no section has the metric, the key or the baseline.
    """
    groups = collect(runs, read)
    check_key(groups, by)
    alike: dict[str, list[Group]] = {}
    for group in groups:
        alike.setdefault(_text(_subject(group)), []).append(group)
    if metric is not None and not any(_has(same, metric) for same in alike.values()):
        choose_metric(groups, metric)
    measured = [part for same in alike.values() for part in _by_ruler(same, metric)]
    named = [(label_groups(same, by), name) for same, name in measured]
    found = []
    for (same, name), title in zip(named, _titles(measured), strict=True):
        here = baseline if baseline in able_baselines(same, name) else None
        found.append(Section(title, with_baseline(same, name, here), name))
    able = list(dict.fromkeys(label for section in found for label in able_baselines(section.groups, section.metric)))
    if baseline is not None and baseline not in able:
        raise no_baseline(baseline, able)
    return found


def _subject(group: Group) -> dict[str, Any]:
    """What is learned: the images, and the task."""
    run = group.runs[0]
    source = run.info.get("dataset") or lookup(group.config, "dataset.source")
    task = lookup(group.config if "task" in group.config else group.reading.config, "task")
    return {"dataset": None if source is MISSING else source, "task": None if task is MISSING else task}


def _by_ruler(groups: list[Group], metric: str | None) -> list[tuple[list[Group], str]]:
    """Groups that were measured alike, each with the metric to compare by."""
    name = _metric(groups, metric)
    apart: dict[str, list[Group]] = {}
    waiting = []
    for group in groups:
        if values(group, name):
            apart.setdefault(_text(ruler(group, name)[0]), []).append(group)
        else:
            waiting.append(group)
    if len(apart) < 2:
        return [(groups, name)]
    largest = max(apart.values(), key=len)
    largest += waiting
    return [(sorted(same, key=groups.index), _metric(same, metric)) for same in apart.values()]


def _metric(groups: list[Group], metric: str | None) -> str:
    """The chosen one, or this section's own where another section has that."""
    return choose_metric(groups, metric if metric is not None and _has(groups, metric) else None)


def _has(groups: list[Group], metric: str) -> bool:
    try:
        choose_metric(groups, metric)
    except ValueError:
        return False
    return True


def _titles(sections: Sequence[tuple[list[Group], str]]) -> list[str]:
    """Data set and metric, and whatever else distinguishes a section from the others."""
    subjects = [_subject(groups[0]) for groups, _ in sections]
    rulers = [{"measured": ruler(groups[0], name)[0]} if values(groups[0], name) else {} for groups, name in sections]
    words = configuration_words([a | b for a, b in zip(subjects, rulers, strict=True)])
    titles = []
    for (_, metric), subject, further in zip(sections, subjects, words, strict=True):
        name = short(subject["dataset"]) if subject["dataset"] else "data"
        task = further.pop("task", None)
        twins = [i for i, other in enumerate(subjects) if other == subject]
        said = [
            f"{key.rpartition('.')[2]}={value[:24]}" for key, value in further.items() if key.startswith("dataset.")
        ]
        if len(twins) > 1:
            said += [f"{key.rpartition('.')[2]}={v[:24]}" for key, v in further.items() if key.startswith("measured")]
        titles.append(" ".join([name, *([task] if task else []), *said]) + f": {metric}")
    return [title if titles.count(title) == 1 else f"{title} ({i + 1})" for i, title in enumerate(titles)]


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)
