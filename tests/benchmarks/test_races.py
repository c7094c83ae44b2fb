"""The page of races holds what its command computes, and what the guide promises of them."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from benchmarks import races
from diffusion_lab import racing
from diffusion_lab.verdicts import MARGIN


def cells() -> list[list[str]]:
    """The lines of the first table of the page."""
    table = races.PAGE.read_text(encoding="utf-8").partition("| values | K | N | margin |")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def test_a_line_of_the_page_is_computed_again() -> None:
    drawn = races.of_digits(np.random.default_rng([4, 5]), 4, 5, equal=False)
    assert races.line("digits", drawn, 5, MARGIN) in races.PAGE.read_text(encoding="utf-8")


def test_the_error_is_at_most_alpha_and_a_race_is_cheaper_than_five_seeds_for_all() -> None:
    found = cells()
    assert len(found) == 2 * 6 * len(races.ROWS)
    for name, rows, _, margin, false, missed, aside, cost, *_ in found:
        assert float(missed) <= 0.05 + 0.007
        assert float(false) <= (0.05 + 0.007 if name == "equal" else 0.005)
        if margin and name != "equal":
            assert float(aside) <= (0.06 if name == "Fashion-MNIST" else 0.05) and float(cost) <= (
                0.5 if rows != "2" else 0.55
            )


def test_what_the_other_studies_choose_is_as_good_and_as_cheap_on_the_one_left_out() -> None:
    table = races.PAGE.read_text(encoding="utf-8").partition("| study | power |")[2].partition("\n\n")[0]
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.strip().splitlines()[2:]]
    assert len(lines) == 10 and {line[2] for line in lines[:-1]} == {str(racing.WORTH)}
    mean = [float(cell) for cell in lines[-1][3:]]
    assert mean[0] <= 0.5 and mean[1] <= races.ASIDE and mean[2] <= mean[3] + races.REGRET


def test_a_smaller_least_gain_costs_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(races, "RACES", 60)
    few = races.of_digits(np.random.default_rng(0), 4, 5, equal=False)
    costs = [races.outcome(few, 0.5, worth).cost for worth in (0.0, 0.01, 0.1)]
    assert costs == sorted(costs, reverse=True) and costs[0] > costs[-1] + 0.03


def test_the_guide_says_what_the_page_has() -> None:
    guide = " ".join((races.PAGE.parents[1] / "docs" / "races.md").read_text(encoding="utf-8").split())
    found = cells()
    missed = max(float(line[5]) for line in found)
    false = max(float(line[4]) for line in found if line[0] == "equal" and line[3])
    assert f"in at most {100 * missed:.1f} % of the races of a line" in guide
    without = max(float(line[4]) for line in found if line[0] == "equal" and not line[3])
    assert f"in at most {100 * false:.1f} %, with `margin=null` {100 * without:.1f} % (standard" in guide
    for most, words in ("5", "a race takes {:.0f} to {:.0f} % of five"), ("10", "ten seeds {:.0f} to {:.0f} %."):
        spent = [100 * float(line[7]) for line in found if line[0] == "equal" and line[2] == most and line[3]]
        assert words.format(min(spent), max(spent)) in guide
    last = races.PAGE.read_text(encoding="utf-8").partition("| deviation of ln |")[2].strip().splitlines()[2:]
    aside = [100 * float(line.split("|")[2]) for line in last]
    assert f"was in {min(aside):.1f} to {max(aside):.1f} % of 1,000" in guide
    for rows in races.ROWS:
        both = [line for line in found if line[1:4] == [str(rows), "5", "1.1"] and line[0] != "equal"]
        asides, costs, regrets = ([float(line[column]) for line in both] for column in (6, 7, 8))
        told = [[f"{100 * one:.0f} %" for one in costs], [f"{100 * one:.1f} %" for one in asides]]
        told += [[f"{math.exp(one):.3f}" for one in regrets]]
        assert f"| {rows} | {' | '.join(map(', '.join, told))} |" in guide
    left = (
        races.PAGE.read_text(encoding="utf-8").partition("| mean |")[2].partition("\n")[0].strip(" |").split("|")[-4:]
    )
    cost, aside, regret, five = map(float, left)
    said = f"they give {100 * cost:.0f} % of the trainings, the best method set aside in {100 * aside:.1f} %"
    said += f" and a mean ratio to it of {math.exp(regret):.3f}, where five seeds for all have {math.exp(five):.3f}."
    assert said in guide
    fashion = [float(line[6]) for line in found if line[0] == "Fashion-MNIST" and line[3]]
    assert f"method aside in {100 * min(fashion):.1f} to {100 * max(fashion):.1f} %." in guide
    ten = [line for line in found if line[0] == "digits" and line[2] == "10" and line[3]]
    costs, aside = ([float(line[column]) for line in ten] for column in (7, 6))
    assert f"ten seeds takes {100 * min(costs):.0f} to {100 * max(costs):.0f} %" in guide
    assert f"aside in {100 * min(aside):.1f} to {100 * max(aside):.1f} % of races" in guide
    second = races.PAGE.read_text(encoding="utf-8").partition("Regret with a margin")[2]
    regrets = re.findall(r"^\| digits \| \d+ \| 10 \| \S+ \| (\S+) \|(?: \S+ \|){3} (\S+) ", second, re.M)
    assert len(regrets) == len(ten) and all(float(race) <= float(five) + 0.0012 for race, five in regrets)
    wide = [line for line in found if not line[3] and line[2] == "5" and line[0] != "equal"]
    for column, words in ((7, "a race takes {} to {} %"), (9, "calls {} to {} % of them worse")):
        numbers = [float(line[column]) for line in wide]
        assert words.format(f"{100 * min(numbers):.0f}", f"{100 * max(numbers):.0f}") in guide
