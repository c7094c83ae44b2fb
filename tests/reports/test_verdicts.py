"""The verdicts of a report: recomputed from the file beside it, by NumPy and SciPy alone."""

import csv
import json
import math
import re

import numpy as np
import pytest

from diffusion_lab.reports import Question, compare, group_runs, read_runs, sections_of, write_per_seed, write_table
from diffusion_lab.reports.comparison.effects import effect_text
from diffusion_lab.reports.comparison.rows import tabulate
from diffusion_lab.verdicts import Verdict
from tests.reports.curves import FD, STEPS, power_law, write_curves
from tests.reports.test_tables import write_seeds
from tests.tables.in_numpy import intervals


@pytest.mark.parametrize(
    ("effect", "scale", "text"),
    [
        (("better", 0.9312, 0.8521, 1.0), "ratio", "0.93 [0.85, 1)"),
        (("worse", 1.11, 1.0, 1.2), "ratio", "1.11 (1, 1.20]"),
        (("better", 0.93, 0.85, 0.9996), "ratio", "0.9300 [0.8500, 0.9996]"),  # decided, and looks so
        (("not decided", 0.93, 0.85, 1.0004), "ratio", "0.9300 [0.8500, 1.0004]"),
        (("better", 0.0123, 0.0111, 0.0137), "ratio", "0.012 [0.011, 0.014]"),
        (("worse", 123.4, 101.0, 150.0), "ratio", "123 [101, 150]"),
        (("no claim", 0.93, 0.5, 1.5), "ratio", "0.93"),
        (("identical", 1.0, 1.0, 1.0), "ratio", "1"),
        (("worse", -0.5, -0.9, 0.0), "difference", "−0.500 [−0.900, 0)"),
        (("worse", -0.5, -0.9, -0.0001), "difference", "−0.5000 [−0.9000, −0.0001]"),
        (("identical", 0.0, 0.0, 0.0), "difference", "0"),
    ],
)
def test_an_effect_as_text(effect, scale, text):
    word, size, low, high = effect
    assert effect_text(Verdict(word, size, low, high, 3), scale, 3) == text


def recomputed(table, values, suffix=""):
    """[(row, what the table says, [size, low, high] of the values)] of a table of ratios with one section."""
    lines = [line.strip("| ").split(" | ") for line in table.read_text().splitlines() if line.startswith("| ")]
    metric, seen = lines[0][2].split()[0] + suffix, {}
    with open(values, newline="") as file:
        for line in csv.DictReader(file):
            if line["metric"] == metric:
                seen.setdefault(line["row"], {})[int(line["seed"])] = math.log(float(line["value"]))
    names = [cells[0] for cells in lines[2:]]
    y = np.array([[seen[name][seed] for seed in sorted(seen[name])] for name in names])
    mean, half = intervals(y)
    said = [cells[3].strip("*") for cells in lines[3:]]
    ends = [np.exp([m, m - h, m + h]).tolist() for m, h in zip(mean, half, strict=True)]
    return list(zip(names[1:], said, ends, strict=True))


def same(said, ends):
    """Equal to the last digit and a percent of the drawn quantile; an end of 1 is cut."""
    numbers = [float(text) for text in re.findall(r"[\d.]+", said)]
    return len(numbers) == 3 and all(
        one == 1 or abs(one - again) < 0.006 + 0.01 * again for one, again in zip(numbers, ends, strict=True)
    )


@pytest.mark.parametrize("estimand", ["end", "training"])
def test_the_tables_intervals_can_be_recomputed_from_the_file_beside_it(tmp_path, estimand):
    random = np.random.default_rng(2)
    for method, level in {"uniform": 1.0, "logit_normal": 0.6, "stratified": 1.05}.items():
        for seed in range(4):
            noise = np.exp(random.normal(0, 0.05, len(STEPS)))
            write_curves(tmp_path / "runs" / f"{method}-{seed}", method, seed, power_law(STEPS, level=level) * noise)
    folder = read_runs(tmp_path / "runs")
    (section,) = sections_of(folder.runs, estimand=estimand)
    table = compare(section.groups, FD, question=section.question)
    write_table(tmp_path / "one.md", folder, {"digits": table}, "command")
    files = [write_per_seed(tmp_path / name, [section]) for name in ("one.md", "two.tex")]
    assert [path.name for path in files] == ["one.per_seed.csv", "two.per_seed.csv"]
    assert files[0].read_bytes() == files[1].read_bytes()
    with open(files[0], newline="") as file:
        lines = [line for line in csv.DictReader(file) if line["metric"] == FD]
    assert {line["section"] for line in lines} == {"digits: " + FD} and '"samples":1000' in lines[0]["protocol"]
    suffix = " over training" if estimand == "training" else ""
    found = recomputed(tmp_path / "one.md", files[0], suffix)
    assert len(found) == 2 and all(same(said, ends) for _, said, ends in found), found
    other = recomputed(tmp_path / "one.md", files[0], "" if suffix else " over training")
    assert not all(same(said, ends) for _, said, ends in other)  # the other estimand has other numbers


def test_the_verdict_is_bold_and_its_interval_excludes_one(tmp_path):
    write_seeds(tmp_path, [3.0, 4.0, 5.0], "uniform")
    write_seeds(tmp_path, [1.2, 1.6, 2.1], "logit_normal")
    write_seeds(tmp_path, [2.0, 4.1, 6.9], "stratified")
    table = compare(list(group_runs(read_runs(tmp_path).runs)), FD)
    lines = {line[0].text: dict(zip(table.titles, line, strict=True)) for line in table.lines}
    own, open_one = lines["logit_normal"], lines["stratified"]
    assert own["verdict"] == ("better", True) and own["ratio to uniform"].bold
    assert float(re.findall(r"[\d.]+", own["ratio to uniform"].text)[-1]) <= 1
    assert open_one["verdict"] == ("not decided", False) and not open_one["ratio to uniform"].bold
    assert any("Fix the number of seeds before the first run" in note and "18 %" in note for note in table.notes)
    assert "p=" not in str(table) and "equal: surely within 10 % of the baseline" in table.legend


def test_a_value_that_is_not_positive_makes_differences(tmp_path):
    write_seeds(tmp_path, [0.02, 0.01, 0.03], "uniform")
    write_seeds(tmp_path, [0.01, -0.001, 0.022], "logit_normal")
    table = compare(list(group_runs(read_runs(tmp_path).runs)), FD)
    assert table.titles[3] == "difference to uniform" and "differs by" in table.answer


def test_a_diverged_run_has_another_name_in_the_file(tmp_path):
    for seed in range(3):
        write_curves(tmp_path / f"u{seed}", "uniform", seed, power_law(STEPS))
        lost = power_law(STEPS) * (np.array([1.0] * 7 + [90.0]) if seed == 1 else 1)
        write_curves(tmp_path / f"l{seed}", "logit_normal", seed, lost)
    (section,) = sections_of(read_runs(tmp_path).runs)
    with open(write_per_seed(tmp_path / "t.md", [section]), newline="") as file:
        names = [(line["row"], int(line["seed"]), line["metric"]) for line in csv.DictReader(file)]
    assert ("logit_normal", 1, f"{FD} (diverged)") in names and ("logit_normal", 1, FD) not in names
    assert ("logit_normal", 0, FD) in names and ("logit_normal", 0, f"{FD} over training") in names
    assert ("logit_normal", 1, f"{FD} over training") not in names


def test_a_seed_that_is_lost_from_its_first_snapshot_is_counted_and_left_out(tmp_path):
    """Of either row; the third is bad with every seed."""
    for seed in range(3):
        for method, factor, lost in (("uniform", 1, 1), ("logit_normal", 0.8, 2), ("stratified", 9, None)):
            metric = power_law(STEPS) * factor * (20 if seed == lost else 1) * (1 + seed / 100)
            write_curves(tmp_path / f"{method}{seed}", method, seed, metric)
    order = ["uniform", "logit_normal", "stratified"]
    groups = sorted(group_runs(read_runs(tmp_path).runs), key=lambda group: order.index(group.label))
    table = tabulate(groups, FD)
    assert table.evidence.diverged == [[1], [2], []]
    assert [row.diverged for row in table.rows] == [1, 1, 0]
    assert table.rows[1].effect.size == pytest.approx(0.8) and table.rows[1].effect.n == 1
    assert table.rows[2].effect.size == pytest.approx(9.0) and table.rows[2].effect.n == 2


def test_a_question_that_is_not_the_recorded_one_is_called_another(tmp_path):
    for seed in range(3):
        for method in ("uniform", "logit_normal"):
            write_curves(tmp_path / f"{method}-{seed}", method, seed, power_law(STEPS))
    record = {"metric": FD, "estimand": "training", "margin": 1.05, "seeds": 3, "samples": 1000}
    (tmp_path / "sweep.json").write_text(json.dumps({"question": record, "commands": [], "jobs": []}))
    folder = read_runs(tmp_path)
    (section,) = sections_of(folder.runs, recorded=folder.questions)
    assert section.question == Question("training", 1.05, FD, seeds=3) and section.metric == FD
    (section,) = sections_of(folder.runs, recorded=folder.questions, estimand="end")
    assert section.question[:2] == ("end", 1.05) and section.question.note == (
        f"The sweep was to decide by {FD} over training, with equality within 5 %; this table decides by {FD} at the "
        "end, with equality within 5 %, which is another question."
    )
    assert section.question.note in compare(section.groups, FD, question=section.question).notes
    (section,) = sections_of(folder.runs, "val/loss", recorded=folder.questions)
    assert "this table decides by val/loss over training" in section.question.note
    (section,) = sections_of(folder.runs)
    assert section.question == Question(metric=FD)


@pytest.mark.parametrize(("stated", "said"), [(3, True), (4, False), (1, False), ("3", False)])
def test_more_seeds_than_stated_are_called_more(tmp_path, stated, said):
    for seed in range(4):
        for method in ("uniform", "logit_normal"):
            write_curves(tmp_path / f"{method}-{seed}", method, seed, power_law(STEPS, level=1 + seed / 9))
    (tmp_path / "sweep.json").write_text(json.dumps({"question": {"seeds": stated}, "commands": [], "jobs": []}))
    folder = read_runs(tmp_path)
    (section,) = sections_of(folder.runs, recorded=folder.questions)
    notes = compare(section.groups, FD, question=section.question).notes
    assert ("The sweep was to have 3 seeds, and 4 are compared." in notes) == said
