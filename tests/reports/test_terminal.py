"""The table in a window of any width."""

import io

import pytest
from rich.console import Console

from diffusion_lab.reports import compare, group_runs, read_runs
from diffusion_lab.reports.terminal import rich_table
from tests.reports.test_tables import FD, write_seeds


def shown(table, width):
    made, left_out = rich_table(table, width)
    file = io.StringIO()
    Console(width=width, file=file, highlight=False).print(made)
    return file.getvalue(), left_out


@pytest.fixture
def table(tmp_path):
    for method, fd in {"uniform": [3.0, 4.0, 5.0], "loss_second_moment": [2.0, 3.1, 3.9]}.items():
        write_seeds(tmp_path, fd, method)
    groups = group_runs(read_runs(tmp_path).runs)
    return compare(sorted(groups, key=lambda group: group.label != "uniform"), FD)


def test_a_wide_window_shows_all_in_one_line_a_row(table):
    text, left_out = shown(table, 180)
    assert left_out == [] and "4.000 [1.516, 6.484]" in text and "time" in text
    assert len(text.strip().splitlines()) == 2 + len(table.lines)


@pytest.mark.parametrize("width", [100, 90])
def test_in_a_narrow_one_names_and_intervals_stay_whole(table, width):
    text, left_out = shown(table, width)
    assert all(len(line) <= width for line in text.splitlines())
    for whole in ("uniform", "loss_second_moment", "[1.516, 6.484]", "verdict", "p=0."):
        assert whole in text
    assert left_out and table.titles[-len(left_out) :] == left_out and "time" in left_out
    assert not any(title in text for title in left_out)
