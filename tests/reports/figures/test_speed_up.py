"""Speed-up in a figure: each horizontal line is as long as the factor of its seed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diffusion_lab.reports import group_runs, read_runs
from diffusion_lab.reports.comparison.groups import Group
from diffusion_lab.reports.figures.curves import MARK, speed_up
from tests.reports.curves import FD, STEPS, power_law, write_curves
from tests.reports.synthetic import BATCH

FACTORS = (2.5, 1.5, 0.5)


@pytest.fixture
def groups(tmp_path: Path) -> list[Group]:
    """uniform, and logit_normal with a factor of images per seed, at twice the time per step."""
    for seed, factor in enumerate(FACTORS):
        write_curves(tmp_path / f"a{seed}", "uniform", seed, power_law(STEPS), step_seconds=0.1)
        write_curves(tmp_path / f"b{seed}", "logit_normal", seed, power_law(STEPS, factor), step_seconds=0.2)
    return group_runs(read_runs(tmp_path).runs)


def test_lines_are_as_long_as_the_factors(groups: list[Group], drawn: list[Any]) -> None:
    figure = speed_up(groups[0], groups[1], FD)
    assert figure is not None and figure.title == "Speed-up over uniform"
    ends = (STEPS[-1] * BATCH, STEPS[-1] * 0.1)
    for axis, end, cost in zip(drawn[0].axes, ends, (1, 2), strict=True):
        lines = [line for line in axis.lines if line.get_color() == MARK]
        assert [line.get_linestyle() for line in lines] == ["-", "-", ":"]
        reached = [FACTORS[0] / cost, FACTORS[1] / cost, 1 / cost]  # the last is not reached within its training
        for line, factor in zip(lines, reached, strict=True):
            np.testing.assert_allclose(line.get_xdata(), [end / factor, end])
            np.testing.assert_allclose(line.get_ydata(), power_law(STEPS[-1:])[0])
        assert "not reached by 1 of 3 seeds" in axis.get_title(loc="left")


def test_without_a_speed_up_there_is_no_figure(groups: list[Group]) -> None:
    assert speed_up(groups[0], groups[1], "kid") is None
