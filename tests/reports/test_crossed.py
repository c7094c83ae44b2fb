"""The crossed study's arithmetic, on values made with known effects."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from experiments.crossed import Cell, allocations_of, cross, explained, gains, predicted, shares
from experiments.crossed_measured import add

SCHEDULES, PREDICTIONS, SAMPLERS = ("a", "b", "c"), ("eps", "x0", "v"), ("uniform", "speed")


def study(effect, seeds: int = 5, noise: float = 0.0) -> dict[Cell, dict[int, float]]:
    draw = np.random.default_rng(0)
    cells = [Cell(a, p, s, "unit") for a, p, s in itertools.product(SCHEDULES, PREDICTIONS, SAMPLERS)]
    return {c: {k: float(np.exp(effect(c) + noise * draw.standard_normal())) for k in range(seeds)} for c in cells}


def test_shares_of_orthogonal_effects_are_their_squares() -> None:
    """y = 3 x_a + 4 x_b + 5 x_a x_b with x = -1, 1 has the shares 9, 16 and 25 of 50."""
    x = np.array([-1.0, 1.0])
    y = (3 * x[:, None] + 4 * x + 5 * np.outer(x, x))[:, :, None].repeat(3, 2)
    found = shares(y, ["a", "b"])
    assert found == pytest.approx({"a": 9 / 50, "b": 16 / 50, "a x b": 0.5, "seeds": 0.0}, abs=1e-12)


def test_what_no_factor_explains_is_the_seeds() -> None:
    y = np.random.default_rng(1).standard_normal((4, 3, 2, 1000))
    found = shares(y, ["a", "b", "c"])
    assert found["seeds"] > 0.98 and sum(found.values()) == pytest.approx(1)
    assert set(found) == {"a", "b", "c", "a x b", "a x c", "b x c", "a x b x c", "seeds"}


def test_a_gain_is_found_where_it_is_and_not_where_it_is_not() -> None:
    values = study(lambda c: -0.5 * (c.sampler == "speed") * (c.schedule == "a"), noise=0.02)
    found = gains(*cross(values))
    assert found["a", "speed"].word == "better"
    assert found["a", "speed"].size == pytest.approx(np.exp(-0.5), rel=0.03)
    assert all(one.word == "equal" for (schedule, _), one in found.items() if schedule != "a")


def test_a_sampler_whose_seeds_fail_does_not_widen_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    y, names = cross(study(lambda c: -0.5 * (c.sampler == "speed"), noise=0.02))
    failing = np.concatenate([y, y[:, :, :1] + np.array([0.0, 3.0, 0.0, 2.0, 0.0])], axis=2)
    levels = (names[0], names[1], [*names[2], "learned_beta"])
    assert gains(failing, levels)["a", "speed"] == gains(y, names)["a", "speed"]
    monkeypatch.setattr("experiments.crossed.ALONE", ())
    assert not gains(failing, levels)["a", "speed"].decided


def test_an_unfinished_cross_is_one_sentence() -> None:
    values = study(lambda c: 0.0)
    del values[Cell("b", "x0", "speed", "unit")]
    with pytest.raises(ValueError, match="must have a value for each seed; the sweep is not finished"):
        cross(values)


def test_allocations_predict_a_result_that_follows_from_them_and_none_that_does_not() -> None:
    draw = np.random.default_rng(2)
    cells = [Cell(a, p, f"s{i}", "unit") for a, p, i in itertools.product(SCHEDULES, PREDICTIONS, range(12))]
    place = {cell: draw.uniform(0, 10) for cell in cells}
    bins = np.arange(24)
    allocation = {cell: np.exp(-((bins - 2 * x) ** 2) / 8) for cell, x in place.items()}
    allocation = {cell: share / share.sum() for cell, share in allocation.items()}
    follows = {cell: {0: float(np.exp(np.sin(x / 2)))} for cell, x in place.items()}
    y, estimate, _ = predicted(follows, allocation)
    assert explained(y, estimate) > 0.9
    of_the_schedule = {cell: {0: float(np.exp(SCHEDULES.index(cell.schedule)))} for cell in cells}
    y, estimate, _ = predicted(of_the_schedule, allocation)
    assert explained(y, estimate) < 0.1


def test_runs_of_another_machine_are_added_and_known_ones_keep_their_rows(tmp_path: Path) -> None:
    path, head = tmp_path / "digits.allocations.csv", [*Cell._fields, "seed", "-0.5", "0.5"]
    cell = ["cosine", "v", "uniform", "unit"]
    add(path, head, 5, [[*cell, "0", "0.25", "0.75"]])
    add(path, head, 5, [[*cell, "1", "0.75", "0.25"], [*cell, "0", "1", "0"]])
    lines = [",".join([*cell, "0", "0.25", "0.75"]), ",".join([*cell, "1", "0.75", "0.25"])]
    assert path.read_text(encoding="utf-8").splitlines()[1:] == lines
    assert allocations_of(path)[Cell(*cell)].tolist() == [0.5, 0.5]
