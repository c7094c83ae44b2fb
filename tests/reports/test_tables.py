"""Numbers of the table against numpy and scipy, and the rules for what may be said."""

import csv
import json
import math
import re

import numpy as np
import pytest
from scipy import stats

from diffusion_lab.cli.outcome import outcome
from diffusion_lab.intervals import ratio_interval
from diffusion_lab.reports import choose_metric, compare, group_runs, read_runs, summarise, with_baseline
from diffusion_lab.reports.comparison.cells import columns, decimals, number, with_interval
from diffusion_lab.reports.comparison.rows import tabulate
from diffusion_lab.reports.comparison.sentences import legend
from diffusion_lab.reports.pages.files import latex, markdown, tex
from diffusion_lab.reports.pages.notes import protocol_table
from experiments.cells import FOLDER
from tests.reports.synthetic import METHODS, set_rate, write_run

FD = "fd1k_digits"


def rows_of(path, metric=FD):
    return summarise(group_runs(read_runs(path).runs), metric)


def cells(table):
    """Row -> its cells, by heading."""
    found = columns(table, FD)
    return {row.group.label: {column.heading: column.of(row) for column in found} for row in table.rows}


def texts(table, heading):
    return {label: line[heading].text for label, line in cells(table).items()}


def write_seeds(folder, fd, method="uniform", **changed):
    """Runs whose final metric is given, one per seed."""
    for seed, value in enumerate(fd):
        path = folder / f"{method}-{seed}"
        write_run(path, method, seed, steps=250, **changed)
        for name in ("metrics.jsonl", "evaluations.jsonl"):
            lines = [json.loads(line) for line in (path / name).read_text().splitlines()]
            for line in lines:
                line |= {f"metrics/{FD}": value} if f"metrics/{FD}" in line else {}
                line |= {"value": value} if line.get("name") == FD else {}
            (path / name).write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_a_value_that_is_not_finite_is_not_one_that_was_not_measured(tmp_path):
    write_seeds(tmp_path, [None])  # as a NaN is written
    (row,) = rows_of(tmp_path)
    assert row.note == "n/a (not finite)"
    (run,) = read_runs(tmp_path).runs
    assert f"  {FD}  not finite (at step 250)" in [re.sub(" {2,}", "  ", line) for line in outcome(run)]
    (row,) = rows_of(tmp_path, "another")
    assert row.note == "n/a (not measured)"


def test_means_and_intervals_are_those_of_scipy(sweep):
    finals = {m: [] for m in METHODS}
    for run in read_runs(sweep).runs:
        if run.status == "done":
            finals[run.info["method"]].append(json.loads((run.folder / "result.json").read_text())["metrics"])
    base = np.array([final[f"metrics/{FD}"] for final in finals["uniform"]])
    for row in rows_of(sweep):
        own = np.array([final[f"metrics/{FD}"] for final in finals[row.group.label]])
        _check(row.metric, own)
        assert row.val_loss.mean == pytest.approx(np.mean([f["val/loss"] for f in finals[row.group.label]]))
        if row.group.label == "uniform":
            assert row.effect is None and row.unpaired == "baseline"
        else:
            assert row.effect.size == pytest.approx(np.exp(np.log(own / base).mean())) and row.effect.n == 2


def _check(interval, values):
    low, high = stats.t.interval(0.95, len(values) - 1, values.mean(), stats.sem(values))
    assert (interval.mean, interval.low, interval.high) == pytest.approx((values.mean(), low, high), rel=1e-9)


def test_cost_is_that_of_the_timing_file(sweep):
    row = rows_of(sweep)[0]
    assert row.images_per_second.mean == pytest.approx(2340, rel=1e-4)
    assert row.seconds.mean == pytest.approx(2000 * 64 / 2340, rel=1e-4)


def test_relative_cost_is_the_geometric_mean_of_paired_ratios(tmp_path):
    rates = {"uniform": [2000.0, 1000.0, 1500.0], "logit_normal": [1900.0, 980.0, 1400.0, 7.0]}
    for method, values in rates.items():
        write_seeds(tmp_path, [1.0] * len(values), method)
        for seed, rate in enumerate(values):
            set_rate(tmp_path / f"{method}-{seed}", rate)
    table = with_base("uniform", tmp_path)
    found = {row.group.label: row for row in table.rows}
    logs = np.log([2000 / 1900, 1000 / 980, 1500 / 1400])  # seed 3 has no partner
    cost = found["logit_normal"].cost
    low, high = stats.t.interval(0.95, 2, logs.mean(), stats.sem(logs))
    assert (cost.mean, cost.low, cost.high) == pytest.approx(tuple(np.exp([logs.mean(), low, high])), rel=1e-9)
    assert cost.std is None and cost.p_value is None
    assert found["uniform"].cost.mean == 1 and found["uniform"].cost.low == 1
    assert texts(table, "cost") == {"uniform": "1", "logit_normal": "1.05 [0.99, 1.11]"}


def test_the_interval_of_a_ratio_is_positive_however_few_and_far_apart_the_seeds_are(tmp_path):
    for method, rates in {
        "uniform": [1000.0, 1000.0],
        "logit_normal": [1200.0, 400.0],
        "stratified": [1e4, 50.0],
    }.items():
        write_seeds(tmp_path, [1.0, 1.0], method)
        for seed, rate in enumerate(rates):
            set_rate(tmp_path / f"{method}-{seed}", rate)
    table = with_base("uniform", tmp_path)
    found = {row.group.label: row for row in table.rows}
    assert all(row.cost.low > 0 for row in found.values())
    said = texts(table, "cost")
    assert said["logit_normal"] == "1.443 [0.001343, 1551]" and "[0.00" not in said["stratified"]
    assert "geometric mean" in legend(table)


def with_costs():
    """The committed tables with a page of their own that state a cost; a study whose runs shared the machine states
    none."""
    found = {
        table: table.with_name(table.name.replace(".per_seed.csv", ".md")) for table in FOLDER.glob("*/*.per_seed.csv")
    }
    paged = {table: page.read_text(encoding="utf-8") for table, page in found.items() if page.is_file()}
    return sorted(table for table, text in paged.items() if "| cost " in text)


def test_some_committed_tables_state_a_cost():
    assert with_costs()


@pytest.mark.parametrize("table", with_costs(), ids=lambda path: path.stem)
def test_the_costs_of_a_committed_table_are_those_of_its_values(table):
    rates: dict[str, dict[str, float]] = {}
    with open(table, newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            if line["metric"] == "images_per_second":
                rates.setdefault(line["row"], {})[line["seed"]] = float(line["value"])
    page = table.with_name(table.name.replace(".per_seed.csv", ".md")).read_text(encoding="utf-8")
    lines = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    at, base = lines[0].index("cost"), rates[lines[2][0]]
    for line in lines[3:]:
        own = rates[line[0]]
        cost = ratio_interval([base[seed] / own[seed] for seed in sorted(own.keys() & base.keys())])
        assert line[at] == with_interval(cost, 2)


def test_relative_cost_of_one_seed_has_no_interval_and_of_none_is_not_there(tmp_path):
    write_seeds(tmp_path, [1.0], "uniform")
    write_seeds(tmp_path, [1.0], "stratified")
    write_run(tmp_path / "x", "logit_normal", 0, steps=250, result=None)
    set_rate(tmp_path / "uniform-0", 1000.0)
    set_rate(tmp_path / "stratified-0", 800.0)
    said = texts(with_base("uniform", tmp_path), "cost")
    assert said == {"uniform": "1", "stratified": "1.25 (n=1)", "logit_normal": "n/a"}


def with_base(label, path):
    return tabulate(with_baseline(group_runs(read_runs(path).runs), FD, label), FD)


def test_the_baseline_can_be_named(sweep):
    groups = group_runs(read_runs(sweep).runs)
    first = {row.group.label: row for row in summarise(groups, FD)}
    rows = summarise(with_baseline(groups, FD, "stratified"), FD)
    assert [row.group.label for row in rows] == ["stratified", *(name for name in METHODS if name != "stratified")]
    assert rows[0].is_baseline and rows[0].effect is None
    assert rows[1].effect.size == pytest.approx(1 / first["stratified"].effect.size)
    assert rows[1].cost.mean == pytest.approx(2335 / 2340, rel=1e-4)
    assert with_baseline(groups, FD) == groups


def test_a_baseline_without_a_finished_run_is_refused_while_others_have_one(tmp_path):
    write_run(tmp_path / "a", "uniform", 0, steps=250, result=None)
    groups = group_runs(read_runs(tmp_path).runs)
    assert with_baseline(groups, FD, "uniform") == groups  # nothing is finished: nothing is compared
    write_seeds(tmp_path, [1.0], "logit_normal")
    groups = group_runs(read_runs(tmp_path).runs)
    with pytest.raises(ValueError, match="baseline=uniform must be .* use one of logit_normal$"):
        with_baseline(groups, FD, "uniform")


def test_titles_are_cut_short_where_the_table_is_too_wide(tmp_path):
    write_seeds(tmp_path, [1.0], "uniform")
    groups = group_runs(read_runs(tmp_path).runs)
    found = [one for one in columns(tabulate(groups, FD), f"{FD} ↓") if one.heading not in ("verdict", "over training")]
    assert compare(groups, FD).titles == [one.heading for one in found]
    groups[0].label = "x" * 140
    brief = [one.brief.replace("uniform", "baseline") or one.heading for one in found]
    assert compare(groups, FD).titles == brief and {"ratio to baseline", "loss", "img/s"} < set(brief)


def test_one_seed_is_called_n_1_and_is_never_bold(tmp_path):
    write_seeds(tmp_path, [3.0], "uniform")
    write_seeds(tmp_path, [1.0], "logit_normal")
    groups = sorted(group_runs(read_runs(tmp_path).runs), key=lambda group: group.label != "uniform")
    table = tabulate(groups, FD)
    assert [row.metric.low for row in table.rows] == [None, None] and not any(row.bold for row in table.rows)
    line = [cell.text for cell in cells(table)["logit_normal"].values()]
    assert line[1:5] == ["n=1", "1.000 (n=1, no interval)", "0.33", "no claim"]
    assert "no claim" in legend(table)


@pytest.mark.parametrize(
    ("base", "other", "bold"),
    [
        ([3.0, 4.0, 5.0], [2.0, 2.7, 3.4], True),  # intervals overlap, that of the ratio excludes 1
        ([3.0, 4.0, 5.0], [2.0, 4.1, 4.9], False),
        ([3.0, 4.0], [2.0, 3.0], False),  # excludes 0, but two seeds are too few
    ],
)
def test_bold_needs_three_seeds_and_an_interval_without_one(tmp_path, base, other, bold):
    write_seeds(tmp_path, other, "logit_normal")
    write_seeds(tmp_path, base, "uniform")
    groups = sorted(group_runs(read_runs(tmp_path).runs), key=lambda group: group.label != "uniform")
    table = tabulate(groups, FD)
    assert table.rows[1].bold is bold
    shown = [cell.bold for cell in cells(table)["logit_normal"].values()]
    assert shown[:5] == [False, False, False, bold, bold] and not any(shown[5:])


def test_only_common_seeds_are_paired(tmp_path):
    write_seeds(tmp_path, [1.0, 2.0, 3.0], "logit_normal")
    write_seeds(tmp_path, [2.0, 2.5], "uniform")
    groups = sorted(group_runs(read_runs(tmp_path).runs), key=lambda group: group.label != "uniform")
    table = tabulate(groups, FD)
    base, row = table.rows
    assert base.metric.n == 2 and row.metric.n == 3 and row.effect.n == 2
    assert row.effect.size == pytest.approx(math.sqrt(1.0 / 2.0 * 2.0 / 2.5))
    assert texts(table, "ratio to uniform")["logit_normal"] == "0.63 (2 common seeds)"


def test_protocols_are_not_mixed(tmp_path):
    write_seeds(tmp_path, [1.0, 2.0], "uniform")
    _edit_protocol(tmp_path / "uniform-1", solver="ddpm-1000")
    (row,) = rows_of(tmp_path)
    assert row.metric is None and row.note == "n/a (mixed protocols)"


def test_groups_measured_with_another_ruler_are_not_compared(tmp_path):
    write_seeds(tmp_path, [1.0, 2.0], "logit_normal")
    write_seeds(tmp_path, [1.5, 2.5], "uniform")
    for seed in range(2):
        _edit_protocol(tmp_path / f"uniform-{seed}", reference={"dataset": "other"})
    row = rows_of(tmp_path)[1]
    assert row.metric.mean == 1.5 and row.effect is None and row.unpaired == "n/a (measured differently)"


def test_values_on_the_latents_of_the_runs_seed_are_not_compared_with_those_of_one_set_for_all(tmp_path):
    write_seeds(tmp_path, [1.0, 2.0], "logit_normal")
    write_seeds(tmp_path, [1.5, 2.5], "uniform")
    for seed in range(2):
        _edit_protocol(tmp_path / f"uniform-{seed}", seed="the run's")
        _edit_protocol(tmp_path / f"logit_normal-{seed}", seed=0)
    row = rows_of(tmp_path)[1]
    assert row.metric.mean == 1.5 and row.unpaired == "n/a (measured differently)"
    _edit_protocol(tmp_path / "logit_normal-0", seed="the run's")
    assert rows_of(tmp_path)[1].note == "n/a (mixed protocols)"
    _edit_protocol(tmp_path / "logit_normal-1", seed="the run's")
    assert rows_of(tmp_path)[1].effect.size == pytest.approx(math.sqrt(1.0 / 1.5 * 2.0 / 2.5))


def test_settings_of_a_protocol_that_are_several_are_written_side_by_side(tmp_path):
    write_seeds(tmp_path, [1.0, 2.0], "uniform")
    for seed in range(2):
        reference = {"dataset": "digits", "split": "train and test", "fingerprint": ["0a", "1b"], "n": 360}
        _edit_protocol(tmp_path / f"uniform-{seed}", seed=["the run's", "the run's, set 1"], reference=reference)
    (line,) = protocol_table(group_runs(read_runs(tmp_path).runs), [FD]).lines
    shown = [cell.text for cell in line]
    assert shown[-2:] == ["digits train and test, 360 images, 0a; 1b", "the run's; the run's, set 1"]


def test_losses_of_different_predictions_are_not_compared(tmp_path):
    write_seeds(tmp_path, [1.0, 2.0], "logit_normal")
    write_seeds(tmp_path, [1.5, 2.5], "uniform", prediction={"_target_": "diffusion_lab.diffusion.V"})
    assert rows_of(tmp_path, "val/loss")[1].unpaired == "n/a (measured differently)"
    assert rows_of(tmp_path)[1].effect is not None  # distances of samples can be


def _edit_protocol(run, **changed):
    path = run / "evaluations.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        line["protocol"] |= changed
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_unfinished_groups_have_no_number(tmp_path):
    write_run(tmp_path / "a", "uniform", 0, steps=300, result=None)
    write_seeds(tmp_path, [1.0, 2.0], "logit_normal")
    rows = {row.group.label: row for row in rows_of(tmp_path)}
    assert rows["uniform"].metric is None and rows["uniform"].note == "n/a (none finished)"
    assert rows["logit_normal"].unpaired == "baseline"  # the first group that has the metric


def test_the_metric_is_chosen_or_checked(sweep):
    groups = group_runs(read_runs(sweep).runs)
    assert choose_metric(groups) == FD
    assert choose_metric(groups, "metrics/precision1k_digits") == "precision1k_digits"
    assert choose_metric(groups, "prec") == "precision1k_digits"
    assert choose_metric(groups, "val/loss") == "val/loss"
    with pytest.raises(ValueError, match="metric=fid50k must be one that the runs have; use one of fd1k_digits, prec"):
        choose_metric(groups, "fid50k")


def test_the_distance_on_more_samples_is_preferred(tmp_path):
    write_seeds(tmp_path, [1.0])
    with open(tmp_path / "uniform-0" / "evaluations.jsonl", "a") as file:
        for name in ("fd500_digits", "fd10k_digits", "kd50k_digits"):
            file.write(json.dumps({"step": 250, "name": name, "value": 2.0, "protocol": {}}) + "\n")
    assert choose_metric(group_runs(read_runs(tmp_path).runs)) == "fd10k_digits"


def test_markdown_and_latex_say_what_the_table_says(sweep):
    rows = rows_of(sweep)
    said = compare(group_runs(read_runs(sweep).runs), FD)
    text = markdown(said).splitlines()
    assert len(text) == 2 + len(rows) and all(line.count("|") == len(said.titles) + 1 for line in text)
    table = latex(said)
    assert r"fd1k\_digits $\downarrow$" in table and "loss\\_second\\_moment & n=2 &" in table
    assert re.search(r"ratio to uniform", table)
    assert table.count(r"\\") == 1 + len(rows)


@pytest.mark.parametrize(
    ("text", "made"), [("|S| = 1", "$|$S$|$ = 1"), ("p < 0.001", "p $<$ 0.001"), ("t >= 0.9 T", "t $>$= 0.9 T")]
)
def test_latex_prints_the_characters_that_were_meant(text: str, made: str) -> None:
    assert tex(text) == made


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.23456, "1.235"), (0.5, "0.5000"), (1234.5, "1234"), (-0.01234, "−0.01234"), (3e-7, "3.000e-07"), (0, "0.000")],
)
def test_numbers_read_well(value, text):
    assert number(value) == text


def test_decimals_follow_the_smallest_mean():
    assert decimals([2.1, 0.95]) == 4
    assert decimals([2.1, 120.0]) == 3
    assert decimals([1e-6, 1.0]) == -1
    assert decimals([]) == decimals([0.0]) == 3


def test_a_column_without_anything_in_it_is_left_out(tmp_path):
    for seed in range(2):
        for method in ("uniform", "logit_normal"):
            write_run(tmp_path / f"{method}{seed}", method, seed, steps=250)
    table = compare(group_runs(read_runs(tmp_path).runs), "fd1k_digits")
    assert "verdict" in table.titles and not any(title.startswith("seeds") for title in table.titles)
    assert all(len(line) == len(table.titles) for line in table.lines)
    assert all(any(line[i].text for line in table.lines) for i in range(len(table.titles)))


def test_the_validation_loss_is_one_column(tmp_path):
    for seed in range(2):
        for method in ("uniform", "logit_normal"):
            write_run(tmp_path / f"{method}{seed}", method, seed, steps=250)
    groups = group_runs(read_runs(tmp_path).runs)
    assert "val loss" in compare(groups, FD).titles and "val loss" not in compare(groups, "val/loss").titles
