"""Runs that differ in their seed alone: groups of them, and means over their seeds with intervals.

Every analysis of several runs shows one line per group. The interval is Student's over the seeds
(`diffusion_lab.intervals`), for each number of a curve by itself.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from diffusion_lab.intervals import student_quantile
from diffusion_lab.training import TrainedModel

NOT_OF_THE_METHOD = ("seed", "paths", "name")  # keys of a configuration


class Group(NamedTuple):
    """Models of one configuration, step and weights under different seeds.

    Attributes:
        name: tells it apart from the other groups; "" where there is one.
        members: positions of its models.
    """

    name: str
    members: list[int]


def groups_of(trained: Sequence[TrainedModel]) -> list[Group]:
    """The groups, in the order of their first models."""
    groups: dict[str, list[int]] = {}
    for m, model in enumerate(trained):
        config = {key: value for key, value in model.config.items() if key not in NOT_OF_THE_METHOD}
        which = config if config else model.name
        key = json.dumps([which, model.step, model.decay], sort_keys=True, default=str)
        groups.setdefault(key, []).append(m)
    firsts = [trained[members[0]] for members in groups.values()]
    return [Group(name, members) for name, members in zip(_names(firsts), groups.values(), strict=True)]


def over_seeds(values: np.ndarray, members: Sequence[int], level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
    """Mean over the members of a group, and half the width of its interval.

    Args:
        values: (M,...), a value of each model.
        members: the positions that are averaged.
        level: coverage of each interval.

    Returns:
        (...) and (...); the second is NaN for a single member.
    """
    some = np.asarray(values, dtype=float)[list(members)]
    n = len(some)
    if n == 1:
        return some[0], np.full(some.shape[1:], np.nan)
    return some.mean(0), student_quantile(level, n - 1) * some.std(0, ddof=1) / math.sqrt(n)


def _names(models: Sequence[TrainedModel]) -> list[str]:
    """Methods and steps, as far as they differ; with the hash of the configuration where that is not enough."""
    methods = _without_common_start([re.sub(r"-s\d+(-[0-9a-f]{8})?$", "", model.name) for model in models])
    words = [methods] if len(set(methods)) > 1 else []
    if len({model.step for model in models}) > 1:
        words.append([f"step {model.step}" for model in models])
    if len({model.decay for model in models}) > 1:
        words.append(["raw weights" if model.decay is None else f"EMA {model.decay:g}" for model in models])
    names = [", ".join(some) for some in zip(*words, strict=True)] if words else [""] * len(models)
    if len(set(names)) == len(names):
        return names
    return [f"{name} {model.config_hash[:4]}".strip() for name, model in zip(names, models, strict=True)]


def _without_common_start(names: Sequence[str]) -> list[str]:
    """The names without the words, separated by "-", with which all of them start; one word at least stays."""
    split = [name.split("-") for name in names]
    common = 0
    while all(len(words) > common + 1 and words[common] == split[0][common] for words in split):
        common += 1
    return ["-".join(words[common:]) for words in split]
