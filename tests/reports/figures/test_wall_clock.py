"""Quality against training time: the mean of the seeds' times at equal steps, in a unit that fits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diffusion_lab.reports import group_runs, read_runs
from diffusion_lab.reports.comparison.groups import Group
from diffusion_lab.reports.figures import against_time
from tests.reports.curves import FD, STEPS, power_law, write_curves


def written(folder: Path, seconds: float, slower: float) -> list[Group]:
    """uniform with two seeds, of `seconds` and three times as many per step, and logit_normal with `slower`."""
    for seed, factor in enumerate((1, 3)):
        time = seconds * factor
        write_curves(folder / str(seed), "uniform", seed, (1 + seed) * power_law(STEPS), step_seconds=time)
    write_curves(folder / "other", "logit_normal", 0, power_law(STEPS), step_seconds=slower)
    return group_runs(read_runs(folder).runs)


def thick(axis: Any) -> list[Any]:
    return [line for line in axis.lines if line.get_linewidth() > 1.5]


@pytest.mark.parametrize(
    ("seconds", "size", "unit"), [(0.02, 1, "seconds"), (0.2, 60, "minutes"), (2.0, 3600, "hours")]
)
def test_the_mean_is_at_the_mean_training_time(
    tmp_path: Path, drawn: list[Any], seconds: float, size: float, unit: str
) -> None:
    figure = against_time(written(tmp_path, seconds, seconds / 2), FD)
    assert figure is not None and "without evaluations" in figure.caption
    axis, _ = drawn[0].axes
    first, second = thick(axis)
    np.testing.assert_allclose(first.get_xdata(), STEPS * seconds * 2 / size)
    np.testing.assert_allclose(first.get_ydata(), 1.5 * power_law(STEPS))
    np.testing.assert_allclose(second.get_xdata(), STEPS * seconds / 2 / size)
    assert axis.get_xlabel() == f"training time, {unit}"


def test_without_any_time_there_is_no_figure(tmp_path: Path) -> None:
    written(tmp_path, 0.02, 0.02)
    for run in tmp_path.iterdir():
        (run / "timing.jsonl").unlink()
    assert against_time(group_runs(read_runs(tmp_path).runs), FD) is None


def test_times_of_a_cpu_and_a_gpu_are_not_drawn_together(tmp_path: Path) -> None:
    """They showed a sampler as four times as slow, because one of its seeds was trained on another machine."""
    written(tmp_path, 0.02, 0.02)
    info = {}
    for run, device in (("0", "cuda:0"), ("1", "cuda:1"), ("other", "cuda:0")):
        info = json.loads((tmp_path / run / "run.json").read_text())
        (tmp_path / run / "run.json").write_text(json.dumps(info | {"device": device}))
    assert against_time(group_runs(read_runs(tmp_path).runs), FD) is not None
    (tmp_path / "other" / "run.json").write_text(json.dumps(info | {"device": "cpu"}))
    assert against_time(group_runs(read_runs(tmp_path).runs), FD) is None


def test_many_groups_have_a_panel_each(tmp_path: Path, drawn: list[Any]) -> None:
    for k in range(8):
        network = {"_target_": "diffusion_lab.networks.UNet", "_partial_": True, "base_channels": 8 * (k + 1)}
        write_curves(tmp_path / str(k), "uniform", 0, power_law(STEPS), step_seconds=0.02 * (k + 1), network=network)
    groups = group_runs(read_runs(tmp_path).runs)
    figure = against_time(groups, FD)
    assert figure is not None and f"dotted: {groups[0].label}, grey" in figure.caption
    axes = [axis for axis in drawn[0].axes if axis.get_visible()]
    assert len(axes) == 8
    (tmp_path / "0" / "timing.jsonl").unlink()  # the first that has a time is dotted
    untimed = against_time(group_runs(read_runs(tmp_path).runs), FD)
    assert untimed is not None and f"dotted: {groups[1].label}, grey" in untimed.caption
    for k, axis in enumerate(axes):
        np.testing.assert_allclose(thick(axis)[0].get_xdata(), STEPS * 0.02 * (k + 1) / 60)
