"""The loss over log SNR, from runs whose numbers are given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diffusion_lab.reports import group_runs, read_runs
from diffusion_lab.reports.comparison.groups import Group
from diffusion_lab.reports.figures.losses import log_snr_of, loss_by_log_snr
from tests.reports.synthetic import BINS, T, log
from tests.reports.test_cells import write

RISE = np.arange(1, BINS + 1)
MEAN_T = np.arange(BINS) * T / BINS + (T / BINS - 1) / 2  # mean timestep of each range


def record(folder: Path, method: str, seed: int, log_snr: Any, factor: float) -> None:
    write(folder, method, seed, 2.0, 0.1, 100.0, 10.0)
    log(folder, 300, val__loss_t=(factor * RISE).tolist())
    info = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(info | ({} if log_snr is None else {"log_snr": log_snr})))


def groups(folder: Path, *log_snrs: Any) -> list[Group]:
    for k, (method, log_snr) in enumerate(zip(("uniform", "logit_normal"), log_snrs, strict=False)):
        for seed in (0, 1):
            record(folder / f"{k}{seed}", method, seed, log_snr, 1.0 + 2 * seed)
    return group_runs(read_runs(folder).runs)


def test_ranges_are_at_the_mean_of_log_snr_and_the_loss_is_the_mean_over_seeds(
    tmp_path: Path, drawn: list[Any]
) -> None:
    """log SNR that falls linearly from 9 to -9 over the timesteps, and a steeper one."""
    straight = np.linspace(9, -9, 101).tolist()
    figure = loss_by_log_snr(groups(tmp_path, straight, (2 * np.array(straight)).tolist()))
    assert figure is not None and "2 seeds each" in figure.caption
    # Positions are rounded to timesteps, which moves a point by at most half a timestep.
    for line, factor in zip(drawn[0].axes[0].lines, (1, 2), strict=True):
        expected = factor * (9 - 18 * MEAN_T / (T - 1))
        np.testing.assert_allclose(line.get_xdata(), expected, atol=factor * 18 / T)
        np.testing.assert_allclose(line.get_ydata(), 2 * RISE)


def test_a_curved_log_snr_is_averaged_over_the_timesteps(tmp_path: Path) -> None:
    """log SNR = 10 (1 - t/(T - 1))^2 at T = 1000, against the mean over all timesteps of each range."""
    curve = 10 * (1 - np.arange(T) / (T - 1)) ** 2
    recorded = curve[np.round(np.linspace(0, T - 1, 101)).astype(int)]
    (group,) = groups(tmp_path, recorded.tolist())
    at = log_snr_of(group, BINS)
    np.testing.assert_allclose(at, curve.reshape(BINS, -1).mean(1), atol=1e-3)


@pytest.mark.parametrize("damaged", [None, [], [1.0], [1.0, "x", 2.0], [1.0, None]])
def test_runs_with_a_damaged_record_give_no_figure(damaged: Any, tmp_path: Path) -> None:
    assert loss_by_log_snr(groups(tmp_path / "none", damaged)) is None
