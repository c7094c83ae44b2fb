"""The plots of growth: each file says what its axes are, and the figure has a plot for each."""

from __future__ import annotations

from pathlib import Path

from benchmarks.growth import Panel, draw, parts
from benchmarks.line import Goal, at_most

PANELS = [
    Panel("steps", "timesteps T", "ms", 0, at_most(1.05), [1000.0, 8000.0], [[30.0, 60.0, 20.0], [31.5, 60.0, 22.0]]),
    Panel("jobs", "jobs", "s", 1, at_most(3), [1.0, 2.0, 4.0], [[5.0], [6.0], [8.0]]),
]


def test_every_file_has_axes_and_a_line_to_compare_with() -> None:
    found = parts()
    assert {"timesteps", "ema_decays", "statistics_memory", "sweep_jobs"} <= set(found)
    for part in found.values():
        assert part.__doc__ and part.X and part.Y
        assert part.ORDER in (-1, 0, 1) and isinstance(part.GOAL, Goal | None) and callable(part.points)


def test_growth_is_the_last_over_the_first_in_the_same_round() -> None:
    assert [panel.growth for panel in PANELS] == [(1.05, 1.0, 1.1, 3), (1.6, 1.6, 1.6, 1)]
    assert PANELS[0].y == [30.0, 31.5]  # medians, for the plot


def test_the_figure_is_the_same_every_time(tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg"):
        draw(PANELS, tmp_path / name)
    text = (tmp_path / "a.svg").read_text()
    assert text == (tmp_path / "b.svg").read_text()
    assert text.count('id="axes_') == 2
    draw([PANELS[0]._replace(rounds=[[30.0], [33.0]]), PANELS[1]], tmp_path / "c.svg")
    assert text != (tmp_path / "c.svg").read_text()
