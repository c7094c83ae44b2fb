"""Runs that differ in their seed alone form a group; groups are named by what distinguishes them.

Only runs with the same `group_hash` are averaged. A group is named by its method (or by the value of a key that the
user chose); groups that share that name are told apart by the configuration keys in which they differ:

    uniform    logit_normal std=0.5    logit_normal std=1.0

A key stands with its last part alone where that is clear, and only where it was set on the command line if that is
enough to tell the groups apart: `ddpm` and `ddpm prediction=x0`. A key whose values are, in every group, those of a
shorter key of the same last part is an interpolation of it and is left out. A label need not say all in which a row
differs; `differences` says the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from diffusion_lab.reports.differences import (
    MISSING,
    Reader,
    Reading,
    lookup,
    read_plainly,
    short,
    within,
    without_keys,
)
from diffusion_lab.runs.run import Run


@dataclass
class Group:
    """Runs of one configuration under different seeds.

    Args:
        runs: one run per seed.
        duplicates: further runs of the same configuration and seed; they hold no new information.
        label: how tables and figures call it.
        name: what the label begins with: the method, or the value of the chosen key.
        by: the chosen key that names the groups; None: the method does.
        said: configuration key -> value of what the label adds to the name.
        differences: configuration key -> value, for the keys in which the groups of the report differ.
        read: how its configuration is to be understood.
    """

    runs: list[Run]
    duplicates: list[Run] = field(default_factory=list)
    label: str = ""
    name: str = ""
    by: str | None = None
    said: dict[str, str] = field(default_factory=dict)
    differences: dict[str, str] = field(default_factory=dict)
    read: Reader = read_plainly

    @property
    def config(self) -> dict[str, Any]:
        return self.runs[0].config

    @cached_property
    def reading(self) -> Reading:
        """Its configuration, and what its options stand for."""
        return self.read(self.runs[0])

    @cached_property
    def done(self) -> list[Run]:
        """Finished runs by seed."""
        return sorted((run for run in self.runs if run.status == "done"), key=_by_seed)

    @cached_property
    def started(self) -> list[Run]:
        """Runs that have logged something, by seed."""
        return sorted((run for run in self.runs if run.step > 0), key=_by_seed)

    def comparable(self, key: str) -> list[Run]:
        """Finished runs that have `key`; if there are none, the ones that came furthest, all at one step."""
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
        read: what a run's options stand for.

    Raises:
        ValueError: no group has the key `by`.
    """
    groups = collect(runs, read)
    check_key(groups, by)
    return label_groups(groups, by)


def check_key(groups: Sequence[Group], by: str | None) -> None:
    """Whether some configuration has the key.

    Raises:
        ValueError: none has.
    """
    if by is not None and groups and all(lookup(group.config, by) is MISSING for group in groups):
        raise ValueError(f"by={by} must be a key of the configuration; use e.g. --by sampler or --by batch_size")


def collect(runs: Sequence[Run], read: Reader = read_plainly) -> list[Group]:
    """Groups in the order of their first run, without names."""
    members: dict[str, list[Run]] = {}
    for run in runs:
        if run.config:
            members.setdefault(run.group_key, []).append(run)
    return [_one_per_seed(same, read) for same in members.values()]


def label_groups(groups: list[Group], by: str | None = None) -> list[Group]:
    """The same groups with names that tell them apart within one table."""
    configs = [read_plainly(group.runs[0]).config for group in groups]
    for group, config in zip(groups, configs, strict=True):
        group.name, group.by = _name(group, config, by), by
    if len(groups) > 1:
        following = frozenset.intersection(*(group.reading.derived for group in groups))
        configs = [without_keys(config, following) for config in configs]
    for group, different in zip(groups, configuration_words(configs), strict=True):
        group.differences = different
    for name in dict.fromkeys(group.name for group in groups):
        same = [i for i, group in enumerate(groups) if group.name == name]
        further = _as_typed([groups[i] for i in same], configuration_words([configs[i] for i in same]))
        words = _last_parts({key for keys in further for key in keys})
        for i, keys in zip(same, further, strict=True):
            groups[i].said = {key: value for key, value in keys.items() if key != by}
            groups[i].label = " ".join([name, *(f"{words[key]}={value}" for key, value in groups[i].said.items())])
    for group in groups:  # different, but in nothing that is shown
        if sum(other.label == group.label for other in groups) > 1:
            group.label += f" #{group.runs[0].group_key[:6]}"
    return groups


def _by_seed(run: Run) -> tuple[int, str]:
    return (-1 if run.seed is None else run.seed, run.name)


def _one_per_seed(runs: list[Run], read: Reader) -> Group:
    """Of several runs with one seed keep the finished one, else the one that came furthest."""
    best: dict[int | None, Run] = {}
    for run in sorted(runs, key=lambda r: (r.status == "done", r.step), reverse=True):
        best.setdefault(run.seed, run)
    kept = [run for run in runs if run is best[run.seed]]
    return Group(kept, [run for run in runs if run is not best[run.seed]], read=read)


def _name(group: Group, config: dict[str, Any], by: str | None) -> str:
    if by is not None:
        value = lookup(config, by)
        return "-" if value is MISSING else short(value)
    method = group.runs[0].info.get("method")
    return str(method) if method else short(config.get("sampler", group.runs[0].name))


def configuration_words(configs: list[dict[str, Any]]) -> list[dict[str, str]]:
    """For each configuration, the keys in which it differs from others, shortest first, and their values."""
    found = _differences(configs, "")
    keys = sorted(dict.fromkeys(key for one in found for key in one), key=lambda key: key.count("."))
    known: set[tuple[str | None, ...]] = set()
    kept = []
    for key in keys:
        values = (key.rpartition(".")[2], *(one.get(key) for one in found))
        if values not in known:
            known.add(values)
            kept.append(key)
    return [{key: one[key] for key in kept if key in one} for one in found]


def _as_typed(groups: list[Group], keys: list[dict[str, str]]) -> list[dict[str, str]]:
    """Only the keys that each group was given on its command line, where that tells them apart: one that was left as
    the method has it needs no words. A part is called by the option that was typed: several may be of one class."""
    typed = []
    for group, own in zip(groups, keys, strict=True):
        words = (str(word).lstrip("+~").partition("=") for word in group.runs[0].info.get("overrides") or ())
        given = {name: value for name, _, value in words}
        typed_keys = [key for key in own if any(within(key, name) or within(name, key) for name in given)]
        parts = {key for key in typed_keys if isinstance(lookup(group.config, key), dict)}
        typed.append({key: given[key] if key in parts & given.keys() else own[key] for key in typed_keys})
    different = {tuple(own.items()) for own in typed}
    return typed if len(different) == len(keys) else keys


def _last_parts(keys: set[str]) -> dict[str, str]:
    """key -> its last part, or the whole key where two would look alike."""
    parts = {key: key.rpartition(".")[2] for key in keys}
    return {key: part if list(parts.values()).count(part) == 1 else key for key, part in parts.items()}


def _differences(nodes: list[Any], path: str) -> list[dict[str, str]]:
    """One dict per node. Where different parts stand at one place they are named, and like parts compared further."""
    found: list[dict[str, str]] = [{} for _ in nodes]
    if all(node == nodes[0] for node in nodes):
        return found
    targets = [node.get("_target_") if isinstance(node, dict) else None for node in nodes]
    if len(set(targets)) > 1:
        for one, node in zip(found, nodes, strict=True):
            one[path] = short(node)
        for target in set(targets) - {None}:
            same = [i for i, other in enumerate(targets) if other == target]
            for i, further in zip(same, _differences([nodes[i] for i in same], path), strict=True):
                found[i] |= further
    elif all(isinstance(node, dict) for node in nodes):
        for key in dict.fromkeys(key for node in nodes for key in node):
            below = _differences([node.get(key, MISSING) for node in nodes], f"{path}.{key}".lstrip("."))
            for one, further in zip(found, below, strict=True):
                one |= further
    else:
        for one, node in zip(found, nodes, strict=True):
            one[path] = short(node)
    return found
