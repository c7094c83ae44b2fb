"""The comparison as text: a column is a heading and what it says of a row."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from diffusion_lab.intervals import ESTIMANDS, Interval
from diffusion_lab.progress import duration
from diffusion_lab.reports.comparison.answer import answer
from diffusion_lab.reports.comparison.copying import copying_notes
from diffusion_lab.reports.comparison.effects import effect_text, minus
from diffusion_lab.reports.comparison.groups import Group
from diffusion_lab.reports.comparison.metrics import VAL_LOSS, with_arrow
from diffusion_lab.reports.comparison.question import Question
from diffusion_lab.reports.comparison.rows import Row, Table, tabulate
from diffusion_lab.reports.comparison.sentences import cautions, legend, of_other_hours, unnamed_difference_sentences
from diffusion_lab.runs.pilot import what_next
from diffusion_lab.runs.run import status_words
from diffusion_lab.verdicts import Verdict

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
        next_hour: what one more hour would buy; "" if the runs do not tell.
    """

    titles: list[str]
    lines: list[list[Cell]]
    legend: str
    notes: list[str]
    left: int = 2
    answer: str = ""
    next_hour: str = ""


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


def compare(
    groups: Sequence[Group], metric: str, by: str | None = None, question: Question | None = None
) -> Comparison:
    """The comparison of the groups of one section, named by `label_groups`, by a metric of `choose_metric`; `by` is the
    key that names the rows."""
    return as_text(tabulate(groups, metric, question), by)


def as_text(table: Table, by: str | None = None) -> Comparison:
    """A table from `tabulate`; `by` is the key that names the rows."""
    rows, first, metric = table.rows, table.base, table.metric
    groups = [row.group for row in rows]
    found = columns(table, with_arrow(groups, metric), by)
    found = [one for one in found if metric != VAL_LOSS or one.heading != "val loss"]  # it is the metric's column
    found = [one for one in found if any(map(one.cell, rows))]
    lines = [[column.of(row) for column in found] for row in rows]
    widest = [max(len(cell.text) for cell in line) for line in zip(*lines, strict=True)]
    wide = sum(max(len(one.heading), width) + 2 for one, width in zip(found, widest, strict=True)) > WIDTH
    titles = [one.brief if wide and one.brief else one.heading for one in found]
    notes = [*copying_notes(table), *cautions(table), *unnamed_difference_sentences(groups, first)]
    notes += of_other_hours(rows, first.label)
    return Comparison(titles, lines, legend(table), notes, answer=answer(table), next_hour=next_hour_words(table))


def columns(table: Table, metric: str, by: str | None = None) -> list[Column]:
    """The columns of the comparison by `metric`, a name with units and arrow. A metric and its differences have the
    same number of decimals."""
    label, scale = table.base.label, table.scale
    base = label if len(label) <= 24 else "baseline"
    places = decimals([row.metric.mean for row in table.rows if row.metric])
    training = table.evidence.training is not None
    when = ESTIMANDS[table.estimand]
    other = ESTIMANDS["training" if table.estimand == "end" else "end"]
    first = f"{scale} to {base}{f' {when}' * training}"
    return [
        Column(by or "method", lambda row: row.group.label),
        Column("runs", _runs),
        Column(metric, lambda row: row.note or with_interval(row.metric, places)),
        Column(first, lambda row: _effect(row, table, places), first.replace(label, "baseline"), verdict=True),
        Column("verdict", lambda row: verdict_text(row.verdict), verdict=True),
        Column(other, lambda row: effect_text(row.beside, scale, places) if row.beside else ""),
        Column("val loss", lambda row: number(row.val_loss.mean) if row.val_loss else "n/a", "loss"),
        Column(
            "images/s", lambda row: number(row.images_per_second.mean, 3) if row.images_per_second else "n/a", "img/s"
        ),
        Column("cost", _cost),
        Column("time", lambda row: duration(row.seconds.mean) if row.seconds else "n/a"),
    ]


def _runs(row: Row) -> str:
    """`n=3`, with the diverged and the unfinished ones, which are not counted in it: `n=2 (1 diverged, 1 failed)`."""
    others = [run for run in row.group.runs if run.status != "done"]
    words = [f"{row.diverged} diverged" if row.diverged else "", status_words(others)]
    text = ", ".join(filter(None, words))
    return f"n={len(row.group.done) - row.diverged}" + (f" ({text})" if text else "")


def _effect(row: Row, table: Table, places: int) -> str:
    """The effect, with the number of common seeds if not all seeds of the row could be paired."""
    if row.effect is None:
        return row.unpaired
    text, n = effect_text(row.effect, table.scale, places), row.effect.n
    return text if n == len(row.group.done) - row.diverged else f"{text} ({n} common seed{'s' * (n > 1)})"


def verdict_text(verdict: Verdict | None) -> str:
    """The word; empty without a verdict."""
    return verdict.word if verdict else ""


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
    return minus(text)


def with_interval(interval: Interval | None, places: int | None = None, signed: bool = False) -> str:
    """`1.830 [1.702, 1.958]`, or `1.830 (n=3, no interval)`; `places` are decimals, None: four digits of the mean."""
    if interval is None:
        return "n/a"
    places = decimals([interval.mean]) if places is None else places
    mean, *ends = (
        number(value, signed=signed) if places < 0 else minus(f"{value:{'+' if signed else ''}.{places}f}")
        for value in (interval.mean, interval.low, interval.high)
        if value is not None
    )
    return f"{mean} [{ends[0]}, {ends[1]}]" if ends else f"{mean} (n={interval.n}, no interval)"


def decimals(means: Sequence[float], digits: int = 4) -> int:
    """Decimals that give the smallest mean `digits` significant digits; -1 if exponents are better."""
    sizes = [abs(mean) for mean in means if mean]
    if sizes and not (1e-4 <= min(sizes) and max(sizes) < 1e6):
        return -1
    return max(0, digits - 1 - math.floor(math.log10(min(sizes)))) if sizes else digits - 1


def next_hour_words(table: Table) -> str:
    """The sentences of `planning.NextHour` for the rows that were decided together; "" if the runs do not tell."""
    rows = [
        [run for run in row.group.done if run.seed in end]
        for row, end in zip(table.rows, table.evidence.end, strict=True)
        if row.is_baseline or row.verdict is not None
    ]
    found = what_next(rows, table.metric, table.estimand) if table.scale == "ratio" else None
    return str(found) if found else ""
