"""The table in a window of any width."""

import io

import pytest
from rich.console import Console

from diffusion_lab.reports import compare, group_runs, read_runs
from diffusion_lab.reports.pages.terminal import rich_table
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


@pytest.mark.parametrize("width", [90, 85])
def test_in_a_narrow_one_names_and_intervals_stay_whole(table, width):
    text, left_out = shown(table, width)
    assert all(len(line) <= width for line in text.splitlines())
    for whole in ("uniform", "loss_second_moment", "[1.516, 6.484]", "verdict", "[0."):
        assert whole in text
    assert left_out and table.titles[-len(left_out) :] == left_out and "time" in left_out
    assert not any(title in text for title in left_out)


@pytest.mark.parametrize("width", [80, 72, 60])
def test_in_a_terminal_of_80_columns_a_long_name_is_above_its_numbers(table, width):
    long = "logit_normal-v-min_snr-with-a-name"
    lines = [[table.lines[0][0], *table.lines[0][1:]], [table.lines[1][0]._replace(text=long), *table.lines[1][1:]]]
    text, left_out = shown(table._replace(lines=lines), width)
    assert all(len(line) <= width for line in text.splitlines())
    rows = [line.strip() for line in text.splitlines()]
    assert rows.count(long) == 1 and rows.count("uniform") == 1  # alone on their lines, unbroken
    assert "[1.516, 6.484]" in text and left_out == table.titles[-len(left_out) :]
    numbers = [line for line in text.splitlines() if "n=3" in line]
    assert len(numbers) == 2 and len({line.index("n=3") for line in numbers}) == 1  # in columns
    words = {word for title in table.titles for word in title.split()} | {"baseline"}
    head = text.split("\u2500")[0].split()
    assert set(head) <= words  # no title is broken inside a word


def test_a_title_does_not_repeat_the_baseline_where_room_is_missing(table):
    wide, _ = shown(table, 180)
    narrow, _ = shown(table, 80)
    assert "ratio to uniform" in wide and "to uniform" not in narrow and "to baseline" in narrow
