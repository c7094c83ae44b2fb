"""Names that distinguish the groups of one table.

A group is named by its method, or by the value of a key that the user chose; groups that share that name are
distinguished by the configuration keys in which they differ:

    uniform    logit_normal std=0.5    logit_normal std=1.0

A key is abbreviated to its last part if that is unambiguous, beside the keys at the top of the configuration too: the
`batch_size` of an evaluation is not the one of the training. Only keys set on the command line are used if they are
enough to distinguish the groups: `ddpm` and `ddpm prediction=x0`. A key with the same values in all groups as a shorter
key with the same last part is an interpolation of it and is left out. A label need not contain all differences of a
row; `differences` lists the rest.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from diffusion_lab.printable import one_line
from diffusion_lab.reports.comparison.differences import (
    MISSING,
    ConfigReader,
    Names,
    canonical,
    lookup,
    names_of,
    read_config_alone,
    short,
    shorts,
    within,
    without_keys,
)
from diffusion_lab.reports.comparison.groups import Group, collect
from diffusion_lab.runs.identity import RECORDING
from diffusion_lab.runs.run import Run

_EXAMPLES = {"by": "sampler or --by batch_size", "within": "max_steps"}
WORDS = re.compile(r"[\s-]+")  # what separates the words of a label


def group_runs(runs: Sequence[Run], by: str | None = None, read: ConfigReader = read_config_alone) -> list[Group]:
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


def check_key(groups: Sequence[Group], key: str | None, option: str = "by") -> None:
    """Raise ValueError, which names the option, unless a configuration has the key, and the runs of a group agree in
    it, as they do not in the seed."""
    if key is None or not groups:
        return
    example = f"use e.g. --{option} {_EXAMPLES[option]}"
    if all(lookup(group.config, key) is MISSING for group in groups):
        raise ValueError(f"{option}={key} must be a key of the configuration; {example}")
    if any(len({canonical(lookup(run.config, key)) for run in group.runs}) > 1 for group in groups):
        raise ValueError(f"{option}={key} must be equal in runs that are averaged, as the seed is not; {example}")


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


def matching(name: str, labels: Sequence[str]) -> list[str]:
    """The label that is the name; without one, those that have its words: `uniform-v-min_snr` has `uniform`, and
    `ddpm precision=32-true` has `precision=32-true`."""
    words = set(WORDS.split(name))
    return [one for one in labels if one == name] or [one for one in labels if words <= set(WORDS.split(one))]


def _name(group: Group, by: str | None) -> str:
    names = names_of(group.config, group.runs[0])
    if by is not None:
        value = lookup(group.config, by)
        return "-" if value is MISSING else short(value, names)
    method = group.runs[0].info.get("method")
    return str(method) if method else short(group.config.get("sampler", group.runs[0].name), names)


def _comparable(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """The configurations of several groups without keys that follow others in all that have them, and without those
    of `RECORDING` where something else differs."""
    run_configs = [group.run_config for group in groups]
    same_data = len({group.data_key for group in groups}) == 1
    derived = frozenset.union(*(reading.derived for reading in run_configs))
    following = frozenset(
        key for key in derived if all(key in one.derived or lookup(one.config, key) is MISSING for one in run_configs)
    )
    configs = [
        without_keys(reading.config if same_data else group.read(group.runs[0]).config, following)
        for group, reading in zip(groups, run_configs, strict=True)
    ]
    brief = [without_keys(config, frozenset(RECORDING)) for config in configs]
    return brief if len(set(map(canonical, brief))) == len(set(map(canonical, configs))) else configs


def configuration_words(configs: list[dict[str, Any]], names: Sequence[Names] | None = None) -> list[dict[str, str]]:
    """For each configuration, the keys in which it differs from others, shortest first, and their values; `names` of
    its parts, by default those of their classes."""
    different = _differences(configs, names or [()] * len(configs), "")
    keys = sorted(dict.fromkeys(key for one in different for key in one), key=lambda key: key.count("."))
    kept: dict[tuple[str | None, ...], str] = {}
    for key in keys:
        kept.setdefault((key.rpartition(".")[2], *(one.get(key) for one in different)), key)
    return [{key: one[key] for key in kept.values() if key in one} for one in different]


def _differences(nodes: list[Any], names: Sequence[Names], path: str) -> list[dict[str, str]]:
    """One dict per node. Parts of different classes are named, and parts of the same class compared further."""
    different: list[dict[str, str]] = [{} for _ in nodes]
    if all(node == nodes[0] for node in nodes):
        return different
    targets = [node.get("_target_") if isinstance(node, dict) else None for node in nodes]
    targets = [target if target is None or isinstance(target, str) else repr(target) for target in targets]
    if len(set(targets)) == 1 and all(isinstance(node, dict) for node in nodes):
        for key in dict.fromkeys(key for node in nodes for key in node):
            below = _differences([node.get(key, MISSING) for node in nodes], names, f"{path}.{key}".lstrip("."))
            for one, further in zip(different, below, strict=True):
                one |= further
        return different
    for one, word in zip(different, shorts(nodes, names), strict=True):
        one[path] = word
    for target in set(targets) - {None}:
        same = [i for i, other in enumerate(targets) if other == target]
        below = _differences([nodes[i] for i in same], [names[i] for i in same], path)
        for i, further in zip(same, below, strict=True):
            different[i] |= further
    return different


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
