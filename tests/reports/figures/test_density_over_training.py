"""What was drawn between two logs, from what was drawn since the start."""

import json

import numpy as np
import pytest
from matplotlib import colormaps

from diffusion_lab.reports import group_runs, read_runs
from diffusion_lab.reports.figures.timesteps import (
    COLORS,
    COLUMNS,
    LEAST,
    MOST,
    TimeAxis,
    between,
    density,
    drawn_over_training,
    scale,
)
from tests.reports.synthetic import write_run


class _Group:
    config = {"schedule": {"num_timesteps": 10}}


def since_the_start(images, shares):
    """Shares of all rows so far, if the rows between two logs fall as `shares` says."""
    rows = np.diff(images, prepend=0)[:, None] * shares
    return np.cumsum(rows, 0) / images[:, None]


@pytest.mark.parametrize("seed", range(3))
def test_shares_between_two_logs_are_recovered(seed):
    rng = np.random.default_rng(seed)
    images = np.cumsum(rng.integers(1, 5000, 30))  # logs need not be evenly spaced
    shares = rng.dirichlet(np.ones(20), 30)
    np.testing.assert_allclose(between(images, since_the_start(images, shares)), shares, atol=1e-10)


def test_rounding_leaves_no_negative_share():
    images = np.arange(1, 201) * 64
    shares = np.zeros((200, 4))
    shares[0], shares[1:, 1] = 0.25, 1.0  # later, nothing but the second range: the others fall like 1/n
    rounded = since_the_start(images, shares).round(4)
    assert np.diff(rounded * images[:, None], axis=0).min() < 0  # else it tests nothing
    found = between(images, rounded)
    assert found.min() >= 0
    np.testing.assert_allclose(found.sum(1), 1, atol=1e-12)


def test_the_uniform_law_has_density_1_where_ranges_are_unequal():
    counted = np.bincount(np.arange(10) * 3 // 10)  # 4, 3, 3 timesteps
    found = density(_Group, np.array([100, 200]), np.stack([counted / 10] * 2), TimeAxis.of([_Group]))
    np.testing.assert_allclose(found.values, 1)
    assert (found.images.tolist(), found.edges.tolist()) == ([0, 100, 200], [0, 4, 7, 10])


def test_many_logs_are_drawn_as_fewer_periods_that_cover_all():
    images, rng = np.arange(1, 1001) * 10, np.random.default_rng(0)
    shares = rng.dirichlet(np.ones(5), 1000)
    found = density(_Group, images, since_the_start(images, shares), TimeAxis.of([_Group]))
    assert found.values.shape == (COLUMNS, 5) and found.images[0] == 0 and found.images[-1] == 10000
    last = slice(int(found.images[-2]) // 10, 1000)
    np.testing.assert_allclose(found.values[-1], 5 * shares[last].mean(0), atol=1e-8)


def test_the_scale_is_that_of_the_largest_density_within_bounds():
    assert scale([np.array([[1.0, 0.0]]), np.array([[3.5]])]) == 3.5
    assert scale([np.array([[1.1]])]) == LEAST and scale([np.array([[20.0]])]) == MOST


def test_colours_read_in_grey_and_1_is_neutral():
    colors = colormaps[COLORS](np.linspace(0, 1, 33))[:, :3]
    assert np.diff(colors @ [0.299, 0.587, 0.114]).min() > 0
    assert np.ptp(colors[16]) < 0.05


def test_the_figure_has_a_panel_per_group_that_has_logged_it(sweep, tmp_path):
    figure = drawn_over_training(group_runs(read_runs(sweep).runs))
    drawing = figure.svg.decode()
    for text in ("uniform", "stratified", "timestep t", "images seen", "density relative to uniform", "1/2"):
        assert f"<!-- {text} -->" in drawing
    assert figure.title == "Timesteps drawn during training" and "2 seeds each" in figure.caption
    write_run(tmp_path / "a", "uniform", 0, steps=50)
    (tmp_path / "a" / "metrics.jsonl").write_text(json.dumps({"step": 50, "train/loss": 1.0}))
    assert drawn_over_training(group_runs(read_runs(tmp_path).runs)) is None
