"""What figures show of runs that have diverged: as the table does, which leaves them out of its means and says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diffusion_lab.reports import group_runs, read_runs
from diffusion_lab.reports.comparison.rows import Table, tabulate
from diffusion_lab.reports.figures import loss_by_timestep, loss_over_training, of_section, quality_over_training
from tests.reports.synthetic import BATCH, BINS, log
from tests.reports.test_cells import FD, write

LOST = 3  # the seed


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Four seeds of two methods; one of logit_normal ends a hundred times higher."""
    for seed in range(4):
        for method, level in (("uniform", 2.0), ("logit_normal", 1.5)):
            lost = method == "logit_normal" and seed == LOST
            write(tmp_path / f"{method}{seed}", method, seed, 300.0 if lost else level + 0.1 * seed, 0.1, 100.0, 10.0)
    return tabulate(group_runs(read_runs(tmp_path).runs), FD)


def thick(axis: Any) -> dict[str, Any]:
    """Name -> the line of a mean."""
    return {line.get_label(): line for line in axis.lines if line.get_linewidth() > 1.5}


def test_a_mean_over_seeds_leaves_out_what_the_table_leaves_out(table: Table, drawn: list[Any]) -> None:
    assert table.evidence.diverged == [[], [LOST]]
    groups = [row.group for row in table.rows]
    figure = quality_over_training(table.without_diverged(groups), FD)
    assert figure is not None
    assert "seeds: uniform 4, logit_normal 3; diverged and left out: logit_normal 1." in figure.caption
    ends = {name: line.get_ydata()[-1] for name, line in thick(drawn[0].axes[0]).items()}
    assert ends["logit_normal"] == pytest.approx(1.6) and ends["uniform"] == pytest.approx(2.15)
    thin = [line.get_ydata()[-1] for line in drawn[0].axes[0].lines if line.get_linewidth() < 1]
    assert 300.0 in thin  # the run itself is shown
    with_all = quality_over_training(groups, FD)
    assert with_all is not None and "left out" not in with_all.caption


def test_all_figures_of_a_page_leave_them_out(table: Table) -> None:
    captions = {figure.title: figure.caption for figure in of_section(table, [row.group for row in table.rows])}
    averaged = [text for title, text in captions.items() if "seeds" in text and not title.startswith("Ratio")]
    assert len(averaged) > 2 and all("diverged and left out: logit_normal 1" in caption for caption in averaged)


def test_a_row_of_which_all_seeds_are_lost_is_drawn_with_them(table: Table) -> None:
    lost = [group for group in table.without_diverged([row.group for row in table.rows])][1]
    assert [run.seed for run in lost.done] == [0, 1, 2]
    lost.diverged = frozenset(range(4))
    del lost.done
    assert [run.seed for run in lost.done] == [0, 1, 2, 3]
    figure = quality_over_training([lost], FD)
    assert figure is not None and "4 seeds each." in figure.caption and "left out" not in figure.caption


@pytest.fixture
def unmeasured(tmp_path: Path) -> Table:
    """The last validation and the last metric of logit_normal are not finite."""
    for method in ("uniform", "logit_normal"):
        write(tmp_path / method, method, 0, 2.0, 0.1, 100.0, 10.0)
        log(tmp_path / method, 400, **{f"metrics__{FD}": 1.9})
        lost = method == "logit_normal"
        log(tmp_path / method, 500, **{f"metrics__{FD}": None if lost else 1.8})
        log(tmp_path / method, 500, val__loss_t=[None if lost else 1.0] * BINS)
    return tabulate(group_runs(read_runs(tmp_path).runs), FD)


def test_a_line_without_a_last_value_has_its_name_at_the_last_that_it_has(unmeasured: Table, drawn: list[Any]) -> None:
    groups = [row.group for row in unmeasured.rows]
    assert quality_over_training(groups, FD) is not None
    assert {"uniform", "logit_normal"} <= {text.get_text() for text in drawn[0].axes[0].texts}


def test_ranges_of_a_lost_run_are_not_called_empty(unmeasured: Table, drawn: list[Any]) -> None:
    groups = [row.group for row in unmeasured.rows]
    figure = loss_by_timestep(groups)
    assert figure is not None and "no validation image" not in figure.caption
    assert "The loss is not finite in ranges without a point: logit_normal." in figure.caption
    assert loss_over_training(groups) is not None
    alone = loss_by_timestep(groups[1:])
    assert alone is not None and "no validation image" not in alone.caption and "not finite" in alone.caption
    panels = drawn[1].axes
    assert [len(axis.lines) for axis in panels] == [5, 5]  # the courses before it was lost
    assert all(np.isfinite(line.get_ydata()[0]) and line.get_xdata()[-1] == 500 * BATCH for line in panels[1].lines)
