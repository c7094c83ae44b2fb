"""The page of races holds what its command computes, and what the guide promises of them."""

from __future__ import annotations

import math
import re

import numpy as np

from benchmarks import races
from diffusion_lab.verdicts import MARGIN


def cells() -> list[list[str]]:
    """The lines of the first table of the page."""
    table = (
        races.PAGE.read_text(encoding="utf-8").partition("| values | K | N | alpha | margin |")[2].partition("\n\n")[0]
    )
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def test_a_line_of_the_page_is_computed_again() -> None:
    drawn = races.of_digits(np.random.default_rng([4, 5]), 4, 5, equal=False)
    assert races.line("digits", drawn, 5, MARGIN) in races.PAGE.read_text(encoding="utf-8")


def test_the_error_is_at_most_alpha_and_a_race_is_cheaper_than_five_seeds_for_all() -> None:
    found = cells()
    assert len(found) == 3 * 5 * len(races.ROWS)
    for name, _, most, alpha, margin, false, missed, aside, cost, *_ in found:
        assert float(missed) <= float(alpha) + 0.007
        assert float(false) <= (float(alpha) + 0.007 if name == "equal" else 0.005)
        if margin and name != "equal":
            assert float(aside) <= float(alpha) and (most != "5" or float(cost) <= 0.7)


def test_the_guide_says_what_the_page_has() -> None:
    guide = (races.PAGE.parents[1] / "docs" / "races.md").read_text(encoding="utf-8")
    found = [line for line in cells() if line[3] == str(races.ALPHA)]
    missed = max(float(line[6]) for line in found)
    false = max(float(line[5]) for line in found if line[0] == "equal" and line[4])
    assert f"in at most {100 * missed:.1f} % of the races of a line" in guide
    assert f"at most\n{100 * false:.1f} % called one worse" in guide
    five = {
        alpha: [line for line in cells() if line[2] == "5" and line[4] and line[3] == alpha]
        for alpha in ("0.05", "0.1")
    }
    saved = [round(100 * (float(a[8]) - float(b[8]))) for a, b in zip(*five.values(), strict=True) if a[0] != "equal"]
    aside = [[float(line[7]) for line in own if line[7]] for own in five.values()]
    wrong = max(float(line[6]) for line in five["0.1"])
    regret = [math.exp(float(line[9])) for line in five["0.1"] if line[9]]
    assert f"costs {min(saved)} to {max(saved)} points less" in guide
    assert f"mean ratio {min(regret):.3f} to {max(regret):.3f}" in guide
    ends = [f"{100 * end:.1f}" for own in aside for end in (min(own), max(own))]
    assert "{2} to {3} % of races instead of {0} to {1} %".format(*ends) in guide.replace("\n", " ")
    assert f"misses in at most {100 * wrong:.1f} %" in guide
    ten = [line for line in found if line[0] == "digits" and line[2] == "10" and line[4]]
    costs, aside = ([float(line[column]) for line in ten] for column in (8, 7))
    assert f"ten seeds takes {100 * min(costs):.0f} to {100 * max(costs):.0f} %" in guide
    assert 1 / 3 > min(costs) / 2 > 0.32 and max(costs) / 2 == 2 / 5
    assert f"aside in {100 * min(aside):.1f} to {100 * max(aside):.1f} % of races" in guide
    second = races.PAGE.read_text(encoding="utf-8").partition("Regret with a margin")[2]
    regrets = re.findall(r"^\| digits \| \d+ \| 10 \| \S+ \| (\S+) \| \S+ \| (\S+) ", second, re.M)
    assert len(regrets) == len(ten) and all(float(race) < float(five) for race, five in regrets)
