"""Lengths of a smaller run, against the paper's shares written out."""

from __future__ import annotations

import pytest

from diffusion_lab.tables.table_scale import (
    read_table_scale,
    scaled_cells,
    scaled_decay,
    scaled_length,
    scaled_period,
)


def test_a_length_keeps_its_share_of_the_run_and_is_at_least_one_step() -> None:
    assert scaled_length(50_000, 2000, 500_000) == 200
    assert scaled_length(400, 2000, 500_000) == 2
    assert scaled_length(400, 20, 500_000) == 1


def test_an_average_looks_back_over_the_same_share() -> None:
    decay = scaled_decay(0.9999, 2000, 1_000_000)  # 10,000 of 1M steps: 20 of 2000
    assert decay == pytest.approx(1 - 1 / 20, abs=1e-12)
    assert scaled_decay(0.9999, 1_000_000, 1_000_000) == 0.9999
    assert scaled_decay(0.9999, 20, 1_000_000) == 0.5  # less than a step


@pytest.mark.parametrize(("steps", "period"), [(20, 1), (2000, 4), (20_000, 40), (1_000_000, 40)])
def test_a_period_is_at_most_a_five_hundredth_of_the_run(steps: int, period: int) -> None:
    assert scaled_period(40, steps, 1_000_000) == period


def test_a_long_period_is_a_length() -> None:
    assert scaled_period(100_000, 2000, 1_000_000) == 200


def test_cells_are_evaluations_at_the_papers_shares() -> None:
    assert scaled_cells((200_000, 400_000, 600_000), 1200, 600_000) == (400, [400, 800, 1200])
    assert scaled_cells((26_042, 78_125), 2000, 78_125) == (667, [667, 2000])  # 1 of 3 and the end
    assert scaled_cells((100_000,), 4, 100_000) == (4, [4])


def test_every_cell_is_within_one_evaluation_of_its_share() -> None:
    for steps in (7, 20, 333, 2000):
        every, cells = scaled_cells((100_000, 200_000, 300_000, 400_000, 500_000), steps, 500_000)
        assert all(abs(cell - steps * (i + 1) / 5) <= every for i, cell in enumerate(cells))
        assert cells[-1] == steps


def test_an_option_stands_in_for_the_papers() -> None:
    scale = read_table_scale(
        "mini", {"says": "", "options": {"dataset": "digits", "network": {"a": "b", "default": "c"}}}
    )
    assert [scale.option("dataset", "cifar10"), scale.option("network", "a"), scale.option("network", "z")] == [
        "digits",
        "b",
        "c",
    ]


def test_an_unknown_key_is_named() -> None:
    with pytest.raises(ValueError, match="scale=mini must have the keys of a scale.*stepps"):
        read_table_scale("mini", {"says": "", "stepps": 3})
