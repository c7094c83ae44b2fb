"""The report as one HTML page that needs nothing else: no network, no script, pictures inside."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from diffusion_lab.reports import (
    difference_figure,
    drawn_course,
    figures,
    head_figures,
    loss_figures,
    notes,
    samples,
    timestep_figures,
)
from diffusion_lab.reports.cells import Comparison, compare, decimals, latex, markdown, with_interval
from diffusion_lab.reports.files import replace
from diffusion_lab.reports.groups import Group, short
from diffusion_lab.reports.plotting import look, many
from diffusion_lab.reports.runs import RunFolder
from diffusion_lab.reports.tables import interval, protocols, rising, values

_COMMON = ("dataset.source", "network", "schedule", "prediction", "weighting", "optimizer", "solver")
_SETTINGS = ("max_steps", "batch_size", "precision")


class Report(NamedTuple):
    """What the terminal, the page and the files show, made once.

    Args:
        folder: from `read_runs`.
        groups: from `group_runs`, in the order of the table; the first that has the metric is the baseline.
        metric: what to compare by.
        table: the comparison; None as long as no run has begun.
        figures: those that the runs have something for.
    """

    folder: RunFolder
    groups: Sequence[Group]
    metric: str
    table: Comparison | None
    figures: Sequence[figures.Figure]


def make_report(folder: RunFolder, groups: Sequence[Group], metric: str, by: str | None = None) -> Report:
    """Compare and draw; `by` is the configuration key that names the groups, if one was chosen."""
    if not groups:
        return Report(folder, groups, metric, None, [])
    return Report(folder, groups, metric, compare(groups, metric, by), _figures(groups, metric))


def write_page(path: str | Path, report: Report) -> Path:
    """Write the page, in one atomic replacement.

    Raises:
        ValueError: the place cannot be written to.
    """
    path = Path(path)
    replace(path, page(report).encode(), "out")
    return path


def write_figures(directory: str | Path, report: Report) -> list[Path]:
    """Each figure of the page as an SVG file, named by its title: course, loss over timesteps, and so on.

    Raises:
        ValueError: the folder cannot be written to.
    """
    paths = []
    for figure in report.figures:
        name = re.sub(r"[^a-z0-9]+", "-", figure.title.lower()).strip("-")
        path = Path(directory) / f"{name}.svg"
        replace(path, base64.b64decode(figure.image.partition("base64,")[2]), "figures")
        paths.append(path)
    return paths


def page(report: Report) -> str:
    """The page as text."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html.j2").render(**_content(report))


def _content(report: Report) -> dict[str, Any]:
    """Everything that the template names."""
    folder, groups, metric = report.folder, report.groups, report.metric
    troubles, waiting = notes.listed(notes.troubles(folder, metric))
    command, reason = notes.next_command(folder, groups, metric)
    return {
        "title": folder.path.resolve().name,
        "counts": folder.counts,
        "settings": _settings(groups),
        "warnings": notes.warnings(folder, groups, metric),
        "troubles": troubles,
        "waiting": waiting,
        "figures": report.figures,
        "sample_columns": samples.columns(groups),
        "newest": samples.newest(groups),
        "many": many(len(groups)),
        "course": samples.course(groups),
        "metric_table": _all_metrics(groups),
        "differences": _differences(groups),
        "protocols": notes.protocol_rows(groups, _measured(groups, metric)),
        "colors": [look(i).color for i in range(len(groups))],
        "configs": [(group.label, json.dumps(group.config, indent=1, default=str)) for group in groups],
        "commands": folder.commands,
        "runs": [(folder.relative(run.folder), run.status, run.command) for run in folder.runs],
        "versions": notes.versions(folder.runs),
        "next_command": command,
        "next_reason": reason,
        **_table(report.table),
    }


def _table(table: Comparison | None) -> dict[str, Any]:
    if table is None:
        return {"titles": [], "lines": [], "legend": "no run has begun to train", "markdown": "", "latex": ""}
    return table._asdict() | {"markdown": markdown(*table[:2]), "latex": latex(*table[:2])}


def _figures(groups: Sequence[Group], metric: str) -> list[figures.Figure]:
    drawn = [
        difference_figure.differences(groups, metric),
        figures.course(groups, metric),
        loss_figures.loss_by_timestep(groups),
        loss_figures.loss_course(groups),
        timestep_figures.drawn(groups),
        drawn_course.drawn_course(groups),
        timestep_figures.objective(groups),
        head_figures.heads(groups),
        figures.cost(groups),
    ]
    return [figure for figure in drawn if figure is not None]


def _measured(groups: Sequence[Group], metric: str) -> list[str]:
    """The chosen metric first, then the others."""
    names = notes.metric_names(groups)
    return sorted(names, key=lambda name: name != metric)


def _all_metrics(groups: Sequence[Group]) -> tuple[list[str], list[list[str]]]:
    """One line per metric, one column per group: mean and interval."""
    names = [name for name in notes.metric_names(groups) if any(values(group, name) for group in groups)]
    titles = ["metric", *(group.label for group in groups)]
    return titles, [_metric_line(groups, name) for name in names]


def _metric_line(groups: Sequence[Group], name: str) -> list[str]:
    means = [interval(list(values(group, name).values())) for group in groups]
    places = decimals([mean.mean for mean in means if mean])
    said = [with_interval(mean, places).replace(", no interval", "") for mean in means]
    mixed = ["n/a (mixed protocols)" if len(protocols(group, name)) > 1 else "" for group in groups]
    return [f"{name} {'↑' if rising(name) else '↓'}", *(a or b for a, b in zip(mixed, said, strict=True))]


def _differences(groups: Sequence[Group]) -> tuple[list[str], list[list[str]]]:
    """The configuration keys in which the groups differ."""
    keys = list(dict.fromkeys(key for group in groups for key in group.differences))
    if len(keys) == 1 and all(group.label == group.differences.get(keys[0]) for group in groups):
        return ["method"], []  # the names say it all
    return ["method", *keys], [[group.label, *(group.differences.get(k, "") for k in keys)] for group in groups]


def _settings(groups: Sequence[Group]) -> list[tuple[str, str]]:
    """What all groups share, in a few words; `several` where they differ."""
    said = []
    for key in (*_COMMON, *_SETTINGS):
        found = {short(_get(group.config, key)) for group in groups} - {"null"}
        if found:
            said.append((key.removesuffix(".source"), found.pop() if len(found) == 1 else "several"))
    counts = {run.info.get("parameters") for group in groups for run in group.runs} - {None}
    if len(counts) == 1:
        said.append(("parameters", f"{counts.pop():,}".replace(",", "\N{NO-BREAK SPACE}")))
    return said


def _get(config: Any, key: str) -> Any:
    for part in key.split("."):
        config = config.get(part) if isinstance(config, dict) else None
    return config
