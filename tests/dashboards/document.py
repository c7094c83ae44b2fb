"""What the panels of a W&B document ask for, and what an offline run has logged; both read from the files alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from diffusion_lab.dashboards import LoggedKeys
from diffusion_lab.runs.wandb_names import TABLE


def panels(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The panels of all sections."""
    for section in document["section"]["panelBankConfig"]["sections"]:
        yield from section["panels"]


def asked(panel: dict[str, Any]) -> dict[str, list[str]]:
    """Kind of key -> the keys that a panel shows: numbers, tables (`key: column`) or pictures."""
    config = panel["config"]
    if panel["viewType"] == "Vega2":
        (query,) = config["userQuery"]["queryFields"]
        (table,) = [field for field in query["fields"] if field["name"] == "summaryTable"]
        (argument,) = table["args"]
        return {"tables": [f"{argument['value']}: {column}" for column in config["fieldSettings"].values()]}
    if panel["viewType"] == "Media Browser":
        return {"pictures": config["mediaKeys"]}
    return {"numbers": [*config["metrics"], *([config["xAxis"]] if "xAxis" in config else [])]}


def given(run: dict[str, Any]) -> dict[str, set[str]]:
    """Kind of key -> what a run of `tests.loggers.wandb_file.read_run` has logged."""
    rows = [item for row in run["history"] for item in row.items()]
    kinds = {key.removesuffix("/_type"): kind for key, kind in rows if key.endswith("/_type")}
    numbers = {key for key, _ in rows if not key.startswith("_") and not any(key.startswith(f"{k}/") for k in kinds)}
    tables = {f"{key}: {column}" for key, table in run["tables"].items() for column in table["columns"]}
    return {"numbers": numbers, "tables": tables, "pictures": {k for k, kind in kinds.items() if kind == "image-file"}}


def absent(document: dict[str, Any], there: dict[str, set[str]]) -> list[str]:
    """What panels ask for and was not logged, with the title or kind of the panel."""
    return [
        f"{panel['viewType']}: {key}"
        for panel in panels(document)
        for kind, keys in asked(panel).items()
        for key in keys
        if key not in there[kind]
    ]


def as_logged(run: dict[str, Any], better: dict[str, str]) -> LoggedKeys:
    """The same as `LoggedKeys`."""
    there = given(run)
    lists = {key.removesuffix(TABLE): tuple(table["columns"]) for key, table in run["tables"].items()}
    return LoggedKeys(frozenset(there["numbers"]), lists, frozenset(there["pictures"]), better)
