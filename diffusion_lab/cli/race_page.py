"""What a race has found: the values of its runs, where its methods stand, and the page that says so.

    RUNS/NAME/race.md

The page is a function of the values of the runs, so a race that was stopped any number of times ends with the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from diffusion_lab.cli.errors import ConfigError
from diffusion_lab.files import write_whole
from diffusion_lab.intervals import ESTIMANDS
from diffusion_lab.racing import WORTH, Gap, Standing, gaps, is_over, standings
from diffusion_lab.runs.find import read_run
from diffusion_lab.runs.record import is_claim, read_question
from diffusion_lab.simultaneous import ALPHA
from diffusion_lab.verdicts import over_training

PAGE = "race.md"


class Field(NamedTuple):
    """A race.

    Attributes:
        folder: of its runs.
        rows: the words of each method, without the seed's.
        seeds: all that a method gets if it stays, in order.
        margin, alpha: of `racing.standings`.
    """

    folder: Path
    rows: list[tuple[str, ...]]
    seeds: list[int]
    margin: float | None
    alpha: float


class Values(NamedTuple):
    """What the runs of a race have.

    Attributes:
        y: (K, N) logarithms of the metric, larger ones worse; 0 where there is none.
        there: (K, N) whether there is a value.
        failed: row -> seed of a run that has no finite value > 0.
        seconds: mean of a run; None without one.
    """

    y: np.ndarray
    there: np.ndarray
    failed: dict[int, int]
    seconds: float | None


def check_folder(field: Field, metric: str) -> None:
    """Raise ConfigError if the folder holds a race with another number of seeds or error, one that is decided by
    another metric than `metric`, the name of its values, or a sweep of seeds that were fixed before."""
    question = read_question(field.folder) or {}
    cure = "repeat its command, or give name=NEW for a race of its own"
    begun = question.get("stopping") == "race"
    if not begun and is_claim(question):
        raise ConfigError(
            f"name={field.folder.name} must not be the folder of a sweep whose number of seeds was fixed before, "
            "because its verdicts hold for that number; give name=NEW for a race of its own"
        )
    if begun and question.get("seeds") != len(field.seeds):
        raise ConfigError(
            f"seed={','.join(map(str, field.seeds))} must be the {question.get('seeds')} seeds with which the race in "
            f"{field.folder} began, because its error is bounded for a number that was fixed before; {cure}"
        )
    if begun and (began := question.get("alpha", ALPHA)) != field.alpha:
        raise ConfigError(
            f"alpha={field.alpha} must be {began}, with which the race in {field.folder} began, because its error is "
            f"fixed before its values are seen; {cure}"
        )
    asked = question.get("metric")
    if asked and metric and asked != metric:
        raise ConfigError(f"question.metric={metric} must be {asked}, by which {field.folder} is decided; {cure}")


def question_of_race(folder: Path) -> dict[str, Any]:
    """The question of the race, which its first block has recorded.

    Raises:
        ConfigError: no metric is named by which the methods could be told apart.
    """
    question = read_question(folder) or {}
    if not question.get("metric") or "/" in question["metric"]:
        raise ConfigError(
            f"question.metric={question.get('metric')} must be a metric that the runs measure, because a loss does not "
            "decide between methods; use metrics=default"
        )
    return question


def values_of(field: Field, runs: Mapping[tuple[int, int], Path], question: Mapping[str, Any]) -> Values:
    """Read the runs.

    Args:
        field: the race.
        runs: (row, seed) -> folder, of those that were started.
        question: metric and estimand.

    Raises:
        ConfigError: the metric is not compared by ratios.
    """
    places = {seed: i for i, seed in enumerate(field.seeds)}
    y, there = np.zeros((len(field.rows), len(field.seeds))), np.zeros((len(field.rows), len(field.seeds)), dtype=bool)
    failed, seconds = dict[int, int](), []
    for (row, seed), folder in sorted(runs.items()):
        run, metric = read_run(folder), question["metric"]
        if run.compared_by(metric) == "difference" or run.better(metric) == "neither":
            raise ConfigError(f"question.metric={metric} must be compared by ratios in a race; use e.g. fid")
        curve = run.curve(f"metrics/{metric}")
        points = {int(at): float(value) for at, value in zip(curve.images, curve.values, strict=True)}
        last = run.last(metric)
        wanted = [*points.values(), last] if question.get("estimand") == "training" else [last]
        if run.status != "done" or not all(one is not None and math.isfinite(one) and one > 0 for one in wanted):
            failed[row] = min(seed, failed.get(row, seed))
            continue
        value = over_training([points], "ratio")[0] if question.get("estimand") == "training" else last
        sign = -1 if run.better(metric) == "higher" else 1
        y[row, places[seed]], there[row, places[seed]] = sign * math.log(value or 1), True
        seconds += [run.seconds] if run.seconds else []
    return Values(y, there, failed, float(np.mean(seconds)) if seconds else None)


def where_they_stand(field: Field, values: Values) -> list[Standing | None]:
    """Where the rows stand; None of one whose run has failed, which is judged no more."""
    kept = [i for i in range(len(field.rows)) if i not in values.failed]
    found: list[Standing | None] = [None] * len(field.rows)
    if len(kept) < 2:
        return [Standing() if i in kept else None for i in range(len(field.rows))]
    judged = standings(values.y[kept], values.there[kept], len(field.seeds), field.margin, field.alpha)
    for i, one in zip(kept, judged, strict=True):
        found[i] = one if one.by is None else one._replace(by=kept[one.by])
    return found


def has_ended(field: Field, values: Values) -> bool:
    """Whether no further block is trained: one method is left, the seeds are used up or would hardly matter."""
    judged = {i: one for i, one in enumerate(where_they_stand(field, values)) if one is not None}
    y, there = values.y[[*judged]], values.there[[*judged]]
    return is_over(y, there, len(field.seeds), [*judged.values()], field.margin)


def page(field: Field, values: Values, question: Mapping[str, Any]) -> list[str]:
    """The lines of race.md."""
    found = where_they_stand(field, values)
    counts = values.there.sum(1)
    inside = [i for i, one in enumerate(found) if one is not None and one.word == "in"]
    leader = min(inside, key=lambda i: _mean(values, i)) if inside else None
    names = short_names(field.rows)
    level = f"{100 * (1 - field.alpha):g} %"
    aside, until = "", ""
    if field.margin is not None:
        aside = f"; set aside: unlikely to be better by a ratio of {field.margin:g} or more"
        least = 100 * math.log(field.margin) * WORTH
        until = f"The race ends when its last seeds would improve the choice by less than {least:.2g} % on average. "
    lines = [
        f"# A race of {len(field.rows)} methods\n",
        f"{question['metric']} {ESTIMANDS[question.get('estimand', 'end')]}, at most {len(field.seeds)} seeds; worse: "
        f"with an error of {100 * field.alpha:g} % in the whole race, whenever it ends{aside}. {until}Ratios are of "
        f"geometric means over common seeds, above 1 is worse; the {level} intervals hold for all methods together, "
        "whenever the race ends.\n",
        f"| method | seeds | ratio to the leader | {level} interval | standing |\n| --- | ---: | ---: | ---: | --- |",
    ]
    apart, ended = _gaps(field, values, leader), has_ended(field, values)
    order = sorted(range(len(field.rows)), key=lambda i: (-counts[i], _mean(values, i), i))
    for i in order:
        standing = _words(field, found[i], i, leader, values.failed.get(i), ended)
        lines.append(f"| `{names[i]}` | {counts[i]} | {' | '.join(_ratio(apart.get(i)))} | {standing} |")
    return lines


def _gaps(field: Field, values: Values, leader: int | None) -> dict[int, Gap]:
    """Row -> its difference to the leader, of those that are judged; {} without a leader."""
    kept = [i for i in range(len(field.rows)) if i not in values.failed and values.there[i].any()]
    if leader is None or len(kept) < 2:
        return {}
    apart = gaps(values.y[kept], values.there[kept], len(field.seeds), kept.index(leader), field.alpha)
    return dict(zip(kept, apart, strict=True))


def _ratio(gap: Gap | None) -> tuple[str, str]:
    """Ratio and interval; of the leader itself, and with one common seed, without an interval."""
    if gap is None or math.isnan(gap.size):
        return "", ""
    ends = [f"{math.exp(min(gap.size + way * gap.half, 700)):.3g}" for way in (-1, 1)]
    return f"{math.exp(gap.size):.3f}", f"[{', '.join(ends)}]" if 0 < gap.half < math.inf else ""


def _words(
    field: Field, standing: Standing | None, row: int, leader: int | None, failed: int | None, ended: bool
) -> str:
    if standing is None:
        return f"failed with seed {failed}"
    if standing.by is None or standing.seeds is None:
        return "leads" if row == leader else "undecided" if ended else "in the race"
    other = short_names(field.rows)[standing.by]
    if standing.word == "worse" or field.margin is None:
        return f"worse than `{other}` after {standing.seeds} seeds"
    return (
        f"set aside after {standing.seeds} seeds: unlikely to be {100 * (field.margin - 1):.3g} % better than `{other}`"
    )


def short_names(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """The words in which the methods differ."""
    common = set.intersection(*map(set, rows))
    return [" ".join(word for word in row if word not in common) or " ".join(row) for row in rows]


def _mean(values: Values, row: int) -> float:
    there = values.there[row]
    return float(values.y[row][there].mean()) if there.any() else math.inf


def write(field: Field, lines: Sequence[str]) -> Path:
    """Write race.md; returns its path."""
    path = field.folder / PAGE
    write_whole(path, ("\n".join(lines) + "\n").encode())
    return path
