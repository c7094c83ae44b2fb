"""The page of rungs holds what its command computes, and what the guide says of them."""

from __future__ import annotations

import re

import numpy as np
import pytest

from benchmarks import races, rungs
from diffusion_lab.intervals import ESTIMANDS

PAGE = rungs.PAGE.read_text(encoding="utf-8")
LINES = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("| ")]


@pytest.mark.parametrize("share", rungs.RUNGS)
def test_the_drifts_of_the_page_are_computed_again(share: float) -> None:
    assert all(rungs.drift(estimand, share) in PAGE for estimand in ESTIMANDS)


def test_a_line_of_the_costs_is_computed_again_and_ends_in_that_of_the_race() -> None:
    drawn = races.of_digits(np.random.default_rng([4, 5]), 4, 5, equal=False)
    line = rungs.cost("digits", drawn.y)
    assert line in PAGE
    assert f"| 1.1 | 0.000 | 0.003 | 0.013 | {line.split('|')[3].strip()} |" in races.PAGE.read_text(encoding="utf-8")


def test_a_difference_that_does_not_change_has_no_drift() -> None:
    still = np.array([[0.3] * 5, [0.1] * 5])
    rising = np.arange(5.0)[None] * np.array([[1.0], [2.0]])
    for estimand in ESTIMANDS:
        assert rungs.at(0.5, still, estimand) == pytest.approx(rungs.at(1.0, still, estimand))
    assert rungs.at(0.6, rising, "end").tolist() == [2.0, 4.0] and rungs.at(1.0, rising, "end").tolist() == [4.0, 8.0]
    assert rungs.at(0.6, rising, "training").tolist() == [1.0, 2.0]


def test_the_guide_says_what_the_page_has() -> None:
    guide = " ".join((rungs.PAGE.parents[1] / "docs" / "races.md").read_text(encoding="utf-8").split())
    drifts = {(line[0], line[1]): line for line in LINES if line[0] in ESTIMANDS.values()}
    end, over = (drifts[words, "0.8"] for words in ESTIMANDS.values())
    said = re.search(
        r"in (\d+) % of the pairs .* by (0\.\d+) in ln, .* seeds, (0\.\d+)\. .* in (\d+) % .* is (0\.\d+), but", guide
    )
    assert said and said.groups() == (end[6][2:], end[4], end[3], over[6][2:], over[4])
    saved = [100 * (float(line[2]) - float(line[3])) for line in LINES if line[0] in ("digits", "all studies")]
    assert f"would save at most {max(saved):.0f} points of the table's percentages" in guide
