"""A dashboard as a workspace of Weights & Biases, made by the package wandb-workspaces (extra `[dashboard]`).

Runs are grouped by method and, within it, by `seed_group`, so that lines are means over seeds. W&B keeps a workspace as
a JSON document, its specification; the same document is written and uploaded.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from diffusion_lab.dashboards.layout import Bars, Chart, Lines, Panel, PanelSection, Pictures
from diffusion_lab.files import write_json
from diffusion_lab.runs.wandb_names import LINES, TABLE, VALUE

GROUPED = ("method", "seed_group")  # keys of the runs' configuration
MOST_RUNS = 100  # lines in a panel


class RunSelection(NamedTuple):
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
    selection: RunSelection
    sections: Sequence[PanelSection]


def check_installed() -> None:
    """ValueError unless the package wandb-workspaces is installed."""
    if find_spec("wandb_workspaces") is None:
        raise ValueError(
            "a dashboard must be made by the package wandb-workspaces, which is not installed; "
            "pip install 'diffusion-lab[dashboard]'"
        )


def specification(workspace: Workspace) -> dict[str, Any]:
    """W&B's JSON document of the workspace; the same workspace gives the same document."""
    return as_wandb(workspace, "")._to_model().spec.model_dump(mode="json", by_alias=True, exclude_none=True)


def write_specification(path: Path, workspace: Workspace) -> Path:
    """Write the document; OSError if the path cannot be written to."""
    write_json(path, specification(workspace))
    return path


def upload(workspace: Workspace, entity: str) -> str:
    """Make a new workspace in W&B; returns its address. Needs an API key and a network."""
    return as_wandb(workspace, entity).save().url


def as_wandb(workspace: Workspace, entity: str) -> Any:
    """The `Workspace` of wandb-workspaces; `entity` is the user or team. ValueError: filters cannot name a group."""
    import wandb_workspaces.workspaces as ws
    from wandb_workspaces import expr

    for word in (*workspace.selection.tags, *workspace.selection.groups):
        if found := set(word) & set("=<>'\\"):
            raise ValueError(
                f"logger.wandb.group and tags must have none of {' '.join(sorted(found))} for a dashboard, because the "
                f"filters of wandb-workspaces change it, and {word} has; train with another group or tag"
            )
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


def _section(section: PanelSection) -> Any:
    import wandb_workspaces.workspaces as ws

    panels = [as_panel(panel) for panel in section.panels]
    for panel, own in zip(panels, section.panels, strict=True):
        # In place of a random identifier.
        panel._id = hashlib.sha256(f"{section.name}/{own}".encode()).hexdigest()[:11]
    layout = ws.SectionLayoutSettings(columns=section.columns, rows=section.rows)
    return ws.Section(name=section.name, panels=panels, is_open=True, layout_settings=layout)


def as_panel(panel: Panel) -> Any:
    """The panel of wandb-workspaces."""
    import wandb_workspaces.reports.v2 as wr

    over_seeds: dict[str, Any] = {"groupby_aggfunc": "mean", "groupby_rangefunc": "minmax"}
    match panel:
        case Lines(title, x, y, x_title, log_y):
            return wr.LinePlot(title=title, x=x, y=list(y), title_x=x_title, log_y=log_y, **over_seeds)
        case Chart(title, key, over):
            # As `wandb.plot.line` asks for the table of a run.
            query = {"id": None, "name": None, "_defaultColorIndex": None, "summaryTable": {"tableKey": key + TABLE}}
            fields, strings = {"x": over, "y": VALUE}, {"title": title}
            return wr.CustomChart(query=query, chart_name=LINES, chart_fields=fields, chart_strings=strings)
        case Pictures(title, key):
            return wr.MediaBrowser(title=title, media_keys=[key], num_columns=4)
        case Bars(title, key):
            return wr.BarPlot(title=title, metrics=[key], **over_seeds)
    raise TypeError(f"{type(panel).__name__} has no panel in W&B")
