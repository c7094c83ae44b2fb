"""Which rows of a large table its figures, samples and configurations show: as many as a person can tell apart.

The table has every row, and its verdicts are about all of them whatever is shown: an interval for some rows that were
chosen by their values would be too short.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from diffusion_lab.plotting import PALETTE
from diffusion_lab.reports.comparison.groups import Group
from diffusion_lab.reports.comparison.labels import matching
from diffusion_lab.reports.comparison.metrics import rising
from diffusion_lab.reports.comparison.rows import Row, Table

FEW = 12  # rows that are all shown
WORST = 2  # rows at the other end that are shown without being asked for


class Choice(NamedTuple):
    """What the user asks to be shown; by default all of a few rows, and some of many.

    Attributes:
        only: names of rows, or words that they alone have, beside the baseline.
        top: number of the best rows beside the baseline, without the worst; None: by default.
    """

    only: Sequence[str] = ()
    top: int | None = None

    def among(self, sections: Sequence[Sequence[Group]], here: Sequence[Group]) -> Choice:
        """The choice for one of the sections: names of rows that others have alone are left out.

        Raises:
            ValueError: a name is no row's in any of them.
        """
        labels = list(dict.fromkeys(group.label for groups in sections for group in groups))
        for name in self.only:
            if not matching(name, labels):
                some = f"{', '.join(labels[:FEW])}{' ...' if len(labels) > FEW else ''}"
                raise ValueError(f"only={name} must be the name of a row, or words of some; use e.g. {some}")
        return self._replace(only=[name for name in self.only if matching(name, [group.label for group in here])])


def shown(table: Table, choice: Choice | None = None) -> list[Group]:
    """The groups to show, in the table's order; the baseline is always one of them."""
    choice = choice or Choice()
    groups = [row.group for row in table.rows]
    if choice.only:
        chosen = {label for name in choice.only for label in matching(name, [group.label for group in groups])}
        return [group for group in groups if group is table.base or group.label in chosen]
    if choice.top is None and len(groups) <= FEW:
        return groups
    others = [row for row in table.rows if not row.is_baseline]
    measured = sorted((row for row in others if row.metric), key=_mean, reverse=rising(groups, table.metric))
    ranked = [*measured, *(row for row in others if not row.metric)]
    best = len(PALETTE) - 1 - WORST if choice.top is None else choice.top
    worst = measured[max(best, len(measured) - WORST) :] if choice.top is None else []
    kept = {id(row.group) for row in [*ranked[:best], *worst]}
    return [group for group in groups if group is table.base or id(group) in kept]


def shown_words(table: Table, groups: Sequence[Group], choice: Choice | None = None) -> str:
    """What is shown, in a sentence; "" if all of the table is."""
    if len(groups) == len(table.rows):
        return ""
    choice = choice or Choice()
    which = f"the best {len(groups) - 1 - WORST} by {table.metric} and the worst {WORST}"
    if sum(row.metric is not None for row in table.rows if row.group is not table.base) < len(groups) - 1:
        which = f"those that have {table.metric} and some of the others"
    if choice.only:
        which = "those that were named"
    elif choice.top is not None:
        which = f"the best {len(groups) - 1} by {table.metric}"
    return (
        f"Figures, samples and configurations are those of {len(groups)} of the {len(table.rows)} methods: "
        f"{table.base.label}, {which}; --only NAME,NAME shows others, --top N more of the best. The table and its "
        "verdicts are about all of them."
    )


def _mean(row: Row) -> float:
    assert row.metric is not None
    return row.metric.mean
