"""The metrics of a comparison: verdicts follow the direction of each metric, corrected for all of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from diffusion_lab.reports.pair.page import unequal
from diffusion_lab.reports.pair.pair import Pair, group_of, lines_of, pair, side
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
    found, difference = lines[PSNR], lines[PSNR].difference
    values = np.array(SEEDS["logit_normal"]) - np.array(SEEDS["uniform"])
    assert difference is not None and found.verdict is not None
    assert difference.mean == pytest.approx(values.mean()) and difference.n == 3
    half = 4.30265 * values.std(ddof=1) / np.sqrt(3)
    assert difference.high == pytest.approx(values.mean() + half, rel=1e-5)
    assert found.verdict.word == "better"
    assert found.base is not None and found.base.mean == 21.0


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


def test_a_metric_without_any_difference_is_identical_and_not_tested(compared: Pair) -> None:
    (line,) = [line for line in lines_of(compared) if line.name == FD]
    assert line.verdict is not None and line.verdict.word == "identical" and line.verdict.p is None
