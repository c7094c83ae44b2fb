"""W&B's document of a workspace, made by the package wandb-workspaces, without a network."""

from __future__ import annotations

import json

import pytest

from diffusion_lab.dashboards import (
    RunSelection,
    Workspace,
    expected,
    sections,
    specification,
    upload,
    write_specification,
)
from diffusion_lab.loggers.wandb_service import LoggedList, chart
from tests.dashboards.document import asked, panels

pytestmark = pytest.mark.filterwarnings("ignore:Pydantic V1 style:DeprecationWarning")  # of wandb-workspaces' import
BETTER = {"fd1k_digits": "lower"}


def workspace(**selection) -> Workspace:
    return Workspace("adaptive_beta scale=smoke", "lab", RunSelection(**selection), sections(expected(BETTER)))


def test_the_document_has_every_panel_with_its_keys() -> None:
    document = specification(workspace())
    wanted = [panel for section in workspace().sections for panel in section.panels]
    shown = list(panels(document))
    assert len(shown) == len(wanted) > 15
    keys = {key for panel in shown for values in asked(panel).values() for key in values}
    assert {"metrics/fd1k_digits", "images", "seconds", "val/loss_t_table: log_snr", "samples"} <= keys


def test_seeds_are_averaged_within_a_method() -> None:
    document = specification(workspace(tags=("paper:adaptive_beta", "scale:smoke")))
    (runs,) = document["section"]["runSets"]
    assert [key["name"] for key in runs["grouping"]] == ["method.value", "seed_group.value"]
    lines = [panel["config"] for panel in panels(document) if panel["viewType"] == "Run History Line Plot"]
    assert {(line["groupAgg"], line["groupArea"]) for line in lines} == {("mean", "minmax")}


@pytest.mark.parametrize(
    ("selection", "filters"),
    [
        ({"tags": ("paper:x", "scale:smoke")}, [("tags", ["paper:x"]), ("tags", ["scale:smoke"])]),
        ({"groups": ("sweep-a", "sweep-b")}, [("group", ["sweep-a", "sweep-b"])]),
    ],
)
def test_runs_are_selected_by_tag_or_group(selection, filters) -> None:
    (runs,) = specification(workspace(**selection))["section"]["runSets"]
    found = runs["filters"]["filters"]
    assert [(entry["key"]["section"], entry["op"]) for entry in found] == [("run", "IN")] * len(filters)
    assert [(entry["key"]["name"], entry["value"]) for entry in found] == filters


@pytest.mark.parametrize("group", ["lr=0.1", "it's", "a\\", "a<b"])
def test_a_group_that_its_filters_would_change_is_refused(group: str) -> None:
    with pytest.raises(ValueError, match="^logger.wandb.group and tags must have none of . for a dashboard, because"):
        specification(workspace(groups=(group,)))
    (runs,) = specification(workspace(groups=('a"b, é',)))["section"]["runSets"]
    assert runs["filters"]["filters"][0]["value"] == ['a"b, é']


def test_a_chart_asks_for_the_table_as_wandb_itself_does() -> None:
    own = chart("val/loss_t", LoggedList([1.0, 2.0], {"timestep": [5.0, 15.0], "log_snr": [2.0, -2.0]}, 1))
    own.set_key("val/loss_t")
    theirs = own.spec.config_value["panel_config"]
    charts = [panel["config"] for panel in panels(specification(workspace())) if panel["viewType"] == "Vega2"]
    (ours,) = [c for c in charts if "val/loss_t_table" in json.dumps(c) and c["fieldSettings"]["x"] == "timestep"]
    assert ours["panelDefId"] == theirs["panelDefId"] and ours["transform"] == theirs["transform"]
    assert ours["fieldSettings"] == {key: value for key, value in theirs["fieldSettings"].items() if value is not None}
    fields, wanted = (
        {field["name"]: field.get("args") for field in config["userQuery"]["queryFields"][0]["fields"]}
        for config in (ours, theirs)
    )
    assert {name: args for name, args in fields.items() if args} == {n: args for n, args in wanted.items() if args}
    assert set(fields) == set(wanted)


def test_what_is_uploaded_is_the_document(monkeypatch) -> None:
    import wandb_workspaces.workspaces.interface as interface
    import wandb_workspaces.workspaces.internal as internal

    sent = []
    answer = {"upsertView": {"view": {"name": "nw-abc-v", "id": "1"}}}
    monkeypatch.setattr(internal, "upsert_view2", lambda view: sent.append(view) or answer)
    monkeypatch.setattr(interface, "get_app_url", lambda api: "https://wandb.test")
    monkeypatch.setattr("wandb.Api", lambda: None)
    given = workspace(tags=("paper:adaptive_beta",))
    assert upload(given, "me") == "https://wandb.test/me/lab?nw=abc"
    (view,) = sent
    assert (view.entity, view.project, view.display_name) == ("me", "lab", "adaptive_beta scale smoke")
    assert view.spec.model_dump(mode="json", by_alias=True, exclude_none=True) == specification(given)


def test_the_same_workspace_gives_the_same_file(tmp_path) -> None:
    for name in ("a.json", "b.json"):
        write_specification(tmp_path / name, workspace())
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    ids = [panel["__id__"] for panel in panels(json.loads((tmp_path / "a.json").read_text()))]
    assert len(set(ids)) == len(ids)
