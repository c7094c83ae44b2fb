"""Shares of the heads of a prediction, by noise."""

import numpy as np

from diffusion_lab.reports import group_runs, read_runs
from diffusion_lab.reports.figures.method_logs import heads, shares
from tests.reports.synthetic import log, write_run


def write(folder, seed, **values):
    write_run(folder, "uniform", seed, steps=50)
    log(folder, 60, **{f"prediction__{name}": value for name, value in values.items()})


def groups_of(path):
    return group_runs(read_runs(path).runs)


def test_the_mean_is_over_the_seeds_that_reached_the_bin(tmp_path):
    write(tmp_path / "a", 0, head_x0=[0.2, None, None], head_tail=[0.8, None, None])
    write(tmp_path / "b", 1, head_x0=[0.4, 0.5, None], head_tail=[0.6, 0.5, None])
    (group,) = groups_of(tmp_path)
    found = shares(0, group, "head").values
    np.testing.assert_allclose(found["x0"], [0.3, 0.5, np.nan])
    np.testing.assert_allclose(found["tail"], [0.7, 0.5, np.nan])
    assert shares(0, group, "weight").values == {}


def test_the_last_log_counts(tmp_path):
    write(tmp_path / "a", 0, weight_v=[0.1, 0.9])
    log(tmp_path / "a", 70, prediction__weight_v=[0.7, 0.3])
    np.testing.assert_allclose(shares(0, groups_of(tmp_path)[0], "weight").values["v"], [0.7, 0.3])


def test_any_head_is_drawn_in_a_panel_per_group_and_kind(tmp_path):
    write(tmp_path / "a", 0, head_x0=[0.2, None], head_tail=[0.8, None], weight_x0=[1.0, 0.0], weight_tail=[0.0, 1.0])
    figure = heads(groups_of(tmp_path))
    drawing = figure.svg.decode()
    for text in ("head x0", "head tail", "uniform: selected in", "uniform: weight in", "noise angle φ, degrees"):
        assert text in drawing
    assert figure.title == "Which head is used, by noise" and "1 seed each" in figure.caption


def test_runs_with_one_head_have_no_such_figure(sweep):
    assert heads(groups_of(sweep)) is None
