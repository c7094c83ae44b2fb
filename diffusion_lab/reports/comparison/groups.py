"""Groups of runs that differ only in their seed.

Only runs with the same `group_hash` and the same data are averaged. What the data of a run were is in its run.json, by
fingerprints. The arguments of the source, such as the folder from which they were read, are not compared: a copy of a
folder is the same data, although the hash is another.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from diffusion_lab.reports.comparison.differences import (
    MISSING,
    ConfigReader,
    RunConfig,
    canonical,
    lookup,
    options_of,
    read_config_alone,
    replaced,
    short,
    without_keys,
)
from diffusion_lab.runs.run import Run

PARTS = ("shape", "train", "test", "classes")  # of the entry of a run.json


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
        diverged: seeds of runs that count for nothing while others are finished.
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
    diverged: frozenset[int] = frozenset()
    read: ConfigReader = read_config_alone

    @property
    def config(self) -> dict[str, Any]:
        return self.runs[0].config

    @cached_property
    def run_config(self) -> RunConfig:
        """Its configuration, in which the source of the data stands for the data."""
        found = self.read(self.runs[0])
        source = lookup(found.config, "dataset.source")
        by_data = isinstance(source, dict) and self.data_key
        return replace(found, config=replaced(found.config, source, self.data_key)) if by_data else found

    @cached_property
    def without_followers(self) -> dict[str, Any]:
        """The configuration of `run_config` without the keys that only follow another one, such as the seed of the
        data: equal for all seeds."""
        return without_keys(self.run_config.config, self.run_config.derived)

    @cached_property
    def done(self) -> list[Run]:
        """Finished runs by seed."""
        done = sorted((run for run in self.runs if run.status == "done"), key=_by_seed)
        return [run for run in done if run.seed not in self.diverged] or done

    @property
    def left_out(self) -> int:
        """Finished runs that count for nothing."""
        return sum(run.status == "done" for run in self.runs) - len(self.done)

    @cached_property
    def started(self) -> list[Run]:
        """Runs that have logged something, by seed."""
        return sorted((run for run in self.runs if run.step > 0), key=_by_seed)

    def word(self, key: str) -> str:
        """The value of a key as short text, of a part (and of a data set's source) the option that was typed for it."""
        option, value = options_of(self.runs[0]).get(key.removesuffix(".source")), lookup(self.config, key)
        return short(value, [(value, option)] if option else ())

    def comparable(self, key: str) -> list[Run]:
        """Finished runs that have `key`; if there are none, the runs with the largest last step."""
        done = [run for run in self.done if len(run.curve(key).steps)]
        if done:
            return done
        last = {run.folder: int(run.curve(key).steps[-1]) for run in self.started if len(run.curve(key).steps)}
        return [run for run in self.started if last.get(run.folder, -1) == max(last.values(), default=0)]


def collect(runs: Sequence[Run], read: ConfigReader = read_config_alone) -> list[Group]:
    """Groups in the order of their first run, without names."""
    begun = [run for run in runs if run.config]
    words, keys = data_words(begun), {run.folder: _digest(run.info.get("data")) for run in begun}
    members: dict[tuple[str, str], list[Run]] = {}
    for run in begun:
        members.setdefault((run.group_key, keys[run.folder]), []).append(run)
    groups = [Group(same, data=words[same[0].folder], data_key=key, read=read) for (_, key), same in members.items()]
    return [_one_per_seed(group) for group in _merged(groups)]


def _merged(groups: list[Group]) -> list[Group]:
    """The groups, of which those that only read the same data from other places are one."""
    sources: dict[str, set[str]] = {}
    for group in groups:
        sources.setdefault(group.data_key, set()).add(canonical(lookup(group.config, "dataset.source")))
    merged: dict[tuple[str, str], Group] = {}
    for group in groups:
        several = group.data_key and len(sources[group.data_key]) > 1
        key = canonical(group.without_followers) if several else group.runs[0].group_key
        first = merged.setdefault((group.data_key, key), group)
        if first is not group:
            first.runs += group.runs
    return list(merged.values())


def _one_per_seed(group: Group) -> Group:
    """The group with, of several runs with one seed, the finished one, else the one with the largest step."""
    best: dict[int | None, Run] = {}
    for run in sorted(group.runs, key=lambda r: (r.status == "done", r.step), reverse=True):
        best.setdefault(run.seed, run)
    kept = [run for run in group.runs if run is best[run.seed]]
    return replace(group, runs=kept, duplicates=[run for run in group.runs if run is not best[run.seed]])


def _by_seed(run: Run) -> tuple[int, str]:
    return (-1 if run.seed is None else run.seed, run.name)


def data_words(runs: Sequence[Run]) -> dict[Path, str]:
    """Folder of a run -> which data it had, e.g. "40+4 images 1a2b3c"; "" if those of its data set all had the same."""
    sets: dict[str, list[Run]] = {}
    for run in runs:
        sets.setdefault(canonical(source_of(run)), []).append(run)
    words = {}
    for same in sets.values():
        of = {run.folder: _word(run.info.get("data")) for run in same}
        words |= of if len(set(of.values())) > 1 else dict.fromkeys(of, "")
    return words


def data_notes(runs: Sequence[Run]) -> list[str]:
    """One sentence if runs of one data set had different data."""
    counts = Counter(filter(None, data_words(runs).values()))
    if not counts:
        return []
    listed = ", ".join(f"{n} {'run' if n == 1 else 'runs'} {word}" for word, n in counts.items())
    return [f"The images of a data set changed between runs ({listed}): other data are neither averaged nor paired."]


def _word(data: Any) -> str:
    digest = _digest(data)
    if not digest:
        return "data not recorded"
    numbers = [data[split].get("images") if isinstance(data.get(split), dict) else None for split in ("train", "test")]
    counted = "+".join(str(n) for n in numbers if isinstance(n, int))
    return f"{counted} images {digest[:6]}".strip()


def _digest(data: Any) -> str:
    """A hash of the entry of a run.json; "" if it is none."""
    if not isinstance(data, dict) or not any(data.get(part) for part in PARTS):
        return ""
    text = canonical([data.get(part) for part in PARTS])
    return hashlib.sha256(text.encode()).hexdigest()


def source_of(run: Run) -> Any:
    """The part of the configuration that reads the data; None if it is not recorded."""
    found = run.info.get("dataset") or lookup(run.config, "dataset.source")
    return None if found is MISSING else found
