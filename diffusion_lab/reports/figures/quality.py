"""Figure of quality: a metric and the validation loss against the images seen."""

from __future__ import annotations

from collections.abc import Sequence

from diffusion_lab.plotting import (
    data_uri,
    images_axis,
    label_bottom,
    line_style,
    log_if_wide,
    many,
    name_lines,
    panel_title,
    panels,
    small_multiples,
    style,
)
from diffusion_lab.reports.comparison.groups import Group
from diffusion_lab.reports.comparison.metrics import VAL_LOSS, with_direction
from diffusion_lab.reports.figures.base import Figure, Mean, over_seeds, seeds_text, shown
from diffusion_lab.runs.curve import Curve


def course(groups: Sequence[Group], metric: str) -> Figure | None:
    """The metric and the validation loss against images seen; for many groups only one of the two."""
    keys = [metric if "/" in metric else f"metrics/{metric}"]
    keys = [key for key in dict.fromkeys([*keys, VAL_LOSS]) if any(_curves(group, key) for group in groups)]
    if not keys:
        return None
    drawn = [key for key in keys if any(len(curve.steps) > 1 for group in groups for curve in _curves(group, key))]
    keys = drawn or keys  # a panel of points shows less than the table beside one of curves
    present: list[tuple[int, Group, Mean]] = []
    if many(len(groups)):
        courses = [(key, _means(groups, key)) for key in keys]
        courses = [(key, means) for key, means in courses if any(len(mean.images) > 1 for *_, mean in means)]
        if not courses:
            return None  # panels with one point each show less than the table
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
            " The validation loss is unweighted, on fixed images, timesteps and noise, so runs with different samplers "
            "can be compared, but not runs with different predictions."
        )
    with style():
        image = _course_panels(present, keys[0]) if many(len(present)) else _course_lines(groups, keys)
    return Figure("Quality against images seen", caption, image)


def _means(groups: Sequence[Group], key: str) -> list[tuple[int, Group, Mean]]:
    """The groups that have a mean over seeds, with their place in the report."""
    means = [(i, group, over_seeds(_curves(group, key))) for i, group in enumerate(groups)]
    return [(i, group, mean) for i, group, mean in means if mean is not None]


def _direction(groups: Sequence[Group], key: str) -> str:
    return with_direction(groups, key.removeprefix("metrics/"))


def _course_lines(groups: Sequence[Group], keys: Sequence[str]) -> str:
    """All groups over each other, one panel per key."""
    figure, axes = panels(len(keys), height=3.6)
    ends = []
    for axis, key in zip(axes, keys, strict=True):
        ends.append(_draw_course(axis, groups, key))
        axis.set_title(_direction(groups, key))
    name_lines(figure, axes, ends)
    return data_uri(figure)


def _course_panels(present: Sequence[tuple[int, Group, Mean]], key: str) -> str:
    """One panel per group, with the others in grey behind it and the first dotted."""
    figure, axes = small_multiples(len(present))
    for axis, (i, group, own) in zip(axes, present, strict=True):
        for k, (_, _, mean) in enumerate(present):
            color, dash, width, order = ("#222222", ":", 1.2, 3) if k == 0 else ("#CCCCCC", "-", 0.6, 2)
            axis.plot(mean.images, mean.mean, color=color, linestyle=dash, linewidth=width, zorder=order)
        color = line_style(i).color
        marker = "o" if len(own.images) <= 12 else None
        axis.plot(own.images, own.mean, color=color, marker=marker, markersize=2.5, zorder=4)
        axis.fill_between(own.images, own.low, own.high, color=color, alpha=0.25, linewidth=0)
        panel_title(axis, group.label, color, len(present))
        images_axis(axis, len(present))
    log_if_wide(axes[0], [mean.mean for _, _, mean in present])
    label_bottom(axes, "images seen")
    axes[0].set_ylabel(key.removeprefix("metrics/"))
    return data_uri(figure)


def _draw_course(axis, groups: Sequence[Group], key: str) -> list[tuple[float, str, str]]:
    ends, numbers = [], []
    for i, group in enumerate(groups):
        color, dash = line_style(i)
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
    """Non-empty curves of the runs over which the mean is taken."""
    return [curve for curve in (run.curve(key) for run in shown(group)) if len(curve.steps)]
