"""Common parts of the report's figures: a figure, panels per group, and means over the seeds of a group.

A group has the same colour in all figures. If a group has finished runs, means are over them alone; otherwise they are
over the unfinished ones, which is stated. Thin lines are single seeds.
"""

from __future__ import annotations

from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from diffusion_lab.plotting import data_uri, label_bottom, line_style, named_lines, panel_title, small_multiples, style
from diffusion_lab.reports.comparison.groups import Group
from diffusion_lab.runs.curve import Curve
from diffusion_lab.runs.run import Run

GREY = "#CCCCCC"  # of the other groups behind one


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
    titles: Sequence[tuple[int, str]], draw: Callable[[Any, int], object], below: str, left: str, height: float = 2.4
) -> tuple[Any, list[Any]]:
    """Matplotlib's figure with a panel per group on common axes, and its panels.

    Args:
        titles: (place in the report, title) of each panel.
        draw: is called with the axes of panel k, and k.
        below: label of x, below the lowest panels.
        left: label of y, at the first panel.
        height: of a panel, inches.
    """
    figure, axes = small_multiples(len(titles), height)
    for k, (axis, (index, title)) in enumerate(zip(axes, titles, strict=True)):
        draw(axis, k)
        panel_title(axis, title, line_style(index).color, len(titles))
    label_bottom(axes, below)
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
