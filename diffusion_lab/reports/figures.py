"""The figures of the report. Each is a function of the groups, and None where the runs hold nothing to draw.

A group keeps its colour throughout. Where a group has finished runs, means are over them alone; where it has none,
over the unfinished ones, and it is marked so. Thin lines are single seeds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from diffusion_lab.plotting import (
    data_uri,
    images_axis,
    label_bottom,
    log_if_wide,
    look,
    many,
    name_lines,
    panel_title,
    panels,
    row_names,
    small_multiples,
    style,
)
from diffusion_lab.reports.cells import duration, number
from diffusion_lab.reports.directions import rising, with_units
from diffusion_lab.reports.groups import Group
from diffusion_lab.reports.tables import VAL_LOSS
from diffusion_lab.runs.curve import Curve
from diffusion_lab.runs.run import Run


class Figure(NamedTuple):
    """Heading, what one sees and over how many seeds, and the picture as a `data:` address."""

    title: str
    caption: str
    image: str


class Mean(NamedTuple):
    """Mean over seeds where all of them have a value: images (n,), mean, low and high (n,) or (n, bins)."""

    images: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


def over_seeds(curves: Sequence[Curve]) -> Mean | None:
    """Mean and range at the numbers of images that every seed has; None if there are none."""
    common = set.intersection(*(set(curve.images.tolist()) for curve in curves)) if curves else set()
    if not common:
        return None
    images = np.array(sorted(common))
    stack = np.stack([curve.values[np.isin(curve.images, images)] for curve in curves])
    return Mean(images, stack.mean(0), stack.min(0), stack.max(0))


def shown(group: Group) -> list[Run]:
    """The runs that a group's mean is taken over."""
    return group.done or group.started


def seeds_text(groups: Sequence[Group], runs_of: Callable[[Group], Sequence[Run]] = shown) -> str:
    """`2 seeds each`, with the groups that have another number; unfinished groups are named."""
    counts = [len(runs_of(group)) for group in groups]
    usual, times = Counter(counts).most_common(1)[0]
    others = [f"{group.label} {count}" for group, count in zip(groups, counts, strict=True) if count != usual]
    if times > 1 or not others:
        text = "1 seed each" if usual == 1 else f"{usual} seeds each"
        text += f" but {', '.join(others)}" if others else ""
    else:
        text = "seeds: " + ", ".join(f"{group.label} {count}" for group, count in zip(groups, counts, strict=True))
    if not any(group.done for group in groups):
        return f"{text}; none is finished yet"
    open_ones = [group.label for group in groups if not group.done and runs_of(group)]
    return f"{text}; not finished yet: {', '.join(open_ones)}" if open_ones else text


def course(groups: Sequence[Group], metric: str) -> Figure | None:
    """The metric, and beside it the validation loss, against images seen; of many groups, one of the two."""
    keys = [metric if "/" in metric else f"metrics/{metric}"]
    keys = [key for key in dict.fromkeys([*keys, VAL_LOSS]) if any(_curves(group, key) for group in groups)]
    if not keys:
        return None
    present: list[tuple[int, Group, Mean]] = []
    if many(len(groups)):
        courses = [(key, _means(groups, key)) for key in keys]
        courses = [(key, found) for key, found in courses if any(len(mean.images) > 1 for *_, mean in found)]
        if not courses:
            return None  # one point in each of many panels says less than the table
        (key, present), *_ = courses
        keys = [key]
    if many(len(present)):
        caption = (
            f"{_direction(groups, keys[0])}. Coloured: mean over seeds, shaded: lowest to highest seed, dotted: "
            f"{present[0][1].label}, grey: the other groups. {seeds_text([p[1] for p in present])}, common axes."
        )
    else:
        caption = (
            "Thick: mean over seeds, shaded: lowest to highest seed, thin: single seeds (dashed where a run is not "
            f"finished). {seeds_text(groups)}."
        )
    if VAL_LOSS in keys:
        caption += (
            " The validation loss is unweighted, on fixed images, timesteps and noise, so it compares runs with "
            "different samplers; not runs that predict different things."
        )
    with style():
        image = _course_panels(present, keys[0]) if many(len(present)) else _course_lines(groups, keys)
    return Figure("Quality against images seen", caption, image)


def _means(groups: Sequence[Group], key: str) -> list[tuple[int, Group, Mean]]:
    """The groups that have a mean over seeds, with their place in the report."""
    means = [(i, group, over_seeds(_curves(group, key))) for i, group in enumerate(groups)]
    return [(i, group, mean) for i, group, mean in means if mean is not None]


def _direction(groups: Sequence[Group], key: str) -> str:
    name = key.removeprefix("metrics/")
    return f"{with_units(groups, name)} ({'higher' if rising(groups, name) else 'lower'} is better)"


def _course_lines(groups: Sequence[Group], keys: Sequence[str]) -> str:
    """All groups over each other, one panel per key."""
    figure, axes = panels(len(keys), height=3.6)
    ends = []
    for axis, key in zip(axes, keys, strict=True):
        ends.append(_draw_course(axis, groups, key))
        axis.set_title(_direction(groups, key))
    name_lines(figure, axes, ends)
    return data_uri(figure)


def _course_panels(found: Sequence[tuple[int, Group, Mean]], key: str) -> str:
    """One panel per group, with the others in grey behind it and the first dotted."""
    figure, axes = small_multiples(len(found))
    for axis, (i, group, own) in zip(axes, found, strict=True):
        for k, (_, _, mean) in enumerate(found):
            color, dash, width, order = ("#222222", ":", 1.2, 3) if k == 0 else ("#CCCCCC", "-", 0.6, 2)
            axis.plot(mean.images, mean.mean, color=color, linestyle=dash, linewidth=width, zorder=order)
        color = look(i).color
        marker = "o" if len(own.images) <= 12 else None
        axis.plot(own.images, own.mean, color=color, marker=marker, markersize=2.5, zorder=4)
        axis.fill_between(own.images, own.low, own.high, color=color, alpha=0.25, linewidth=0)
        panel_title(axis, group.label, color, len(found))
        images_axis(axis, len(found))
    log_if_wide(axes[0], [mean.mean for _, _, mean in found])
    label_bottom(axes, "images seen")
    axes[0].set_ylabel(key.removeprefix("metrics/"))
    return data_uri(figure)


def _draw_course(axis, groups: Sequence[Group], key: str) -> list[tuple[float, str, str]]:
    ends, numbers = [], []
    for i, group in enumerate(groups):
        color, dash = look(i)
        for run in group.started:
            curve = run.curve(key)
            numbers.append(curve.values)
            line = dash if run.status == "done" else (0, (2, 2))
            axis.plot(curve.images, curve.values, color=color, linestyle=line, linewidth=0.7, alpha=0.55)
        mean = over_seeds(_curves(group, key))
        if mean is None:
            continue
        marker = "o" if len(mean.images) <= 12 else None
        axis.plot(mean.images, mean.mean, color=color, linestyle=dash, marker=marker, markersize=3.5, label=group.label)
        axis.fill_between(mean.images, mean.low, mean.high, color=color, alpha=0.15, linewidth=0)
        ends.append((float(mean.mean[-1]), group.label, color))
    log_if_wide(axis, numbers)
    images_axis(axis)
    return ends


def _curves(group: Group, key: str) -> list[Curve]:
    """Non-empty curves of the runs that the mean is taken over."""
    return [curve for curve in (run.curve(key) for run in shown(group)) if len(curve.steps)]


def cost(groups: Sequence[Group]) -> Figure | None:
    """Images per second and training time."""
    measured = [group for group in groups if any(run.images_per_second for run in shown(group))]
    if not measured:
        return None
    with style():
        figure, axes = panels(2, height=0.75 + 0.33 * len(measured), sharey=True)
        titles = ("images per second (higher is better)", "training time (lower is better)")
        values = (lambda run: run.images_per_second, lambda run: run.seconds)
        texts = (lambda value: number(value, 3), duration)
        for axis, title, value, text in zip(axes, titles, values, texts, strict=True):
            _bars(axis, groups, measured, value, text)
            axis.set_title(title)
        row_names(axes[0], [group.label for group in measured])
        image = data_uri(figure)
    caption = (
        f"Bars: mean, dots: seeds; {seeds_text(measured)}. Training with its validations and sample grids, on the "
        "machine that ran it: compare runs that had it to themselves."
    )
    return Figure("Cost", caption, image)


def _bars(axis, groups, measured, value, text) -> None:
    for row, group in enumerate(measured):
        found = [value(run) for run in shown(group) if value(run) is not None]
        if not found:
            continue
        mean = float(np.mean(found))
        color = look(groups.index(group)).color
        axis.barh(row, mean, height=0.62, color=color, alpha=0.75 if group.done else 0.3)
        axis.plot(found, [row] * len(found), "o", color="white", markeredgecolor="#333333", markersize=4)
        axis.annotate(
            text(mean),
            (max(mean, *found), row),
            xytext=(7, 0),
            textcoords="offset points",
            va="center",
            color="#333333",
        )
    axis.grid(axis="y", visible=False)
    axis.tick_params(axis="y", length=0)
    axis.spines["left"].set_visible(False)
    axis.margins(x=0.28)
    axis.set_xlim(left=0)
