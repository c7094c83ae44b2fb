"""The report as one self-contained HTML page, without network access. A page of many methods has a script that sorts
and filters its tables, and says all it has to say without it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from diffusion_lab.plotting import as_address, line_style, many
from diffusion_lab.printable import printable
from diffusion_lab.reports import figures
from diffusion_lab.reports.comparison.along import along, course_table
from diffusion_lab.reports.comparison.cells import Cell, Comparison, as_text, decimals, with_interval
from diffusion_lab.reports.comparison.groups import Group
from diffusion_lab.reports.comparison.metrics import VAL_LOSS, interval, metric_names, protocols, values, with_arrow
from diffusion_lab.reports.comparison.rows import Table, tabulate
from diffusion_lab.reports.comparison.sections import Section, numbered
from diffusion_lab.reports.comparison.shown import FEW, Choice, shown, shown_words
from diffusion_lab.reports.pages import notes, samples
from diffusion_lab.reports.pages.files import latex, markdown, save
from diffusion_lab.runs.analyses import read_analyses
from diffusion_lab.runs.run import RunFolder

if TYPE_CHECKING:
    from jinja2 import Environment

_COMMON = ("dataset.source", "network", "schedule", "prediction", "weighting", "optimizer", "solver")
_SETTINGS = ("max_steps", "batch_size", "precision")


class Part(NamedTuple):
    """The content of one section, for the terminal, the page and the files.

    Attributes:
        section: the compared groups.
        table: their comparison.
        figures: the figures for which the runs have data.
        shown: the groups that are drawn, all of few.
        note: what is shown if it is not all.
    """

    section: Section
    table: Comparison
    figures: Sequence[figures.Figure]
    shown: Sequence[Group]
    note: str = ""

    @property
    def brief(self) -> Comparison:
        """The rows of the table that are drawn, for a terminal."""
        drawn, groups = set(map(id, self.shown)), self.section.groups
        lines = [line for group, line in zip(groups, self.table.lines, strict=True) if id(group) in drawn]
        return self.table._replace(lines=lines)


class Course(NamedTuple):
    """How the sections with one value of a key each follow one another: a title, their table and its figure."""

    title: str
    table: Comparison
    figure: figures.Figure | None


class Report(NamedTuple):
    """All sections of a folder.

    Attributes:
        folder: the runs.
        parts: the sections; empty if no run has started.
        courses: over the values of the key within which groups are compared; empty without one.
    """

    folder: RunFolder
    parts: Sequence[Part]
    courses: Sequence[Course] = ()

    @property
    def tables(self) -> dict[str, Comparison]:
        """Title -> table, those over the values of a key first."""
        courses = {course.title: course.table for course in self.courses}
        return courses | {part.section.title: part.table for part in self.parts}

    @property
    def groups(self) -> list[Group]:
        """The groups of all sections."""
        return [group for part in self.parts for group in part.section.groups]

    @property
    def metric(self) -> str:
        """The metric of the first section."""
        return self.parts[0].section.metric if self.parts else VAL_LOSS


def make_report(
    folder: RunFolder, sections: Sequence[Section], by: str | None = None, choice: Choice | None = None
) -> Report:
    """Compare and draw.

    Args:
        folder: from `read_runs`.
        sections: from `sections_of`.
        by: configuration key that names the groups; None: the method.
        choice: which rows of a table are drawn; None: all of a few, some of many.

    Raises:
        ValueError: `choice` names no row.
    """
    groups = [section.groups for section in sections]
    tables = [tabulate(section.groups, section.metric, section.question) for section in sections]
    parts = [
        _made(one, table, by, (choice or Choice()).among(groups, one.groups))
        for one, table in zip(sections, tables, strict=True)
    ]
    courses = along(sections, tables)
    titles = numbered([f"{one.data}, along {one.key}: {one.metric}" for one in courses])
    made = zip(titles, courses, strict=True)
    return Report(folder, parts, [Course(t, course_table(one, by), figures.along_figure(one)) for t, one in made])


def _made(section: Section, table: Table, by: str | None, choice: Choice) -> Part:
    drawn = shown(table, choice)
    return Part(section, as_text(table, by), figures.of_section(table, drawn), drawn, shown_words(table, drawn, choice))


def write_figures(directory: str | Path, report: Report) -> list[Path]:
    """Write each figure of the page as an SVG file with a name from its title; ValueError if the folder cannot be
    written to."""
    found = [(part.section.title * (len(report.parts) > 1), figure) for part in report.parts for figure in part.figures]
    courses = [(course.title * (len(report.courses) > 1), course.figure) for course in report.courses]
    found += [(title, figure) for title, figure in courses if figure]
    words = [re.sub(r"[^a-z0-9]+", "-", f"{title} {figure.title}".lower()).strip("-") for title, figure in found]
    paths = [Path(directory) / f"{name}.svg" for name in numbered(words, "{}-{}")]
    for path, (_, figure) in zip(paths, found, strict=True):
        save(path, figure.svg, "figures")
    return paths


def page(report: Report) -> str:
    """The page as text."""
    return rendered("page.html.j2", _content(report))


def rendered(template: str, content: dict[str, Any]) -> str:
    """A template of this folder with its variables."""
    return environment().get_template(template).render(**content)


def environment(*folders: Path) -> Environment:
    """Templates, of other folders before this one, in which a value is neither HTML nor a character that reorders or
    hides text."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader([*folders, Path(__file__).parent]),
        autoescape=True,
        finalize=lambda value: printable(value) if type(value) is str else value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _content(report: Report) -> dict[str, Any]:
    """The variables of the template."""
    folder = report.folder
    troubles, waiting = notes.listed(notes.troubles(folder, report.metric))
    command, reason = notes.next_command(folder, report.groups, report.metric)
    return {
        "title": folder.path.resolve().name,
        "counts": folder.counts,
        "versions_differ": notes.version_warnings(folder),
        "troubles": troubles,
        "waiting": waiting,
        "courses": [(one, markdown(one.table), latex(one.table)) for one in report.courses],
        "parts": [_part(folder, part) for part in report.parts],
        "analyses": analysed(folder),
        "commands": folder.commands,
        "large": any(part.note for part in report.parts),
        "runs": [(folder.relative(run.folder), run.status, run.command) for run in folder.runs],
        "versions": notes.versions(folder.runs),
        "next_command": command,
        "next_reason": reason,
    }


def _part(folder: RunFolder, part: Part) -> dict[str, Any]:
    """The variables of the template for one section."""
    title, groups, metric = part.section[:3]
    colors = {id(group): line_style(i).color for i, group in enumerate(part.shown)}
    return {
        "title": title,
        "note": part.note,
        "settings": _settings(groups),
        "warnings": [*part.table.notes, *notes.warnings(folder, groups, metric)],
        "figures": part.figures,
        "sample_columns": samples.columns(part.shown),
        "newest": samples.newest(part.shown),
        "many": many(len(part.shown)),
        "course": samples.samples_over_training(part.shown),
        "metric_table": _all_metrics(groups),
        "differences": _differences(groups),
        "protocols": notes.protocol_table(groups, sorted(metric_names(groups), key=lambda name: name != metric)),
        "colors": [colors.get(id(group), "transparent") for group in groups],
        "configs": [(group.label, json.dumps(group.config, indent=1, default=str)) for group in part.shown],
        "table": part.table,
        "markdown": markdown(part.table),
        "latex": latex(part.table),
    }


def _all_metrics(groups: Sequence[Group]) -> Comparison:
    """One line per metric, one column per group: mean and interval, and the step if it is not the last one. Of many
    groups, one line per group."""
    names = [name for name in metric_names(groups) if any(values(group, name) for group in groups)]
    table = [["metric", *(group.label for group in groups)], *(_metric_line(groups, name) for name in names)]
    if len(groups) > FEW and len(names) > 1:
        table = [list(column) for column in zip(*table, strict=True)]
    return _plain(table[0], table[1:])


def _plain(titles: list[str], lines: list[list[str]]) -> Comparison:
    return Comparison(titles, [[Cell(text) for text in line] for line in lines], "", [])


def _metric_line(groups: Sequence[Group], name: str) -> list[str]:
    means = [interval(list(values(group, name).values())) for group in groups]
    places = decimals([mean.mean for mean in means if mean])
    texts = [with_interval(mean, places).replace(", no interval", "") for mean in means]
    steps = [", ".join(map(str, notes.earlier_steps(group, name))) for group in groups]
    texts = [f"{text} (at step {at})" if at else text for text, at in zip(texts, steps, strict=True)]
    mixed = ["n/a (mixed protocols)" if len(protocols(group, name)) > 1 else "" for group in groups]
    return [with_arrow(groups, name), *(a or b for a, b in zip(mixed, texts, strict=True))]


def _differences(groups: Sequence[Group]) -> Comparison:
    """The configuration keys in which the groups differ."""
    keys = list(dict.fromkeys(key for group in groups for key in group.differences))
    if len(keys) == 1 and all(group.label == group.differences.get(keys[0]) for group in groups):
        return _plain(["method"], [])  # the names contain all differences
    lines = [[group.label, *(group.differences.get(key, "") for key in keys)] for group in groups]
    return _plain(["method", *keys], lines)


def _settings(groups: Sequence[Group]) -> list[tuple[str, str]]:
    """The main settings of the groups; `several` if they differ."""
    settings = []
    for key in (*_COMMON, *_SETTINGS):
        options = {group.word(key) for group in groups} - {"null", "none"}
        if options:
            settings.append((key.removesuffix(".source"), options.pop() if len(options) == 1 else "several"))
    counts = {run.info.get("parameters") for group in groups for run in group.runs} - {None}
    if len(counts) == 1:
        settings.append(("parameters", f"{counts.pop():,}".replace(",", "\N{NO-BREAK SPACE}")))
    return settings


def analysed(folder: RunFolder) -> list[dict[str, str]]:
    """The variables of the template for the analyses of the folder and of all folders between it and its runs, then for
    those of each run."""
    top = Path(os.path.realpath(folder.path))
    real = [Path(os.path.realpath(run.folder)) for run in folder.runs]
    places = [place for place in real if place.is_relative_to(top)]
    above = {place for run in places for place in run.parents if place.is_relative_to(top)} | {top}
    found = [one for place in dict.fromkeys([*sorted(above), *places]) for one in read_analyses(place, top)]
    return [
        {
            "title": one.name.replace("_", " ").capitalize(),
            "where": os.path.relpath(one.folder, top),
            "sentence": one.sentence,
            "models": "; ".join(one.models),
            "image": as_address(one.figure),
        }
        for one in found
    ]
