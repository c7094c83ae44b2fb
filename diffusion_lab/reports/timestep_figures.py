"""The figures over timesteps: what is drawn, what is minimised, and what the loss is where.

Lists in metrics.jsonl are over equal ranges of timesteps: bin i of n holds the t with floor(t n/T) = i.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from diffusion_lab.reports.figures import Figure, Mean, over_seeds, seeds_text
from diffusion_lab.reports.groups import Group
from diffusion_lab.reports.plotting import (
    SHORT_NAME,
    data_uri,
    images_axis,
    label_bottom,
    label_ends,
    log_axis,
    log_if_wide,
    look,
    name_lines,
    panel_title,
    panels,
    small_multiples,
    style,
)
from diffusion_lab.reports.runs import Run

LOSS_BY_T = "val/loss_t"
SHOWN_BINS = 5  # timesteps whose course is drawn


def edges(group: Group, bins: int) -> np.ndarray:
    """(bins + 1,) first timestep of each range, and T; ceil(i T/n) is the first t with floor(t n/T) = i."""
    schedule = group.config.get("schedule") or {}
    total = schedule.get("num_timesteps")
    return -(-np.arange(bins + 1) * total // bins) if isinstance(total, int) else np.linspace(0, 1, bins + 1)


def loss_by_timestep(groups: Sequence[Group]) -> Figure | None:
    """Validation loss over timesteps at the end, and its ratio to the first group's."""
    present = [(i, group, _last(group)) for i, group in enumerate(groups)]
    present = [(i, group, last) for i, group, last in present if last is not None]
    if not present:
        return None
    first = present[0]
    same = [p for p in present if p[2].images == first[2].images and p[2].loss.shape == first[2].loss.shape]
    with style():
        figure, axes = panels(1 if len(same) < 2 else 2, height=3.6)
        for i, group, last in present:
            _over_t(axes[0], group, last.loss, i)
        axes[0].set_title("validation loss")
        log_axis(axes[0])
        ends = [[(last.loss[-1], group.label, look(i).color) for i, group, last in present]]
        if len(same) > 1:
            base = first[2].loss
            for i, group, last in same:
                _over_t(axes[1], group, last.loss / base, i)
            name = first[1].label
            axes[1].set_title(f"its ratio to {name if len(name) <= SHORT_NAME else 'the first of the table'}")
            ends.append([(last.loss[-1] / base[-1], group.label, look(i).color) for i, group, last in same])
        name_lines(figure, axes, ends)
        image = data_uri(figure)
    caption = (
        "Unweighted loss on held-out images by range of timesteps, with averaged weights where the run keeps them, at "
        f"the last validation; mean over seeds ({_seeds(groups)}). t = 0 is the least noise."
    )
    if len({last.images for _, _, last in present}) > 1:
        seen = ", ".join(f"{group.label} {last.images}" for _, group, last in present)
        caption += f" The groups are not equally far (images seen: {seen}); ratios are between equals only."
    return Figure("Loss over timesteps", caption, image)


def loss_course(groups: Sequence[Group]) -> Figure | None:
    """Validation loss against images seen, at a few ranges of timesteps, one panel per group."""
    means = [(group, over_seeds([run.curve(LOSS_BY_T) for run in group.comparable(LOSS_BY_T)])) for group in groups]
    means = [(group, mean) for group, mean in means if mean is not None and len(mean.images) > 1]
    if not means:
        return None
    with style():
        figure, axes = small_multiples(len(means))
        columns = min(4, len(means))
        ends_of = []
        for axis, (group, mean) in zip(axes, means, strict=True):
            ends_of.append(_draw_loss_course(axis, mean, edges(group, mean.mean.shape[1])))
            panel_title(axis, group.label, look(groups.index(group)).color, len(means))
        log_axis(axes[0])
        for k, (axis, ends) in enumerate(zip(axes, ends_of, strict=True)):
            if k % columns == columns - 1:
                label_ends(axis, ends, size=8.5)
        label_bottom(axes, "images seen")
        axes[0].set_ylabel("validation loss")
        image = data_uri(figure)
    caption = (
        "The same loss during training, at ranges of timesteps from the least noise (dark) to the most (light); their "
        f"middle stands at the right. Mean over seeds ({_seeds(groups)}), common axes."
    )
    return Figure("Loss over timesteps during training", caption, image)


def drawn(groups: Sequence[Group]) -> Figure | None:
    """Share of the timesteps drawn, against the sampler's probabilities."""
    present = _with(groups, "sampler/drawn")
    if not present:
        return None
    with style():
        figure, axes = small_multiples(len(present))
        for axis, (i, group, mean) in zip(axes, present, strict=True):
            shares, color = relative(group, mean.mean[-1]), look(i).color
            axis.stairs(
                shares, edges(group, len(shares)), fill=True, color=color, alpha=0.4, label="drawn since the start"
            )
            _panel(axis, group, i, len(present))
            _draw_probabilities(axis, group)
        label_bottom(axes, "timestep t")
        axes[0].set_ylim(bottom=0)
        axes[0].set_ylabel("relative to uniform")
        # Above the panels, where no curve can hide it.
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper left", ncols=3)
        image = data_uri(figure)
    caption = (
        "Filled: share of all rows trained on since the start, by range of timesteps; solid: the sampler's "
        "probabilities at the end; dotted: their mean over training. 1 is the uniform law. For a fixed sampler the "
        "two lines are one and the filled steps follow them; for one that adapts, they follow the dotted line. Mean "
        f"over seeds ({seeds_text([g for _, g, _ in present])}), common axes."
    )
    return Figure("Timesteps drawn against the sampler's probabilities", caption, image)


def objective(groups: Sequence[Group]) -> Figure | None:
    """What sampling and weighting together put on the loss of each timestep."""
    present = _with(groups, "sampler/objective")
    if not present:
        return None
    with style():
        figure, axes = small_multiples(len(present))
        everything = [(group, relative(group, mean.mean[-1])) for _, group, mean in present]
        for axis, (i, group, mean) in zip(axes, present, strict=True):
            for other, values in everything:
                if other is not group:
                    axis.stairs(values, edges(other, len(values)), color="#BBBBBB", linewidth=0.9, baseline=None)
            axis.stairs(
                relative(group, mean.mean[-1]),
                edges(group, mean.mean.shape[1]),
                color=look(i).color,
                linewidth=2,
                baseline=None,
            )
            _panel(axis, group, i, len(present))
        label_bottom(axes, "timestep t")
        log_if_wide(axes[0], [values for _, values in everything])
        if axes[0].get_yscale() == "linear":
            axes[0].set_ylim(bottom=0)
        axes[0].set_ylabel("relative to uniform")
        image = data_uri(figure)
    caption = (
        "Probability times weight on the loss in noise (eps), normalised, at the end of training: what the run "
        "minimises, whichever way it gets there. 1 at every t is the simple loss of DDPM. Grey: the other groups. Mean "
        f"over seeds ({seeds_text([g for _, g, _ in present])}), common axes."
    )
    return Figure("Effective objective", caption, image)


def relative(group: Group, shares: np.ndarray) -> np.ndarray:
    """Shares of n ranges (n,) as multiples of the uniform law's."""
    widths = np.diff(edges(group, len(shares)))
    return shares / np.nansum(shares) / (widths / widths.sum())


class _Last(NamedTuple):
    """The last validation that all seeds of a group have: images seen, and the mean loss (bins,)."""

    images: int
    loss: np.ndarray


def _last(group: Group) -> _Last | None:
    mean = over_seeds([run.curve(LOSS_BY_T) for run in group.comparable(LOSS_BY_T)])
    return _Last(int(mean.images[-1]), mean.mean[-1]) if mean is not None and mean.mean.ndim == 2 else None


def _seeds(groups: Sequence[Group]) -> str:
    present = [group for group in groups if group.comparable(LOSS_BY_T)]
    return seeds_text(present, lambda group: group.comparable(LOSS_BY_T))


def _with(groups: Sequence[Group], key: str) -> list[tuple[int, Group, Mean]]:
    """The groups that have logged a list `key`, with their place and their mean over seeds."""

    def has(run: Run) -> bool:
        return run.curve(key).values.ndim == 2 and len(run.curve(key).steps) > 0

    found = []
    for i, group in enumerate(groups):
        curves = [run.curve(key) for run in (group.done or group.started) if has(run)]
        mean = over_seeds(curves)
        if mean is not None:
            found.append((i, group, mean))
    return found


def _over_t(axis, group: Group, values: np.ndarray, index: int) -> None:
    color, dash = look(index)
    at = edges(group, len(values))
    axis.plot(
        (at[:-1] + at[1:]) / 2, values, color=color, linestyle=dash, marker="o", markersize=2.5, label=group.label
    )
    axis.set_xlabel("timestep t")


def _draw_loss_course(axis, mean: Mean, at: np.ndarray) -> list[tuple[float, str, str]]:
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    bins = mean.mean.shape[1]
    chosen = np.unique(np.linspace(0, bins - 1, min(bins, SHOWN_BINS)).round().astype(int))
    ends = []
    for k, b in enumerate(chosen):
        color = to_hex(colormaps["viridis"](0.85 * k / max(1, len(chosen) - 1)))
        axis.plot(mean.images, mean.mean[:, b], color=color, linewidth=1.4)
        middle = (at[b] + at[b + 1]) / 2
        ends.append((float(mean.mean[-1, b]), f"t≈{middle:.3g}", color))
    images_axis(axis)
    return ends


def _draw_probabilities(axis, group: Group) -> None:
    """The sampler's law at the end, and its mean over training by images seen."""
    for _, _, mean in _with([group], "sampler/p"):
        at = edges(group, mean.mean.shape[1])
        time = np.diff(mean.images, prepend=0)
        average = np.average(mean.mean, axis=0, weights=np.maximum(time, 1))
        axis.stairs(relative(group, mean.mean[-1]), at, color="#222222", baseline=None, label="probabilities, end")
        axis.stairs(
            relative(group, average),
            at,
            color="#222222",
            baseline=None,
            linestyle=":",
            linewidth=1.5,
            label="probabilities, mean over training",
        )


def _panel(axis, group: Group, index: int, count: int) -> None:
    axis.axhline(1, color="#999999", linewidth=0.7, zorder=0)
    panel_title(axis, group.label, look(index).color, count)
