"""How the ratios of some rows to a baseline change with one key, such as the budget: from a table for each value of it.

Each table decides its own rows (`diffusion_lab.verdicts`). Over all of them, where the values are numbers above 0 and
with u = log2 of the value, each row has (`diffusion_lab.crossing`)

    trend     by what factor the ratio grows where the value doubles (of a difference: what is added to it)
    crossing  the values at which the ratio is 1 (the difference 0), and the 95 % set of such values

from the seeds that it and the baseline have at all values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from diffusion_lab.crossing import Crossings, Span, crossings, slope
from diffusion_lab.intervals import CLAIM_SEEDS, Interval
from diffusion_lab.reports.comparison.cells import Cell, Comparison, decimals
from diffusion_lab.reports.comparison.differences import canonical, short
from diffusion_lab.reports.comparison.effects import effect_text, minus, no_effect
from diffusion_lab.reports.comparison.metrics import shared_protocol, with_arrow
from diffusion_lab.reports.comparison.rows import Table
from diffusion_lab.reports.comparison.sections import Section, data_name
from diffusion_lab.verdicts import Scale, Verdict

BySeed = Mapping[int, float]


class AlongRow(NamedTuple):
    """One row at all values of the key.

    Attributes:
        label: its name.
        effects: its ratio or difference at each value; None where it has none.
        trend: mean slope over log2 of the value, of logarithms for ratios; None without numbers or common seeds.
        crossing: places in log2 of the value; None likewise.
    """

    label: str
    effects: list[Verdict | None]
    trend: Interval | None
    crossing: Crossings | None


class Along(NamedTuple):
    """All rows.

    Attributes:
        data: name of the data set.
        key: of the configuration.
        values: of the key, ascending if they are numbers.
        metric: its name with its arrow.
        base: name of the baseline.
        scale: ratios or differences.
        band: largest difference at each value that counts as equal, on the scale of `Verdict.deviation`.
        rows: those that are compared at two values or more.
    """

    data: str
    key: str
    values: list[Any]
    metric: str
    base: str
    scale: Scale
    band: list[float]
    rows: list[AlongRow]

    @property
    def places(self) -> list[float] | None:
        """log2 of the values; None if they are not numbers above 0."""
        numbers = all(isinstance(one, int | float) and not isinstance(one, bool) and one > 0 for one in self.values)
        return [math.log2(one) for one in self.values] if numbers else None


def along(sections: Sequence[Section], tables: Sequence[Table]) -> list[Along]:
    """Of sections with a value of the key each, as from `sections_of(.., within=key)`, those of the same images, task,
    metric, estimand and baseline together, and where a value has several sections those of the same protocol; empty
    where there is one alone."""
    alike: dict[tuple[Any, ...], list[int]] = {}
    for k, (section, table) in enumerate(zip(sections, tables, strict=True)):
        if section.place is not None:
            key = (section.subject, table.metric, table.base.label, table.scale, table.estimand)
            alike.setdefault(key, []).append(k)
    courses = []
    for same in alike.values():
        values = [canonical(place.value) for k in same if (place := sections[k].place)]
        if len(set(values)) == len(values):
            courses.append(same)
            continue
        measured = [canonical(shared_protocol(tables[k].base, tables[k].metric)[0]) for k in same]
        courses += [[k for k, one in zip(same, measured, strict=True) if one == own] for own in dict.fromkeys(measured)]
    return [_along([sections[k] for k in same], [tables[k] for k in same]) for same in courses if len(same) > 1]


def _along(sections: Sequence[Section], tables: Sequence[Table]) -> Along:
    places = [section.place for section in sections]
    values = [place.value if isinstance(place.value, int | float) else short(place.value) for place in places if place]
    by_label = [
        {row.group.label: (row.effect, own) for row, own in zip(t.rows, t.deciding, strict=True)} for t in tables
    ]
    judged = [{row.group.label: row.has_interval for row in table.rows} for table in tables]
    first = tables[0]
    found = Along(
        data_name(sections[0].groups),
        places[0].key if places[0] else "",
        values,
        with_arrow([row.group for row in first.rows], first.metric),
        first.base.label,
        first.scale,
        [table.band for table in tables],
        [],
    )
    for label in dict.fromkeys(label for one in by_label for label in one):
        effects = [one.get(label, (None, {}))[0] for one in by_label]
        if sum(effect is not None for effect in effects) > 1:
            own = [one.get(label, (None, {}))[1] for one in by_label]
            base = [one[first.base.label][1] for one in by_label]
            without = any(effect and not one.get(label) for effect, one in zip(effects, judged, strict=True))
            found.rows.append(row(label, effects, own, base, found, without))
    return found


def row(
    label: str,
    effects: Sequence[Verdict | None],
    own: Sequence[BySeed],
    base: Sequence[BySeed],
    of: Along,
    without: bool = False,
) -> AlongRow:
    """A row, with its trend and crossings over the seeds that it and the baseline have at all values.

    Args:
        label: its name.
        effects: at each value.
        own: seed -> number, at each value.
        base: the same of the baseline.
        of: the axis.
        without: whether it has no intervals, as a loss or a race has none.
    """
    places = of.places
    seeds = sorted(set.intersection(*(set(a) & set(b) for a, b in zip(own, base, strict=True))))
    if places is None or not seeds:
        return AlongRow(label, list(effects), None, None)
    onto = math.log if of.scale == "ratio" else float
    y = [[onto(a[seed]) - onto(b[seed]) for a, b in zip(own, base, strict=True)] for seed in seeds]
    trend, crossing = slope(places, y), crossings(places, y)
    if without or len(seeds) < CLAIM_SEEDS:
        trend, crossing = trend._replace(low=None, high=None), crossing._replace(spans=None)
    return AlongRow(label, list(effects), trend, crossing)


def course_table(of: Along, by: str | None = None) -> Comparison:
    """The table: a line for each row, a column for each value, then trend and crossing; `by` is the key that names the
    rows."""
    numbers = of.places is not None
    titles = [by or "method", *(f"{value:,}" if numbers else f"{value}" for value in of.values)]
    titles += [PER_DOUBLING, EQUAL_AT] if numbers else []
    sizes = [abs(e.size) for one in of.rows for e in one.effects if e is not None]
    places = 2 if of.scale == "ratio" else decimals(sizes)
    lines = []
    for one in of.rows:
        texts = [Cell(effect_text(e, of.scale, places), e.decided) if e else Cell("") for e in one.effects]
        further = [trend_cell(one, of, places), Cell(crossing_text(one.crossing, of))] if numbers else []
        lines.append([Cell(one.label), *texts, *further])
    return Comparison(titles, lines, legend(of), [], left=1)


PER_DOUBLING, EQUAL_AT = "per doubling", "equal at"  # headings of trends and crossings


def legend(of: Along) -> str:
    """What the numbers are."""
    text = f"{of.scale} to {of.base}, each column decided by itself: 95 % interval for all its rows together, bold "
    text += "where it is better or worse"
    if of.places is None:
        return text
    what, nothing = "factor" if of.scale == "ratio" else "change", f"{no_effect(of.scale):g}"
    return (
        f"{text}; {PER_DOUBLING}: {what} of the {of.scale} where {of.key} doubles, by least squares for each seed with "
        f"Student's 95 % interval; {EQUAL_AT}: the {of.key} at which the mean of the seeds, linear in its logarithm "
        f"between the columns, is {nothing}, in brackets all at which Student's 95 % interval holds {nothing}; ≤ and ≥ "
        "stand at the ends of what was tried"
    )


def trend_cell(one: AlongRow, of: Along, places: int = 2) -> Cell:
    """`1.04 [0.99, 1.10]`, bold if the interval is on one side of no change."""
    if one.trend is None:
        return Cell("")
    back = math.exp if of.scale == "ratio" else float
    mean, *ends = (back(x) for x in (one.trend.mean, one.trend.low, one.trend.high) if x is not None)
    form = f"+.{places}f" if of.scale == "difference" else ".2f"
    text = minus(f"{mean:{form}}")
    if ends:
        text += " [" + ", ".join(minus(f"{end:{form}}") for end in ends) + "]"
    return Cell(text, bool(ends) and one.trend.excludes_zero)


def crossing_text(found: Crossings | None, of: Along) -> str:
    """`5,210 [3,480, ≥ 12,800]`; `none` where there is neither a crossing nor a place that may be one."""
    if found is None or of.places is None:
        return ""
    at = ", ".join(map(_number, found.zeros)) or "none"
    spans = [_span(span, of.places) for span in found.spans or []]
    return " ".join([at, " and ".join(spans)]) if spans else at


def _span(span: Span, places: Sequence[float]) -> str:
    left = f"≤ {_number(places[0])}" if span[0] == places[0] else _number(span[0])
    right = f"≥ {_number(places[-1])}" if span[1] == places[-1] else _number(span[1])
    return f"[{left}, {right}]"


def _number(place: float) -> str:
    """A value of the key from its log2, with three digits, or as it is if it is whole."""
    value = 2.0**place
    whole = round(value)
    if math.isclose(value, whole, rel_tol=1e-9):
        return f"{whole:,}"
    digits = 2 - math.floor(math.log10(value))
    return f"{round(value, digits):,.{max(digits, 0)}f}"
