"""From run folders with known curves to the pages of a table."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from diffusion_lab.runs.find import read_run
from diffusion_lab.tables import Analysed, Entry, LossRatio, MetricAtSteps, TableScale, summarise
from diffusion_lab.tables.curves import groups_of, speed
from diffusion_lab.tables.page import TablePage, as_html, as_markdown, curves, write_pages
from diffusion_lab.tables.values import Gathered, TrainedRun, gather
from tests.reports.curves import FD, STEPS, power_law, write_curves
from tests.tables.made import table

SEEDS = (0, 1, 2)
TABLE = table(
    columns={"linear": {"at": [125, 250], "title": "linear"}},
    rows={
        "base": {"title": "Base", "published": {"linear": [9.0, 5.0]}},
        "ours": {"title": "Ours", "published": {"linear": [8.0, 3.0]}, "speedup": 2.0},
    },
)


def never(*_):
    raise AssertionError("no analysis is asked for")


def trained(folder: Path, faster: float = 2.5) -> list[TrainedRun]:
    """Runs whose curves fall like a power law, Ours `faster` times; its steps cost half as much again."""
    made = []
    (column,) = TABLE.columns
    for name, method, factor, seconds in (("base", "uniform", 1.0, 0.1), ("ours", "logit_normal", faster, 0.15)):
        for seed in SEEDS:
            place = folder / f"{name}-s{seed}"
            write_curves(place, method, seed, power_law(STEPS, factor, 1 + 0.02 * seed), step_seconds=seconds)
            steps = (int(STEPS[3]), int(STEPS[-1]))
            made.append(TrainedRun(TABLE.row(name), column, 0, seed, place, steps))
    return made


def gathered(folder: Path) -> Gathered:
    return gather(TABLE, trained(folder), MetricAtSteps("fid"), never)


def page(folder: Path) -> TablePage:
    found = gathered(folder)
    scale = TableScale("mini", "small runs", steps=2000, differs=("the scale's own sentence",))
    settings = {"schedule": "linear"}, ["row", "column", "lr"], [["Base", "linear", "1"], ["Ours", "linear", "2"]]
    return TablePage(summarise(found.values, "lower"), found, scale, settings, ["the command"], {"torch": ["2"]})


def test_the_values_are_those_of_the_evaluations(tmp_path: Path) -> None:
    values = gathered(tmp_path).values
    assert values.quantity == FD
    for seed in SEEDS:
        assert values.of("base", "linear", "250")[seed] == power_law(STEPS, 1.0, 1 + 0.02 * seed)[-1]
        assert values.of("ours", "linear", "125")[seed] == power_law(STEPS, 2.5, 1 + 0.02 * seed)[3]


def test_whose_latents_they_are_is_the_protocols_word(tmp_path: Path) -> None:
    runs = trained(tmp_path)
    assert {value.latents for value in gather(TABLE, runs, MetricAtSteps("fid"), never).values.values} == {"common"}
    for file in tmp_path.glob("*/evaluations.jsonl"):
        file.write_text(re.sub(r'"seed": ?\d+', '"seed": "the run\'s"', file.read_text()))
    found = gather(TABLE, runs, MetricAtSteps("fid"), never)
    assert found.values.latents == "by seed"


def test_a_run_that_is_not_done_is_named_and_left_out(tmp_path: Path) -> None:
    runs = trained(tmp_path)
    (runs[-1].folder / "result.json").unlink()
    found = gather(TABLE, runs, MetricAtSteps("fid"), never)
    assert list(found.values.of("ours", "linear", "250")) == [0, 1]
    assert "seed 2 is missing" in found.missing["ours", "linear"]


def test_the_factor_is_the_curves_own_and_time_has_the_methods_cost(tmp_path: Path) -> None:
    (column,) = TABLE.columns
    made = speed(page(tmp_path).results, column, gathered(tmp_path / "again"))
    assert made is not None
    ((name, images, seconds, published),) = [[cell.text for cell in line] for line in made.lines]
    assert (name, published) == ("Ours", "2")
    assert images.startswith("2.50 [2.50, 2.50]")
    assert seconds.startswith("1.67 [1.67, 1.67]")  # 2.5 / 1.5


def test_the_page_loads_nothing_and_has_every_part(tmp_path: Path) -> None:
    one = page(tmp_path)
    html = as_html(one, curves(one.results, one.gathered))
    assert not re.search(r"(src|href)=\"(?!data:)", html) and "<script" not in html
    for text in (
        "The claim holds here. A verdict would be overturned by",
        "The paper claims: Ours is lower.",
        "the scale&#39;s own sentence",
        "the command",
        "against Base",
        "250",
        "6 runs, ",
    ):
        assert text in html


def test_the_markdown_has_the_numbers_of_the_files(tmp_path: Path) -> None:
    one = page(tmp_path / "runs")
    text = as_markdown(one, curves(one.results, one.gathered))
    mean = np.mean([power_law(STEPS, 1.0, 1 + 0.02 * seed)[-1] for seed in SEEDS])
    assert "| Base | " in text and f"{mean:.2f} ± " in text and "| Base | 9 | 5 |" in text
    assert text.index("**The claim holds here.") < text.index("](differences.svg)") < text.index("## Measured")
    first = {path.name: path.read_bytes() for path in write_pages(one, tmp_path / "a")}
    second = {path.name: path.read_bytes() for path in write_pages(page(tmp_path / "other"), tmp_path / "b")}
    assert first == second
    assert {"table.md", "table.tex", "table.csv", "per_seed.csv", "page.html", "images.svg"} < first.keys()
    assert "differences.svg" in first


def test_a_figure_is_named_after_the_data_of_the_runs(tmp_path: Path) -> None:
    """And not after those of the paper, which a smaller scale has replaced."""
    one = page(tmp_path)
    for groups in groups_of(one.results, TABLE.columns[0], one.gathered).values():
        for run in groups.runs:
            run.info["choices"] = {"dataset": "digits"}
    assert {"images-digits.svg", "time-digits.svg"} <= curves(one.results, one.gathered).keys()


def entry(folder: Path, **changed) -> Entry:
    runs = trained(folder)
    given = {"row": TABLE.row("ours"), "column": TABLE.columns[0], "seed": 0, "runs": (read_run(runs[-1].folder),)}
    return Entry(**{**given, "start": read_run(runs[0].folder), "steps": (1000, 2000), "analyse": never, **changed})


def test_the_loss_ratio_is_a_mean_of_logarithms_over_a_range(tmp_path: Path) -> None:
    one = entry(tmp_path)
    for run, losses in ((one.runs[0], [1.0, 10.0, 4.0, 4.0]), (one.start, [0.1, 0.1, 4.0, 40.0])):
        (run.folder / "metrics.jsonl").write_text(f'{{"step": 1, "images": 1, "val/loss_t": {losses}}}\n')
        run.__dict__.pop("_metrics", None)
        run._curves.clear()
    early, late = (LossRatio({"linear": span})(one).values for span in ([0.0, 0.5], [0.5, 1.0]))
    assert early == pytest.approx([1.5, 1.5])  # log10 of 10 and of 100
    assert late == pytest.approx([-0.5, -0.5])
    assert LossRatio({"linear": [0, 1]})(entry(tmp_path / "b", start=None)).values == [None, None]


def test_a_number_of_an_analysis_is_picked_by_the_row(tmp_path: Path) -> None:
    row = table(rows={"base": {}, "slot": {"pick": {"index": [0, 2]}}}).row("slot")
    asked = []

    def analyse(name, runs, words):
        asked.append((name, words))
        return {"protocol": {}}, {"edges": np.array([[0.0, 5.0, 13.0]])}

    measured = Analysed("slots", "edges", ["weights=raw"])(entry(tmp_path, row=row, analyse=analyse))
    assert list(measured.values) == [13.0, 13.0] and asked == [("slots", ("weights=raw",))]


def change_last(folder: Path, value: float | None) -> None:
    """Give a run another last value, as training would have written it."""
    for name, key in (("evaluations", "value"), ("metrics", f"metrics/{FD}")):
        lines = [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]
        changed = [line | {key: value} if line["step"] == STEPS[-1] else line for line in lines]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in changed))


def test_a_later_evaluation_with_other_weights_does_not_change_a_table(tmp_path: Path) -> None:
    """`evaluate weights=raw solver=..` has the same name and step, and was printed under the run's own protocol."""
    runs = trained(tmp_path)
    before = gather(TABLE, runs, MetricAtSteps("fid"), never).values.values
    file = tmp_path / "ours-s1" / "evaluations.jsonl"
    last = json.loads(file.read_text().splitlines()[-1])
    other = last | {"value": 0.5, "protocol": last["protocol"] | {"ema_decay": None}}
    file.write_text(file.read_text() + json.dumps(other) + "\n")
    assert gather(TABLE, runs, MetricAtSteps("fid"), never).values.values == before


def test_a_factor_leaves_out_what_the_table_leaves_out(tmp_path: Path) -> None:
    """A diverged seed made it a bound; one of the baseline, whose final value is no target, made it larger."""
    (column,) = TABLE.columns

    def factors(folder: Path, lost: str) -> str:
        runs = trained(folder)
        change_last(folder / lost, 300.0)
        found = gather(TABLE, runs, MetricAtSteps("fid"), never)
        results = summarise(found.values, "lower")
        assert results.diverged == {(lost.partition("-")[0], "linear"): (1,)}
        made = speed(results, column, found)
        assert made is not None
        return made.lines[0][1].text

    for lost in ("ours-s1", "base-s1"):
        assert factors(tmp_path / lost, lost).startswith("2.50 [2.50, 2.50]")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None])
def test_a_run_that_diverged_leaves_a_gap_that_is_said(tmp_path: Path, value: float | None) -> None:
    made = trained(tmp_path)
    change_last(tmp_path / "ours-s1", value)
    found = gather(TABLE, made, MetricAtSteps("fid"), never)
    assert sorted(found.values.of("ours", "linear", "250")) == [0, 2]
    assert sorted(found.values.of("base", "linear", "250")) == [0, 1, 2]
    assert summarise(found.values, "lower").diverged == {("ours", "linear"): (1,)}
    assert found.missing == {("ours", "linear"): "seed 1 has no finite number at 250"}
    (outcome,) = summarise(found.values, "lower").outcomes
    assert outcome.compared.n == 2 and outcome.word == "not decided"


def test_a_bar_in_a_setting_stays_in_its_cell(tmp_path: Path) -> None:
    settings = {}, ["row", "column", "further"], [["|S| = 1", "linear", "a=1"], ["|S| = 3", "linear", "a=3"]]
    lines = as_markdown(page(tmp_path)._replace(settings=settings), {}).splitlines()
    assert r"| \|S\| = 1 | linear | a=1 |" in lines


@pytest.mark.parametrize("unit", ["FID", FD])
def test_rows_that_are_numbers_of_the_same_runs_are_drawn_as_numbers(unit: str, tmp_path: Path) -> None:
    """Beside the published ones, if both are the same quantity."""
    one = page(tmp_path)
    ((place, runs), *_) = one.gathered.runs.items()
    assert curves(one.results, one.gathered)
    same = one.gathered._replace(runs=dict.fromkeys([place, ("ours", place[1])], runs))
    (made,) = curves(replace(one.results, table=replace(TABLE, unit=unit)), same).items()
    drawn = made[1].svg.decode()
    assert made[0] == "numbers.svg" and all(word in drawn for word in ("measured", "Base", "Ours"))
    assert ("published" in drawn) == (unit == FD)


def test_the_file_says_what_data_were_measured_and_the_page_the_names_of_the_rows(tmp_path: Path) -> None:
    one = page(tmp_path / "runs")
    for runs in one.gathered.runs.values():
        for run in runs:
            run.info["choices"] = {"dataset": "digits"}
    write_pages(one, tmp_path)
    lines = list(csv.DictReader((tmp_path / "table.csv").read_text().splitlines()))
    assert {line["data"] for line in lines} == {"digits"}
    assert "- ours: Ours" in (tmp_path / "table.md").read_text()
