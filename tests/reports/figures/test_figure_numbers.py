"""What the figures draw, from runs whose numbers are given: the lines of matplotlib's axes, not the picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diffusion_lab.reports import group_runs, read_runs
from diffusion_lab.reports.comparison.groups import Group
from diffusion_lab.reports.comparison.rows import tabulate
from diffusion_lab.reports.figures import (
    effects,
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


def test_ratios_are_drawn_where_the_table_has_them(tmp_path: Path, drawn: list[Any]) -> None:
    """On the axis of logarithms, with t(0.95, 2) = 4.302653 standard errors on each side."""
    values = {"uniform": [2.0, 4.0, 5.0], "logit_normal": [1.5, 3.2, 3.6]}
    for k, (method, seed) in enumerate((method, seed) for method in values for seed in range(3)):
        write(tmp_path / str(k), method, seed, values[method][seed], 0.1, 100.0, 10.0)
    assert effects(tabulate(group_runs(read_runs(tmp_path).runs), FD)) is not None
    lines = drawn[0].axes[0].lines
    logs = np.log(np.divide(values["logit_normal"], values["uniform"]))
    (mean,) = [line.get_xdata() for line in lines if line.get_marker() == "D"]
    assert list(mean) == [pytest.approx(logs.mean())]
    (ends,) = [line.get_xdata() for line in lines if line.get_linewidth() in (1.3, 2.4) and len(line.get_xdata()) == 2]
    half = 4.302653 * logs.std(ddof=1) / np.sqrt(3)
    left, right = drawn[0].axes[0].get_xlim()
    assert list(ends) == pytest.approx([logs.mean() - half, logs.mean() + half]) and left < ends[0] and ends[1] < right
    seeds = [sorted(line.get_xdata()) for line in lines if line.get_marker() == "o"]
    assert seeds == [pytest.approx(sorted(logs))]


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
