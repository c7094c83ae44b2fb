"""Runs that differ in their seed alone form a group; groups are named by what distinguishes them.

Only runs with the same `group_hash` are averaged. A group is named by its method (or by the value of a key that the
user chose); groups that share that name are told apart by the configuration keys in which they differ:

    uniform    logit_normal std=0.5    logit_normal std=1.0

A key stands with its last part alone where that is clear, and only where it was set on the command line if that is
enough to tell the groups apart: `ddpm` and `ddpm prediction=x0`. A key whose values are, in every group, those of a
shorter key is an interpolation of it and is left out.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from diffusion_lab.reports.runs import Run

# Where, how loudly or how long to keep: two runs that differ in nothing else are one configuration.
_NOT_SHOWN = ("name", "paths", "hydra", "resume", "dry_run", "cost", "objective", "threads", "logger", "extras")
_MISSING = object()


@dataclass
class Group:
    """Runs of one configuration under different seeds.

    Args:
        runs: one run per seed.
        duplicates: further runs of the same configuration and seed; they hold no new information.
        label: how tables and figures call it.
        differences: configuration key -> value, for the keys in which the groups of the report differ.
    """

    runs: list[Run]
    duplicates: list[Run] = field(default_factory=list)
    label: str = ""
    differences: dict[str, str] = field(default_factory=dict)

    @property
    def config(self) -> dict[str, Any]:
        return self.runs[0].config

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


def group_runs(runs: tuple[Run, ...] | list[Run], by: str | None = None) -> list[Group]:
    """Groups in the order of their first run.

    Args:
        runs: from `read_runs`; runs without a configuration (pending, or failed at the start) are left out.
        by: configuration key that names the groups, e.g. "sampler" or "weighting.gamma"; None: the method.

    Raises:
        ValueError: no group has the key `by`.
    """
    members: dict[str, list[Run]] = {}
    for run in runs:
        if run.config:
            members.setdefault(run.group_key, []).append(run)
    groups = [_one_per_seed(same) for same in members.values()]
    configs = [_stripped(group) for group in groups]
    if by is not None and groups and all(_lookup(config, by) is _MISSING for config in configs):
        raise ValueError(f"by={by} must be a key of the configuration; use e.g. --by sampler or --by batch_size")
    first = [_name(group, config, by) for group, config in zip(groups, configs, strict=True)]
    for group, different in zip(groups, _distinct_keys(configs), strict=True):
        group.differences = different
    for name in dict.fromkeys(first):
        same = [i for i, other in enumerate(first) if other == name]
        further = _as_typed([groups[i] for i in same], _distinct_keys([configs[i] for i in same]))
        said = _last_parts({key for keys in further for key in keys})
        for i, keys in zip(same, further, strict=True):
            groups[i].label = " ".join([name, *(f"{said[key]}={value}" for key, value in keys.items() if key != by)])
    for group in groups:  # different, but in nothing that is shown
        if sum(other.label == group.label for other in groups) > 1:
            group.label += f" #{group.runs[0].group_key[:6]}"
    return groups


def short(value: Any) -> str:
    """A configuration value in a few characters; a part is named by its class: MinSNR -> min_snr, UNet -> unet."""
    if isinstance(value, dict) and "_target_" in value:
        name = str(value["_target_"]).rpartition(".")[2]
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z]{2})(?=[A-Z][a-z])", "_", name).lower()
    return value if isinstance(value, str) else json.dumps(value, default=str, separators=(",", ":"))


def _by_seed(run: Run) -> tuple[int, str]:
    return (-1 if run.seed is None else run.seed, run.name)


def _one_per_seed(runs: list[Run]) -> Group:
    """Of several runs with one seed keep the finished one, else the one that came furthest."""
    best: dict[int | None, Run] = {}
    for run in sorted(runs, key=lambda r: (r.status == "done", r.step), reverse=True):
        best.setdefault(run.seed, run)
    kept = [run for run in runs if run is best[run.seed]]
    return Group(kept, [run for run in runs if run is not best[run.seed]])


def _name(group: Group, config: dict[str, Any], by: str | None) -> str:
    if by is not None:
        value = _lookup(config, by)
        return "-" if value is _MISSING else short(value)
    method = group.runs[0].info.get("method")
    return str(method) if method else short(config.get("sampler", group.runs[0].name))


def _lookup(config: Any, key: str) -> Any:
    for part in key.split("."):
        if not isinstance(config, dict) or part not in config:
            return _MISSING
        config = config[part]
    return config


def _stripped(group: Group) -> dict[str, Any]:
    """The configuration without the seed, its copies, and the run folder's name."""
    run = group.runs[0]

    def strip(node: Any) -> Any:
        if isinstance(node, dict):
            return {k: strip(v) for k, v in node.items() if not (k == "seed" and v == run.seed)}
        if isinstance(node, list):
            return [strip(v) for v in node]
        return "<run>" if isinstance(node, str) and "/" in node and run.name in node.split("/") else node

    return {key: value for key, value in strip(group.config).items() if key not in _NOT_SHOWN}


def _distinct_keys(configs: list[dict[str, Any]]) -> list[dict[str, str]]:
    """For each configuration, the keys in which it differs from others, shortest first, and their values."""
    found = _differences(configs, "")
    keys = sorted(dict.fromkeys(key for one in found for key in one), key=lambda key: key.count("."))
    known: set[tuple[str | None, ...]] = set()
    kept = []
    for key in keys:
        values = tuple(one.get(key) for one in found)
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
        told = [key for key in own if any(_within(key, name) or _within(name, key) for name in given)]
        parts = {key for key in told if isinstance(_lookup(group.config, key), dict)}
        typed.append({key: given[key] if key in parts & given.keys() else own[key] for key in told})
    different = {tuple(own.items()) for own in typed}
    return typed if len(different) == len(keys) else keys


def _within(key: str, node: str) -> bool:
    return key == node or key.startswith(f"{node}.")


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
            one[path] = short(None if node is _MISSING else node)
        for target in set(targets) - {None}:
            same = [i for i, other in enumerate(targets) if other == target]
            for i, further in zip(same, _differences([nodes[i] for i in same], path), strict=True):
                found[i] |= further
    elif all(isinstance(node, dict) for node in nodes):
        for key in dict.fromkeys(key for node in nodes for key in node):
            below = _differences([node.get(key, _MISSING) for node in nodes], f"{path}.{key}".lstrip("."))
            for one, further in zip(found, below, strict=True):
                one |= further
    else:
        for one, node in zip(found, nodes, strict=True):
            one[path] = short(None if node is _MISSING else node)
    return found
