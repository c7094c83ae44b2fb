"""The yaml of a table: what fits, and one sentence for what does not."""

from __future__ import annotations

from typing import Any

import pytest

from diffusion_lab.tables import read_table
from diffusion_lab.tables.table import cell_titles, thousands
from tests.tables.made import CONTENT, table


def test_the_usual_row_is_one_model() -> None:
    rows = {"base": {"overrides": ["method=ddpm"]}, "ours": {"models": [{"overrides": ["a=1"]}, {"seed": 1000}]}}
    made = table(rows=rows)
    assert made.row("base").models[0].overrides == ("method=ddpm",)
    assert [model.seed for model in made.row("ours").models] == [0, 1000]


def test_a_row_may_have_some_columns_alone() -> None:
    made = table()
    assert [column.name for column in made.columns_of(made.row("other"))] == ["linear"]
    assert [column.name for column in made.columns_of(made.row("base"))] == ["linear", "cosine"]


def test_cells_are_called_by_the_papers_steps() -> None:
    assert list(cell_titles(table().columns[0])) == ["100k", "200k"]
    assert [thousands(n) for n in (1_000_000, 26_042, 0)] == ["1M", "26,042", "0"]


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"estimand": "middle"}, "estimand=middle of paper/table9 must be one of end, training"),
        ({"margin": 1}, "margin of paper/table9=1 must lie in .1, inf.; use 1.1: equal within 10 %"),
        ({"kind": "tabel"}, "kind=tabel of paper/table9 must be one of table, figure, ablation"),
        ({"baseline": "bass"}, "baseline=bass of paper/table9 must be a row; use one of base, ours, other"),
        (
            {"columns": {"linear": {"at": [1, 2], "baseline": "bass"}, "cosine": {"at": [1]}}},
            "baseline=bass of paper/table9 must be a row",
        ),
        (
            {"columns": {"linear": {"at": [1, 2]}, "cosine": {"at": [1], "baseline": "other"}}},
            "baseline=other of cosine in paper/table9 must have that column; use one of base, ours",
        ),
        ({"rows": {"base": {"start": "x"}}}, "start=x of paper/table9 must be a row"),
        ({"rows": {"base": {"published": {"linear": [1.0]}}}}, "must have a value for each of at="),
        ({"rows": {"base": {"only": ["quadratic"]}}}, "must name columns only, and {'quadratic'} are none"),
        ({"rows": {"base": {"expects": "better"}}}, "expects=better of base in paper/table9 must be lower or higher"),
        ({"rows": {"base": {"titel": "B"}}}, "table=paper/table9: base must have the keys of TableRow.*titel"),
        ({"columns": {"linear": {}}}, "table=paper/table9: linear must have the keys of TableColumn.*at"),
        (
            {"rows": {"base": {"published": {"linear": ["a", 1]}}}},
            "published=.* of base in paper/table9 must be numbers",
        ),
        ({"rows": {"base": {"published": {"linear": 3}}}}, "published=3 of base in paper/table9 must have a value for"),
        ({"rows": {"base": {"published": [3]}}}, "published=.* of base in paper/table9 must be keyed by column"),
        ({"rows": {"base": {"overrides": "method=p2"}}}, "overrides=method=p2 of base in paper/table9 must be a list"),
        ({"rows": {"base": {"overrides": ["p2"]}}}, "overrides=.*p2.* must be a list of key=value"),
        ({"rows": ["base"]}, "rows=.* of paper/table9 must be one or more names"),
        ({"columns": None}, "columns=None of paper/table9 must be one or more names"),
        ({"columns": {"linear": 3}}, "linear=3 under columns of paper/table9 must be keys with values"),
        ({"columns": {"linear": {"at": 3}}}, "at=3 of linear in paper/table9 must be a list of ascending"),
        ({"columns": {"linear": {"at": []}}}, "at=.* of linear in paper/table9 must be a list of ascending"),
        ({"columns": {"linear": {"at": [2, 1]}}}, "at=.2, 1. of linear in paper/table9 must be a list of ascending"),
        (
            {"columns": {"linear": {"at": [1, 2], "labels": ["a"]}}},
            "labels=.'a'. of linear .* must be one for each of at",
        ),
        ({"measure": None}, "measure=None of paper/table9 must have a _target_"),
        ({"metric": "fid"}, "table=paper/table9 must have the keys of Table.*metric"),
    ],
)
def test_a_wrong_table_is_one_sentence(changed: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        read_table("paper/table9", {**CONTENT, **changed})
