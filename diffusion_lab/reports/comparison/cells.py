"""The comparison as text: a column is a heading and what it says of a row."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from diffusion_lab.intervals import Interval
from diffusion_lab.reports.comparison.groups import Group
from diffusion_lab.reports.comparison.metrics import VAL_LOSS, with_arrow
from diffusion_lab.reports.comparison.rows import Row, baseline, summarise, visible_size
from diffusion_lab.reports.comparison.sentences import (
    answer,
    cautions,
    legend,
    of_other_hours,
    unnamed_difference_sentences,
)
from diffusion_lab.reports.comparison.verdicts import Verdict
from diffusion_lab.runs.run import status_words

WIDTH = 180  # maximum width of the table in characters, before column titles are abbreviated


class Cell(NamedTuple):
    """Text, and whether it is bold."""

    text: str
    bold: bool = False


class Comparison(NamedTuple):
    """The table as text.

    Attributes:
        titles: column titles.
        lines: one line per group.
        legend: explanation of the numbers.
        notes: further differences between the rows, and the assumptions of the verdicts.
        left: how many of the first columns are words, aligned on the left.
        answer: the table in a sentence or two; "" for a table without a question.
    """

    titles: list[str]
    lines: list[list[Cell]]
    legend: str
    notes: list[str]
    left: int = 2
    answer: str = ""


class Column(NamedTuple):
    """A column of a table.

    Attributes:
        heading: its title.
        cell: its text in a row; a column that is empty in all rows is left out.
        brief: a shorter title, for a table that is wider than `WIDTH`; "": the same.
        verdict: whether its cells are bold in a row with a verdict, whose `bold` says so.
    """

    heading: str
    cell: Callable[[Any], str]
    brief: str = ""
    verdict: bool = False

    def of(self, row: Any) -> Cell:
        return Cell(self.cell(row), self.verdict and row.bold)


def compare(groups: Sequence[Group], metric: str, by: str | None = None, size: float | None = None) -> Comparison:
    """The comparison of one or more groups.

    Args:
        groups: groups of one section, named by `label_groups`.
        metric: from `choose_metric`.
        by: the key that names the rows.
        size: difference for which the number of seeds is given; None: `visible_size`.
    """
    first = baseline(groups, metric)
    size = size or visible_size(groups, metric)
    rows = summarise(groups, metric, size)
    found = columns(rows, with_arrow(groups, metric), first.label, by, size)
    found = [one for one in found if metric != VAL_LOSS or one.heading != "val loss"]  # it is the metric's column
    found = [one for one in found if any(map(one.cell, rows))]
    lines = [[column.of(row) for column in found] for row in rows]
    widest = [max(len(cell.text) for cell in line) for line in zip(*lines, strict=True)]
    wide = sum(max(len(one.heading), width) + 2 for one, width in zip(found, widest, strict=True)) > WIDTH
    titles = [one.brief if wide and one.brief else one.heading for one in found]
    notes = [*unnamed_difference_sentences(groups, first), *cautions(rows), *of_other_hours(rows, first.label)]
    return Comparison(titles, lines, legend(rows, size), notes, answer=answer(rows, size))


def columns(
    rows: Sequence[Row], metric: str, baseline: str, by: str | None = None, size: float | None = None
) -> list[Column]:
    """The columns of the comparison. A metric and its differences have the same number of decimals.

    Args:
        rows: from `summarise`.
        metric: its name with units and arrow.
        baseline: the label of the baseline.
        by: the key that names the rows.
        size: difference for which the number of seeds is given.
    """
    base = baseline if len(baseline) <= 24 else "baseline"
    places = decimals([row.metric.mean for row in rows if row.metric])
    return [
        Column(by or "method", lambda row: row.group.label),
        Column("runs", _runs),
        Column(metric, lambda row: row.note or with_interval(row.metric, places)),
        Column(f"difference to {base}", lambda row: _difference(row, places), f"diff. to {base}", verdict=True),
        Column("verdict", lambda row: verdict_text(row.verdict), verdict=True),
        Column(f"seeds for ±{size:g}" if size else "seeds", _seeds),
        Column("val loss", lambda row: number(row.val_loss.mean) if row.val_loss else "n/a", "loss"),
        Column(
            "images/s", lambda row: number(row.images_per_second.mean, 3) if row.images_per_second else "n/a", "img/s"
        ),
        Column("cost", _cost),
        Column("time", lambda row: duration(row.seconds.mean) if row.seconds else "n/a"),
    ]


def _runs(row: Row) -> str:
    n = len(row.group.done)
    others = [run for run in row.group.runs if run.status != "done"]
    text = f"n={n}"
    return f"{text} ({status_words(others)})" if others else text


def _difference(row: Row, places: int) -> str:
    """The difference, with the number of common seeds if not all seeds of the row could be paired."""
    if row.difference is None:
        return row.unpaired
    text = with_interval(row.difference, places, signed=True)
    paired = row.difference.n
    return text if paired in (1, len(row.group.done)) else f"{text} ({paired} common seeds)"


def verdict_text(verdict: Verdict | None) -> str:
    """`better, p=0.012`, `not decided, p=0.31`; empty without a verdict."""
    if verdict is None:
        return ""
    p = verdict.p
    if p is None:
        return verdict.word
    return f"{verdict.word}, " + ("p<0.001" if p < 0.001 else f"p={p:.3f}" if p < 0.1 else f"p={p:.2f}")


def _seeds(row: Row) -> str:
    if row.verdict is None or row.verdict.p is None:
        return ""
    return f"{row.verdict.seeds}" if row.verdict.seeds else ">9999"


def _cost(row: Row) -> str:
    """`1.05 [1.02, 1.08]`, `1.05` if the two were not trained in the same hours, and `1` for the baseline itself."""
    if row.cost is None:
        return "n/a"
    if row.is_baseline:
        return "1"
    if not row.same_hours and row.cost.n > 1:
        return f"{row.cost.mean:.2f}"
    tiny = row.cost.low is not None and row.cost.low < 0.01  # which two decimals would show as 0
    return with_interval(row.cost, -1 if tiny else 2).replace(", no interval", "")


def number(value: float, digits: int = 4, signed: bool = False) -> str:
    """`value` with significant digits, without an exponent unless it is very small or large."""
    if value != 0 and not 1e-4 <= abs(value) < 1e6:
        text = f"{value:{'+' if signed else ''}.{digits - 1}e}"
    else:
        text = f"{value:{'+' if signed else ''}#.{digits}g}".rstrip(".")
        text = f"{value:{'+' if signed else ''}.0f}" if "e" in text else text
    return _minus(text)


def _minus(text: str) -> str:
    """`text` with a typographic minus sign, which is as wide as the plus."""
    return "\N{MINUS SIGN}" + text[1:] if text.startswith("-") else text


def with_interval(interval: Interval | None, places: int | None = None, signed: bool = False) -> str:
    """`1.830 [1.702, 1.958]`, or `1.830 (n=1, no interval)`; `places` are decimals, None: four digits of the mean."""
    if interval is None:
        return "n/a"
    places = decimals([interval.mean]) if places is None else places
    mean, *ends = (
        number(value, signed=signed) if places < 0 else _minus(f"{value:{'+' if signed else ''}.{places}f}")
        for value in (interval.mean, interval.low, interval.high)
        if value is not None
    )
    return f"{mean} [{ends[0]}, {ends[1]}]" if ends else f"{mean} (n=1, no interval)"


def decimals(means: Sequence[float], digits: int = 4) -> int:
    """Decimals that give the smallest mean `digits` significant digits; -1 if exponents are better."""
    sizes = [abs(mean) for mean in means if mean]
    if sizes and not (1e-4 <= min(sizes) and max(sizes) < 1e6):
        return -1
    return max(0, digits - 1 - math.floor(math.log10(min(sizes)))) if sizes else digits - 1


def duration(seconds: float) -> str:
    """`41 s`, `12 min 05 s`, `3 h 20 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
