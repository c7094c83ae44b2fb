"""Groups of runs that differ only in their seed, with names that distinguish them.

Only runs with the same `group_hash` and the same data are averaged; the same data from another place are no difference,
although the hash is another. A group is named by its method (or by the value of
a key that the user chose); groups that share that name are distinguished by the configuration keys in which they
differ:

    uniform    logit_normal std=0.5    logit_normal std=1.0

A key is abbreviated to its last part if that is unambiguous, beside the keys at the top of the configuration too: the
`batch_size` of an evaluation is not the one of the training. Only keys set on the command line are used if they are
enough to distinguish the groups: `ddpm` and `ddpm prediction=x0`. A key with the same values in all groups as a shorter
key with the same last part is an interpolation of it and is left out. A label need not contain all differences of a
row; `differences` lists the rest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from diffusion_lab.printable import one_line
from diffusion_lab.reports.differences import (
    MISSING,
    WORD,
    Names,
    Reader,
    Reading,
    lookup,
    names_of,
    read_plainly,
    replaced,
    short,
    within,
    without_keys,
)
from diffusion_lab.reports.other_data import data_keys, data_words
from diffusion_lab.runs.identity import RECORDING
from diffusion_lab.runs.run import Run

WORDS = re.compile(r"[\s-]+")  # what separates the words of a label


@dataclass
class Group:
    """Runs of one configuration under different seeds.

    Args:
        runs: one run per seed.
        duplicates: further runs of the same configuration and seed, which are not counted.
        label: its name in tables and figures.
        name: start of the label: the method, or the value of the chosen key.
        by: the chosen key that names the groups; None: the method.
        data: which data they had, if other runs of their data set had others; else "".
        data_key: equal for groups with the same data; "" if only their source is known.
        said: configuration key -> value, for the keys that the label adds to the name.
        differences: configuration key -> value, for the keys in which the groups of the report differ.
        read: reads the configuration of a run.
    """

    runs: list[Run]
    duplicates: list[Run] = field(default_factory=list)
    label: str = ""
    name: str = ""
    by: str | None = None
    data: str = ""
    data_key: str = ""
    said: dict[str, str] = field(default_factory=dict)
    differences: dict[str, str] = field(default_factory=dict)
    read: Reader = read_plainly

    @property
    def config(self) -> dict[str, Any]:
        return self.runs[0].config

    @cached_property
    def reading(self) -> Reading:
        """The reading of its configuration, in which the source of the data stands for the data."""
        found = self.read(self.runs[0])
        return replace(found, config=self._by_data(found.config))

    @cached_property
    def without_followers(self) -> dict[str, Any]:
        """The configuration of `reading` without the keys that only follow another one, such as the seed of the data:
        equal for all seeds."""
        return without_keys(self.reading.config, self.reading.derived)

    def _by_data(self, config: dict[str, Any]) -> dict[str, Any]:
        source = lookup(config, "dataset.source")
        return replaced(config, source, self.data_key) if isinstance(source, dict) and self.data_key else config

    @cached_property
    def done(self) -> list[Run]:
        """Finished runs by seed."""
        return sorted((run for run in self.runs if run.status == "done"), key=_by_seed)

    @cached_property
    def started(self) -> list[Run]:
        """Runs that have logged something, by seed."""
        return sorted((run for run in self.runs if run.step > 0), key=_by_seed)

    def word(self, key: str) -> str:
        """The value of a key as short text, of a part (and of a data set's source) the option that was typed for it."""
        choices = self.runs[0].info.get("choices")
        option = choices.get(key.removesuffix(".source").replace(".", "/")) if isinstance(choices, dict) else None
        value = lookup(self.config, key)
        return short(value, [(value, option)] if isinstance(option, str) and WORD.fullmatch(option) else ())

    def comparable(self, key: str) -> list[Run]:
        """Finished runs that have `key`; if there are none, the runs with the largest last step."""
        done = [run for run in self.done if len(run.curve(key).steps)]
        if done:
            return done
        last = {run.folder: int(run.curve(key).steps[-1]) for run in self.started if len(run.curve(key).steps)}
        return [run for run in self.started if last.get(run.folder, -1) == max(last.values(), default=0)]


def group_runs(runs: Sequence[Run], by: str | None = None, read: Reader = read_plainly) -> list[Group]:
    """Groups in the order of their first run, named as one table.

    Args:
        runs: from `read_runs`; runs without a configuration (pending, or failed at the start) are left out.
        by: configuration key that names the groups, e.g. "sampler" or "weighting.gamma"; None: the method.
        read: reads the configuration of a run.

    Raises:
        ValueError: no group has the key `by`.
    """
    groups = collect(runs, read)
    check_key(groups, by)
    return label_groups(groups, by)


def check_key(groups: Sequence[Group], by: str | None) -> None:
    """Check that a configuration has the key.

    Raises:
        ValueError: none has it.
    """
    if by is not None and groups and all(lookup(group.config, by) is MISSING for group in groups):
        raise ValueError(f"by={by} must be a key of the configuration; use e.g. --by sampler or --by batch_size")


def collect(runs: Sequence[Run], read: Reader = read_plainly) -> list[Group]:
    """Groups in the order of their first run, without names."""
    begun = [run for run in runs if run.config]
    words, keys = data_words(begun), data_keys(begun)
    members: dict[tuple[str, str], list[Run]] = {}
    for run in begun:
        members.setdefault((run.group_key, keys[run.folder]), []).append(run)
    groups = [Group(same, data=words[same[0].folder], data_key=key, read=read) for (_, key), same in members.items()]
    return [_one_per_seed(group) for group in _merged(groups)]


def label_groups(groups: list[Group], by: str | None = None) -> list[Group]:
    """The same groups with names that distinguish them within one table."""
    for group in groups:
        group.name, group.by, group.label = _name(group, by), by, ""
    configs = _comparable(groups) if len(groups) > 1 else [{} for _ in groups]
    names = [names_of(config, group.runs[0]) for group, config in zip(groups, configs, strict=True)]
    for group, different in zip(groups, configuration_words(configs, names), strict=True):
        group.differences = different
    for name in dict.fromkeys(group.name for group in groups):
        same = [i for i, group in enumerate(groups) if group.name == name]
        further = _as_typed(
            [groups[i] for i in same], configuration_words([configs[i] for i in same], [names[i] for i in same])
        )
        top = {key for i in same for key in groups[i].config}
        words = _last_parts({key for keys in further for key in keys}, top)
        for i, keys in zip(same, further, strict=True):
            groups[i].said = {key: value for key, value in keys.items() if key != by}
            label = " ".join([name, *(f"{words[key]}={value}" for key, value in groups[i].said.items())])
            groups[i].label = one_line(label)
    labels = [group.label for group in groups]
    for group in groups:  # different only in their data
        group.label += f" ({group.data})" if group.data and labels.count(group.label) > 1 else ""
    for group in groups:  # different only in keys that are not shown
        if sum(other.label == group.label for other in groups) > 1:
            group.label += f" #{group.runs[0].group_key[:6]}"
    return groups


def _comparable(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """The configurations of several groups without keys that follow others in all that have them, and without those
    of `RECORDING` where something else differs."""
    readings = [group.reading for group in groups]
    same_data = len({group.data_key for group in groups}) == 1
    derived = frozenset.union(*(reading.derived for reading in readings))
    following = frozenset(
        key for key in derived if all(key in one.derived or lookup(one.config, key) is MISSING for one in readings)
    )
    configs = [
        without_keys(reading.config if same_data else group.read(group.runs[0]).config, following)
        for group, reading in zip(groups, readings, strict=True)
    ]
    brief = [without_keys(config, frozenset(RECORDING)) for config in configs]
    return brief if len(set(map(_text, brief))) == len(set(map(_text, configs))) else configs


def matching(name: str, labels: Sequence[str]) -> list[str]:
    """The label that is the name; without one, those that have its words: `uniform-v-min_snr` has `uniform`, and
    `ddpm precision=32-true` has `precision=32-true`."""
    words = set(WORDS.split(name))
    return [one for one in labels if one == name] or [one for one in labels if words <= set(WORDS.split(one))]


def _by_seed(run: Run) -> tuple[int, str]:
    return (-1 if run.seed is None else run.seed, run.name)


def _merged(groups: list[Group]) -> list[Group]:
    """The groups, of which those that only read the same data from other places are one."""
    sources: dict[str, set[str]] = {}
    for group in groups:
        sources.setdefault(group.data_key, set()).add(_text(lookup(group.config, "dataset.source")))
    merged: dict[tuple[str, str], Group] = {}
    for group in groups:
        several = group.data_key and len(sources[group.data_key]) > 1
        key = _text(group.without_followers) if several else group.runs[0].group_key
        first = merged.setdefault((group.data_key, key), group)
        if first is not group:
            first.runs += group.runs
    return list(merged.values())


def _text(node: Any) -> str:
    return json.dumps(node, sort_keys=True, default=str)


def _one_per_seed(group: Group) -> Group:
    """The group with, of several runs with one seed, the finished one, else the one with the largest step."""
    best: dict[int | None, Run] = {}
    for run in sorted(group.runs, key=lambda r: (r.status == "done", r.step), reverse=True):
        best.setdefault(run.seed, run)
    kept = [run for run in group.runs if run is best[run.seed]]
    return replace(group, runs=kept, duplicates=[run for run in group.runs if run is not best[run.seed]])


def _name(group: Group, by: str | None) -> str:
    names = names_of(group.config, group.runs[0])
    if by is not None:
        value = lookup(group.config, by)
        return "-" if value is MISSING else short(value, names)
    method = group.runs[0].info.get("method")
    return str(method) if method else short(group.config.get("sampler", group.runs[0].name), names)


def configuration_words(configs: list[dict[str, Any]], names: Sequence[Names] | None = None) -> list[dict[str, str]]:
    """For each configuration, the keys in which it differs from others, shortest first, and their values; `names` of
    its parts, by default those of their classes."""
    different = _differences(configs, names or [()] * len(configs), "")
    keys = sorted(dict.fromkeys(key for one in different for key in one), key=lambda key: key.count("."))
    known: set[tuple[str | None, ...]] = set()
    kept = []
    for key in keys:
        values = (key.rpartition(".")[2], *(one.get(key) for one in different))
        if values not in known:
            known.add(values)
            kept.append(key)
    return [{key: one[key] for key in kept if key in one} for one in different]


def _as_typed(groups: list[Group], keys: list[dict[str, str]]) -> list[dict[str, str]]:
    """Only the keys on each group's command line if they distinguish the groups, else all keys. A part has the name of
    its option, because several options may have the same class."""
    typed = []
    for group, own in zip(groups, keys, strict=True):
        words = (str(word).lstrip("+~").partition("=") for word in group.runs[0].info.get("overrides") or ())
        given = {name: value for name, _, value in words}
        typed_keys = [key for key in own if any(within(key, name) or within(name, key) for name in given)]
        parts = {key for key in typed_keys if isinstance(lookup(group.config, key), dict)}
        typed.append({key: given[key] if key in parts & given.keys() else own[key] for key in typed_keys})
    different = {tuple(own.items()) for own in typed}
    return typed if len(different) == len(keys) else keys


def _last_parts(keys: set[str], top: set[str]) -> dict[str, str]:
    """key -> its last part, or the whole key if two have the same last part, or a key at the `top` is called so."""
    parts = {key: key.rpartition(".")[2] for key in keys}
    clear = {key for key, part in parts.items() if list(parts.values()).count(part) == 1 and part not in top - {key}}
    return {key: part if key in clear else key for key, part in parts.items()}


def _differences(nodes: list[Any], names: Sequence[Names], path: str) -> list[dict[str, str]]:
    """One dict per node. Parts of different classes are named, and parts of the same class compared further."""
    different: list[dict[str, str]] = [{} for _ in nodes]
    if all(node == nodes[0] for node in nodes):
        return different
    targets = [node.get("_target_") if isinstance(node, dict) else None for node in nodes]
    targets = [target if target is None or isinstance(target, str) else repr(target) for target in targets]
    if len(set(targets)) > 1:
        for one, node, known in zip(different, nodes, names, strict=True):
            one[path] = short(node, known)
        for target in set(targets) - {None}:
            same = [i for i, other in enumerate(targets) if other == target]
            for i, further in zip(
                same, _differences([nodes[i] for i in same], [names[i] for i in same], path), strict=True
            ):
                different[i] |= further
    elif all(isinstance(node, dict) for node in nodes):
        for key in dict.fromkeys(key for node in nodes for key in node):
            below = _differences([node.get(key, MISSING) for node in nodes], names, f"{path}.{key}".lstrip("."))
            for one, further in zip(different, below, strict=True):
                one |= further
    else:
        for one, node, known in zip(different, nodes, names, strict=True):
            one[path] = short(node, known)
    return different
