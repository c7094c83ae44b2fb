"""The comparison of two groups as one self-contained HTML page, without network access or scripts."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from diffusion_lab.plotting import line_style
from diffusion_lab.reports import figures
from diffusion_lab.reports.comparison.cells import Cell, Comparison
from diffusion_lab.reports.comparison.differences import Difference, lookup
from diffusion_lab.reports.comparison.groups import Group
from diffusion_lab.reports.comparison.rows import tabulate
from diffusion_lab.reports.figures.curves import speed_up
from diffusion_lab.reports.pages import notes, samples
from diffusion_lab.reports.pages.html import rendered
from diffusion_lab.reports.pair.pair import Pair, configuration, lines_of, table_of
from diffusion_lab.reports.pair.speedup_of_runs import (
    FEWEST_POINTS,
    HOW,
    RunsSpeedUp,
    in_images,
    in_seconds,
    none_of,
    sentences,
)
from diffusion_lab.runs.shell_commands import command, setting

# Sample i of a run's grids is a function of (seed of the grids, i), so two grids correspond image by image if these are
# the same; data and task are the same in a pair.
LATENTS = "metrics.seed"  # of grids 0 if it is null
SAME = {LATENTS: "seed of the latents", "solver": "solver", "callbacks.generation.grid": "number of images"}


class PairReport(NamedTuple):
    """What the terminal and the page show.

    Attributes:
        pair: the two groups.
        configuration: in what B differs from A.
        metrics: final values as a table.
        speed: sentences on the speed-up.
    """

    pair: Pair
    configuration: list[Difference]
    metrics: Comparison
    speed: list[str]

    @property
    def differences(self) -> Comparison:
        """The configuration as a table."""
        lines = [[Cell(one.key), Cell(one.base), Cell(one.own)] for one in self.configuration]
        return Comparison(["configuration", *(group.label for group in self.pair.groups)], lines, "", [])


def make_pair_report(pair: Pair) -> PairReport:
    """Compare two groups."""
    return PairReport(pair, configuration(pair), table_of(pair, lines_of(pair)), speed_words(pair))


def speed_words(pair: Pair) -> list[str]:
    """The speed-up in images and in training time, or why there is none."""
    names = pair.base.label, pair.own.label, pair.metric
    base, own = judged(pair)
    both: list[RunsSpeedUp] = [of_runs(base, own, pair.metric) for of_runs in (in_images, in_seconds)]
    whys = [one.why if one.found is None else none_of(one.found, *names) for one in both]
    if whys[0] and whys[0] == whys[1]:
        return [f"No speed-up can be given: {whys[0]}."]
    said = []
    for unit, measured, why in zip(("images", "seconds"), both, whys, strict=True):
        if measured.found is None or why:
            said.append(f"No speed-up in {unit}: {why}.")
            continue
        said += sentences(measured.found, *names, unit)
        if measured.left_out:
            said.append(f"Without {measured.left_out} common seeds that have fewer than {FEWEST_POINTS} evaluations.")
    return said if all(whys) else [*said, HOW]


def pair_page(report: PairReport, command: str) -> str:
    """The HTML of a report from `make_pair_report`; `command` made it."""
    return rendered("pair.html.j2", _content(report, command))


def judged(pair: Pair) -> list[Group]:
    """The two groups without the runs that diverged, as the verdict is about them."""
    return tabulate(pair.groups, pair.metric, pair.question).without_diverged(pair.groups)


def drawn(pair: Pair) -> list[figures.Figure]:
    """The figures for which the runs have data."""
    base, own = groups = judged(pair)
    made = [
        speed_up(base, own, pair.metric),
        figures.quality_over_training(groups, pair.metric),
        figures.against_time(groups, pair.metric),
        figures.loss_by_timestep(groups),
        figures.drawn(groups),
        figures.cost(groups),
    ]
    return [figure for figure in made if figure is not None]


def _content(report: PairReport, command: str) -> dict[str, Any]:
    """The variables of the template."""
    pair = report.pair
    return {
        "title": f"{pair.own.label} compared with {pair.base.label}",
        "labels": [group.label for group in pair.groups],
        "colors": [line_style(i).color for i in range(2)],
        "differences": report.differences,
        "metrics": report.metrics,
        "speed": report.speed,
        "figures": drawn(pair),
        "sample_columns": samples.columns(pair.groups),
        "strips": strips(pair),
        "remark": remark(pair),
        "protocols": notes.protocol_table(pair.groups, [name for name in pair.metrics if "/" not in name]),
        "runs": [(group.label, run.seed, run.status, run.command) for group in pair.groups for run in group.runs],
        "configs": [(group.label, json.dumps(group.config, indent=1, default=str)) for group in pair.groups],
        "versions": notes.versions([run for group in pair.groups for run in group.runs]),
        "command": command,
    }


def unequal(pair: Pair) -> list[str]:
    """What the grids of the two runs do not have in common, in words; empty if they are from equal noise."""
    found = []
    for key, words in SAME.items():
        one, other = (lookup(group.config, key) for group in pair.groups)
        if one != other and not (key == LATENTS and {one, other} == {None, 0}):
            values = [group.word(key) for group in pair.groups]
            found.append(f"{words} ({values[0]} and {values[1]})" if values[0] != values[1] else words)
    return found


def strips(pair: Pair) -> list[samples.Strip]:
    """The newest grids side by side, one strip per seed; empty without grids of both, or if the noise is unequal."""
    if unequal(pair) or not all(_has(group) for group in pair.groups):
        return []
    return samples.newest(pair.groups)


def remark(pair: Pair) -> str:
    """What the grids show, or why there are none and how to make some."""
    missing = [group.label for group in pair.groups if not _has(group)]
    other = unequal(pair)
    if not missing and not other:
        return "The newest grid of each run, from equal latents and solver noise: images at one place correspond."
    reason = f"{' and '.join(missing)} kept no grids" if missing else f"the grids differ in the {', '.join(other)}"
    commands = " and ".join(_command(group) for group in pair.groups)
    return f"No grids from equal noise: {reason}. {commands} make them, with the same solver=... and seed=... for both."


def _has(group: Group) -> bool:
    return any(run.samples() for run in group.runs)


def _command(group: Group) -> str:
    return f"`{command('sample', setting('run', group.runs[0].folder), 'seeds=0-63')}`"
