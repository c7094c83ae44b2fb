"""The metrics of a comparison: verdicts follow the direction of each metric, corrected for all of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from diffusion_lab.reports.pair.page import unequal
from diffusion_lab.reports.pair.pair import Pair, group_of, lines_of, pair, side, table_of
from tests.reports.curves import FD, STEPS, power_law, write_curves
from tests.reports.synthetic import log

PSNR = "psnr1k"
SEEDS = {"uniform": (20.0, 21.0, 22.0), "logit_normal": (23.0, 24.5, 25.0)}  # the final value of each seed, in dB


@pytest.fixture
def compared(tmp_path: Path) -> Pair:
    """psnr1k, of which more is better, of three seeds; the distance is the same for both methods."""
    for method, values in SEEDS.items():
        for seed, value in enumerate(values):
            folder = tmp_path / f"{method}-{seed}"
            write_curves(folder, method, seed, power_law(STEPS))
            log(folder, 2000, **{f"metrics__{PSNR}": value})
            line = {"step": 2000, "name": PSNR, "value": value, "better": "higher", "units": "dB", "protocol": {}}
            with open(folder / "evaluations.jsonl", "a") as file:
                file.write(json.dumps(line) + "\n")
    return pair(group_of(side("A", f"{tmp_path}:uniform")), group_of(side("B", f"{tmp_path}:logit_normal")), PSNR)


def test_a_metric_that_rises_is_better_where_it_is_larger(compared: Pair) -> None:
    lines = {line.name: line for line in lines_of(compared)}
    found, effect = lines[PSNR], lines[PSNR].own.effect
    values = np.array(SEEDS["logit_normal"]) - np.array(SEEDS["uniform"])
    assert effect is not None and found.verdict is not None and found.table.scale == "difference"
    assert effect.size == pytest.approx(values.mean()) and effect.n == 3
    half = 4.30265 * values.std(ddof=1) / np.sqrt(3)
    assert effect.high == pytest.approx(values.mean() + half, rel=1e-5)
    assert found.verdict.word == "better"
    assert found.base.metric is not None and found.base.metric.mean == 21.0


@pytest.mark.parametrize(
    ("one", "other", "equal"), [(None, None, True), (None, 0, True), (3, 3, True), (None, 3, False)]
)
def test_grids_correspond_whatever_the_seed_unless_a_number_says_which_latents(
    compared: Pair, one: int | None, other: int | None, equal: bool
) -> None:
    for group, seed in zip(compared.groups, (one, other), strict=True):
        group.config["metrics"] = {"seed": seed}
    assert (unequal(compared) == []) is equal
    assert equal or unequal(compared) == ["seed of the latents (null and 3)"]


def test_the_chosen_metric_alone_has_a_verdict(compared: Pair) -> None:
    lines = lines_of(compared)
    assert [line.name for line in lines if line.verdict] == [PSNR]
    (line,) = [line for line in lines if line.name == FD]
    assert line.own.effect is not None and line.own.effect.word == "identical"
    table = table_of(compared, lines)
    assert table.answer.startswith("At n = 3, logit_normal is better: it differs by +3.167 [")
    assert [sum(cell.bold for cell in row) for row in table.lines] == [2, *[0] * (len(lines) - 1)]
