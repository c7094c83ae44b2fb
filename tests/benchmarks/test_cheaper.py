"""What the page on cheaper measurements computes with: latents of each kind, and variances and shifts of pairs."""

from itertools import combinations

import numpy as np
import pytest
from scipy.stats import norm

from benchmarks.cheaper import pairs_shift, pairs_variance, tables
from benchmarks.cheaper_latents import LATENTS, SIZES, antithetic, blocks_of, pseudo_random, sobol


@pytest.mark.parametrize("kind", LATENTS)
def test_latents_are_standard_normal_and_a_function_of_the_seed(kind: str) -> None:
    z = LATENTS[kind](0, 2048, 6)
    assert z.shape == (2048, 6) and z.isfinite().all()
    assert abs(float(z.mean())) < 0.03 and float(z.var()) == pytest.approx(1, abs=0.05)
    assert float(z.square().square().mean()) == pytest.approx(3, abs=0.3)
    assert z.equal(LATENTS[kind](0, 2048, 6)) and not z.equal(LATENTS[kind](1, 2048, 6))


def test_antithetic_latents_cancel_in_pairs() -> None:
    z = antithetic(3, 512, 4)
    assert z[::2].equal(-z[1::2]) and z[::2].equal(pseudo_random(3, 256, 4))


def test_a_block_of_the_sequence_has_one_point_in_each_interval_of_every_coordinate() -> None:
    z = sobol(0, SIZES[-1], 5)
    for size in SIZES:
        for block in z.split(size):
            cells = np.floor(norm.cdf(block.numpy()) * size)
            assert all(len(set(column)) > 0.99 * size for column in cells.T)  # the quantile rounds at an edge
    assert len(set(np.floor(norm.cdf(pseudo_random(0, 512, 1).numpy()) * 512)[:, 0])) < 400


def test_variance_and_shift_are_those_of_the_pairs() -> None:
    random = np.random.default_rng(0)
    y = random.standard_normal((5, 4))
    each = [float((y[i] - y[j]).var(ddof=1)) for i, j in combinations(range(5), 2)]
    assert pairs_variance(y) == pytest.approx(np.mean(each))
    rows = np.arange(4.0)[:, None] * np.ones(3)
    squares = [(i - j) ** 2 for i, j in combinations(range(4), 2)]
    assert pairs_shift(rows) == pytest.approx(np.sqrt(np.mean(squares)))


def test_the_noise_of_the_mean_is_not_part_of_the_shift() -> None:
    random = np.random.default_rng(0)
    squares = [pairs_shift(0.3 * random.standard_normal((20, 4))) ** 2 for _ in range(200)]
    assert np.mean(squares) < 0.2 * 2 * 0.3**2 / 4  # of what the means alone differ by


def test_tables_have_no_row_twice() -> None:
    found = dict(tables())
    assert found["schedule_by_sampler"].shape == (144, 5, 2)
    assert all(len(np.unique(y, axis=0)) == len(y) > 1 and np.isfinite(y).all() for y in found.values())


def test_values_are_dealt_to_kind_size_and_place() -> None:
    sets = [(number, model) for number in (0, 1) for model in (0, 1)]
    rows = [("Sobol", 0.0, model, [10 * model + number + k / 10 for k in range(7)]) for number, model in sets]
    found = blocks_of(rows)
    assert found["Sobol", 0.0, 512][1, :, 1] == pytest.approx([11.0, 11.1, 11.2, 11.3])
    assert found["Sobol", 0.0, 2048][:, 0, 0] == pytest.approx([0.6, 1.6])
