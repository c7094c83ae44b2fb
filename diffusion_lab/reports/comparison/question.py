"""What a table is to decide: by which metric, at the end or over training, and what counts as equal.

A sweep may record it before its runs, under `question` in its sweep.json. The table then answers that question unless
the user asks another one, and says so: a choice made after the values are known is not covered by the verdicts' error
rate.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from diffusion_lab.intervals import ESTIMANDS, Estimand
from diffusion_lab.printable import one_line
from diffusion_lab.runs.run import Run
from diffusion_lab.verdicts import CLAIM_SEEDS, MARGIN


class Question(NamedTuple):
    """The question of a table.

    Attributes:
        estimand: which number of a run decides: its last value, or its mean over the snapshots that all runs have.
        margin: ratio above 1 within which two methods are equal; for differences, 1 plus the share of the baseline.
        metric: the recorded one; "" if none is.
        note: a sentence if this is not the question that the sweep recorded; else "".
        seeds: the recorded number; 0 if none is, or one that decides nothing.
        race: whether the number of seeds of a method followed from its values, so that intervals for a fixed number do
            not hold.
    """

    estimand: Estimand = "end"
    margin: float = MARGIN
    metric: str = ""
    note: str = ""
    seeds: int = 0
    race: bool = False

    @property
    def within(self) -> str:
        """`within 10 %`"""
        return f"within {100 * (self.margin - 1):.3g} %"


def recorded_question(runs: Iterable[Run], recorded: Mapping[Path, Mapping[str, Any]]) -> Question | None:
    """The question that all sweeps of the runs recorded, by their folders; None if they recorded none, or different
    ones."""
    found = {_read(recorded[folder]) for folder in {run.folder.parent for run in runs} if recorded.get(folder)}
    return found.pop() if len(found) == 1 else None


def _read(record: Mapping[str, Any]) -> Question:
    """A recorded question; entries that are none are left at their defaults."""
    margin, metric, seeds = record.get("margin"), record.get("metric"), record.get("seeds")
    return Question(
        "training" if record.get("estimand") == "training" else "end",
        float(margin) if isinstance(margin, int | float) and 1 < margin < math.inf else MARGIN,
        metric if isinstance(metric, str) else "",
        seeds=seeds if isinstance(seeds, int) and seeds >= CLAIM_SEEDS else 0,
        race=record.get("stopping") == "race",
    )


def asked(recorded: Question | None, metric: str, estimand: Estimand | None, margin: float | None) -> Question:
    """The question of a table by `metric`: the recorded one, but for what the user asks."""
    planned = recorded or Question()
    made = planned._replace(
        estimand=estimand or planned.estimand, margin=margin or planned.margin, metric=metric, note=""
    )
    if recorded is None or made == recorded._replace(metric=recorded.metric or metric):
        return made
    return made._replace(
        note=f"The sweep was to decide by {_words(recorded)}; this table decides by {_words(made)}, which is another "
        "question."
    )


def _words(question: Question) -> str:
    name = one_line(question.metric) or "its first metric"
    return f"{name} {ESTIMANDS[question.estimand]}, with equality {question.within}"
