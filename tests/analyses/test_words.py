"""Numbers and lists in sentences."""

import math
import re
from pathlib import Path

import pytest

import diffusion_lab.analyses
from diffusion_lab.analyses.words import capitalised, joined, plus_minus


@pytest.mark.parametrize(
    ("value", "half", "text"),
    [
        (0.4312, 0.0523, "0.431 ± 0.052"),
        (207.4, 13.2, "207 ± 13"),
        (257123, 32456, "257,000 ± 32,000"),
        (1.23456, 0, "1.23"),
        (1.23456, math.nan, "1.23"),
        (1e-9, 2e-10, "1e-09 ± 2e-10"),
        (math.nan, 0.1, "nan"),
    ],
)
def test_as_many_decimals_as_two_digits_of_the_half_width_need(value, half, text):
    assert plus_minus(value, half) == text


def test_what_is_written_for_an_unknown_number():
    assert [plus_minus(value, 0.1, "not measurable") for value in (math.nan, -math.inf)] == ["not measurable"] * 2
    assert plus_minus(0.5, 0.1, "not measurable") == "0.50 ± 0.10"


def test_the_first_parts_and_how_many_more():
    parts = [f"part {k}" for k in range(8)]
    assert joined(parts[:6]) == "part 0; part 1; part 2; part 3; part 4; part 5"
    assert joined(parts).endswith("; part 5; and so on for 2 more")
    assert joined(parts, 2, by=", ") == "part 0, part 1, and so on for 6 more"
    assert joined([]) == ""


def test_a_sentence_begins_with_a_capital_but_keeps_the_spelling_of_a_group():
    groups = [{"name": "mdlrc"}, {"name": ""}]
    assert capitalised("the slots", groups) == "The slots"
    assert capitalised("mdlrc: the cosine", groups) == "mdlrc: the cosine"
    assert capitalised("") == ""


def test_no_analysis_capitalises_in_another_way():
    folder = Path(diffusion_lab.analyses.__file__).parent
    found = [p.name for p in folder.rglob("*.py") if re.search(r"upper\(\)|capitalize\(", p.read_text("utf-8"))]
    assert found == ["words.py"]
