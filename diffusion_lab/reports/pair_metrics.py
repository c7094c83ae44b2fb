"""The final values of all common metrics of two groups, paired by seed, as a table."""

from __future__ import annotations

from typing import NamedTuple

from diffusion_lab.intervals import Interval, paired_difference
from diffusion_lab.reports.cells import Cell, Comparison, decimals, with_interval
from diffusion_lab.reports.directions import directed, rising, with_arrow
from diffusion_lab.reports.groups import Group
from diffusion_lab.reports.pair import Pair, measured_differently
from diffusion_lab.reports.tables import interval, pairs, protocols, values
from diffusion_lab.reports.verdicts import ALPHA, CLAIM_SEEDS, NO_CLAIM, Pairs, Verdict, judge


class Line(NamedTuple):
    """One metric.

    Attributes:
        name: of the metric.
        base, own: mean over finished seeds.
        common: (own, base) of the seeds that both have; empty if they cannot be compared.
        refused: why there is no difference, "" if there is one.
        verdict: on the difference, corrected for the number of metrics.
    """

    name: str
    base: Interval | None
    own: Interval | None
    common: Pairs
    refused: str
    verdict: Verdict | None

    @property
    def difference(self) -> Interval | None:
        return paired_difference([a for a, _ in self.common], [b for _, b in self.common]) if self.common else None


def lines_of(pair: Pair) -> list[Line]:
    """One line per metric, with verdicts that are corrected for all of them together."""
    lines = [_line(pair, name) for name in pair.metrics]
    judged = [line.common if directed(pair.groups, line.name) else [] for line in lines]
    falling = [
        [(-a, -b) for a, b in common] if rising(pair.groups, line.name) else common
        for line, common in zip(lines, judged, strict=True)
    ]
    return [line._replace(verdict=verdict) for line, verdict in zip(lines, judge(falling, rising=False), strict=True)]


def table_of(pair: Pair, lines: list[Line]) -> Comparison:
    """The lines as text."""
    titles = ["metric", "common seeds", pair.base.label, pair.own.label, f"difference to {pair.base.label}", "verdict"]
    return Comparison(titles, [_cells(pair, line) for line in lines], _legend(lines), [])


def _line(pair: Pair, name: str) -> Line:
    base, own = values(pair.base, name), values(pair.own, name)
    refused, common = measured_differently(pair, name), pairs(own, base)
    if refused:
        refused = f"n/a, measured differently: {refused}"
    elif not common:
        refused = "n/a (no common seed)"
    return Line(name, _mean(pair.base, name), _mean(pair.own, name), [] if refused else common, refused, None)


def _mean(group: Group, name: str) -> Interval | None:
    """Over the finished seeds; None if these were measured in different ways."""
    return interval(list(values(group, name).values())) if len(protocols(group, name)) < 2 else None


def _cells(pair: Pair, line: Line) -> list[Cell]:
    places = decimals([mean.mean for mean in (line.base, line.own) if mean])
    texts = [with_interval(mean, places).replace(", no interval", "") for mean in (line.base, line.own)]
    difference = line.refused or with_interval(line.difference, places, signed=True)
    verdict = line.verdict
    word = "" if verdict is None else verdict.word
    if verdict is not None and verdict.p is not None:
        word += f", p={verdict.p:.2g}" if verdict.p >= 0.001 else ", p<0.001"
    bold = verdict is not None and verdict.decided
    count = str(len(line.common)) if line.common else "none"
    return [
        Cell(with_arrow(pair.groups, line.name)),
        Cell(count),
        Cell(texts[0]),
        Cell(texts[1]),
        Cell(difference, bold),
        Cell(word, bold),
    ]


def _legend(lines: list[Line]) -> str:
    tested = sum(line.verdict is not None and line.verdict.p is not None for line in lines)
    text = "final values: mean over finished seeds [95 % interval of Student's t]; the difference is paired by seed"
    if any(line.common and line.verdict is None for line in lines):
        text += "; there is no verdict where neither direction of a metric is better"
    if any(line.verdict is not None and line.verdict.word == NO_CLAIM for line in lines):
        text += f"; with fewer than {CLAIM_SEEDS} common seeds there is no verdict"
    if not tested:
        return text
    of_all = f", corrected for the {tested} metrics by Holm's method" if tested > 1 else ""
    return f"{text}; verdict: p of the paired t-test{of_all}, at most {100 * ALPHA:.0f} % for a claim, which is bold"
