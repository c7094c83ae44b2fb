"""The table's ratios as a picture, and over training."""

import numpy as np
import pytest

from diffusion_lab.intervals import mean_interval
from diffusion_lab.reports import Question, group_runs, read_runs, summarise
from diffusion_lab.reports.comparison.rows import tabulate
from diffusion_lab.reports.figures.ratios import effects, effects_over_training, ratio_ticks
from diffusion_lab.reports.figures.table_rows import EQUAL, limits, marks, with_band
from tests.reports.curves import STEPS, power_law, write_curves
from tests.reports.synthetic import METHODS
from tests.reports.test_tables import FD, write_seeds

BAND_COLOR = "fill: #888888; opacity: 0.15"


def interval(*values):
    return mean_interval(values)


def drawing(figure):
    return figure.svg.decode()


def figure_of(folder, metric=FD, question=None):
    return effects(tabulate(group_runs(read_runs(folder).runs), metric, question))


def test_lines_stand_in_the_order_of_the_table(sweep):
    figure = figure_of(sweep)
    text = drawing(figure)
    places = [text.index(f"<!-- {name} -->") for name in METHODS]
    assert places == sorted(places)
    assert figure.title == "Ratio to uniform" and "2 seeds each" in figure.caption
    assert "← better      ratio of fd1k_digits to uniform      worse →" in text


def test_a_larger_value_is_better_where_it_is(sweep):
    figure = figure_of(sweep, "precision1k_digits")
    assert "← worse      difference in precision1k_digits from uniform      better →" in drawing(figure)
    assert figure.title == "Difference to uniform"


def test_decided_rows_alone_are_bold_and_filled(tmp_path):
    write_seeds(tmp_path, [3.0, 4.0, 5.0], "uniform")
    write_seeds(tmp_path, [1.5, 2.0, 2.6], "logit_normal")
    write_seeds(tmp_path, [2.9, 4.3, 4.9], "stratified")
    groups = group_runs(read_runs(tmp_path).runs)
    rows = {r.group.label: r.bold for r in summarise(groups, FD)}
    assert rows == {"uniform": False, "logit_normal": True, "stratified": False}
    text = drawing(effects(tabulate(groups, FD)))
    bold = [part for part in text.split("<!-- ")[1:] if "DejaVuSans-Bold" in part.split("<!--")[0]]
    assert [part.partition(" -->")[0] for part in bold][0] == "logit_normal" and len(bold) == 2
    assert bold[1].startswith("0.51 [0.4")
    assert text.count("fill: #ffffff; stroke") == 1  # the diamond of what is not decided


def test_what_is_equal_has_a_mark_and_a_word_of_its_own(tmp_path):
    """It was a hollow diamond, as what is not decided."""
    write_seeds(tmp_path, [3.0, 4.0, 5.0], "uniform")
    write_seeds(tmp_path, [3.01, 4.0, 4.99], "stratified")
    write_seeds(tmp_path, [3.0, 4.0, 5.0], "logit_normal")
    figure = effects(tabulate(group_runs(read_runs(tmp_path).runs), FD))
    text = drawing(figure)
    assert text.count(f"fill: {EQUAL.lower()}") == 2 and text.count("fill: #ffffff; stroke") == 0
    assert "]  equal -->" in text and "<!-- 1  identical -->" in text
    assert "Square: equal, as the 90 % interval lies within 10 %." in figure.caption and "hollow" not in figure.caption


def test_a_caption_says_of_the_marks_what_is_there():
    assert marks("within 10 %", ["no claim"]) == ""
    assert marks("within 10 %", ["worse", "not decided", "no claim"]) == (
        "Filled and bold: better or worse; hollow: not decided"
    )
    assert marks("within 10 %", ["identical"]) == "Square: identical"


def test_the_figures_of_a_race_have_no_intervals(tmp_path):
    for method, factor in (("uniform", 1.0), ("logit_normal", 0.5)):
        for seed in range(4):
            level = factor * (1 + 0.02 * seed * (1 + factor))
            write_curves(tmp_path / f"{method}{seed}", method, seed, power_law(STEPS, level=level))
    groups = group_runs(read_runs(tmp_path).runs)
    fixed, race = (tabulate(groups, FD, Question(race=race)) for race in (False, True))
    for figure, word in ((effects, "lines 95 % intervals"), (effects_over_training, "shaded: 95 % interval")):
        assert word in figure(fixed).caption and word not in figure(race).caption
        assert "95 %" not in figure(race).caption
        assert drawing(figure(race)) != drawing(figure(fixed))


def test_nothing_to_compare_is_no_figure(tmp_path):
    write_seeds(tmp_path, [1.0, 2.0])
    assert figure_of(tmp_path) is None


def test_the_axis_holds_zero_and_the_intervals():
    close = [interval(0.9, 1.0, 1.1), interval(-0.4, -0.5, -0.6)]
    low = min(r.low for r in close)
    high = max(r.high for r in close)
    assert limits(close) == pytest.approx((low - 0.06 * (high - low), high + 0.06 * (high - low)))


def test_a_group_far_off_does_not_set_the_axis():
    close = [interval(0.9, 1.0, 1.1), interval(-0.4, -0.5, -0.6), interval(0.2, 0.2, 0.2)]
    assert limits([*close, interval(50.0, 51.0, 52.0)]) == limits(close)


def test_rows_that_repeat_the_baseline_do_not_set_the_axis():
    """With half of the rows at 0 every other one was far from the median."""
    same = interval(0.0, 0.0, 0.0)
    other = interval(-0.3, 0.31, 0.9)
    low, high = limits([same, same, other])
    assert low < -0.3 and high > other.mean


def test_a_wide_interval_is_cut():
    close = [interval(0.99, 1.0, 1.01), interval(-0.5, -0.5, -0.5), interval(0.19, 0.2, 0.21)]
    left, right = limits([*close, interval(-30.0, 31.0)])
    assert -3 < left < -0.5 and 1.0 < right < 3


@pytest.mark.parametrize("found", [[interval(0.0)], [interval(0.0, 0.0, 0.0)], [interval(2.0)]])
def test_the_axis_is_never_empty(found):
    low, high = limits(found)
    assert low < 0 < high


def test_the_band_is_that_of_equality(tmp_path):
    write_seeds(tmp_path, [3.0, 4.0, 5.0], "uniform")
    write_seeds(tmp_path, [2.0, 3.1, 4.9], "logit_normal")
    figure = figure_of(tmp_path)
    assert figure.caption.endswith("Grey: equal within 10 %.") and drawing(figure).count(BAND_COLOR) == 1
    assert figure_of(tmp_path, question=Question(margin=1.02)).caption.endswith("within 2 %.")
    wide = figure_of(tmp_path, question=Question(margin=1e6))  # the band would be all there is
    assert "Grey" not in wide.caption and BAND_COLOR not in drawing(wide)


def test_there_is_no_band_without_a_size(tmp_path):
    write_seeds(tmp_path, [1.0, -1.0], "uniform")  # a mean of 0 has no tenth
    write_seeds(tmp_path, [2.0, 3.0], "logit_normal")
    figure = figure_of(tmp_path)
    assert "Grey" not in figure.caption and BAND_COLOR not in drawing(figure)


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.65, 1.22, [0.7, 0.8, 0.9, 1.0, 1.1, 1.2]),
        (0.97, 1.04, [0.98, 1.0, 1.02, 1.04]),
        (0.09, 2.9, [0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0]),
        (0.02, 9.0, [0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0]),
        (0.5, 1e9, [1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9]),
        (0.99998, 1.00003, [0.99998, 1.0, 1.00002]),
    ],
)
def test_ticks_of_ratios_are_round(low, high, ticks):
    assert ratio_ticks(low, high) == pytest.approx(ticks)


def test_the_course_of_the_ratio_is_drawn_at_the_common_snapshots(tmp_path):
    for seed in range(3):
        for method, level in {"uniform": 1.0, "logit_normal": 0.5}.items():
            noise = np.exp(np.random.default_rng(seed).normal(0, 0.1, 8) * level)
            write_curves(tmp_path / f"{method}{seed}", method, seed, power_law(STEPS, level=level) * noise)
    table = tabulate(group_runs(read_runs(tmp_path).runs), FD)
    assert table.evidence.snapshots == [step * 64 for step in STEPS.tolist()]
    figure = effects_over_training(table)
    assert figure.title == "Ratio over training" and "95 % interval for all rows together" in figure.caption
    assert "ratio of fd1k_digits to uniform" in drawing(figure)
    path = tmp_path / "logit_normal1" / "metrics.jsonl"
    path.write_text(path.read_text().splitlines()[-1] + "\n")
    assert effects_over_training(tabulate(group_runs(read_runs(tmp_path).runs), FD)) is None


def test_the_whole_band_is_seen_unless_the_rows_would_be_tiny():
    assert with_band((-0.8, 0.2), 0.8) == pytest.approx((-0.848, 0.848))
    assert with_band((-2.0, 1.0), 0.5) == (-2.0, 1.0)
    assert with_band((-0.01, 0.01), 0.04) == pytest.approx((-0.0424, 0.0424))
    assert with_band((-0.01, 0.01), 0.05) == (-0.01, 0.01)
    assert with_band((-0.01, 0.01), None) == (-0.01, 0.01)
