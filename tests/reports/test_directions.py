"""Direction and units of a metric come from the records; a report knows no metric by its name."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from diffusion_lab.reports import Group, choose_metric, compare, group_runs, read_runs, summarise
from diffusion_lab.reports.comparison.metrics import with_arrow, with_direction
from diffusion_lab.reports.comparison.rows import tabulate
from diffusion_lab.reports.figures.curves import quality_over_training
from diffusion_lab.reports.figures.ratios import effects
from diffusion_lab.reports.pair.pair import lines_of, pair, table_of
from diffusion_lab.reports.pair.speedup_of_runs import in_images
from tests.reports.figures.test_ratios import drawing
from tests.reports.test_tables import write_seeds

NAME = "brightness_of_mine20"


def groups_with(folder: Path, said: Mapping[str, Any]) -> list[Group]:
    """Two groups of three seeds in which the metric rises by 1 from the first to the second."""
    for method, start in (("uniform", 1.0), ("logit_normal", 2.0)):
        write_seeds(folder, [1.0, 1.0, 1.0], method)
        for seed in range(3):
            value = start + 0.1 * seed + 0.001 * start * seed
            line = {"step": 250, "name": NAME, "value": value, **said, "protocol": {"samples": 20}}
            with open(folder / f"{method}-{seed}" / "evaluations.jsonl", "a") as file:
                file.write(json.dumps(line) + "\n")
    return group_runs(read_runs(folder).runs)


@pytest.mark.parametrize(
    ("said", "title", "word"),
    [
        ({"better": "higher", "units": "grey levels"}, f"{NAME} [grey levels] ↑", "better"),
        ({"better": "lower", "units": ""}, f"{NAME} ↓", "worse"),
        ({}, f"{NAME} ↓", "worse"),  # a damaged record
        ({"better": 1, "units": ["x"]}, f"{NAME} ↓", "worse"),
        ({"better": "highest", "units": "$\\frac$"}, f"{NAME} ↓", "worse"),
    ],
)
def test_tables_and_verdicts_follow_the_record(tmp_path: Path, said: dict[str, Any], title: str, word: str) -> None:
    groups = groups_with(tmp_path, said)
    assert with_arrow(groups, NAME) == title
    assert compare(groups, NAME).titles[2] == title
    verdict = summarise(groups, NAME)[1].verdict
    assert verdict is not None and verdict.word == word


def test_figures_follow_the_record(tmp_path: Path) -> None:
    groups = groups_with(tmp_path, {"better": "higher", "units": "grey levels"})
    figure = effects(tabulate(groups, NAME))
    assert figure is not None
    assert f"← worse      difference in {NAME} [grey levels] from uniform      better →" in drawing(figure)
    for group in groups:  # the course is drawn from metrics.jsonl
        for run in group.runs:
            with open(run.folder / "metrics.jsonl", "a") as file:
                file.write(json.dumps({"step": 250, "images": 16000, f"metrics/{NAME}": 1.0}) + "\n")
    drawn = quality_over_training(group_runs(read_runs(tmp_path).runs), NAME)
    assert drawn is not None and f"{NAME} [grey levels] (higher is better)" in drawing(drawn)


def test_the_first_metric_of_the_record_is_compared_unless_one_is_named(tmp_path: Path) -> None:
    groups = groups_with(tmp_path, {"better": "higher"})
    assert choose_metric(groups) == "fd1k_digits"
    assert choose_metric(groups, "bright") == NAME


def test_a_metric_of_which_neither_direction_is_better_has_no_arrow_and_no_verdict(tmp_path: Path) -> None:
    groups = groups_with(tmp_path, {"better": "neither", "units": ""})
    assert with_arrow(groups, NAME) == NAME and with_direction(groups, NAME) == f"{NAME} (neither direction is better)"
    row = summarise(groups, NAME)[1]
    assert row.effect is not None and row.effect.size > 0.9 and row.verdict is None
    compared = compare(groups, NAME)
    assert compared.titles[2] == NAME
    assert compared.answer.startswith("Neither direction of this metric is better, so no row is better or worse than")
    assert "fewer than" not in compared.legend and "neither direction of this metric is better" in compared.legend
    figure = effects(tabulate(groups, NAME))
    assert figure is not None and f"← lower      difference in {NAME} from uniform      higher →" in drawing(figure)
    assert in_images(groups[0], groups[1], NAME).found is None
    assert choose_metric(groups) != NAME and choose_metric(groups, NAME) == NAME
    both = pair(groups[0], groups[1], NAME)
    (line,) = (line for line in lines_of(both) if line.name == NAME)
    assert line.own.effect is not None and line.verdict is None
    said = table_of(both, [line]).legend
    assert "fewer than" not in said and said.endswith("; there is no verdict")


@pytest.mark.parametrize(
    ("said", "scale"),
    [
        ({"better": "lower"}, "ratio"),  # version 0.1.0
        ({"better": "higher"}, "difference"),
        ({"better": "lower", "compared_by": "difference"}, "difference"),
        ({"better": "higher", "compared_by": "ratio"}, "ratio"),
        ({"better": "higher", "compared_by": "x"}, "difference"),  # a damaged record
    ],
)
def test_the_record_says_whether_values_are_compared_by_ratio(tmp_path: Path, said: dict[str, Any], scale: str) -> None:
    table = tabulate(groups_with(tmp_path, said), NAME)
    assert table.scale == scale
    effect = table.rows[1].effect
    base, own = ([start + 0.1 * s + 0.001 * start * s for s in range(3)] for start in (1.0, 2.0))
    mean = sum(math.log(a / b) if scale == "ratio" else a - b for a, b in zip(own, base, strict=True)) / 3
    assert effect is not None and effect.size == pytest.approx(math.exp(mean) if scale == "ratio" else mean)
