"""The study of small batches: its ratios on values whose slopes are known."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest

from diffusion_lab.intervals import Interval
from diffusion_lab.verdicts import judge_alone
from experiments import small_batches_page
from experiments.small_batches_page import METRIC, RATIOS, SLOTS, UNMIXED, ratio, tables
from experiments.study_along import rates
from experiments.study_cells import outcome


def write(path: Path, values: dict[str, float]) -> None:
    """A file of two seeds, the second with twice the distances; rows are named as in the study."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["row", "run", "seed", "metric", "step", "value", "protocol"])
        for row, value in values.items():
            for seed in (0, 1, 2):
                writer.writerow([row, f"run-{seed}", seed, "fd2k_digits", 400, value * 2**seed, ""])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """ln of stratified / uniform: 0.1 - 0.02 log2(batch/64) at the batches, 0.1 + 0.05 log2(steps/400) at the steps."""
    others = {"uniform": 3.0, SLOTS: 2.0, UNMIXED: 2.5, "logit_normal": 3.0, "infonoise": 4.0}
    for batch in (4, 8, 16, 32, 64, 128):
        own = 3 * math.exp(0.1 - 0.02 * math.log2(batch / 64))
        write(tmp_path / f"digits_{batch}.per_seed.csv", others | {"stratified": own})
    for steps in (200, 800, 1600):
        own = 3 * math.exp(0.1 + 0.05 * math.log2(steps / 400))
        write(tmp_path / f"steps_{steps}.per_seed.csv", others | {"stratified": own})
    monkeypatch.setattr(small_batches_page, "FOLDER", tmp_path)
    return tmp_path


def test_slopes_of_the_batch_and_of_the_steps_and_their_sum(folder: Path) -> None:
    batches, steps = tables()
    assert [*batches] == [4, 8, 16, 32, 64, 128] and {*steps} == {200, 400, 800, 1600}
    found = ratio("stratified", "uniform", batches, steps)
    assert found.mean.mean == pytest.approx(0.1 + 0.02 * 1.5) and found.mean.n == 3
    assert found.slope.mean == pytest.approx(-0.02) and found.control.mean == pytest.approx(0.05)
    assert found.excess.mean == pytest.approx(0.03)
    assert ratio(SLOTS, UNMIXED, batches, steps).mean.mean == pytest.approx(math.log(0.8))
    text = small_batches_page.table().split("\n")
    assert len(text) == 2 + len(RATIOS) and "| 1.14 " in text[2] and "| 1.03 " in text[2]


def test_the_least_mean_of_each_batch_is_bold(folder: Path) -> None:
    """The mean of v, 2v and 4v is 2v."""
    write(folder / "lr_4.per_seed.csv", {"uniform optimizer.lr=0.005": 1.0, "uniform optimizer.lr=0.01": 2.0})
    write(folder / "lr_128.per_seed.csv", {"uniform optimizer.lr=0.01": 1.5, "uniform optimizer.lr=0.02": 1.25})
    assert rates(str(folder / "lr"), METRIC, "batch").split("\n") == [
        "| batch | 0.005 | 0.01 | 0.02 |",
        "| ---: | ---: | ---: | ---: |",
        "| 4 | **2.00** | 4.00 |  |",
        "| 128 |  | 3.00 | **2.50** |",
    ]


@pytest.mark.parametrize(
    ("ends", "said"),
    [((0.5, 0.9), "**right**"), ((0.5, 1.1), "not decided"), ((1.1, 1.2), "**wrong**"), ((None, None), "not decided")],
)
def test_a_prediction_is_decided_where_its_interval_lies_on_one_side(
    ends: tuple[float | None, float | None], said: str
) -> None:
    low, high = (None if end is None else math.log(end) for end in ends)
    assert outcome(Interval(-0.1, None, low, high, 3), -math.inf, 0.0) == said


def test_what_lies_in_a_band_is_right_and_what_overlaps_its_edge_is_not_decided() -> None:
    within, over, out = ((0.95, 1.05), (0.95, 1.2), (1.15, 1.2))
    found = [Interval(0.0, None, math.log(low), math.log(high), 3) for low, high in (within, over, out)]
    assert [outcome(one, math.log(0.9), math.log(1.1)) for one in found] == ["**right**", "not decided", "**wrong**"]


def test_the_predictions_are_those_of_the_page(folder: Path) -> None:
    """Without noise an interval is a point: stratified / uniform is 1.14 here, and infonoise / uniform 1.33."""
    write(folder / "lr_4.per_seed.csv", {"uniform optimizer.lr=0.005": 1.0, "uniform optimizer.lr=0.01": 2.0})
    write(folder / "lr_128.per_seed.csv", {"uniform optimizer.lr=0.01": 1.5, "uniform optimizer.lr=0.02": 1.25})
    said = [line.split(" | ") for line in small_batches_page.predictions().split("\n")[2:]]
    outcomes = ["**wrong**", "**right**", "**right**", "**right**", "**right**", "**right**, of three seeds"]
    assert [line[-1].strip(" |") for line in said] == outcomes
    assert "0.25" in said[-1][2]


def test_the_verdict_of_a_ratio_has_the_interval_of_the_page(folder: Path) -> None:
    """Both are Student's of the seeds' means at 1 - 0.05/5."""
    path = folder / "digits_4.per_seed.csv"
    text, line = path.read_text(), "uniform,run-2,2,fd2k_digits,400,12.0"
    assert line in text
    path.write_text(text.replace(line, line.replace("12.0", "11.0")))
    found = ratio("stratified", "uniform", *tables()).mean
    judged = judge_alone([*small_batches_page.means().values()], "ratio")[0]
    assert found.low is not None and found.high is not None and found.high > found.low and judged is not None
    assert (judged.low, judged.high) == (pytest.approx(math.exp(found.low)), pytest.approx(math.exp(found.high)))
