"""A scale: what stands in for the data, the network and the machine of a paper, and how long the runs are.

A scale is one yaml file, `conf/table_scale/NAME.yaml`. The longest runs of a table have `steps` optimizer steps, the
others and every length in them as many as the paper's share: a run of S_p steps becomes one of

    S = round(steps S_p / max S_p),

a warm-up or curriculum of w steps one of max(1, round(w S / S_p)), an average with decay d, which looks back over
1 / (1 - d) steps, one with decay 1 - (1 - d) S_p / S, and a period p of a method min(p, max(1, S / 500)), unless it is
longer than a 500th of the paper's run and so a length. Data set, network, batch, learning rate and the solver's steps
are the scale's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

LEAST_DECAY = 0.5
PERIODS = 500  # of a method in a run, at least


@dataclass(frozen=True)
class TableScale:
    """A scale.

    Args:
        name: smoke, mini, small, paper or another file's.
        says: data, network and cost in a phrase.
        steps: optimizer steps of a table's longest runs; None: the paper's own settings, unchanged.
        lr: factor on the paper's learning rate.
        solver_steps: most steps of the solver; None: the paper's.
        seeds: the seeds, fixed before the first run.
        options: group -> option that stands in for the paper's, or a mapping from the paper's option to it, in which
            `default` is for all others.
        overrides: further settings of every run.
        analysis: analysis -> words of its command line.
        launcher: settings of Hydra's launcher.
        differs: sentences: what differs from the paper.
    """

    name: str
    says: str
    steps: int | None = None
    lr: float = 1.0
    solver_steps: int | None = None
    seeds: tuple[int, ...] = (0, 1, 2)
    options: Mapping[str, Any] = field(default_factory=dict)
    overrides: tuple[str, ...] = ()
    analysis: Mapping[str, list[str]] = field(default_factory=dict)
    launcher: tuple[str, ...] = ()
    differs: tuple[str, ...] = ()

    def option(self, group: str, paper: str) -> str:
        """The option of a group where the paper has `paper`."""
        stands_in = self.options[group]
        if isinstance(stands_in, Mapping):
            return str(stands_in.get(paper, stands_in["default"]))
        return str(stands_in)


def read_table_scale(name: str, content: Mapping[str, Any]) -> TableScale:
    """The scale in a yaml file's content; ValueError if a key is unknown or missing."""
    given: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in content.items()}
    try:
        return TableScale(name, **given)
    except TypeError as error:
        known = ", ".join(TableScale.__dataclass_fields__)
        raise ValueError(f"scale={name} must have the keys of a scale, {known} ({error})") from error


def scaled_length(length: int, steps: int, paper_steps: int) -> int:
    """A length of a paper's run, in optimizer steps, in a run of `steps`."""
    return max(1, round(length * steps / paper_steps))


def scaled_decay(decay: float, steps: int, paper_steps: int) -> float:
    """The decay of an average that looks back over the same share of the run, at least `LEAST_DECAY`."""
    return float(f"{max(LEAST_DECAY, 1 - (1 - decay) * paper_steps / steps):.6g}")


def scaled_period(period: int, steps: int, paper_steps: int) -> int:
    """The period of a method."""
    if period * PERIODS > paper_steps:
        return scaled_length(period, steps, paper_steps)
    return min(period, max(1, steps // PERIODS))


def scaled_cells(at: tuple[int, ...], steps: int, paper_steps: int) -> tuple[int, list[int]]:
    """Interval of the evaluations, and the one of each cell, in optimizer steps.

    The interval is the first cell's share of the run. A cell is the evaluation nearest to its share; there is one at
    the end of the run.
    """
    every = min(steps, scaled_length(at[0], steps, paper_steps))
    evaluated = [*range(every, steps, every), steps]
    shares = [step * steps / paper_steps for step in at]
    return every, [min(evaluated, key=lambda step: (abs(step - share), -step)) for share in shares]
