"""Two groups of runs that are compared: which runs they are, and in what they differ.

Each is the runs of one configuration under one or several seeds: a run folder, a folder of such runs, or, of a folder
with several configurations, the one that `diffusion-lab report` calls NAME: FOLDER:NAME.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from diffusion_lab.reports.differences import Difference, Reader, changed, differences, lookup, read_plainly, short
from diffusion_lab.reports.groups import Group, group_runs, label_groups, matching
from diffusion_lab.reports.notes import metric_names
from diffusion_lab.reports.other_data import data_words
from diffusion_lab.reports.sections import data_name, subject
from diffusion_lab.reports.tables import VAL_LOSS, choose_metric, ruler, values
from diffusion_lab.runs.find import read_runs
from diffusion_lab.runs.run import RunFolder


class Pair(NamedTuple):
    """What is compared.

    Attributes:
        base: the first group, A.
        own: the second group, B, which is described relative to A.
        metric: of the curves and the speed-up.
        metrics: all metrics of which finished runs of both have a value, `metric` first.
    """

    base: Group
    own: Group
    metric: str
    metrics: list[str]

    @property
    def groups(self) -> list[Group]:
        return [self.base, self.own]


class Side(NamedTuple):
    """What A or B on the command line names.

    Attributes:
        option: "A" or "B", for the errors.
        text: as it was typed: FOLDER, or FOLDER:NAME with a row's label, or words of it that no other row has.
        folder: the runs of the folder.
        name: NAME, "" without one.
    """

    option: str
    text: str
    folder: RunFolder
    name: str


def side(option: str, text: str) -> Side:
    """The runs of the folder in FOLDER or FOLDER:NAME.

    Raises:
        FileNotFoundError: there is no such folder.
        ValueError: it has no run.
    """
    path, name = text, ""
    if not os.path.isdir(text) and ":" in text:
        path, _, name = text.rpartition(":")
    if not os.path.isdir(path):
        raise FileNotFoundError(f"{option}={text} must be an existing folder, of a run or of runs; use e.g. runs/NAME")
    return Side(option, text, read_runs(path), name)


def group_of(side: Side, read: Reader = read_plainly) -> Group:
    """The runs of one configuration that a side means.

    Raises:
        ValueError: no run has begun, or several configurations and no name of one.
    """
    option, text, folder, name = side
    path = folder.path
    groups = group_runs(folder.runs, read=read)
    if not groups:
        why = next((run.cause for run in folder.runs if run.faults), "see its log")
        raise ValueError(f"{option}={text} must have a run that has begun to train and can be read; {why}")
    named = matching(name, [group.label for group in groups]) if name else []
    chosen = [group for group in groups if group.label in named] if name else groups
    if len(chosen) == 1:
        return chosen[0]
    labels = ", ".join(f"'{path}:{group.label}'" for group in groups)
    if name:
        raise ValueError(f"{option}={text} must end in the name of one of its {len(groups)} rows; use one of {labels}")
    raise ValueError(f"{option}={text} must hold runs that differ in their seed alone; use one of {labels}")


def pair(base: Group, own: Group, metric: str | None = None) -> Pair:
    """The two groups with names that distinguish them, and the metrics that both have.

    Raises:
        ValueError: they are the same configuration, have other data or another task, or no metric in common; or
            `metric` is none that both have.
    """
    data = data_words([*base.runs, *own.runs])
    if len(set(data.values())) > 1:
        words = " and ".join(data[group.runs[0].folder] for group in (base, own))
        raise ValueError(
            f"B must have the data of A to be compared, and its images are not the same; they have {words}"
        )
    same = bool(base.data_key) and base.without_followers == own.without_followers  # perhaps read from another place
    if same or base.runs[0].group_key == own.runs[0].group_key:
        raise ValueError("B must be another configuration than A; runs of one configuration are averaged by `report`")
    about, other = subject(base), subject(own)
    if about != other:
        key = next(key for key in about if about[key] != other[key])
        both = zip((about, other), (base, own), strict=True)
        words = " and ".join(
            "none" if one[key] is None else _data(group) if key == "dataset" else group.word(key) for one, group in both
        )
        raise ValueError(f"B must have the {key} of A to be compared; they have {words}")
    label_groups([base, own])
    common = [name for name in metric_names([base, own]) if _both(base, own, name)]
    common += [VAL_LOSS] if _both(base, own, VAL_LOSS) else []
    chosen = choose_metric([base, own], metric)
    if metric is None and chosen not in common and common:
        chosen = common[0]
    if not common:
        raise ValueError("B must have a metric in common with A, each in a finished run; finish one, or evaluate it")
    if not _both(base, own, chosen):
        raise ValueError(
            f"metric={chosen} must be one of which finished runs of A and of B have a value; use {', '.join(common)}"
        )
    return Pair(base, own, chosen, list(dict.fromkeys([chosen, *common])))


def alone(folder: RunFolder, read: Reader = read_plainly) -> Iterator[Pair]:
    """Each configuration compared with itself, by each metric that it has, to see whether its runs can be compared."""
    for group in group_runs(folder.runs, read=read):
        names = [name for name in (*metric_names([group]), VAL_LOSS) if values(group, name)]
        yield from (Pair(group, group, name, names) for name in names)


def configuration(pair: Pair) -> list[Difference]:
    """In what B differs from A: options by name, then single values; not what follows from one of them."""
    own, base = (replace(group.reading, named={}) for group in (pair.own, pair.base))
    different = differences(own, base)
    clear = [one for one in different if one.own != one.base]  # not what has a difference inside that is listed itself
    different = clear or different
    methods = [str(group.runs[0].info.get("method")) for group in (pair.own, pair.base)]
    sayings = [(one.own, one.base) for one in different]
    if methods[0] != methods[1] and tuple(methods) not in sayings:
        different.insert(0, Difference("method", *methods))
    return different


def measured_differently(pair: Pair, metric: str) -> str:
    """In which settings of the measurement of a metric the two differ; "" if in none."""
    rulers = [ruler(group, metric) for group in (pair.base, pair.own)]
    if rulers[0] == rulers[1]:
        return ""
    if max(map(len, rulers)) > 1:
        return "seeds measured differently"
    (one,), (other,) = rulers
    keys = changed(one, other)
    return "; ".join(f"{key} {short(lookup(one, key))} and {short(lookup(other, key))}" for key in keys)


def _data(group: Group) -> str:
    """Name of the data, and which they were if that is recorded."""
    return f"{data_name([group])} ({group.data_key[:6]})" if group.data_key else data_name([group])


def _both(base: Group, own: Group, name: str) -> bool:
    return bool(values(base, name)) and bool(values(own, name))
