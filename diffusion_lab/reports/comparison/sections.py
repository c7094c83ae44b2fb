"""A folder of runs as sections: one per data set, task and protocol, because only within one can values be compared.
The data set is the images and labels themselves (`other_data`); where they were read from is no difference.

Each section has its own metric, baseline and names. Groups without evaluations are in the largest section of their data
set and task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from diffusion_lab.intervals import Estimand
from diffusion_lab.reports.comparison.differences import (
    MISSING,
    WORD,
    ConfigReader,
    canonical,
    lookup,
    read_config_alone,
    short,
)
from diffusion_lab.reports.comparison.groups import Group, collect, source_of
from diffusion_lab.reports.comparison.labels import check_key, configuration_words, label_groups, matching
from diffusion_lab.reports.comparison.metrics import choose_metric, shared_protocol, values
from diffusion_lab.reports.comparison.question import Question, asked, recorded_question
from diffusion_lab.runs.run import Run


class Place(NamedTuple):
    """A key of the configuration and its value in all groups of a section."""

    key: str
    value: Any

    @property
    def words(self) -> str:
        """`max_steps=800`"""
        return f"{self.key.rpartition('.')[2]}={short(self.value)}"


class Section(NamedTuple):
    """Groups that may be compared.

    Attributes:
        title: a text that distinguishes it from the other sections of the folder, and the metric.
        groups: groups with names; the chosen baseline is the first.
        metric: the metric for the comparison.
        question: what its table decides.
        place: the chosen key within whose values groups are compared; None: there is none.
    """

    title: str
    groups: list[Group]
    metric: str
    question: Question = Question()
    place: Place | None = None

    @property
    def subject(self) -> str:
        """Equal for sections of the same data and task."""
        return canonical(subject(self.groups[0]))


def sections_of(
    runs: Sequence[Run],
    metric: str | None = None,
    by: str | None = None,
    baseline: str | None = None,
    read: ConfigReader = read_config_alone,
    estimand: Estimand | None = None,
    margin: float | None = None,
    recorded: Mapping[Path, Mapping[str, Any]] | None = None,
    within: str | None = None,
) -> list[Section]:
    """The sections, in the order of their first run; empty if no run has started.

    Args:
        runs: from `read_runs`.
        metric: the metric for sections that have it; otherwise the recorded one, then that of `choose_metric`.
        by: configuration key that names the groups; None: the method.
        baseline: name of the baseline, or words that it alone has, for sections that have it; otherwise the first row.
        read: reads the configuration of a run.
        estimand: which number of a run decides; None: the recorded question's.
        margin: ratio within which methods are equal; None: the recorded question's.
        recorded: folder of a sweep -> the question that it recorded.
        within: configuration key within whose values groups are compared, each value in a section of its own, in
            ascending order if they are numbers; None: across all configurations.

    Raises:
        ValueError: no section has the metric, the key or the baseline.
    """
    groups = collect(runs, read)
    check_key(groups, by)
    check_key(groups, within, "within")
    by_subject: dict[str, list[Group]] = {}
    for group in _in_order(groups, within):
        by_subject.setdefault(canonical([subject(group), _place(group, within)]), []).append(group)
    if metric is not None and not any(_has(same, metric) for same in by_subject.values()):
        choose_metric(groups, metric)
    questions = {key: _recorded(same, recorded or {}) for key, same in by_subject.items()}
    wanted = {key: metric or (one.metric if one else None) for key, one in questions.items()}
    parts = [(key, part) for key, same in by_subject.items() for part in _by_protocol(same, wanted[key])]
    measured = [part for _, part in parts]
    named = [(label_groups(same, by), name) for same, name in measured]
    places = [_place(same[0], within) for same, _ in measured]
    sections = []
    for (same, name), title, (key, _), place in zip(named, _titles(measured, places), parts, places, strict=True):
        here = matching(baseline, able_baselines(same, name)) if baseline is not None else []
        rows = with_baseline(same, name, here[0] if len(here) == 1 else None)
        sections.append(Section(title, rows, name, asked(questions[key], name, estimand, margin), place))
    able = list(dict.fromkeys(label for part in sections for label in able_baselines(part.groups, part.metric)))
    if baseline is not None and len(matching(baseline, able)) != 1:
        raise no_baseline(baseline, able)
    return sections


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


def _place(group: Group, within: str | None) -> Place | None:
    return None if within is None else Place(within, lookup(group.config, within))


def _in_order(groups: list[Group], within: str | None) -> list[Group]:
    """By the value of the key, if it is a number in all."""
    values = [] if within is None else [lookup(group.config, within) for group in groups]
    if not values or not all(isinstance(one, int | float) for one in values):
        return groups
    subjects = [canonical(subject(group)) for group in groups]
    order = sorted(range(len(groups)), key=lambda i: (subjects.index(subjects[i]), values[i]))
    return [groups[i] for i in order]


def _recorded(groups: list[Group], recorded: Mapping[Path, Mapping[str, Any]]) -> Question | None:
    """The recorded question, with its metric as the runs call it; "" if they do not have it."""
    question = recorded_question([run for group in groups for run in group.runs], recorded)
    if question is None or not question.metric:
        return question
    there = _has(groups, question.metric)
    return question._replace(metric=choose_metric(groups, question.metric) if there else "")


def subject(group: Group) -> dict[str, Any]:
    """The data, or their source if no more is known, and the task."""
    task = lookup(group.config if "task" in group.config else group.run_config.config, "task")
    return {"dataset": group.data_key or source_of(group.runs[0]), "task": None if task is MISSING else task}


def _by_protocol(groups: list[Group], metric: str | None) -> list[tuple[list[Group], str]]:
    """Groups with the same protocol, each with the metric for their comparison."""
    name = _metric(groups, metric)
    by_protocol: dict[str, list[Group]] = {}
    waiting = []
    for group in groups:
        if values(group, name):
            by_protocol.setdefault(canonical(shared_protocol(group, name)[0]), []).append(group)
        else:
            waiting.append(group)
    if len(by_protocol) < 2:
        return [(groups, name)]
    largest = max(by_protocol.values(), key=len)
    largest += waiting
    return [(sorted(same, key=groups.index), _metric(same, metric)) for same in by_protocol.values()]


def _metric(groups: list[Group], metric: str | None) -> str:
    """The chosen metric if this section has it, else its own."""
    return choose_metric(groups, metric if metric is not None and _has(groups, metric) else None)


def _has(groups: list[Group], metric: str) -> bool:
    try:
        choose_metric(groups, metric)
    except ValueError:
        return False
    return True


def _titles(sections: Sequence[tuple[list[Group], str]], places: Sequence[Place | None]) -> list[str]:
    """Data set, place and metric, and other settings that distinguish a section from the others."""
    subjects = [subject(groups[0]) for groups, _ in sections]
    here = [[about, place] for about, place in zip(subjects, places, strict=True)]
    rulers = [
        {"measured": shared_protocol(groups[0], name)[0]} if values(groups[0], name) else {}
        for groups, name in sections
    ]
    of = [[source_of(g.runs[0]) for other, _ in sections for g in other if subject(g) == about] for about in subjects]
    sources = [{"dataset": _common(nodes)} for nodes in of]
    tasks = [{"task": about["task"]} for about in subjects]
    words = configuration_words([a | b | c for a, b, c in zip(sources, tasks, rulers, strict=True)])
    titles = []
    for (groups, _), place, node, further in zip(sections, places, sources, words, strict=True):
        task = further.pop("task", None)
        own = [key for key in further if key.startswith("dataset.") and lookup(node, key) is not MISSING]
        parts = [f"{key.rpartition('.')[2]}={further[key][:24]}" for key in own]
        if here.count([subject(groups[0]), place]) > 1:
            parts += [f"{key.rpartition('.')[2]}={v[:24]}" for key, v in further.items() if key.startswith("measured")]
        parts += [place.words] if place else []
        titles.append(" ".join([data_name(groups), *([task] if task else []), *parts]))
    twice = {
        title
        for title in titles
        if len({canonical(s) for s, t in zip(subjects, titles, strict=True) if t == title}) > 1
    }
    for i, (groups, metric) in enumerate(sections):
        counted = f" ({groups[0].data})" if groups[0].data and titles[i] in twice else ""
        titles[i] = f"{titles[i]}{counted}: {metric}"
    return numbered(titles)


def numbered(names: Sequence[str], form: str = "{} ({})") -> list[str]:
    """The names, those that occur twice with their place in the list."""
    return [name if names.count(name) == 1 else form.format(name, i) for i, name in enumerate(names, 1)]


def _common(nodes: Sequence[Any]) -> Any:
    """The node without the keys in which the nodes differ, such as the places of copies."""
    first = nodes[0]
    if not all(isinstance(node, dict) for node in nodes):
        return first
    return {key: value for key, value in first.items() if all(node.get(key, MISSING) == value for node in nodes)}


def data_name(groups: Sequence[Group]) -> str:
    """The option that was typed for the data set if the groups have one, else the name of its class."""
    options = {group.runs[0].choices.get("dataset") for group in groups}
    typed = options.pop() if len(options) == 1 else None
    if isinstance(typed, str) and WORD.fullmatch(typed):
        return typed
    node = source_of(groups[0].runs[0])
    return short(node) if node else "data"
