"""The comparison as text cells, Markdown and LaTeX."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from diffusion_lab.intervals import Interval
from diffusion_lab.markup import markdown_cell, markdown_text
from diffusion_lab.printable import one_line
from diffusion_lab.reports.answer import answer
from diffusion_lab.reports.beyond import notes_of
from diffusion_lab.reports.directions import with_arrow
from diffusion_lab.reports.groups import Group
from diffusion_lab.reports.tables import VAL_LOSS, Row, baseline, status_words, summarise, visible_size
from diffusion_lab.reports.verdicts import ALPHA, CLAIM_SEEDS, NO_CLAIM

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


def compare(groups: Sequence[Group], metric: str, by: str | None = None, size: float | None = None) -> Comparison:
    """The comparison of one or more groups, without empty columns; titles are abbreviated if the table is wider than
    `WIDTH`.

    Args:
        groups: groups of one section, named by `label_groups`.
        metric: from `choose_metric`.
        by: the key that names the rows.
        size: difference for which the number of seeds is given; None: `visible_size`.
    """
    first = baseline(groups, metric)
    size = size or visible_size(groups, metric)
    rows = summarise(groups, metric, size)
    named = with_arrow(groups, metric)
    lines, titles = cells(rows), header(named, first.label, by, size)
    told = {"val loss"} if metric == VAL_LOSS else set()
    kept = [i for i, title in enumerate(titles) if title not in told and any(line[i].text for line in lines)]
    lines, titles = [[line[i] for i in kept] for line in lines], [titles[i] for i in kept]
    widest = [max(len(line[i].text) for line in lines) for i in range(len(titles))]
    if sum(max(len(title), width) + 2 for title, width in zip(titles, widest, strict=True)) > WIDTH:
        brief = header(named, first.label, by, size, brief=True)
        titles = [brief[i] for i in kept]
    notes = [*notes_of(groups, first), *cautions(rows), *of_other_hours(rows, first.label)]
    return Comparison(titles, lines, legend(rows, size), notes, answer=answer(rows, size))


def header(
    metric: str, baseline: str, by: str | None = None, size: float | None = None, brief: bool = False
) -> list[str]:
    """Column titles; `metric` includes units and arrow, `by` is the key that names the rows, `size` the difference for
    which the number of seeds is given; `brief` abbreviates them."""
    baseline = baseline if len(baseline) <= 24 else "baseline"
    difference, rate, loss = ("diff. to", "img/s", "loss") if brief else ("difference to", "images/s", "val loss")
    seeds = f"seeds for ±{size:g}" if size else "seeds"
    titles = [by or "method", "runs", metric, f"{difference} {baseline}", "verdict", seeds]
    return [*titles, loss, rate, "cost", "time"]


def cells(rows: Sequence[Row]) -> list[list[Cell]]:
    """One line per row, in the order of `header`; a metric and its differences have the same number of decimals."""
    places = decimals([row.metric.mean for row in rows if row.metric])
    return [
        [
            Cell(row.group.label),
            Cell(_runs(row)),
            Cell(row.note or with_interval(row.metric, places)),
            Cell(_difference(row, places), row.bold),
            Cell(_verdict(row), row.bold),
            Cell(_seeds(row)),
            Cell(number(row.val_loss.mean) if row.val_loss else "n/a"),
            Cell(number(row.images_per_second.mean, 3) if row.images_per_second else "n/a"),
            Cell(_cost(row)),
            Cell(duration(row.seconds.mean) if row.seconds else "n/a"),
        ]
        for row in rows
    ]


def legend(rows: Sequence[Row], size: float | None = None) -> str:
    """Explanation of the numbers and of their limits."""
    tested = sum(row.verdict is not None and row.verdict.p is not None for row in rows)
    text = "mean over finished seeds [95 % interval of Student's t]; differences are paired by seed, each interval is "
    text += "that of its row alone; "
    if tested:
        of_all = f", corrected for the {tested} rows by Holm's method" if tested > 1 else ""
        text += (
            f"verdict: p of the paired t-test{of_all}; with no difference anywhere the table has a false verdict with "
            f"a probability of at most {ALPHA:.0%}; bold: a verdict; "
        ).replace("5%", "5 %")
        if size:
            text += (
                f"seeds for ±{size:g}: approximate number of pairs that detects a true difference of that size with a "
                "probability of 80 %, by the observed spread; "
            )
    elif any(row.verdict is not None and row.verdict.word == NO_CLAIM for row in rows):
        text += f"with fewer than {CLAIM_SEEDS} seeds nothing is set in bold: no claim; "
    elif any(row.difference is not None and row.verdict is None for row in rows):
        text += "neither direction of this metric is better, so there is no verdict and nothing is set in bold; "
    return text + (
        "cost: time per image relative to the baseline's, paired by seed: geometric mean, and the interval of its "
        "logarithm; only fair where the runs had equal machines"
    )


def cautions(rows: Sequence[Row]) -> list[str]:
    """The assumptions of the verdicts, and the effect of pairing."""
    verdicts = [row.verdict for row in rows if row.verdict is not None and row.verdict.p is not None]
    if not verdicts:
        return []
    notes = [
        "The number of seeds must be fixed before the first run: adding seeds from n = 3 to 12 until the plain "
        "interval excludes 0 finds a difference where there is none in 18 % of the cases instead of 5 % (simulated)."
    ]
    ratios = [verdict.ratio for verdict in verdicts if verdict.ratio is not None]
    if ratios:
        spread = f" (median of the rows; {min(ratios):.2g} to {max(ratios):.2g})" if len(ratios) > 1 else ""
        notes.append(f"Unpaired intervals would be {statistics.median(ratios):.2g} times as wide{spread}.")
    return notes


def of_other_hours(rows: Sequence[Row], baseline: str) -> list[str]:
    """Why some of the costs have no interval; empty if all that could have one have it."""
    names = [row.group.label for row in rows if row.cost and row.cost.n > 1 and not row.same_hours]
    if not names:
        return []
    return [
        f"The cost of {', '.join(names)} has no interval: their runs and those of {baseline} were not trained in the "
        "same hours, so other work on the machine is in the ratio. In one sweep they take turns, seed by seed."
    ]


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


def markdown(table: Comparison) -> str:
    """A pipe table, followed by the notes."""
    titles, lines = table.titles, table.lines
    texts = [
        [markdown_cell(title) for title in titles],
        ["---"] * table.left + ["---:"] * (len(titles) - table.left),
    ]
    for line in lines:
        escaped = [cell._replace(text=markdown_cell(cell.text)) for cell in line]
        texts.append([f"**{cell.text}**" if cell.bold else cell.text for cell in escaped])
    notes = "".join(f"\n{markdown_text(note)}\n" for note in table.notes)
    return "\n".join("| " + " | ".join(text) + " |" for text in texts) + "\n" + notes


def latex(table: Comparison) -> str:
    """A tabular with booktabs rules, followed by the notes."""
    titles, lines = table.titles, table.lines
    body = [
        " & ".join(rf"\textbf{{{tex(cell.text)}}}" if cell.bold else tex(cell.text) for cell in line) for line in lines
    ]
    rows = "".join(rf"{line} \\" + "\n" for line in body)
    columns = "l" * table.left + "r" * (len(titles) - table.left)
    head = " & ".join(tex(title) for title in titles)
    return (
        rf"\begin{{tabular}}{{{columns}}}" + "\n"
        r"\toprule" + "\n" + rf"{head} \\" + "\n" + r"\midrule" + "\n" + rows + r"\bottomrule" + "\n"
        r"\end{tabular}" + "\n"
    ) + "".join(f"\n\\par\\noindent {tex(note)}\n" for note in table.notes)


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


def _verdict(row: Row) -> str:
    """`better, p=0.012`, `not decided, p=0.31`."""
    if row.verdict is None:
        return ""
    if row.verdict.p is None:
        return row.verdict.word
    p = row.verdict.p
    return f"{row.verdict.word}, " + ("p<0.001" if p < 0.001 else f"p={p:.3f}" if p < 0.1 else f"p={p:.2f}")


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


def tex(text: str) -> str:
    """`text` with LaTeX's special characters escaped."""
    special = {"\\": r"\textbackslash{}", "↓": r"$\downarrow$", "↑": r"$\uparrow$", "\N{MINUS SIGN}": "$-$"}
    special |= {c: "\\" + c for c in "&%$#_{}"} | {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    special |= {"<": "$<$", ">": "$>$", "|": "$|$"}  # other characters in LaTeX's default font encoding
    return "".join(special.get(character, character) for character in one_line(text))
