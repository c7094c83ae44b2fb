"""Growth: what a step costs with more timesteps, averages and ranks, and what more images and jobs cost.

Each row is the last point over the first of one plot of growth.svg, which this run draws. Times of steps are CPU time
of trainings that take turns of 10 steps, 9 turns or, of several ranks, 3; of several ranks it is the first rank's, so
that two cores can stand for four machines. Of a sweep it is the CPU time of all its processes, once.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.growth import draw, panels
from benchmarks.line import Line


def lines() -> Iterator[Line]:
    drawn = []
    for panel in panels():
        drawn.append(panel)
        what = f"{panel.y_label}: {panel.x[-1]:,.0f} over {panel.x[0]:,.0f} {panel.x_label}"
        yield Line(what, panel.growth, panel.goal)
    draw(drawn)
