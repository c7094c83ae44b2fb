"""What the figures draw, from runs whose numbers are given: the lines of matplotlib's axes, not the picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diffusion_lab.reports import group_runs, read_runs
from diffusion_lab.reports.comparison.groups import Group
from diffusion_lab.reports.figures import (
    differences,
    loss_by_log_snr,
    loss_by_timestep,
    loss_over_training,
    quality_over_training,
)
from diffusion_lab.reports.figures.base import over_seeds
from diffusion_lab.runs.curve import Curve
from tests.reports.synthetic import BATCH, BINS, log
from tests.reports.test_cells import FD, write

RISE = np.arange(1, BINS + 1)  # a loss that no mix-up of bins leaves alone


@pytest.fixture
def groups(tmp_path: Path) -> list[Group]:
    """uniform, seeds 0 and 1, then logit_normal; their last validation at step 300 is given."""
    for k, (method, seed, factor) in enumerate(
        [("uniform", 0, 1.0), ("uniform", 1, 3.0), ("logit_normal", 0, 3.0), ("logit_normal", 1, 13.0)]
    ):
        write(tmp_path / str(k), method, seed, [2.0, 4.0, 1.0, 2.5][k], 0.1 * (k + 1), 100.0, 10.0)
        log(tmp_path / str(k), 300, val__loss_t=(factor * RISE).tolist())
    return group_runs(read_runs(tmp_path).runs)


def test_loss_over_timesteps_is_the_mean_over_seeds_and_its_ratio_to_the_first(
    groups: list[Group], drawn: list[Any]
) -> None:
    assert loss_by_timestep(groups) is not None
    loss, ratio = drawn[0].axes[:2]
    middles = (np.arange(BINS) + 0.5) * 1000 / BINS
    for axis, expected in ((loss, (2 * RISE, 8 * RISE)), (ratio, (1.0 + 0 * RISE, 4.0 + 0 * RISE))):
        lines = [line for line in axis.lines if len(line.get_xdata()) == BINS]
        for line, values in zip(lines, expected, strict=True):
            np.testing.assert_allclose(line.get_xdata(), middles)
            np.testing.assert_allclose(line.get_ydata(), values)


def test_quality_against_images_ends_at_the_mean_between_lowest_and_highest_seed(
    groups: list[Group], drawn: list[Any]
) -> None:
    assert quality_over_training(groups, FD) is not None
    thick = [line for line in drawn[0].axes[0].lines if line.get_linewidth() > 1.5]
    ends = [(line.get_xdata()[-1], line.get_ydata()[-1]) for line in thick]
    assert ends == [(300 * BATCH, 3.0), (300 * BATCH, pytest.approx(1.75))]


def test_differences_are_drawn_where_the_table_has_them(groups: list[Group], drawn: list[Any]) -> None:
    """1 - 2 and 2.5 - 4: -1.25, with t(0.95, 1) = 12.706 times 0.25 on each side."""
    assert differences(groups, FD) is not None
    lines = drawn[0].axes[0].lines
    (mean,) = [line.get_xdata() for line in lines if line.get_marker() == "D"]
    assert list(mean) == [pytest.approx(-1.25)]
    (ends,) = [line.get_xdata() for line in lines if line.get_linewidth() in (1.3, 2.4) and len(line.get_xdata()) == 2]
    left, right = drawn[0].axes[0].get_xlim()
    assert list(ends) == pytest.approx(np.clip([-1.25 - 3.17655, -1.25 + 3.17655], left, right), rel=1e-4)
    assert -1.25 < ends[1] and ends[0] < -1.25
    seeds = [sorted(line.get_xdata()) for line in lines if line.get_marker() == "o"]
    assert seeds == [[-1.5, -1.0]]


def test_only_numbers_of_images_that_all_seeds_have_are_averaged() -> None:
    one = Curve(np.array([1, 2, 3]), np.array([10, 20, 30]), np.array([1.0, 2.0, 6.0]))
    two = Curve(np.array([1, 3]), np.array([10, 30]), np.array([3.0, 4.0]))
    mean = over_seeds([one, two])
    assert mean is not None and mean.images.tolist() == [10, 30]
    assert (mean.mean.tolist(), mean.low.tolist(), mean.high.tolist()) == ([2.0, 5.0], [1.0, 4.0], [3.0, 6.0])


def test_a_line_over_timesteps_goes_on_over_ranges_without_a_validation_image(tmp_path: Path, drawn: list[Any]) -> None:
    """12 validation images leave most of the ranges empty; every second one here, the last among them."""
    there = np.arange(BINS) % 2 == 0
    for k, method in enumerate(("uniform", "logit_normal")):
        write(tmp_path / str(k), method, 0, 2.0, 0.1, 100.0, 10.0)
        log(
            tmp_path / str(k),
            300,
            val__loss_t=[float(v) if t else None for v, t in zip((k + 1) * RISE, there, strict=True)],
        )
        info = json.loads((tmp_path / str(k) / "run.json").read_text())
        (tmp_path / str(k) / "run.json").write_text(json.dumps(info | {"log_snr": [9.0, -9.0]}))
    groups = group_runs(read_runs(tmp_path).runs)
    figure = loss_by_timestep(groups)
    assert figure is not None and f"{BINS // 2} of {BINS} ranges have no validation image" in figure.caption
    assert loss_by_log_snr(groups) is not None
    assert loss_over_training(groups) is not None
    (loss, ratio), (over_noise,), panels = (figure.axes for figure in drawn)
    for axis, factors in ((loss, (1, 2)), (over_noise, (1, 2))):
        for line, factor in zip(axis.lines, factors, strict=True):
            np.testing.assert_allclose(line.get_ydata(), factor * RISE[there])
            assert np.isfinite(line.get_xdata()).all()
    for line, factor in zip(ratio.lines, (1, 2), strict=True):
        np.testing.assert_allclose(line.get_ydata(), factor)
    assert all(np.isfinite(line.get_ydata()[-1]) for axis in panels for line in axis.lines)
    # and the names stand at the ends of the lines
    assert {text.get_text() for text in loss.texts} == {"uniform", "logit_normal"}
