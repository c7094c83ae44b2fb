"""Two groups of runs that are compared: which runs they are, and in what they differ.

Each is the runs of one configuration under one or several seeds: a run folder, a folder of such runs, or, of a folder
with several configurations, the one that `diffusion-lab report` calls NAME: FOLDER:NAME.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from diffusion_lab.intervals import ESTIMANDS, Estimand
from diffusion_lab.reports.comparison.answer import answer
from diffusion_lab.reports.comparison.cells import Column, Comparison, decimals, verdict_text, with_interval
from diffusion_lab.reports.comparison.copying import copying_notes
from diffusion_lab.reports.comparison.differences import (
    ConfigReader,
    Difference,
    changed,
    differences,
    lookup,
    read_config_alone,
    short,
)
from diffusion_lab.reports.comparison.effects import effect_text
from diffusion_lab.reports.comparison.groups import Group, data_words
from diffusion_lab.reports.comparison.labels import group_runs, label_groups, matching
from diffusion_lab.reports.comparison.metrics import (
    VAL_LOSS,
    choose_metric,
    metric_names,
    shared_protocol,
    values,
    with_arrow,
)
from diffusion_lab.reports.comparison.question import Question, asked
from diffusion_lab.reports.comparison.rows import Row, Table, tabulate
from diffusion_lab.reports.comparison.sections import data_name, subject
from diffusion_lab.reports.comparison.sentences import cautions, verdict_words
from diffusion_lab.runs.find import read_runs
from diffusion_lab.runs.run import RunFolder
from diffusion_lab.verdicts import CLAIM_SEEDS, Verdict


class Pair(NamedTuple):
    """What is compared.

    Attributes:
        base: the first group, A.
        own: the second group, B, which is described relative to A.
        metric: of the curves and the speed-up.
        metrics: all metrics of which finished runs of both have a value, `metric` first.
        question: what decides.
    """

    base: Group
    own: Group
    metric: str
    metrics: list[str]
    question: Question = Question()

    @property
    def groups(self) -> list[Group]:
        return [self.base, self.own]


class Side(NamedTuple):
    """What A or B on the command line names.

    Attributes:
        option: "A" or "B", for the errors.
        text: as it was typed: FOLDER, or FOLDER:NAME with a row's label, or words of it that no other row has.
        folder: the runs of the folder.
        name: NAME, "" without one.
    """

    option: str
    text: str
    folder: RunFolder
    name: str


def side(option: str, text: str) -> Side:
    """The runs of the folder in FOLDER or FOLDER:NAME.

    Raises:
        FileNotFoundError: there is no such folder.
        ValueError: it has no run.
    """
    path, name = text, ""
    if not os.path.isdir(text) and ":" in text:
        path, _, name = text.rpartition(":")
    if not os.path.isdir(path):
        raise FileNotFoundError(f"{option}={text} must be an existing folder, of a run or of runs; use e.g. runs/NAME")
    return Side(option, text, read_runs(path), name)


def group_of(side: Side, read: ConfigReader = read_config_alone) -> Group:
    """The runs of one configuration that a side means; ValueError if no run has begun, or for several configurations
    and no name of one."""
    option, text, folder, name = side
    path = folder.path
    groups = group_runs(folder.runs, read=read)
    if not groups:
        why = next((run.cause for run in folder.runs if run.faults), "see its log")
        raise ValueError(f"{option}={text} must have a run that has begun to train and can be read; {why}")
    named = matching(name, [group.label for group in groups]) if name else []
    chosen = [group for group in groups if group.label in named] if name else groups
    if len(chosen) == 1:
        return chosen[0]
    labels = ", ".join(f"'{path}:{group.label}'" for group in groups)
    if name:
        raise ValueError(f"{option}={text} must end in the name of one of its {len(groups)} rows; use one of {labels}")
    raise ValueError(f"{option}={text} must hold runs that differ in their seed alone; use one of {labels}")


def pair(
    base: Group,
    own: Group,
    metric: str | None = None,
    recorded: Question | None = None,
    estimand: Estimand | None = None,
    margin: float | None = None,
) -> Pair:
    """The two groups with names that distinguish them, and the metrics that both have.

    Args:
        base: A.
        own: B.
        metric: None: the recorded one if both have it, else that of `choose_metric`.
        recorded: the question that their sweeps recorded.
        estimand: which number of a run decides; None: the recorded question's.
        margin: ratio within which methods are equal; None: the recorded question's.

    Raises:
        ValueError: they are the same configuration, have other data or another task, or no metric in common; or
            `metric` is none that both have.
    """
    data = data_words([*base.runs, *own.runs])
    if len(set(data.values())) > 1:
        words = " and ".join(data[group.runs[0].folder] for group in (base, own))
        raise ValueError(
            f"B must have the data of A to be compared, and its images are not the same; they have {words}"
        )
    same = bool(base.data_key) and base.without_followers == own.without_followers  # perhaps read from another place
    if same or base.runs[0].group_key == own.runs[0].group_key:
        raise ValueError("B must be another configuration than A; runs of one configuration are averaged by `report`")
    about, other = subject(base), subject(own)
    if about != other:
        key = next(key for key in about if about[key] != other[key])
        both = zip((about, other), (base, own), strict=True)
        words = " and ".join(
            "none" if one[key] is None else _data(group) if key == "dataset" else group.word(key) for one, group in both
        )
        raise ValueError(f"B must have the {key} of A to be compared; they have {words}")
    label_groups([base, own])
    common = [name for name in metric_names([base, own]) if _both(base, own, name)]
    common += [VAL_LOSS] if _both(base, own, VAL_LOSS) else []
    chosen = choose_metric([base, own], metric)
    if metric is None and recorded and recorded.metric in common:
        chosen = recorded.metric
    if metric is None and chosen not in common and common:
        chosen = common[0]
    if not common:
        raise ValueError("B must have a metric in common with A, each in a finished run; finish one, or evaluate it")
    if not _both(base, own, chosen):
        raise ValueError(
            f"metric={chosen} must be one of which finished runs of A and of B have a value; use {', '.join(common)}"
        )
    question = asked(recorded, chosen, estimand, margin)
    return Pair(base, own, chosen, list(dict.fromkeys([chosen, *common])), question)


def alone(folder: RunFolder, read: ConfigReader = read_config_alone) -> Iterator[Pair]:
    """Each configuration compared with itself, by each metric that it has, to see whether its runs can be compared."""
    for group in group_runs(folder.runs, read=read):
        names = [name for name in (*metric_names([group]), VAL_LOSS) if values(group, name)]
        yield from (Pair(group, group, name, names) for name in names)


def configuration(pair: Pair) -> list[Difference]:
    """In what B differs from A: options by name, then single values; not what follows from one of them."""
    own, base = (replace(group.run_config, named={}) for group in (pair.own, pair.base))
    different = differences(own, base)
    clear = [one for one in different if one.own != one.base]  # not what has a difference inside that is listed itself
    different = clear or different
    methods = [str(group.runs[0].info.get("method")) for group in (pair.own, pair.base)]
    sayings = [(one.own, one.base) for one in different]
    if methods[0] != methods[1] and tuple(methods) not in sayings:
        different.insert(0, Difference("method", *methods))
    return different


def measured_differently(pair: Pair, metric: str) -> str:
    """In which settings of the measurement of a metric the two differ; "" if in none."""
    rulers = [shared_protocol(group, metric) for group in (pair.base, pair.own)]
    if rulers[0] == rulers[1]:
        return ""
    if max(map(len, rulers)) > 1:
        return "seeds measured differently"
    (one,), (other,) = rulers
    keys = changed(one, other)
    return "; ".join(f"{key} {short(lookup(one, key))} and {short(lookup(other, key))}" for key in keys)


def _data(group: Group) -> str:
    """Name of the data, and which they were if that is recorded."""
    return f"{data_name([group])} ({group.data_key[:6]})" if group.data_key else data_name([group])


def _both(base: Group, own: Group, name: str) -> bool:
    return bool(values(base, name)) and bool(values(own, name))


class PairRow(NamedTuple):
    """One metric.

    Attributes:
        name: of the metric.
        table: the two groups by this metric alone; the first row is the baseline's.
        refused: in which settings they were measured differently, so that they are not compared; "" if in none.
        decides: whether it is the metric of the pair, which alone has a verdict.
    """

    name: str
    table: Table
    refused: str
    decides: bool

    @property
    def base(self) -> Row:
        return self.table.rows[0]

    @property
    def own(self) -> Row:
        return self.table.rows[-1]

    @property
    def verdict(self) -> Verdict | None:
        return self.own.verdict if self.decides else None

    @property
    def bold(self) -> bool:
        """Whether the effect may be claimed."""
        return self.verdict is not None and self.verdict.decided

    @property
    def places(self) -> int:
        """Decimals of its means and of their difference."""
        return decimals([row.metric.mean for row in self.table.rows if row.metric])


def lines_of(pair: Pair) -> list[PairRow]:
    """One line per metric. The verdict is about `pair.metric`; the others stand beside it."""
    return [
        PairRow(name, tabulate(pair.groups, name, pair.question), measured_differently(pair, name), name == pair.metric)
        for name in pair.metrics
    ]


def table_of(pair: Pair, lines: list[PairRow]) -> Comparison:
    """The lines as text."""
    base, own = (group.label for group in pair.groups)
    columns = [
        Column("metric", lambda line: with_arrow(pair.groups, line.name)),
        Column("common seeds", lambda line: str(line.own.effect.n) if line.own.effect else "none"),
        Column(base, lambda line: _mean_text(line.base, line)),
        Column(own, lambda line: _mean_text(line.own, line)),
        Column(f"compared with {base}", _effect, verdict=True),
        Column("verdict", lambda line: verdict_text(line.verdict), verdict=True),
        Column(ESTIMANDS["training" if lines[0].table.estimand == "end" else "end"], _beside),
    ]
    columns = [column for column in columns if any(map(column.cell, lines))]
    cells = [[column.of(line) for column in columns] for line in lines]
    notes = [note for line in lines if line.decides for note in (*copying_notes(line.table), *cautions(line.table))]
    said = next((answer(line.table) for line in lines if line.decides and not line.refused), "")
    return Comparison([column.heading for column in columns], cells, _legend(lines), notes, answer=said)


def _effect(line: PairRow) -> str:
    """`0.71 [0.55, 0.92] times`, `+0.52 [−0.10, +1.14]`"""
    effect = line.own.effect
    if line.refused:
        return f"n/a, measured differently: {line.refused}"
    if effect is None:
        return line.own.unpaired
    return _said(effect, line)


def _beside(line: PairRow) -> str:
    return _said(line.own.beside, line) if line.own.beside and not line.refused else ""


def _said(effect: Verdict, line: PairRow) -> str:
    times = " times" if line.table.scale == "ratio" else ""
    return f"{effect_text(effect, line.table.scale, line.places)}{times}"


def _mean_text(row: Row, line: PairRow) -> str:
    return row.note or with_interval(row.metric, line.places).replace(", no interval", "")


def _legend(lines: list[PairRow]) -> str:
    (decides,) = (line for line in lines if line.decides)
    if decides.own.silent == "race":
        return "final values: mean over finished seeds; ratio or difference over the common seeds; there is no verdict"
    text = (
        "final values: mean over finished seeds [95 % interval of Student's t]; ratio or difference over the common "
        "seeds with its 95 % interval, each metric by itself"
    )
    verdict = decides.verdict
    if verdict is None:
        return f"{text}; there is no verdict"
    if verdict.word == "no claim":
        return f"{text}; with fewer than {CLAIM_SEEDS} common seeds there is no verdict"
    return f"{text}; {verdict_words(decides.table)}; it is about {decides.name} alone, the metric that was chosen"
