"""The statistic of tables: closed forms with two rows and known quantiles, and its error rates with few tables."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from diffusion_lab import simultaneous
from diffusion_lab.simultaneous import critical_values, fewer, stand_out, statistics
from diffusion_lab.verdicts import (
    band_of,
    diverged,
    judge,
    judge_alone,
    lost_seeds,
    over_training,
    seeds_needed,
    size_decided,
)
from tests.tables.in_numpy import intervals

BASE = {0: 1.0, 1: 1.3, 2: 1.15, 3: 0.9}
OTHER = {0: 0.8, 1: 1.1, 2: 1.0, 3: 0.78}


def table(random: np.random.Generator, rows: int, seeds: int, effects: float = 0.0, noise: float = 0.05):
    """Ratios: block effects of the seeds, and the last row exp(effects) times the others."""
    blocks = random.normal(0, 0.3, seeds)
    y = blocks + random.normal(0, noise, (rows, seeds))
    y[-1] += effects
    return [dict(enumerate(np.exp(row).tolist())) for row in y]


def test_two_rows_are_students_paired_t_test() -> None:
    found = judge([BASE, OTHER], "ratio", rising=False)[1]
    logs = np.log([OTHER[s] / BASE[s] for s in BASE])
    test = stats.ttest_1samp(logs, 0.0)
    low, high = test.confidence_interval(0.95)
    assert found is not None and found.word == "better"
    assert found.size == pytest.approx(math.exp(logs.mean()))
    assert (found.low, found.high) == (pytest.approx(math.exp(low)), pytest.approx(math.exp(high)))
    assert found.deviation == pytest.approx(logs.std(ddof=1))


def test_differences_where_the_metric_says_so() -> None:
    found = judge([BASE, OTHER], "difference", rising=True)[1]
    low, high = stats.ttest_rel(list(OTHER.values()), list(BASE.values())).confidence_interval(0.95)
    assert found is not None and found.word == "worse"
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))


def test_many_equal_variances_and_known_correlation_are_dunnetts(monkeypatch: pytest.MonkeyPatch) -> None:
    """With variances known to be equal, c is the quantile of Dunnett's t with correlation 1/2."""
    monkeypatch.setattr(simultaneous, "_NOMINAL", 0.05)
    monkeypatch.setattr(simultaneous, "PRIOR", 10_000)
    simultaneous._quantiles.cache_clear()
    simultaneous._null.cache_clear()
    rows, seeds = 6, 9
    half = critical_values(np.full(rows - 1, 1e9), np.ones((rows, seeds), dtype=bool))[0]
    simultaneous._quantiles.cache_clear()
    simultaneous._null.cache_clear()
    dunnett = stats.multivariate_t(None, (np.eye(rows - 1) + 1) / 2, (rows - 1) * (seeds - 1), seed=0)  # type: ignore[arg-type]
    assert dunnett.cdf(np.full(rows - 1, half), lower_limit=np.full(rows - 1, -half)) == pytest.approx(0.95, abs=0.003)


def test_the_interval_excludes_one_where_a_row_is_decided_and_only_there() -> None:
    random = np.random.default_rng(0)
    words = set()
    for effects in (0.0, 0.1, -0.2, 0.4):
        for _ in range(20):
            for found in judge(table(random, 5, 3, effects), "ratio", rising=False)[1:]:
                assert found is not None and found.low is not None and found.high is not None
                assert found.decided == (found.low >= 1 or found.high <= 1)
                assert found.low <= found.size <= found.high
                words.add(found.word)
    assert words == {"better", "worse", "equal", "not decided"}


def test_rows_that_differ_much_make_the_others_easier_to_decide() -> None:
    """The step-down: two rows of which one is far away are decided as one row is."""
    there = np.ones((4, 5), dtype=bool)
    half, decides, _ = critical_values(np.array([3.0, 50.0, 2.6]), there)
    assert decides[1] == half > decides[0] > decides[2] > 0
    assert np.isinf(critical_values(np.array([0.1, 50.0, 0.2]), there)[1][[0, 2]]).all()


def test_a_false_verdict_in_at_most_one_table_of_twenty() -> None:
    random, seen = np.random.default_rng(1), 0
    for _ in range(300):
        seen += any(found is not None and found.decided for found in judge(table(random, 7, 3), "ratio", False))
    assert 2 <= seen <= 22  # 12 expected


def test_equal_is_said_inside_the_margin_and_hardly_at_its_edge() -> None:
    random = np.random.default_rng(2)
    inside = [judge(table(random, 4, 5, 0.0, 0.01), "ratio", False)[-1] for _ in range(40)]
    edge = [judge(table(random, 4, 5, math.log(1.1), 0.02), "ratio", False)[-1] for _ in range(200)]
    assert sum(one is not None and one.word == "equal" for one in inside) >= 36
    assert sum(one is not None and one.word == "equal" for one in edge) <= 10
    wide = judge(table(random, 4, 5, math.log(1.1), 0.02), "ratio", False, margin=1.5)[-1]
    assert wide is not None and wide.word in ("equal", "worse")


def test_missing_seeds_leave_the_others_paired() -> None:
    rows = table(np.random.default_rng(3), 4, 5, -0.5)
    del rows[-1][0]
    found = judge(rows, "ratio", rising=False)[-1]
    logs = [math.log(rows[-1][s] / rows[0][s]) for s in (1, 2, 3, 4)]
    assert found is not None and found.n == 4 and found.word == "better"
    assert found.size == pytest.approx(math.exp(np.mean(logs)))


def test_what_is_not_tested() -> None:
    rows = [BASE, dict(BASE), {0: 0.9, 1: 1.2}, {9: 1.0}, OTHER]
    found = judge(rows, "ratio", rising=False)
    assert [one and one.word for one in found] == [None, "identical", "no claim", None, "better"]
    assert found[4] == judge([BASE, OTHER], "ratio", rising=False)[1]
    for scale, value in (("ratio", 0.0), ("difference", math.nan)):
        with pytest.raises(ValueError, match="must be finite"):
            judge([BASE, {0: value}], scale, rising=False)  # type: ignore[arg-type]


@pytest.mark.parametrize("collapsed", [False, True])
def test_an_interval_can_be_recomputed_with_a_few_lines_of_numpy(collapsed: bool) -> None:
    rows = table(np.random.default_rng(4), 5, 4, -0.3)
    if collapsed:
        rows[2][1] *= 1.6
    found = judge(rows, "ratio", rising=False)
    mean, half = intervals(np.log([list(row.values()) for row in rows]))
    for k, one in enumerate(found[1:]):
        low, high = math.exp(mean[k] - half[k]), math.exp(mean[k] + half[k])
        assert one is not None and one.size == pytest.approx(math.exp(mean[k]))
        if one.low != 1:
            assert one.low == pytest.approx(low, rel=0.01)
        if one.high != 1:
            assert one.high == pytest.approx(high, rel=0.01)


def test_rows_without_a_common_baseline_have_students_intervals_for_all_of_them() -> None:
    rows = [[0.5, 0.55, 0.52], [1.01, 0.99, 1.005], [1.0, 2.0, 0.7], [], [1.0, 1.0, 1.0], [0.5, 0.6]]
    found = judge_alone(rows, "ratio")
    assert [one and one.word for one in found] == ["better", "equal", "not decided", None, "identical", "no claim"]
    logs = np.log(rows[0])
    half = stats.t.ppf(1 - 0.025 / 4, 2) * logs.std(ddof=1) / math.sqrt(3)
    first = found[0]
    assert first is not None and first.low is not None and first.high is not None
    assert np.log([first.low, first.size, first.high]) == pytest.approx(logs.mean() + half * np.array([-1, 0, 1]))
    alone = judge_alone([[0.9, 0.8, 0.86]], "ratio")[0]  # by itself decided, as one of four not
    among = judge_alone([[0.9, 0.8, 0.86], *rows[:3]], "ratio")[0]
    assert alone is not None and among is not None and (alone.word, among.word) == ("better", "not decided")


def test_the_mean_over_training_is_over_common_snapshots() -> None:
    curves = [{100: 4.0, 200: 1.0, 300: 9.0}, {100: 1.0, 200: 9.0}]
    assert over_training(curves, "ratio") == pytest.approx([2.0, 3.0])
    assert over_training(curves, "difference") == [2.5, 5.0]
    with pytest.raises(ValueError, match="no snapshot at equal images"):
        over_training([{100: 1.0}, {200: 1.0}], "ratio")


def test_rows_are_equal_within_a_share_of_the_baselines_mean() -> None:
    """Differences are equal within (m - 1) times the mean of the baseline: 0.4 of 4."""
    assert band_of("difference", 1.1, [3.0, 4.0, 5.0]) == pytest.approx(0.4)
    assert band_of("ratio", 1.1, []) == math.log(1.1)
    base = {seed: 4.0 + 0.01 * seed for seed in range(5)}
    for noise, word in ((0.1, "equal"), (0.8, "not decided")):
        row = {seed: value + noise * (-1) ** seed for seed, value in base.items()}
        found = judge([base, row], "difference", rising=False)[1]
        assert found is not None and found.word == word


@pytest.mark.parametrize("scale", ["ratio", "difference"])
def test_without_a_baseline_nothing_is_decided(scale) -> None:
    """All of its seeds have diverged."""
    assert judge([{}, {0: 1.0, 1: 2.0, 2: 1.5}], scale, False) == [None, None]


def test_a_run_has_diverged_if_it_is_far_above_itself_and_the_baseline() -> None:
    base = {100: 2.0, 200: 1.0}
    assert diverged({100: 1.5, 200: 3.1}, base)
    assert not diverged({100: 1.6, 200: 3.1}, base)  # less than twice its best
    assert not diverged({100: 1.0, 200: 2.9}, base)  # less than three times the baseline's
    assert diverged({100: 1.0, 200: math.inf}, base)


def test_seeds_are_lost_beside_the_baseline_and_those_of_the_baseline_beside_the_median_of_the_others() -> None:
    def course(first: float, last: float) -> dict[int, float]:
        return {100: first, 200: last}

    good, lost = course(1.5, 1.0), course(1.5, 3.1)
    rows = [{0: good, 1: lost}, {0: lost, 1: good}, {0: good, 1: good}]
    assert lost_seeds(rows, 0, [1, 2]) == [[1], [0], []]
    assert lost_seeds(rows, None, []) == [[], [], []]  # beside nothing only what is not finite is lost
    assert lost_seeds([{0: course(1.5, math.inf)}, {0: good}], None, []) == [[0], []]
    # what is not compared has no part in the median: 3.1 beside 1 is lost, beside 3.1 not
    assert lost_seeds([{0: lost}, {0: good}, {0: lost}, {0: lost}], 0, [1]) == [[0], [], [], []]
    assert lost_seeds([{0: lost}, {0: good}, {0: lost}, {0: lost}], 0, [1, 2, 3]) == [[], [], [], []]
    # where a row lacks a snapshot there is no median
    assert lost_seeds([{0: lost}, {0: good}, {0: {100: 1.5}}], 0, [1, 2]) == [[], [], []]


def test_a_value_that_is_not_finite_hides_no_other_lost_run() -> None:
    """It was in the medians: with it the others' verdicts of a whole table were gone."""
    good, lost, gone = {1000: 20.0}, {1000: 500.0}, {1000: math.nan}
    for beside in ([{1000: 21.0}, {1000: 22.0}], [{1000: 21.0}, gone], [gone, {1000: 21.0}]):
        assert diverged(lost, good, beside)
    row = {0: good, 1: good, 2: lost, 3: gone}
    base = {seed: {1000: 21.0} for seed in range(4)}
    assert lost_seeds([base, row], 0, [1]) == [[], [2, 3]]
    base[1], other = lost, {0: good, 1: gone, 2: good, 3: good}
    assert lost_seeds([base, {seed: good for seed in range(4)}, other], 0, [1, 2]) == [[1], [], [1]]
    assert not diverged(lost, gone)  # beside a baseline without a value nothing is told apart


@pytest.mark.parametrize("own", [{1000: math.nan}, None])
def test_a_seed_that_the_baseline_lost_hides_no_collapse_of_another_row(own: dict[int, float] | None) -> None:
    """It was told beside that seed's run alone, so the collapse stayed in the row's mean, and in nobody's count."""
    good = {1000: 20.0}
    base = {0: good, 1: good} | ({2: own} if own else {})
    rows = [base, {0: good, 1: good, 2: {1000: 500.0}}, {0: good, 1: good, 2: {1000: 55.0}}]
    assert lost_seeds(rows, 0, [1, 2]) == [[2] if own else [], [2], []]
    ended_early = {500: 30.0} if own is None else {500: math.nan}
    longer = [{500: 30.0, 1000: 20.0}, {500: 30.0, 1000: 500.0}]
    assert lost_seeds([{0: longer[0], 1: longer[0], 2: ended_early}, {1: longer[0], 2: longer[1]}], 0, [1])[1] == [2]
    # a baseline's run that has diverged itself is no measure
    many = {0: good, 1: {1000: 2000.0}} | ({2: own} if own else {})
    assert lost_seeds([many, {0: good, 1: good, 2: {1000: 500.0}}], 0, [1])[1] == [2]


def test_equal_values_by_themselves_are_identical_to_1_only_where_they_are_1() -> None:
    words = [judge_alone([[value] * 3], "ratio")[0].word for value in (1.0, 0.5, 2.0)]
    assert words == ["identical", "better", "worse"]


def test_a_run_that_is_lost_before_its_first_snapshot_has_diverged_unless_its_whole_row_is_as_bad() -> None:
    base, lost, good = {100: 2.0, 200: 1.0}, {100: 9.0, 200: 9.0}, {100: 2.0, 200: 1.2}
    assert not diverged(lost, base)  # one seed may be the method
    assert diverged(lost, base, [good, good]) and diverged({200: 9.0}, base, [good])
    assert not diverged(lost, base, [lost, good, lost])  # the method is worse
    assert not diverged({200: 2.9}, base, [{200: 0.5}])  # less than three times the baseline's
    assert not diverged({200: 9.0}, base, [{200: 3.1}])  # less than three times its row's
    assert not diverged({200: 9.0}, base, [{100: 1.0}])  # nothing at that step


def test_seeds_needed_give_the_power() -> None:
    n = seeds_needed(0.1, 0.15, rows=2)
    assert n is not None and seeds_needed(0.1, 0.05, rows=2, most=5) is None
    random = np.random.default_rng(5)
    logs = 0.15 + random.normal(0, 0.1, (4000, n))
    decided = (np.abs(logs.mean(1)) > stats.t.ppf(0.975, n - 1) * logs.std(1, ddof=1) / math.sqrt(n)).mean()
    assert 0.76 < decided < 0.9
    more = seeds_needed(0.1, 0.15, rows=8)
    assert more is not None and more > n


def test_statistics_of_one_table_and_of_many_are_the_same() -> None:
    y, there = np.random.default_rng(6).normal(size=(3, 4, 5)), np.ones((4, 5), dtype=bool)
    many = statistics(y, there)
    for i in range(3):
        assert all(np.array_equal(a[i], b) for a, b in zip(many, statistics(y[i], there), strict=True))


def test_a_row_that_nearly_repeats_the_baseline_is_told_by_its_own_differences() -> None:
    """The others, with their own noise, would hide it; and with it among them they are judged as without it."""
    random = np.random.default_rng(7)
    rows = table(random, 4, 4, -0.4, 0.1)
    nearly = {seed: value * math.exp(0.001 * (seed - 1.5)) for seed, value in rows[0].items()}
    found = judge([*rows, nearly], "ratio", rising=False)
    one = found[-1]
    assert one is not None and one.word == "equal" and one.high is not None and one.high < 1.01
    own = np.log([nearly[s] / rows[0][s] for s in rows[0]])
    half = stats.t.ppf(1 - 0.05 / 4 / 2, 3) * own.std(ddof=1) / 2
    assert one.high == pytest.approx(math.exp(own.mean() + half))
    assert [one and one[:4] for one in found[:-1]] == [one and one[:4] for one in judge(rows, "ratio", rising=False)]


def test_a_row_that_is_far_noisier_does_not_widen_the_others() -> None:
    rows = table(np.random.default_rng(8), 5, 4, -0.4, 0.05)
    noisy = {seed: value * math.exp((2.0, -2.0, 1.5, -1.0)[seed]) for seed, value in rows[0].items()}
    y = np.log([list(row.values()) for row in [*rows, noisy]])
    assert stand_out(y, np.ones(y.shape, dtype=bool)).tolist() == [False] * 4 + [True]
    found, without = (judge(some, "ratio", rising=False) for some in ([*rows, noisy], rows))
    assert [one and (one.word, one.low, one.high) for one in found[:-1]] == [
        one and (one.word, one.low, one.high) for one in without
    ]
    assert not stand_out(y[:3], np.ones((3, 4), dtype=bool)).any()


def test_a_collapsed_seed_of_one_row_hardly_widens_the_others() -> None:
    """Too little for the row to stand out; all tables have the same noise, so that widths can be compared."""
    y = np.random.default_rng(9).normal(0, 0.1, (200, 7, 5))
    far = y.copy()
    far[:, -1, 2] += 1.0
    there = np.ones((7, 5), dtype=bool)
    assert stand_out(far, there).any(-1).mean() < 0.05
    (_, before), (_, after) = statistics(y, there), statistics(far, there)
    ratio = (after / before)[:, :-1]
    assert np.median(ratio) < 1.25 and np.quantile(ratio, 0.95) < 1.5
    assert np.median((after / before)[:, -1]) > 2  # the row itself is as uncertain as it is


def test_planning_many_rows_takes_no_more_memory_and_says_the_same() -> None:
    """Beyond 500 numbers a table, fewer tables are drawn, and more rows of each are used."""
    assert fewer(8_000, 99, 5) == 8_000 and fewer(8_000, 250, 20) == 800
    assert size_decided(1.0, 5, 101) == pytest.approx(size_decided(1.0, 5, 99), rel=0.02)
