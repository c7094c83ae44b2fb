"""The comparison as rows: means over seeds, ratios or differences to a baseline with their verdicts, relative cost.

    mean        of the finished runs at the end, with the 95 % interval of Student's t over seeds; diverged runs are
                counted and left out
    effect      ratio or difference to the baseline over the seeds that both have, of the question's estimand, with an
                interval that is simultaneous for the rows (`diffusion_lab.verdicts`)
    beside      the same of the other estimand, which does not decide
    cost        time per image relative to the baseline, over the seeds that both have: r_i = v_i(baseline)/v_i with v
                in images/s; geometric mean of the r_i, with the interval of the mean of their logarithms, whose ends
                are positive, where both shared the hours (`same_hours`)

A single finished run (n=1) has no interval. Values with different protocols are neither averaged nor compared. A loss
decides nothing between rows that differ in `MOVE_A_LOSS`: these say how small a loss can become, and where. The rows
of a race, whose numbers of seeds follow from their values, have means and effects without intervals and verdicts here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from diffusion_lab.intervals import Estimand, Interval, mean_interval
from diffusion_lab.reports.comparison.evidence import BySeed, Evidence, evidence
from diffusion_lab.reports.comparison.groups import Group
from diffusion_lab.reports.comparison.hours import cost_of, same_hours, timed
from diffusion_lab.reports.comparison.metrics import (
    VAL_LOSS,
    directed,
    interval,
    pairs,
    protocols,
    rising,
    shared_protocol,
    values,
)
from diffusion_lab.reports.comparison.question import Question
from diffusion_lab.verdicts import Scale, Verdict, band_of, judge

BASELINE = "baseline"
Silent = Literal["", "loss", "direction", "race"]
UNJUDGED: tuple[Silent, ...] = ("loss", "race")  # of these an effect has neither a verdict nor an interval
MOVE_A_LOSS = ("sampler", "weighting", "prediction", "schedule", "preconditioning", "variance", "time")
MOVE_A_LOSS += ("coupling", "auxiliary", "model")


@dataclass(frozen=True)
class Row:
    """One group in the table; values are None if they do not exist, and `note` says why.

    Args:
        group: the runs.
        metric: interval of the chosen metric at the end, without diverged runs.
        effect: ratio or difference to the baseline; None for the baseline itself. Of a loss that does not decide it
            has no interval.
        cost: time per image over the baseline's, paired; exactly 1 for the baseline itself.
        val_loss, images_per_second, seconds: intervals over the same finished runs.
        note: why metric is None.
        unpaired: why effect is None; "baseline" for the baseline.
        silent: why the effect has no verdict: the metric is a loss, neither of its directions is better, or the runs
            are of a race; else "".
        beside: the effect of the other estimand; None if there are no common snapshots.
        same_hours: whether the runs that the cost compares were trained in the same hours; otherwise the drift of the
            machine is in its interval, which is not shown.
        diverged: number of finished runs that diverged.
    """

    group: Group
    metric: Interval | None
    effect: Verdict | None
    cost: Interval | None
    val_loss: Interval | None
    images_per_second: Interval | None
    seconds: Interval | None
    note: str = ""
    unpaired: str = ""
    silent: Silent = ""
    beside: Verdict | None = None
    same_hours: bool = True
    diverged: int = 0

    @property
    def is_baseline(self) -> bool:
        return self.unpaired == BASELINE

    @property
    def verdict(self) -> Verdict | None:
        """The verdict, None where the effect has none."""
        return None if self.silent else self.effect

    @property
    def has_interval(self) -> bool:
        """Whether the effect has one."""
        return self.effect is not None and self.effect.interval is not None

    @property
    def bold(self) -> bool:
        """Whether the effect may be claimed."""
        return self.verdict is not None and self.verdict.decided


class Table(NamedTuple):
    """All rows, and how they were compared.

    Attributes:
        rows: one per group.
        metric: its name.
        scale: ratios or differences.
        estimand: which number of a run decided: the question's, or the end without common snapshots.
        question: what was asked.
        band: largest difference that counts as equal, on the scale of `Verdict.deviation`; 0 without a baseline.
        evidence: the numbers of each seed.
        base: the baseline.
    """

    rows: list[Row]
    metric: str
    scale: Scale
    estimand: Estimand
    question: Question
    band: float
    evidence: Evidence
    base: Group

    def of(self, groups: Sequence[Group]) -> Table:
        """The table with some of its rows, as all of them decided them."""
        kept = [i for i, row in enumerate(self.rows) if any(row.group is group for group in groups)]
        found = self.evidence
        training = None if found.training is None else [found.training[i] for i in kept]
        end, courses, diverged = ([of[i] for i in kept] for of in (found.end, found.courses, found.diverged))
        some = found._replace(end=end, training=training, courses=courses, diverged=diverged)
        return self._replace(rows=[self.rows[i] for i in kept], evidence=some)

    def without_diverged(self, groups: Sequence[Group]) -> list[Group]:
        """Groups of the table, for means that leave out what the rows leave out."""
        lost = {id(row.group): frozenset(seeds) for row, seeds in zip(self.rows, self.evidence.diverged, strict=True)}
        return [replace(group, diverged=lost[id(group)]) for group in groups]

    @property
    def deciding(self) -> list[BySeed]:
        """Of each row, seed -> the number that decided."""
        return self.evidence.end if self.estimand == "end" else self.evidence.training or []


def summarise(groups: Sequence[Group], metric: str, question: Question | None = None) -> list[Row]:
    """The rows of `tabulate`."""
    return tabulate(groups, metric, question).rows


def tabulate(groups: Sequence[Group], metric: str, question: Question | None = None) -> Table:
    """One row per group of one section; the first group that has the metric, from `choose_metric`, is the baseline.
    Without a question the default one decides."""
    question = question or Question()
    base = next((group for group in groups if values(group, metric)), groups[0])
    place = list(groups).index(base)
    unpaired = [_unpaired(group, base, metric) for group in groups]
    found = evidence(groups, metric, [why in ("", BASELINE) for why in unpaired], place)
    estimand: Estimand = question.estimand if found.training else "end"
    numbers = {"end": found.end, "training": found.training}
    silent: list[Silent] = ["race" if question.race else _silent(group, base, metric) for group in groups]
    unjudged = [why in UNJUDGED for why in silent]
    better = rising(groups, metric) if directed(groups, metric) else None

    def effects(of: list[BySeed] | None) -> list[Verdict | None]:
        compared = [i for i, why in enumerate(unpaired) if not why and not unjudged[i]] if of else []
        judged = judge([of[i] for i in (place, *compared)], found.scale, better, question.margin) if of else [None]
        by_place = dict(zip(compared, judged[1:], strict=True))
        return [by_place.get(i) or _size(of, i, place, found.scale, unjudged[i]) for i in range(len(groups))]

    decides = effects(numbers[estimand])
    beside = effects(numbers["training" if estimand == "end" else "end"]) if found.training else [None] * len(groups)
    lost = "" if found.end[place] else "n/a (baseline diverged)"
    rows = [
        _row(group, base, metric, found.diverged[i], unpaired[i] or lost, silent[i], decides[i], beside[i])
        for i, group in enumerate(groups)
    ]
    band = band_of(found.scale, question.margin, found.end[place].values())
    return Table(rows, metric, found.scale, estimand, question, band, found, base)


def _size(of: list[BySeed] | None, i: int, place: int, scale: Scale, unjudged: bool) -> Verdict | None:
    """The mean effect of a row that is not judged, without an interval."""
    if not unjudged or i == place or not of or not of[i].keys() & of[place].keys():
        return None
    effect = judge([of[place], of[i]], scale, None)[1]
    return effect and effect._replace(word="no claim", low=None, high=None)


def _row(
    group: Group,
    base: Group,
    metric: str,
    diverged: Sequence[int],
    unpaired: str,
    silent: Silent,
    effect: Verdict | None,
    beside: Verdict | None,
) -> Row:
    own = {seed: value for seed, value in values(group, metric).items() if seed not in diverged}
    note = "n/a (mixed protocols)" if len(protocols(group, metric)) > 1 else ""
    if not own:
        strange = any(run.is_not_finite(metric) for run in group.done)
        left = "diverged" if values(group, metric) else "not finite" if strange else "not measured"
        note = f"n/a ({left if group.done else 'none finished'})"
    done = group.done
    return Row(
        group=group,
        metric=None if note else _mean(list(own.values()), silent),
        effect=effect,
        cost=cost_of(group, base),
        val_loss=interval([run.last(VAL_LOSS) for run in done if run.seed not in diverged]),
        images_per_second=interval([run.images_per_second for run in done]),
        seconds=interval([run.seconds for run in done]),
        note=note,
        unpaired=unpaired or ("" if effect else "n/a (no common seed)"),
        silent=silent,
        beside=beside,
        same_hours=same_hours(timed(group), timed(base)),
        diverged=len(diverged),
    )


def _mean(values: list[float], silent: Silent) -> Interval:
    found = mean_interval(values)
    return found._replace(low=None, high=None) if silent == "race" else found


def _unpaired(group: Group, base: Group, metric: str) -> str:
    """Why a group cannot be compared with the baseline; "" if it can."""
    if group is base:
        return BASELINE
    ours, theirs = values(group, metric), values(base, metric)
    if not ours or not theirs:
        return "n/a"
    if not pairs(ours, theirs):
        return "n/a (no common seed)"
    if shared_protocol(group, metric) != shared_protocol(base, metric) or len(protocols(group, metric)) > 1:
        return "n/a (measured differently)"
    return ""


def _silent(group: Group, base: Group, metric: str) -> Silent:
    if not directed([group, base], metric):
        return "direction"
    return "loss" if is_loss(metric) and moves_a_loss(group, base) else ""


def moves_a_loss(group: Group, base: Group) -> bool:
    """Whether two groups differ in what says how small a loss can become; 0.1.0 recorded no model."""
    ours, theirs = group.config, base.config
    keys = [key for key in MOVE_A_LOSS if key != "model" or (key in ours and key in theirs)]
    return any(ours.get(key) != theirs.get(key) for key in keys)


def is_loss(metric: str) -> bool:
    """Whether it is a loss that runs log: val/loss, train/loss, a group's or a head's."""
    return "/" in metric and "loss" in metric.rpartition("/")[2]
