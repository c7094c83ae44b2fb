"""Cells of tables about a study, from the FILE.per_seed.csv that `report --table` has written beside the page, or the
per_seed.csv of a paper's table."""

from __future__ import annotations

import csv
import math
from functools import cache
from pathlib import Path
from statistics import fmean, geometric_mean

from diffusion_lab.intervals import Interval, mean_interval
from diffusion_lab.reports.comparison.cells import decimals, number, with_interval
from diffusion_lab.reports.comparison.metrics import VAL_LOSS
from diffusion_lab.tables.text import ratio_words
from diffusion_lab.verdicts import MARGIN, Verdict, judge, seeds_needed

_OVER = " / "
UNDECIDED = "not decided"


def seeds(path: Path, label: str, metric: str, estimand: str = "training") -> dict[int, float]:
    """seed -> value of a row of a study.

    Raises:
        ValueError: the file has no such row.
    """
    found = rows(path, metric, estimand)
    if label not in found:
        raise ValueError(f"row={label} must have {metric} in {path}; use the name that the table has")
    return found[label]


@cache
def rows(path: Path, metric: str, estimand: str = "training") -> dict[str, dict[int, float]]:
    """Row -> seed -> value, in the order of the file, whose first row is the baseline. Of a paper's table with one
    column, whose file has a line for each step, the geometric mean over training, or the value at the end."""
    found: dict[str, dict[int, list[float]]] = {}
    with open(path, newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            if line.get("metric", line.get("quantity")) == metric:
                found.setdefault(line["row"], {}).setdefault(int(line["seed"]), []).append(float(line["value"]))
    return {
        row: {
            seed: values[-1] if estimand == "end" or len(values) == 1 else geometric_mean(values)
            for seed, values in by_seed.items()
        }
        for row, by_seed in found.items()
    }


def pairs(page: Path, row: str, file: str, metric: str, estimand: str = "training") -> str:
    """A row with the ratio of the two rows of the study that it names, which are decided by themselves: Student's
    interval of the paired logarithms. As it is while FILE is not there."""
    name = row.strip("| ").split(" | ")[0]
    if not (page.parent / file).is_file():
        return row
    one, other = (seeds(page.parent / file, label, metric, estimand) for label in name.split(_OVER))
    found = judge([other, one], "ratio", rising=False)[1]
    assert found is not None
    return f"| {name} | {' | '.join(ratio_words(found))} |"


def judged(page: Path, row: str, metric: str, file: str = "") -> str:
    """A row of a study's table, from FILE or else PAGE.per_seed.csv: n, mean, ratio to the baseline, interval, verdict,
    seeds to decide (all rows decided together) and, where the file has it, validation loss; further cells, which only
    the runs know, stay."""
    cells = [cell.strip() for cell in row.strip().strip("|").split("|")]
    path, label = page.parent / file if file else page.with_suffix(".per_seed.csv"), cells[0].strip("`")
    found, of_rows = verdicts(path, metric)[label], rows(path, metric)
    places = decimals([fmean(own.values()) for own in of_rows.values()])
    mean = with_interval(mean_interval(list(of_rows[label].values())), places)
    said = ["baseline", "", "", ""]
    if found is not None:
        marked = "**{}**" if found.decided else "{}"
        said = [*(marked.format(text) for text in (*ratio_words(found), word(found))), needed(found)]
    losses = rows(path, VAL_LOSS)
    loss = [number(fmean(losses[label].values()))] if label in losses else []
    new = [f"n={len(of_rows[label])}", mean, *said, *loss]
    cells[1 : 1 + len(new)] = new
    return f"| {' | '.join(cells)} |"


@cache
def verdicts(path: Path, metric: str) -> dict[str, Verdict | None]:
    """Row -> its verdict against the first one of the file."""
    found = rows(path, metric)
    return dict(zip(found, judge(list(found.values()), "ratio", rising=False), strict=True))


def word(found: Verdict) -> str:
    """`better`, `equal within 10 %`"""
    return f"equal within {100 * (MARGIN - 1):.0f} %" if found.word == "equal" else found.word


def needed(found: Verdict) -> str:
    """Seeds that would decide a ratio of the measured size; empty for a row that is decided or equal."""
    if found.word != "not decided" or not found.deviation:
        return ""
    n = seeds_needed(found.deviation, abs(math.log(found.size)), found.rows)
    return "over 999" if n is None else f"{n}"


def outcome(found: Interval, low: float, high: float) -> str:
    """Of the prediction that a value lies between two numbers: right if its interval does, wrong if all of it is on the
    other side of one of them."""
    if found.low is None or found.high is None:
        return UNDECIDED
    if low < found.low and found.high < high:
        return right_or_wrong(True)
    return right_or_wrong(False) if found.high < low or high < found.low else UNDECIDED


def right_or_wrong(right: bool) -> str:
    """The outcome of a prediction that is decided."""
    return "**right**" if right else "**wrong**"
