"""Common parts of the report's figures: a figure, means over the seeds of a group, and panels per group.

A group has the same colour in all figures. If a group has finished runs, means are over them alone; otherwise they are
over the unfinished ones, which is stated. Thin lines are single seeds.
"""

from __future__ import annotations

import math
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from diffusion_lab.plotting import columns_of, data_uri, line_style, many, named_lines, panel_title, panels, style
from diffusion_lab.reports.comparison.groups import Group
from diffusion_lab.runs.curve import Curve
from diffusion_lab.runs.run import Run

GREY = "#CCCCCC"  # of the other groups behind one
DOTS = 12  # largest number of points that are marked


class Figure(NamedTuple):
    """Title, caption with the number of seeds, and the picture as a `data:` address."""

    title: str
    caption: str
    image: str

    @classmethod
    def drawn(cls, title: str, caption: str, draw: Callable[..., Any], *of: Any) -> Figure:
        """With the picture of Matplotlib's figure `draw(*of)`, in the common style."""
        with style():
            return cls(title, caption, data_uri(draw(*of)))

    @property
    def svg(self) -> bytes:
        """The picture as a file."""
        return b64decode(self.image.partition("base64,")[2])


def panel_per_group(
    members: Sequence[Any],
    draw: Callable[[Any, int], object],
    below: str,
    left: str,
    height: float = 2.4,
    titles: Sequence[str] | None = None,
) -> tuple[Any, list[Any]]:
    """Matplotlib's figure with a panel per group on common axes, and its panels; lower ones if there are many.

    Args:
        members: tuples that begin with the place in the report and the group of a panel, such as `GroupMean`.
        draw: is called with the axes of panel k, and k.
        below: label of x, below the lowest panels.
        left: label of y, at the first panel.
        height: of a panel, inches.
        titles: of the panels; None: the labels of the groups.
    """
    count = len(members)
    columns = columns_of(count)
    rows = math.ceil(count / columns)
    height = min(height, 1.75) if many(count) else height
    figure, axes = panels(columns, rows, height + 0.5 / rows, sharex=True, sharey=True, count=count)
    for k, (axis, (index, group, *_)) in enumerate(zip(axes, members, strict=True)):
        draw(axis, k)
        panel_title(axis, titles[k] if titles else group.label, line_style(index).color, count)
        lowest = k + columns >= count
        axis.set_xlabel(below if lowest else "")
        axis.tick_params(labelbottom=lowest)
    axes[0].set_ylabel(left)
    return figure, axes


def legend_above(figure: Any, axes: Sequence[Any], columns: int) -> None:
    """The names of the lines of some panels, each once, above the panels, where they cover no curve."""
    lines = named_lines(axes)
    figure.legend(lines.values(), lines, loc="outside upper left", ncols=columns)


class Mean(NamedTuple):
    """Mean and range over seeds where all of them have a value: images (n,), mean, low and high (n,) or (n, bins)."""

    images: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


def over_seeds(curves: Sequence[Curve]) -> Mean | None:
    """Mean and range at the numbers of images that every seed has; None if there are none. A list of another length
    than most seeds have is left out."""
    lengths = Counter(curve.values.shape[1:] for curve in curves if len(curve.values))
    curves = [curve for curve in curves if curve.values.shape[1:] == lengths.most_common(1)[0][0]] if lengths else []
    common = set.intersection(*(set(curve.images.tolist()) for curve in curves)) if curves else set()
    if not common:
        return None
    images = np.array(sorted(common))
    stack = np.stack([curve.values[np.isin(curve.images, images)] for curve in curves])
    return Mean(images, stack.mean(0), stack.min(0), stack.max(0))


class GroupMean(NamedTuple):
    """The `Mean` of one group, over images or seconds.

    Attributes:
        index: its place in the report.
        group: the runs.
        x: (n,) images seen, or seconds of training.
        mean, low, high: (n,) or (n, bins).
    """

    index: int
    group: Group
    x: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @property
    def last(self) -> np.ndarray:
        """The mean at the end, (bins,) of a list."""
        return self.mean[-1]

    @property
    def end(self) -> tuple[float, str, str]:
        """Where its name stands, at its last finite value, and its colour."""
        return line_end(self.index, self.group, self.mean)

    def draw(self, axis: Any, marked: float = DOTS) -> None:
        """The mean and the range, among those of other groups; up to `marked` points have a mark."""
        color, dash = line_style(self.index)
        marker = "o" if len(self.x) <= marked else None
        axis.plot(self.x, self.mean, color=color, linestyle=dash, marker=marker, markersize=3.5, label=self.group.label)
        axis.fill_between(self.x, self.low, self.high, color=color, alpha=0.15, linewidth=0)


def line_end(index: int, group: Group, values: np.ndarray) -> tuple[float, str, str]:
    """Of a group's line: its last finite value, NaN without one, the group's name and its colour."""
    finite = values[np.isfinite(values)]
    return float(finite[-1]) if len(finite) else math.nan, group.label, line_style(index).color


def group_means(groups: Sequence[Group], curves_of: Callable[[Group], Sequence[Curve]]) -> list[GroupMean]:
    """The means of the groups that have one, over the curves of each."""
    means = [over_seeds(curves_of(group)) for group in groups]
    return [GroupMean(i, groups[i], *mean) for i, mean in enumerate(means) if mean is not None]


def averaged_runs(group: Group) -> list[Run]:
    """The runs over which a group's mean is taken."""
    return group.done or group.started


def seeds_text(groups: Sequence[Group], runs_of: Callable[[Group], Sequence[object]] = averaged_runs) -> str:
    """`2 seeds each`, with the groups that have another number, and the unfinished groups."""
    counts = [len(runs_of(group)) for group in groups]
    usual, times = Counter(counts).most_common(1)[0]
    others = [f"{group.label} {count}" for group, count in zip(groups, counts, strict=True) if count != usual]
    if times > 1 or not others:
        text = "1 seed each" if usual == 1 else f"{usual} seeds each"
        text += f" but {', '.join(others)}" if others else ""
    else:
        text = "seeds: " + ", ".join(f"{group.label} {count}" for group, count in zip(groups, counts, strict=True))
    if lost := [f"{group.label} {group.left_out}" for group in groups if group.left_out]:
        text += f"; diverged and left out: {', '.join(lost)}"
    if not any(group.done for group in groups):
        return f"{text}; none is finished yet"
    open_ones = [group.label for group in groups if not group.done and runs_of(group)]
    return f"{text}; not finished yet: {', '.join(open_ones)}" if open_ones else text
