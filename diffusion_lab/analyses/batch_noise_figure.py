"""What `BatchNoise` draws and says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from diffusion_lab.analyses.seeds import band_words, with_error
from diffusion_lab.analyses.words import joined, plus_minus
from diffusion_lab.plotting import PALETTE, heading, line_style, log_axis, row_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from diffusion_lab.analyses.base import Result

PARTS = ("timesteps", "noise", "images")
TITLE_PAD = 22  # points between a panel and its title, where the parts' legend is


def draw(figure: Figure, axes: Sequence[Axes], result: Result) -> None:
    """A row of three panels for each group."""
    for g, group in enumerate(result.facts["groups"]):
        _draw_group(axes[3 * g : 3 * g + 3], result, group)
    note = "" if result.data["same"].all() else "; *: a sampler of another objective, with another expected gradient"
    heading(figure, f"variance of the gradient of a batch; whiskers, cut at the edges: {_error_words(result)}{note}")
    parts = axes[0].legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, borderpad=0.2)
    parts.set_in_layout(False)  # it is wider than its panel
    figure.legend(*axes[2].get_legend_handles_labels(), loc="outside lower left", ncols=5, handlelength=3)


def _error_words(result: Result) -> str:
    """What the whiskers are, and the numbers after the sentence's plus-minus signs."""
    return band_words([group["members"] for group in result.facts["groups"]], f"{result.facts['images']} images")


def _of_group(result: Result, group: Mapping[str, Any], key: str) -> tuple[np.ndarray, np.ndarray]:
    """The mean of a group's models, and half the width of its interval."""
    return with_error(result.data[key], result.data[f"{key}_error"], group["members"])


def _draw_group(axes: Sequence[Axes], result: Result, group: Mapping[str, Any]) -> None:
    """Bars of the parts at the smallest and the largest batch, and the part from the timesteps over all batches."""
    sizes, members = result.data["batch_size"], group["members"]
    names = [name + ("" if same else "*") for name, same in zip(result.facts["samplers"], group["same"], strict=True)]
    relative, half = _of_group(result, group, "relative")  # (S,R)
    of = f"{group['name']}: " if group["name"] else ""
    for axis, r in zip(axes[:2], (0, len(sizes) - 1), strict=True):
        _bars(axis, result, members, r, relative[:, r], half[:, r])
        axis.set_title(f"{of if r == 0 else ''}batch of {sizes[r]}", pad=TITLE_PAD)
        row_names(axis, names if r == 0 else [""] * len(names))
    parts = result.data["parts"][members]
    timesteps = 100 * relative * (parts[..., 0] / parts.sum(3)).mean(0)
    for s, name in enumerate(names):
        drawn = line_style(s)
        shown = np.where(timesteps[s] > 0, timesteps[s], np.nan)
        axes[2].plot(sizes, shown, color=drawn.color, linestyle=drawn.dash, marker=".", label=name)
    axes[2].set_xscale("log", base=2)
    axes[2].set_xticks(sizes, [str(size) for size in sizes])
    axes[2].minorticks_off()
    log_axis(axes[2])
    axes[2].set_xlabel("rows of a batch, B")
    axes[2].set_title("from the timesteps, % of uniform", pad=TITLE_PAD)


def _bars(axis: Axes, result: Result, members: Sequence[int], r: int, relative: np.ndarray, half: np.ndarray) -> None:
    """The parts of each sampler, as shares of its bar."""
    parts = result.data["parts"][members][:, :, r].mean(0).clip(min=0)  # (S,3)
    share = parts / parts.sum(1, keepdims=True)
    left = np.zeros(len(share))
    for k, name in enumerate(PARTS):
        width = np.where(np.isfinite(relative), share[:, k] * relative, 0)
        axis.barh(range(len(share)), width, left=left, height=0.65, color=PALETTE[k], label=f"from the {name}")
        left += width
    for s in np.flatnonzero(~np.isfinite(relative)):
        axis.text(0, float(s), " mean gradient not distinct from 0", va="center", size=7.5)
    axis.errorbar(relative, range(len(share)), xerr=half, fmt="none", ecolor="#222222", elinewidth=0.8)
    largest = float(np.nanmax(np.where(np.isfinite(relative), relative, np.nan), initial=1))
    axis.set_xlim(0, min(axis.get_xlim()[1], 1.6 * largest))
    axis.set_xlabel("variance / squared mean, uniform = 1", size=8.5)
    axis.axvline(1, color="#666666", linewidth=0.8)
    axis.grid(visible=False, axis="y")


def sentence_of(result: Result) -> str:
    """What evenly spread draws can remove, and which sampler has the least variance at small and large batches."""
    said = joined([_said(result, group) for group in result.facts["groups"]])
    return (
        "Of the variance of a batch's gradient with uniform draws, what comes from the timesteps is all that an even "
        f"spread of them can remove: {said} (\N{PLUS-MINUS SIGN}: {_error_words(result)})."
    )


def _said(result: Result, group: Mapping[str, Any]) -> str:
    names, sizes = result.facts["samplers"], result.data["batch_size"]
    share, half = _of_group(result, group, "share")
    percent = [f"{100 * value:.3g}" for value in share]
    from_t = plus_minus(100 * float(share[0]), 100 * float(half[0]))
    of = f"{group['name']}: " if group["name"] else ""
    relative, halves = _of_group(result, group, "relative")
    same = np.array(group["same"])
    same[-1] = False  # no sampler but a limit
    ends = [_best(names, relative, halves, same, r, sizes) for r in dict.fromkeys((0, len(sizes) - 1))]
    least = (
        f"the least with the same expected gradient is {' and '.join(ends)}"
        if same.any()
        else "no sampler has the same expected gradient"
    )
    return (
        f"{of}{from_t} % come from the timesteps, {percent[1]} % from the noise and "
        f"{percent[2]} % from the images, and {least} (independent draws: at least {relative[-1, 0]:.3g})"
    )


def _best(
    names: Sequence[str], relative: np.ndarray, halves: np.ndarray, same: np.ndarray, r: int, sizes: np.ndarray
) -> str:
    """The sampler of least variance at one batch size."""
    best = int(np.argmin(np.where(same, relative[:, r], np.inf)))
    return f"{plus_minus(relative[best, r], halves[best, r])} of it at B = {sizes[r]} ({names[best]})"
