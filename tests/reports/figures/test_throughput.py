"""The figure of the cost, from runs whose numbers are given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from diffusion_lab.reports import group_runs, read_runs
from diffusion_lab.reports.figures import cost
from diffusion_lab.runs.lines import append_lines
from tests.reports.test_cells import write


def drawn_from(folder: Path, drawn: list[Any]) -> Any:
    """The figure of the runs in a folder."""
    assert cost(group_runs(read_runs(folder).runs)) is not None
    return drawn[0]


def test_memory_is_the_mean_over_seeds_of_each_runs_peak(tmp_path: Path, drawn: list[Any]) -> None:
    for seed, peaks in enumerate(((900.0, 3000.0, 1000.0), (5000.0, 400.0))):
        write(tmp_path / str(seed), "uniform", seed, 2.0, 0.1, 100.0, 60.0)
        (tmp_path / str(seed) / "timing.jsonl").write_text("")
        rows = [{"step": i, "images": i * 64, "seconds": float(i), "memory_mb": mb} for i, mb in enumerate(peaks, 1)]
        append_lines(tmp_path / str(seed) / "timing.jsonl", rows)
    axes = drawn_from(tmp_path, drawn).axes
    assert [axis.get_title(loc="left") for axis in axes][-1] == "memory in GB (lower is better)"
    assert axes[2].patches[0].get_width() == pytest.approx(4.0)
    assert axes[2].texts[0].get_text() == "4.00"


def test_without_a_record_of_memory_there_is_no_panel_of_it(tmp_path: Path, drawn: list[Any]) -> None:
    write(tmp_path / "0", "uniform", 0, 2.0, 0.1, 100.0, 60.0)
    (tmp_path / "0" / "timing.jsonl").write_text("")
    append_lines(tmp_path / "0" / "timing.jsonl", [{"step": 1, "images": 64, "seconds": 1.0}])
    assert len(drawn_from(tmp_path, drawn).axes) == 2
