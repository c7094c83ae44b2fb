"""Where the rows of a race stand: a function of the values, with a bounded error, however it was stopped."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.races import halved, raced
from diffusion_lab import racing
from diffusion_lab.intervals import student_quantile
from diffusion_lab.racing import Gap, Standing, bounds, gaps, standings
from diffusion_lab.simultaneous import ALPHA


def race_of(seed: int, *truth: float, most: int = 6) -> np.ndarray:
    """Values of rows whose means differ, with noise of 0.1 and a common part of each seed."""
    random = np.random.default_rng(seed)
    common = random.standard_normal(most)
    return np.array(truth)[:, None] + 0.1 * random.standard_normal((len(truth), most)) + common


def whole(y: np.ndarray) -> np.ndarray:
    return np.ones(y.shape, dtype=bool)


def test_a_race_of_two_with_one_look_is_students_paired_test() -> None:
    # Two rows and two seeds: |T| has one degree of freedom, and either row may be the worse one.
    assert bounds(2, 2)[0] == pytest.approx(student_quantile(1 - racing._NOMINAL * ALPHA, 1), rel=0.05)
    assert bounds(2, 2, 0.2)[0] == pytest.approx(student_quantile(1 - racing._NOMINAL * 0.2, 1), rel=0.05)


def test_bounds_fall_and_of_later_ends_they_are_higher() -> None:
    for rows in (2, 4, 13):
        five, ten = bounds(rows, 5), bounds(rows, 10)
        assert (np.diff(five) < 0).all() and (np.diff(ten) < 0).all() and (ten[:4] > five).all()


@pytest.mark.parametrize(("rows", "alpha"), [(3, 0.05), (6, 0.05), (4, 0.2)])
def test_equal_rows_lose_in_at_most_alpha_of_races(rows: int, alpha: float) -> None:
    def lost(seed: int) -> bool:
        y = np.random.default_rng([rows, seed]).standard_normal((rows, 5))
        return any(one.word == "worse" for one in standings(y, whole(y), 5, None, alpha))

    share = np.mean([lost(seed) for seed in range(1500)])
    assert alpha / 4 < share < alpha + 2 * math.sqrt(alpha * (1 - alpha) / 1500)


def test_lower_bounds_lose_more(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = 0.6 * bounds(4, 5)
    monkeypatch.setattr(racing, "bounds", lambda *_: limits)
    y = np.random.default_rng(0).standard_normal((300, 4, 5))
    lost = [any(one.word == "worse" for one in standings(own, whole(own), 5, margin=None)) for own in y]
    assert np.mean(lost) > 0.15


def test_with_two_rows_and_one_look_the_interval_is_that_of_the_paired_differences() -> None:
    y = race_of(2, 0.0, 0.4, most=2)
    first, second = gaps(y, whole(y), 2, leader=0)
    error = (y[1] - y[0]).std(ddof=1) / np.sqrt(2)
    assert first == Gap(0.0, 0.0) and second.size == pytest.approx((y[1] - y[0]).mean())
    assert second.half == pytest.approx(student_quantile(1 - racing._NOMINAL * ALPHA, 1) * error, rel=0.05)


def test_intervals_hold_together_whenever_a_race_ends() -> None:
    def missed(seed: int) -> tuple[bool, bool]:
        """By the intervals, and by half of their width."""
        random = np.random.default_rng([7, seed])
        truth = 0.1 * random.standard_normal(5)
        race = raced(truth[:, None] + 0.1 * random.standard_normal((5, 5)), margin=None)
        off = [abs(one.size - truth[i] + truth[race.chosen]) for i, one in enumerate(race.apart)]
        whole, half = (any(o > share * one.half for o, one in zip(off, race.apart, strict=True)) for share in (1, 0.5))
        return whole, half

    rate, of_half = np.mean([missed(seed) for seed in range(400)], axis=0)
    assert rate < 0.05 + 2 * 0.011 and of_half > 0.1


def test_a_row_with_one_common_seed_has_no_interval() -> None:
    there = np.array([[True, True, True], [True, False, False], [False, False, False]])
    found = gaps(np.arange(9.0).reshape(3, 3), there, 3, leader=0)
    assert found[1] == Gap(3.0, np.inf) and np.isnan(found[2].size) and found[2].half == np.inf


def test_the_worst_row_leaves_first_and_says_whom_it_lost_to() -> None:
    y = race_of(0, 0.0, 0.5, 3.0)
    found = standings(y, whole(y), 6, margin=None)
    assert found[0] == Standing() and found[2].word == found[1].word == "worse"
    assert found[2].by in (0, 1) and found[1].by == 0 and found[2].seeds <= found[1].seeds


def test_a_row_that_is_not_better_by_the_margin_is_set_aside_and_the_leader_stays() -> None:
    y = 0.02 * race_of(1, 0.0, 0.0, 0.0, 0.0)
    found = standings(y, whole(y), 6)
    assert sorted(one.word for one in found) == ["in", "set aside", "set aside", "set aside"]
    assert [one.word for one in standings(y, whole(y), 6, margin=None)] == ["in"] * 4


def test_a_row_that_is_better_by_the_margin_is_rarely_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    def share() -> float:
        """Of races in which the first row is better than the others by just the margin."""
        truth = math.log(racing.MARGIN) * np.array([[0.0], [1.0], [1.0], [1.0]])
        values = (truth + 0.1 * np.random.default_rng([3, seed]).standard_normal((4, 5)) for seed in range(1000))
        return float(np.mean([standings(y, whole(y), 5)[0].word == "set aside" for y in values]))

    assert 0.01 < share() < 0.2
    monkeypatch.setattr(racing, "_BETA", 1.6)  # as good as no bound
    assert share() > 0.2


def test_more_races_set_a_row_aside_after_the_first_seeds_than_call_it_worse() -> None:
    worse, aside = bounds(4, 5, racing._BETA), bounds(4, 5, racing._BETA, racing._EARLY)
    assert aside[0] < worse[0] and aside[-1] > worse[-1]  # the same error, spent earlier


def test_no_row_is_compared_with_itself() -> None:
    random = np.random.default_rng(0)
    for y in 0.03 * random.standard_normal((100, 6, 5)):
        assert all(one.by != i for i, one in enumerate(standings(y, whole(y), 5)))


@pytest.mark.parametrize("seed", range(8))
def test_what_is_said_after_a_block_does_not_change_with_later_ones(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    y, there = race_of(seed, 0.0, 0.05, 0.3, 0.6, 1.0), np.zeros((5, 6), dtype=bool)
    there[:, :2] = True
    before = [Standing()] * 5
    while True:
        found = standings(y, there, 6)
        assert all(now == then for now, then in zip(found, before, strict=True) if then.word != "in")
        n, before = int(there.sum(1).max()), found
        if n == 6 or sum(one.word == "in" for one in found) < 2:
            break
        there[[i for i, one in enumerate(found) if one.word == "in"], n] = True
        garbage = np.where(there, y, 1e6)  # what is missing is not looked at
        assert standings(garbage, there, 6) == standings(y, there, 6)
    monkeypatch.setattr(racing, "WORTH", 0)  # to its last seed, as here
    assert raced(y, racing.MARGIN).words == [one.word for one in before]


def test_a_block_counts_when_it_is_whole() -> None:
    y = race_of(3, 0.0, 0.1, 0.2, 2.0)
    there = whole(y)
    there[:, 3:] = False
    after_three = standings(y, there, 6)
    there[0, 3] = True  # the others have no fourth seed yet
    assert standings(y, there, 6) == after_three


def test_what_the_seeds_have_in_common_does_not_matter() -> None:
    y = race_of(4, 0.0, 0.2, 0.4)
    assert standings(y + np.linspace(-3, 3, 6), whole(y), 6) == standings(y, whole(y), 6)


def test_halving_ends_with_one_row_and_spends_less() -> None:
    ended = halved(race_of(5, 0.0, 1.0, 2.0, 3.0))
    assert (ended.chosen, ended.words) == (0, ["in", "worse", "worse", "worse"])
    assert ended.trainings == 4 * 2 + 2 * 2


@pytest.mark.parametrize("there", [[[True, True]], [[True, True], [False, True]]])
def test_what_is_no_race_is_refused(there: list[list[bool]]) -> None:
    with pytest.raises(ValueError, match="must be of two rows or more, and of each the first seeds"):
        standings(np.zeros(np.shape(there)), np.array(there), 5)


def test_the_gain_is_that_of_a_simulation() -> None:
    """Means of more seeds, with variances drawn as they are known; of one other row the bound is the gain itself."""
    y, random, draws = race_of(6, 0.0, 0.05, 0.5, 0.6, most=3), np.random.default_rng(0), 400_000
    size, error = racing._pairs(y, whole(y))
    first, second = y.mean(1).argsort()[:2]
    known = np.sqrt(6 / random.chisquare(6, draws))  # nu = min(3 * 2, 4 + 2)
    one_seed = known * error[second, first] * math.sqrt(3)
    truth = size[second, first] + one_seed / math.sqrt(3) * random.standard_normal(draws)
    after = (3 * size[second, first] + 5 * truth + math.sqrt(5) * one_seed * random.standard_normal(draws)) / 8
    drawn = np.maximum(0, -after)
    gain = racing.gain(y, whole(y), 8, [first, second])
    assert gain == pytest.approx(drawn.mean(), abs=4 * drawn.std() / math.sqrt(draws)) and gain > 0.001
    assert racing.gain(y, whole(y), 3, [first, second]) == 0 < racing.gain(y, whole(y), 4, [first, second]) < gain


def test_two_rows_and_two_seeds_say_nothing_of_the_noise() -> None:
    y = race_of(6, 0.0, 1.0, most=2)
    assert racing.gain(y, whole(y), 5, [0, 1]) == math.inf and racing.gain(y, whole(y), 2, [0, 1]) == 0
    assert not racing.is_over(np.pad(y, ((0, 0), (0, 1))), np.pad(whole(y), ((0, 0), (0, 1))), 3, [Standing()] * 2)


def test_a_race_ends_when_more_seeds_would_hardly_change_the_choice() -> None:
    noisy, quiet = (
        race_of(9, 0.0, 0.0, 0.0),
        np.array([[0.0, 0.0001, 0, 0], [0.05, 0.0502, 0, 0], [0.09, 0.0904, 0, 0]]),
    )
    for y, over in ((noisy[:, :2], False), (quiet[:, :2], True)):
        found = [Standing()] * len(y)
        there = np.pad(whole(y), ((0, 0), (0, 2)))
        y = np.pad(y, ((0, 0), (0, 2)))
        assert racing.is_over(y, there, 4, found) == over
        assert not racing.is_over(y, there, 4, found, margin=None)  # it is to say which one is worse
        there[0, 2] = True  # the block is not whole
        assert not racing.is_over(y, there, 4, found)
    assert racing.is_over(noisy[:, :2], whole(noisy[:, :2]), 2, [Standing()] * 3)  # no seeds are left
    assert racing.is_over(noisy, whole(noisy), 9, [Standing(), *[Standing("worse", 2, 0)] * 2])


def test_the_choice_of_a_race_that_ends_early_is_as_good() -> None:
    """By the mean distance to the best row, which a twentieth of the margin bounds; not so without its bound."""
    random = np.random.default_rng(9)
    truth = 0.1 * random.standard_normal((600, 4))
    values = truth[..., None] + 0.1 * random.standard_normal((600, 4, 5))

    def regret(share: float) -> float:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(racing, "WORTH", share)
            return float(
                np.mean([own[raced(y, racing.MARGIN).chosen] - own.min() for own, y in zip(truth, values, strict=True)])
            )

    until_the_end = regret(0)
    assert regret(racing.WORTH) < until_the_end + racing.WORTH * math.log(racing.MARGIN) + 0.001
    assert regret(0.3) > until_the_end + 0.004
