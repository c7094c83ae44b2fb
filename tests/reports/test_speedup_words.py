"""The speed-up in words: factor, interval, and everything that was counted."""

from __future__ import annotations

import pytest

from diffusion_lab.reports.pair.speedup import Factor, over_seeds
from diffusion_lab.reports.pair.speedup_of_runs import cell, number, sentences, turned


def words(*factors: Factor, unit: str = "images") -> list[str]:
    return sentences(over_seeds(factors), "uniform", "speed", "fd1k", unit)


def test_three_seeds_have_a_mean_and_its_interval():
    """log 2 +- log 2: t(0.95, 2) = 4.303 times log 2 / sqrt(3) = 0.4 on each side of log 2."""
    (text,) = words(Factor(1.0), Factor(2.0), Factor(4.0))
    assert text == (
        "To reach the final fd1k of uniform, uniform needs 2.00 [0.357, 11.2] times as many images as speed (geometric "
        "mean of 3 seeds, 95 % interval of Student's t of the logarithms; by seed 1.00, 2.00, 4.00)."
    )


def test_one_seed_has_no_interval():
    (text,) = words(Factor(2.5), unit="seconds")
    assert text.endswith("needs 2.50 times as much training time as speed (1 seed, no interval).")


def test_what_was_not_reached_is_said_and_takes_the_interval():
    text, missed = words(Factor(1.0, "at most"), Factor(2.0), Factor(4.0))
    assert "needs at most 2.00 times" in text and "[" not in text and "so there is no interval" in text
    assert "by seed at most 1.00, 2.00, 4.00" in text
    assert missed == "Not reached by speed in 1 of 3 seeds: upper bound."


def test_five_seeds_with_a_bound_have_one_end_by_the_sign_test():
    text, _ = words(Factor(1.0, "at most"), *map(Factor, (2.0, 3.0, 4.0, 5.0)))
    assert "the median is below 5.00 with 95 % certainty, by the sign test" in text
    text, early = words(Factor(9.0, "at least"), *map(Factor, (2.0, 3.0, 4.0, 5.0)))
    assert "needs at least" in text and "the median is above 2.00" in text
    assert early == "Reached by speed before its first evaluation in 1 of 5 seeds: lower bound."


def test_of_one_seed_no_number_is_said():
    assert words(Factor(0.5, "at most"))[1] == "Not reached by speed: upper bound."


def test_bounds_of_both_kinds_have_no_common_factor():
    text, missed, early = words(Factor(1.0, "at most"), Factor(9.0, "at least"))
    assert text.startswith(
        "To the final fd1k of uniform, no common factor of images can be given; by seed at most 1.00"
    )
    assert "1 of 2" in missed and "1 of 2" in early


def test_curves_that_turn_are_counted():
    said = words(Factor(2.0, rises_again=True), Factor(3.0), Factor(4.0, reached_before=True))
    assert said[1] == "Later evaluations of speed are worse than that value again in 1 of 3 seeds."
    assert said[2].startswith("uniform reached its final value before the end of training in 1 of 3 seeds")


@pytest.mark.parametrize(("value", "text"), [(0.8741, "0.874"), (2.5, "2.50"), (12.34, "12.3"), (400.0, "400")])
def test_three_digits(value, text):
    assert number(value) == text


def test_a_cell_of_a_table():
    assert cell(over_seeds([Factor(2.0)] * 3)) == "2.00 [2.00, 2.00]"
    assert (
        cell(over_seeds([Factor(1.0, "at most"), Factor(4.0)]))
        == "at most 2.00 (final value not reached by 1 of 2 seeds)"
    )
    assert (
        cell(over_seeds([Factor(1.0, "at most"), Factor(4.0, "at least")]))
        == "no common factor, final value not reached by 1 of 2 seeds"
    )


def test_a_baseline_that_turns_is_one_sentence_for_all_rows():
    rows = [over_seeds([Factor(2.0), Factor(2.0, reached_before=True)]), over_seeds([Factor(1.0)] * 2)]
    assert turned(rows, "DDPM").startswith("DDPM reached its final value before the end of training in 1 of 2 seeds")
    assert turned(rows[1:], "DDPM") == turned([], "DDPM") == ""
