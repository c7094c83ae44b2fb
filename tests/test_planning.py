"""Planning: closed forms, the components of simulated pilots, and that the promised power comes out."""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from diffusion_lab.planning import (
    ARCHIVE,
    Components,
    Estimand,
    Price,
    cheapest_samples,
    components,
    next_hour,
    ratio_decided,
    training_component,
)
from diffusion_lab.simultaneous import critical_values, statistics

PARTS = Components(0.006, 0.0036, 1000)
PRICE = Price(training=50.0, sample=0.02, evaluations=2)
STUDY = Path(__file__).parents[1] / "experiments" / "schedule_by_sampler" / "digits.values.csv"


def test_variance_and_hours() -> None:
    assert PARTS.variance(1000) == pytest.approx(0.0096) and PARTS.variance(4000) == pytest.approx(0.0069)
    assert PRICE.hours(rows=3, seeds=4, samples=500) == pytest.approx(12 * (50 + 2 * 0.02 * 500) / 3600)


def test_the_cheapest_number_of_samples_is_where_the_price_of_a_variance_is_least() -> None:
    best = cheapest_samples(PARTS, PRICE)
    assert best == pytest.approx(1000 * math.sqrt(0.0036 * 50 / (0.006 * 0.04 * 1000)))
    price = lambda m: PARTS.variance(m) * PRICE.hours(1, 1, m)  # noqa: E731
    grid = np.geomspace(best / 10, best * 10, 201)
    assert grid[np.argmin([price(m) for m in grid])] == pytest.approx(best)
    a, b = math.sqrt(0.006 * 50), math.sqrt(0.0036 * 1000 * 0.04)
    for factor in (0.5, 2.0):
        wanted = ((a + b) ** 2 + a * b * (factor + 1 / factor - 2)) / 3600
        assert price(factor * best) == pytest.approx(wanted) and price(factor * best) <= 1.125 * price(best)
    assert cheapest_samples(Components(0.0, 0.01, 1000), PRICE) == math.inf


@pytest.mark.parametrize(("rows", "seeds"), [(2, 3), (2, 5), (3, 3), (4, 5), (7, 3), (7, 8)])
def test_the_promised_power_comes_out(rows: int, seeds: int) -> None:
    """Within four points of 80 %, where a normal approximation had 70 to 79 %; at half of the ratio hardly anything."""
    random, tables, samples = np.random.default_rng(rows), 1000, 2000
    effect, there = -math.log(ratio_decided(PARTS, samples, seeds, rows)), np.ones((rows, seeds), dtype=bool)

    def decided(effect: float) -> float:
        y = random.normal(0, math.sqrt(PARTS.variance(samples) / 2), (tables, rows, seeds))
        y[:, 1] += effect
        mean, error = statistics(y, there)
        found = np.abs(mean) / error
        return float(np.mean([critical_values(one, there)[1][0] < one[0] for one in found]))

    assert decided(effect) == pytest.approx(0.8, abs=0.04)
    assert decided(effect / 2) < 0.5


@pytest.mark.parametrize("shared", [True, False])
def test_components_are_found_whether_seeds_share_their_latents_or_not(shared: bool) -> None:
    random, rows, seeds, sets = np.random.default_rng(0), 3, 4, 5

    def pilot() -> np.ndarray:
        common = random.normal(0, 0.3, (1, seeds, sets))  # an easy seed is easy for all rows
        trained = random.normal(0, math.sqrt(0.006 / 2), (rows, seeds, 1))
        latents = random.normal(0, math.sqrt(0.0013 / 2), (rows, 1 if shared else seeds, sets))
        both = random.normal(0, math.sqrt(0.0023 / 2), (rows, seeds, sets))
        return np.exp(1 + common + trained + latents + both)

    found = [components(pilot(), 1000) for _ in range(1500)]
    assert np.mean([one.training for one in found]) == pytest.approx(0.006, rel=0.05)
    assert np.mean([one.measuring for one in found]) == pytest.approx(0.0036, rel=0.05)


def test_with_two_rows_and_one_set_the_variance_is_that_of_the_paired_difference() -> None:
    values = np.array([[1.0, 1.2, 1.5], [0.8, 1.1, 1.0]])
    total = np.var(np.log(values[1] / values[0]), ddof=1)
    found = training_component(values, 2000, Components(9.0, 0.004, 1000))
    assert found == pytest.approx((total - 0.002, 0.002, 2000))
    assert training_component(values, 10, Components(9.0, 0.004, 1000)).training == 0.0


def test_the_stated_variances_are_those_of_the_archive() -> None:
    logs: dict[tuple[str, str, str], dict[tuple[int, int], float]] = defaultdict(dict)
    with STUDY.open(newline="") as file:
        for line in csv.DictReader(file):
            if line["sampler"] != "learned_beta" and line["weighting"] == "unit":
                cell = (line["schedule"], line["prediction"], line["sampler"])
                logs[cell][int(line["seed"]), int(line["step"])] = math.log(float(line["value"]))
    both = 0.0023  # latents with seeds, which these values have as well
    asked: dict[Estimand, list[int]] = {"end": [800], "training": [400, 800]}
    for estimand, steps in asked.items():
        y = np.array([[np.mean([of[s, at] for at in steps]) for s in range(5)] for of in logs.values()])
        known = Components(0.0, both, 1000)
        assert training_component(np.exp(y), 1000, known).training == pytest.approx(
            ARCHIVE[estimand].training, abs=5e-4
        )


def test_what_one_more_hour_buys() -> None:
    price = Price(training=600.0, sample=0.1)
    found = next_hour(PARTS, price, samples=1000, seeds=3, rows=2, estimand="end")  # a seed of both rows takes 1,400 s
    assert found.now == ratio_decided(PARTS, 1000, 3, 2) and found.share == pytest.approx(0.0036 / 0.0096)
    assert found.hours == pytest.approx(2 * 1400 / 3600) and found.seeds == (2, ratio_decided(PARTS, 1000, 5, 2))
    assert found.samples and found.samples == (
        4600,
        ratio_decided(PARTS, 4600, 3, 2),
    )  # 2,800 s for six runs at 0.1 s per sample: 4,666
    assert str(found) == (
        "Of the variance of a log ratio 62% come from training and 38% from measuring. A ratio of "
        f"{found.now:.2f} is decided with 80 % now; 0.78 h more buy 2 more seeds, which decide {found.seeds[1]:.2f}, "
        f"or 4,600 samples of every run, which decide {found.samples[1]:.2f}."
    )
    assert str(found._replace(share=None, samples=None)) == (
        f"A ratio of {found.now:.2f} is decided with 80 % now; 0.78 h more buy 2 more seeds, which decide "
        f"{found.seeds[1]:.2f}."
    )
    two = next_hour(PARTS, price, 1000, 2, 2, "end")
    assert two.now is two.samples is None and str(two).endswith(
        "All rows have only 2 seeds in common, which decide nothing; 0.78 h more buy 2 more seeds, which decide "
        f"{two.seeds[1]:.2f} with 80 %."
    )
    assert next_hour(PARTS, price, 1000, 3, 2, "training") == found._replace(samples=None)  # no weights of snapshots
    assert found.now and found.now < found.samples[1] < found.seeds[1] < 1
    dear = next_hour(PARTS, price, samples=100_000, seeds=3, rows=2, estimand="end")  # a seed takes six hours
    assert dear.seeds[0] == 1 and dear.hours > 5 and dear.samples is None
