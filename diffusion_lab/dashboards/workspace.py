"""A dashboard as a workspace of Weights & Biases, made by the package wandb-workspaces (extra `[dashboard]`).

Runs are grouped by method and, within it, by `seed_group`, so that lines are means over seeds. W&B keeps a workspace as
a JSON document, its specification; the same document is written and uploaded.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import singledispatch
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from diffusion_lab.dashboards.layout import Section
from diffusion_lab.dashboards.panels import Bars, Chart, Lines, Panel, Pictures
from diffusion_lab.files import write_json
from diffusion_lab.runs.mirror import LINES, TABLE, VALUE

GROUPED = ("method", "seed_group")  # keys of the runs' configuration
MOST_RUNS = 100  # lines in a panel


class Selection(NamedTuple):
    """Which runs of a project are shown: those with all of the tags, and of one of the groups if any are given."""

    tags: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


class Workspace(NamedTuple):
    """A dashboard.

    Attributes:
        name: its name on the web page.
        project: W&B project.
        selection: the runs.
        sections: the panels.
    """

    name: str
    project: str
    selection: Selection
    sections: Sequence[Section]


def check_installed() -> None:
    """Check that the package wandb-workspaces is installed.

    Raises:
        ValueError: it is not.
    """
    if find_spec("wandb_workspaces") is None:
        raise ValueError(
            "a dashboard must be made by the package wandb-workspaces, which is not installed; "
            "pip install 'diffusion-lab[dashboard]'"
        )


def specification(workspace: Workspace) -> dict[str, Any]:
    """W&B's JSON document of the workspace; the same workspace gives the same document."""
    return as_wandb(workspace, "")._to_model().spec.model_dump(mode="json", by_alias=True, exclude_none=True)


def write_specification(path: Path, workspace: Workspace) -> Path:
    """Write the document.

    Raises:
        OSError: the path cannot be written to.
    """
    write_json(path, specification(workspace))
    return path


def upload(workspace: Workspace, entity: str) -> str:
    """Make a new workspace in W&B; returns its address. Needs an API key and a network."""
    return as_wandb(workspace, entity).save().url


def as_wandb(workspace: Workspace, entity: str) -> Any:
    """The `Workspace` of wandb-workspaces; `entity` is the user or team."""
    import wandb_workspaces.workspaces as ws
    from wandb_workspaces import expr

    tags = [expr.Metric("Tags").isin([tag]) for tag in workspace.selection.tags]
    groups = [expr.Metric("Group").isin(list(workspace.selection.groups))] if workspace.selection.groups else []
    return ws.Workspace(
        entity=entity,
        project=workspace.project,
        name=re.sub(r"[^\w .,/-]+", " ", workspace.name),  # W&B refuses symbols such as =
        sections=[_section(section) for section in workspace.sections],
        settings=ws.WorkspaceSettings(max_runs=MOST_RUNS),
        runset_settings=ws.RunsetSettings(
            filters=expr.And(*tags, *groups) if tags or groups else "", groupby=[expr.Config(key) for key in GROUPED]
        ),
    )


def _section(section: Section) -> Any:
    import wandb_workspaces.workspaces as ws

    panels = [as_panel(panel) for panel in section.panels]
    for panel, own in zip(panels, section.panels, strict=True):
        # In place of a random identifier.
        panel._id = hashlib.sha256(f"{section.name}/{own}".encode()).hexdigest()[:11]
    layout = ws.SectionLayoutSettings(columns=section.columns, rows=section.rows)
    return ws.Section(name=section.name, panels=panels, is_open=True, layout_settings=layout)


@singledispatch
def as_panel(panel: Panel) -> Any:
    """The panel of wandb-workspaces."""
    raise TypeError(f"{type(panel).__name__} has no panel in W&B")


@as_panel.register
def _(panel: Lines) -> Any:
    import wandb_workspaces.reports.v2 as wr

    return wr.LinePlot(
        title=panel.title,
        x=panel.x,
        y=list(panel.y),
        title_x=panel.x_title,
        log_y=panel.log_y,
        groupby_aggfunc="mean",
        groupby_rangefunc="minmax",
    )


@as_panel.register
def _(panel: Chart) -> Any:
    import wandb_workspaces.reports.v2 as wr

    # As `wandb.plot.line` asks for the table of a run.
    query = {"id": None, "name": None, "_defaultColorIndex": None}
    return wr.CustomChart(
        query=query | {"summaryTable": {"tableKey": panel.key + TABLE}},
        chart_name=LINES,
        chart_fields={"x": panel.over, "y": VALUE},
        chart_strings={"title": panel.title},
    )


@as_panel.register
def _(panel: Pictures) -> Any:
    import wandb_workspaces.reports.v2 as wr

    return wr.MediaBrowser(title=panel.title, media_keys=[panel.key], num_columns=4)


@as_panel.register
def _(panel: Bars) -> Any:
    import wandb_workspaces.reports.v2 as wr

    return wr.BarPlot(title=panel.title, metrics=[panel.key], groupby_aggfunc="mean", groupby_rangefunc="minmax")
