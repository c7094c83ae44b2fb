"""Runs that differ in their seed alone: groups of them, and means over their seeds with intervals.

Every analysis of several runs shows one line per group. The interval is Student's over the seeds
(`diffusion_lab.intervals`), for each number of a curve by itself.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from diffusion_lab.averaging import short
from diffusion_lab.intervals import student_quantile
from diffusion_lab.runs.identity import leaves, of_method, same_method
from diffusion_lab.training import TrainedDiffusion, TrainedModel


def groups_of(trained: Sequence[TrainedModel]) -> list[dict[str, Any]]:
    """Models of one configuration, step and weights under different seeds, in the order of their first ones.

    Each group has a `name` that tells it apart from the others, "" where there is one, and the positions of its models,
    its `members`.
    """
    groups: list[list[int]] = []
    for m, model in enumerate(trained):
        same = (members for members in groups if _differ_in_the_seed(trained[members[0]], model))
        if members := next(same, None):
            members.append(m)
        else:
            groups.append([m])
    firsts = [trained[members[0]] for members in groups]
    return [{"name": name, "members": members} for name, members in zip(_names(firsts), groups, strict=True)]


def over_seeds(values: np.ndarray, members: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Mean of values (M,...) over the members of a group, and half the width of its 95 % interval: (...), (...).

    The second is NaN for a single member.
    """
    some = np.asarray(values, dtype=float)[list(members)]
    n = len(some)
    if n == 1:
        return some[0], np.full(some.shape[1:], np.nan)
    return some.mean(0), student_quantile(0.95, n - 1) * some.std(0, ddof=1) / math.sqrt(n)


def lines_of(trained: Sequence[TrainedDiffusion]) -> list[dict[str, Any]]:
    """A line of a figure for each group and head, the heads of a group together: its name, "" where there is one line,
    the positions of its models, and the number of the head."""
    return [
        {"name": ", ".join(filter(None, (group["name"], head))), "members": group["members"], "head": h}
        for group in groups_of(trained)
        for h, head in enumerate(trained[group["members"][0]].denoiser.prediction.head_names)
    ]


def with_error(values: np.ndarray, error: np.ndarray, members: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """The line to draw and half the width of its band, from values (M,...) and their standard errors (M,...).

    With several members the mean over seeds and its 95 % interval; with one, its value and two standard errors.
    """
    mean, half = over_seeds(values, members)
    return mean, 2 * error[members[0]] if len(members) == 1 else half


def band_words(lines: Sequence[Mapping[str, Any]], of: str, key: str = "members") -> str:
    """What the bands of lines are, e.g. "two standard errors over 64 test images".

    Each line has under `key` the positions that it is the mean of; the standard error of a single model is over `of`.
    """
    sizes = [len(line[key]) for line in lines]
    counts = sorted({*sizes} - {1})
    several = f"95 % intervals over {' or '.join(map(str, counts))} seeds"
    of_one_seed = f"two standard errors over {of}"
    if not counts:
        return of_one_seed
    return f"{several}; of one seed, {of_one_seed}" if 1 in sizes else several


def group_band(data: Mapping[str, np.ndarray], key: str, group: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """`with_error` of the members of a group, from the arrays `key` and `key`_error of models (M,...)."""
    return with_error(data[key], data[f"{key}_error"], group["members"])


def _differ_in_the_seed(a: TrainedModel, b: TrainedModel) -> bool:
    """Whether two models have the same step, weights and configuration, except for their seeds and folders."""
    if (a.step, a.decay) != (b.step, b.decay) or not (a.config and b.config):
        return (a.name, a.step, a.decay) == (b.name, b.step, b.decay)
    return same_method(a.config, b.config)


def _names(models: Sequence[TrainedModel]) -> list[str]:
    """Methods, as far as they differ; those of one method with what tells them apart."""
    methods = _methods(models)
    names = methods if len(set(methods)) > 1 else [""] * len(models)
    for method in set(names):
        alike = [i for i, name in enumerate(names) if name == method]
        for i, word in zip(alike, _apart([models[i] for i in alike]), strict=True):
            names[i] = ", ".join(filter(None, (method, word)))
    return names


def _apart(models: Sequence[TrainedModel]) -> list[str]:
    """What tells models of one name apart: step and weights, else settings, else the hash; "" for one model."""
    words = [[f"step {model.step}" for model in models]]
    words.append(["raw weights" if model.decay is None else f"EMA {short(model.decay)}" for model in models])
    words = [some for some in words if len(set(some)) > 1]
    names = [", ".join(some) for some in zip(*words, strict=True)] if words else [""] * len(models)
    if len(set(names)) == len(names):
        return names
    names = [" ".join(filter(None, some)) for some in zip(names, _settings(models), strict=True)]
    if len(set(names)) == len(names):
        return names
    return [f"{name} {model.config_hash[:4]}".strip() for name, model in zip(names, models, strict=True)]


def _methods(models: Sequence[TrainedModel]) -> list[str]:
    """What the folders' names differ in, e.g. "clts".

    Beside "uniform-x0", "uniform" is named by the setting that differs: "prediction Epsilon" and "x0".
    """
    slugs = [re.sub(r"-s\d+(-[0-9a-f]{8})?$", "", model.name) for model in models]
    start = min(slugs, key=len)
    if len(set(slugs)) > 1 and all(slug == start or slug.startswith(f"{start}-") for slug in slugs):
        said = _settings(models)
        defaults = {word for slug, word in zip(slugs, said, strict=True) if slug == start}
        if len(defaults) == 1 and all(defaults):
            return [
                slug.removeprefix(f"{start}-") if slug != start else word
                for slug, word in zip(slugs, said, strict=True)
            ]
    return _without_common_start(slugs)


def _settings(models: Sequence[TrainedModel]) -> list[str]:
    """The values of as few keys of the configuration as tell the models apart, classes first; "" if none do.

    Of those that tell as many apart, the key that is nearest to the top.
    """
    methods = [leaves(of_method(model.config)) for model in models]
    keys = dict.fromkeys(key for method in methods for key in method if not key.endswith(".seed"))
    words = {key: [_word(key, method.get(key)) for method in methods] for key in keys}
    order = sorted(keys, key=lambda key: (not key.endswith("_target_"), key.count(".")))
    said: list[tuple[str, ...]] = [()] * len(models)
    while words and len(set(said)) < len(said):
        found = {key: [(*some, word) for some, word in zip(said, words[key], strict=True)] for key in order}
        best = max(order, key=lambda key: len(set(found[key])))
        if len(set(found[best])) == len(set(said)):
            break
        said = found[best]
    return [" ".join(some) for some in said]


def _word(key: str, value: Any) -> str:
    """The name of a class, or key=value."""
    *_, group, name = ("", *key.split("."))
    return f"{group} {str(value).rpartition('.')[2]}".strip() if name == "_target_" else f"{name}={value}"


def _without_common_start(names: Sequence[str]) -> list[str]:
    """The names without the words, separated by "-", with which all of them start; one word at least stays."""
    split = [name.split("-") for name in names]
    common = 0
    while all(len(words) > common + 1 and words[common] == split[0][common] for words in split):
        common += 1
    return ["-".join(words[common:]) for words in split]
