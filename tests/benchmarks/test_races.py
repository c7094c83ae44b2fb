"""The page of races holds what its command computes, and what the guide promises of them."""

from __future__ import annotations

import numpy as np

from benchmarks import races
from diffusion_lab.verdicts import MARGIN


def cells() -> list[list[str]]:
    """The lines of the first table of the page."""
    table = races.PAGE.read_text(encoding="utf-8").partition("| values | K | N | margin |")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def test_a_line_of_the_page_is_computed_again() -> None:
    drawn = races.of_digits(np.random.default_rng([4, 5]), 4, 5, equal=False)
    assert races.line("digits", drawn, 5, MARGIN) in races.PAGE.read_text(encoding="utf-8")


def test_the_error_is_at_most_5_percent_and_a_race_is_cheaper_than_five_seeds_for_all() -> None:
    found = cells()
    assert len(found) == 2 * 5 * len(races.ROWS)
    for name, _, most, margin, false, missed, aside, cost, *_ in found:
        assert float(missed) <= 0.05 + 0.007
        assert float(false) <= (0.05 + 0.007 if name == "equal" else 0.005)
        if margin and name != "equal":
            assert float(aside) <= 0.05 and (most != "5" or float(cost) <= 0.7)


def test_the_guide_says_what_the_page_has() -> None:
    guide = (races.PAGE.parents[1] / "docs" / "races.md").read_text(encoding="utf-8")
    missed = max(float(line[5]) for line in cells())
    false = max(float(line[4]) for line in cells() if line[0] == "equal" and line[3])
    assert f"in at most {100 * missed:.1f} % of the races of a line" in guide
    assert f"at most\n{100 * false:.1f} % called one worse" in guide
