"""The verdicts of a table: their words, their family-wise rate, and that they can be recomputed from the file."""

import csv

import numpy as np
import pytest
from scipy import stats

from diffusion_lab.reports import (
    compare,
    group_runs,
    read_runs,
    sections_of,
    summarise,
    write_per_seed,
    write_table,
)
from diffusion_lab.reports.comparison.verdicts import ALPHA, judge, usual_size
from tests.reports.recomputed import recomputed
from tests.reports.test_tables import FD, write_seeds


def test_words_follow_the_direction_of_the_metric():
    lower = [(1.0, 3.0), (1.1, 3.0), (0.9, 3.0)]
    unclear = [(1.0, 3.0), (5.1, 3.0), (2.9, 3.0)]
    equal = [(3.0, 3.0)] * 3
    few = [(1.0, 3.0), (1.1, 3.0)]
    said = [verdict and verdict.word for verdict in judge([lower, unclear, equal, few, []], rising=False)]
    assert said == ["better", "not decided", "identical", "no claim", None]
    assert judge([lower], rising=True)[0].word == "worse"


def test_p_is_corrected_for_the_rows_that_are_tested_alone():
    draws = np.random.RandomState(0)
    rows = [[(float(a), float(b)) for a, b in draws.normal(0.7, 1, (5, 2))] for _ in range(6)]
    rows += [[(2.0, 2.0)] * 5, [(1.0, 2.0)] * 2, []]
    plain = [stats.ttest_rel(*zip(*pairs, strict=True)).pvalue for pairs in rows[:6]]
    order = np.argsort(plain)
    expected = np.maximum.accumulate(np.minimum(1, np.array(plain)[order] * np.arange(6, 0, -1)))
    found = judge(rows, rising=False)
    assert [found[i].p for i in order] == pytest.approx(expected.tolist())
    assert [found[i] and found[i].p for i in (6, 7, 8)] == [None, None, None]


@pytest.mark.parametrize("shared", [0.0, 0.7])
def test_a_table_without_any_difference_has_a_verdict_in_at_most_5_percent(shared):
    """1,500 tables of 12 rows and 5 seeds, all compared to one baseline; `shared`: what a seed adds to every row. The
    control: of the plain intervals, some row's excludes 0 far more often."""
    draws, tables, rows, seeds = np.random.RandomState(1), 1500, 12, 5
    common = draws.normal(0, 1, (tables, 1, seeds))
    values = np.sqrt(shared) * common + np.sqrt(1 - shared) * draws.normal(0, 1, (tables, rows + 1, seeds))
    false = 0
    for table in values.tolist():
        base = table[0]
        verdicts = judge([list(zip(row, base, strict=True)) for row in table[1:]], rising=False)
        false += any(verdict.decided for verdict in verdicts)
    plain = stats.ttest_1samp(values[:, 1:] - values[:, :1], 0, axis=2).pvalue <= ALPHA
    assert false / tables <= ALPHA + 2 * np.sqrt(ALPHA * (1 - ALPHA) / tables)
    assert plain.any(axis=1).mean() > 0.2


def test_true_differences_are_still_seen():
    draws = np.random.RandomState(2)
    rows = [[(a, b) for a, b in zip(draws.normal(mean, 0.1, 5), [0.0] * 5, strict=True)] for mean in (0, 1, -1, 0)]
    assert [v.word for v in judge(rows, rising=False)] == ["not decided", "worse", "better", "not decided"]


def test_seeds_are_told_for_a_tenth_of_the_baseline():
    assert (
        usual_size(3.231) == 0.3 and usual_size(-88.0) == 9.0 and usual_size(0.0) is None and usual_size(None) is None
    )
    assert usual_size(35.0, [0.19, 0.05]) == 0.1 and usual_size(35.0, [50.0]) == 4.0 and usual_size(35.0, [0.0]) == 4.0
    (verdict,) = judge([[(0.0, 0.1), (0.3, 0.2), (0.1, 0.0)]], rising=False, size=0.3)
    assert verdict.seeds == 4
    assert judge([[(0.0, 1.0), (3.0, 2.0), (1.0, 0.0)]], rising=False, size=1e-4)[0].seeds is None


def test_a_plain_interval_without_zero_is_not_a_verdict_among_many_rows(tmp_path):
    write_seeds(tmp_path, [3.0, 4.0, 5.0], "uniform")
    write_seeds(tmp_path, [2.0, 3.3, 3.7], "logit_normal")  # p = 0.01 .. 0.05 by itself
    write_seeds(tmp_path, [2.0, 4.1, 4.9], "stratified")
    write_seeds(tmp_path, [3.1, 3.9, 5.2], "loss_second_moment")
    rows = {row.group.label: row for row in summarise(group_runs(read_runs(tmp_path).runs), FD)}
    row = rows["logit_normal"]
    assert row.difference.excludes_zero and row.verdict.word == "not decided" and not row.bold
    table = compare(list(group_runs(read_runs(tmp_path).runs)), FD)
    (line,) = [line for line in table.lines if line[0].text == "logit_normal"]
    assert line[4].text.startswith("not decided, p=0.0") and not line[3].bold
    assert "corrected for the 3 rows by Holm" in table.legend
    assert any("Fix the number of seeds before the first run" in note and "18 %" in note for note in table.notes)
    assert any(note.startswith("Unpaired intervals would be") for note in table.notes)


def test_the_tables_intervals_can_be_recomputed_from_the_file_beside_it(tmp_path):
    values = {"uniform": [3.0, 4.0, 5.5], "logit_normal": [2.0, 3.1, 3.9], "stratified": [2.0, 4.1, 4.9]}
    for method, fd in values.items():
        write_seeds(tmp_path / "runs", fd, method)
    folder = read_runs(tmp_path / "runs")
    (section,) = sections_of(folder.runs)
    write_table(tmp_path / "one.md", folder, {"digits": compare(section.groups, FD)}, "command")
    files = [write_per_seed(tmp_path / name, [section]) for name in ("one.md", "two.tex")]
    assert [path.name for path in files] == ["one.per_seed.csv", "two.per_seed.csv"]
    assert files[0].read_bytes() == files[1].read_bytes()
    with open(files[0], newline="") as file:
        lines = [line for line in csv.DictReader(file) if line["metric"] == FD]
    assert {line["section"] for line in lines} == {"digits: " + FD} and '"samples":1000' in lines[0]["protocol"]
    seen = {(line["row"], int(line["seed"])): float(line["value"]) for line in lines}
    assert seen == {(method, seed): value for method, fd in values.items() for seed, value in enumerate(fd)}
    found = recomputed(tmp_path / "one.md", files[0])
    assert len(found) == 5 and [shown for _, shown, _ in found] == [again for _, _, again in found]
    text = files[0].read_text().replace(",uniform-1,1,fd1k_digits,4.0,", ",uniform-1,1,fd1k_digits,4.01,")
    assert text != files[0].read_text()
    files[1].write_text(text)
    assert any(shown != again for _, shown, again in recomputed(tmp_path / "one.md", files[1]))
