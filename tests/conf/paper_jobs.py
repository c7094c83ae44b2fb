"""The jobs of the papers' tables at paper scale, as `diffusion-lab reproduce` composes them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

from omegaconf import DictConfig, OmegaConf

from diffusion_lab.cli.config import conf_dir, plain
from diffusion_lab.cli.table_files import load_scale, load_table, table_names
from diffusion_lab.cli.table_jobs import Jobs
from diffusion_lab.tables import Table


class Cell(NamedTuple):
    """A model of a row under a column."""

    row: str
    column: str
    model: int = 0


@cache
def tables() -> dict[str, Table]:
    """PAPER/NAME -> table or figure of a paper; ablations are this project's own."""
    folders = [conf_dir()]
    found = {name: load_table(name, folders) for name in table_names(folders)}
    return {name: table for name, table in found.items() if table.kind != "ablation"}


def cells(table: Table) -> list[Cell]:
    """What a table trains at paper scale."""
    return [
        Cell(row.name, column.name, number)
        for row in table.rows
        if "paper" not in row.absent
        for column in table.columns_of(row)
        for number in range(len(row.models))
    ]


def job(name: str, cell: Cell) -> DictConfig:
    """The configuration of a job without references, so that one key can be changed alone."""
    return _of_row(name, cell.row)[cell]


@cache
def _of_row(name: str, row_name: str) -> dict[Cell, DictConfig]:
    table = tables()[name]
    row = table.row(row_name)
    starts = {(row.start, column.name, 0): Path("start") for column in table.columns_of(row)}
    found = {}
    for one in Jobs(table, load_scale("paper", [conf_dir()])).of([row], [0], starts):
        config = DictConfig(plain(one.config))
        if row.start:  # known to the words alone
            OmegaConf.update(config, "init_from", next(word for word in one.words if "init_from=" in word))
        found[Cell(row_name, one.column.name, one.model)] = config
    return found
