"""The plots of growth: the figure has one for each, and is the same every time."""

from __future__ import annotations

from pathlib import Path

from benchmarks.lines.growth import PLOTS, Growth, Panel, draw
from benchmarks.table import at_most

STEPS, JOBS = (
    Growth(x, y, order, goal, dict) for x, y, order, goal in (("T", "ms", 0, at_most(1.05)), ("jobs", "s", 1, None))
)
PANELS = [
    Panel(STEPS, [1000, 8000], [[30.0, 60.0, 20.0], [31.5, 60.0, 22.0]]),
    Panel(JOBS, [1, 2, 4], [[5.0], [6.0], [8.0]]),
]


def test_every_plot_has_a_line_to_compare_with() -> None:
    assert len({plot.x_label for plot in PLOTS}) == len(PLOTS)
    assert all(plot.order in (-1, 0, 1) for plot in PLOTS)


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
