"""The table's differences as a picture."""

import pytest

from diffusion_lab.intervals import mean_interval
from diffusion_lab.reports import compare, group_runs, read_runs, summarise
from diffusion_lab.reports.comparison.rows import visible_size
from diffusion_lab.reports.figures.table_rows import differences, limits, with_band
from tests.reports.synthetic import METHODS
from tests.reports.test_tables import FD, write_seeds

BAND_COLOR = "fill: #888888; opacity: 0.15"


def interval(*values):
    return mean_interval(values)


def drawing(figure):
    return figure.svg.decode()


def test_lines_stand_in_the_order_of_the_table(sweep):
    figure = differences(group_runs(read_runs(sweep).runs), FD)
    text = drawing(figure)
    places = [text.index(f"<!-- {name} -->") for name in METHODS]
    assert places == sorted(places)
    assert figure.title == "Difference to uniform" and "2 seeds each" in figure.caption
    assert "← better      difference in fd1k_digits      worse →" in text


def test_a_larger_value_is_better_where_it_is(sweep):
    text = drawing(differences(group_runs(read_runs(sweep).runs), "precision1k_digits"))
    assert "← worse      difference in precision1k_digits      better →" in text


def test_claims_alone_are_bold_and_filled(tmp_path):
    write_seeds(tmp_path, [3.0, 4.0, 5.0], "uniform")
    write_seeds(tmp_path, [2.0, 3.1, 3.9], "logit_normal")
    write_seeds(tmp_path, [2.0, 4.1, 4.9], "stratified")
    groups = group_runs(read_runs(tmp_path).runs)
    claimed = {r.group.label: r.bold for r in summarise(groups, FD)}
    assert claimed == {"uniform": False, "logit_normal": True, "stratified": False}
    text = drawing(differences(groups, FD))
    bold = [part for part in text.split("<!-- ")[1:] if "DejaVuSans-Bold" in part.split("<!--")[0]]
    assert [part.partition(" -->")[0] for part in bold] == ["logit_normal", "−1.000 [−1.248, −0.752]"]
    assert text.count("fill: #ffffff; stroke") == 1  # the diamond of what is not claimed


def test_nothing_to_compare_is_no_figure(tmp_path):
    write_seeds(tmp_path, [1.0, 2.0])
    assert differences(group_runs(read_runs(tmp_path).runs), FD) is None


def test_the_axis_holds_zero_and_the_intervals():
    close = [interval(0.9, 1.0, 1.1), interval(-0.4, -0.5, -0.6)]
    low = min(r.low for r in close)
    high = max(r.high for r in close)
    assert limits(close) == pytest.approx((low - 0.06 * (high - low), high + 0.06 * (high - low)))


def test_a_group_far_off_does_not_set_the_axis():
    close = [interval(0.9, 1.0, 1.1), interval(-0.4, -0.5, -0.6), interval(0.2, 0.2, 0.2)]
    assert limits([*close, interval(50.0, 51.0, 52.0)]) == limits(close)


def test_a_wide_interval_is_cut():
    close = [interval(0.99, 1.0, 1.01), interval(-0.5, -0.5, -0.5), interval(0.19, 0.2, 0.21)]
    left, right = limits([*close, interval(-30.0, 31.0)])
    assert -3 < left < -0.5 and 1.0 < right < 3


@pytest.mark.parametrize("found", [[interval(0.0)], [interval(0.0, 0.0, 0.0)], [interval(2.0)]])
def test_the_axis_is_never_empty(found):
    low, high = limits(found)
    assert low < 0 < high


def test_the_band_is_the_size_of_the_table(sweep, tmp_path):
    groups = group_runs(read_runs(sweep).runs)
    usual = f"{visible_size(groups, FD):g}"
    assert differences(groups, FD).caption.endswith(f"Grey: differences up to ±{usual}.")  # two seeds: no such column
    assert drawing(differences(groups, FD)).count(BAND_COLOR) == 1
    write_seeds(tmp_path, [1.0, 1.1, 1.2], "uniform")
    write_seeds(tmp_path, [2.0, 3.0, 2.5], "logit_normal")
    caption = differences(group_runs(read_runs(tmp_path).runs), FD, 0.25).caption
    assert caption.endswith("up to ±0.25, the size for which the table gives the number of seeds.")


def test_the_default_size_is_smaller_than_what_the_intervals_leave_in_answer_column_and_band(tmp_path):
    write_seeds(tmp_path, [35.0, 35.1, 34.9], "uniform")
    write_seeds(tmp_path, [35.05, 35.05, 34.95], "logit_normal")
    groups = group_runs(read_runs(tmp_path).runs)
    (other,) = (row for row in summarise(groups, FD) if row.difference)
    table, figure = compare(groups, FD), differences(groups, FD)
    (title,) = (title for title in table.titles if title.startswith("seeds for"))
    size = float(title.partition("±")[2])
    assert 0 < size < other.difference.high and size == visible_size(groups, FD)
    assert f"To detect a difference of {size:g}, run" in table.answer and f"up to ±{size:g}, the size" in figure.caption
    assert other.verdict.seeds > 3
    wide = differences(groups, FD, size=4.0)
    assert "The whole axis lies within ±4" in wide.caption and BAND_COLOR not in drawing(wide)


def test_there_is_no_band_without_a_size(tmp_path):
    write_seeds(tmp_path, [1.0, -1.0], "uniform")  # a mean of 0 has no tenth
    write_seeds(tmp_path, [2.0, 3.0], "logit_normal")
    figure = differences(group_runs(read_runs(tmp_path).runs), FD)
    assert "Grey" not in figure.caption and BAND_COLOR not in drawing(figure)


def test_the_whole_band_is_seen_unless_the_rows_would_be_tiny():
    assert with_band((-0.8, 0.2), 0.8) == pytest.approx((-0.848, 0.848))
    assert with_band((-2.0, 1.0), 0.5) == (-2.0, 1.0)
    assert with_band((-0.01, 0.01), 0.04) == pytest.approx((-0.0424, 0.0424))
    assert with_band((-0.01, 0.01), 0.05) == (-0.01, 0.01)
    assert with_band((-0.01, 0.01), None) == (-0.01, 0.01)
