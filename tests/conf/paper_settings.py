"""The papers' settings in `experiments/*/settings.yaml`, and where a composed configuration differs from them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig

from tests.conf.paper_jobs import Cell
from tests.conf.paper_keys import CHECKS, SAME

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
Settings = dict[str, dict[str, Any]]  # name -> {value, from, ..}


@cache
def papers() -> dict[str, dict[str, Any]]:
    """Folder of a paper -> its file."""
    files = sorted(EXPERIMENTS.glob("*/settings.yaml"))
    return {path.parent.name: yaml.safe_load(path.read_text()) for path in files}


def is_written(name: str) -> bool:
    """Whether the settings of the table PAPER/NAME are in the paper's file."""
    paper, table = name.split("/")
    return table in papers().get(paper, {}).get("tables", {})


def settings_of(paper: dict[str, Any], table: str, cell: Cell) -> Settings:
    """The settings of one model: those of the table, the column, the row, the two together and the model, the later
    ones standing. A table without columns or models has the same settings in all of them.

    Raises:
        KeyError: the file has no such table, row, column or model.
    """
    node = paper["tables"][table]
    node = paper["tables"][node["as"]] if "as" in node else node
    row = dict(node["rows"][cell.row])
    models = row.pop("models", [{}])
    layers = [
        {"like": node.get("like", []), **node.get("settings", {})},
        node["columns"][cell.column] if "columns" in node else {},
        row,
        node.get("cells", {}).get(cell.row, {}).get(cell.column, {}),
        models[cell.model] if len(models) > 1 else models[0],
    ]
    merged: Settings = {}
    for layer in layers:
        merged.update(_with_shared(layer, paper["shared"]))
    return merged


def _with_shared(node: dict[str, Any], shared: dict[str, Any]) -> Settings:
    merged: Settings = {}
    for name in node.get("like", []):
        merged.update(_with_shared(shared[name], shared))
    return merged | {name: entry for name, entry in node.items() if name != "like"}


def differences(settings: Settings, config: DictConfig) -> list[str]:
    """One sentence, which begins with the name, for every setting that the configuration does not have."""
    found = {name: CHECKS[name](entry["value"], config) for name, entry in settings.items()}
    return [
        f"{name}: {settings[name]['value']} is expected ({settings[name]['from']}), the configuration has {has}"
        for name, has in found.items()
        if has is not SAME
    ]
