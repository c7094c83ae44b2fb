"""What `Selection` draws and says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from diffusion_lab.analyses.seeds import band_words, with_error
from diffusion_lab.analyses.words import joined, plus_minus
from diffusion_lab.plotting import heading, line_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from diffusion_lab.analyses.base import Result

KINDS = (("r2_next", "the next update"), ("r2_interval", "the next interval"))
WIDE = 100  # timesteps; S beyond is drawn on a logarithmic axis


def draw(figure: Figure, axes: Sequence[Axes], result: Result) -> None:
    """S over training, and for both kinds of updates R^2 by the cost of a policy update."""
    for g, group in enumerate(result.facts["groups"]):
        drawn = line_style(g)
        for r in group["members"]:
            steps, selected = result.data["step"][r], result.data["selected"][r]
            steps = np.repeat(steps[:, None], selected.shape[1], 1)
            shown = np.where(selected >= 0, selected, np.nan)
            axes[0].plot(steps, shown, color=drawn.color, linestyle="", marker="o", markersize=3, alpha=0.7)
        axes[0].plot([], [], color=drawn.color, linestyle="", marker="o", label=group["name"] or "selected")
        for axis, (key, _) in zip(axes[1:], KINDS, strict=True):
            _by_cost(axis, result, group, key, drawn.color)
    if result.data["selected"].max() > WIDE:
        axes[0].set_yscale("symlog", linthresh=10)
        axes[0].yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes[0].set_ylim(bottom=-0.5)
    axes[0].set_ylabel("timestep t")
    axes[0].set_xlabel("optimizer step")
    axes[0].set_title("selected timesteps S")
    for axis, (_, name) in zip(axes[1:], KINDS, strict=True):
        axis.set_ylim(0, 1.12)
        axis.set_xscale("log")
        axis.minorticks_off()
        ticks = sorted({cost for group in result.facts["groups"] for cost in _cost(group)[0]})
        shown = ticks[:: max(1, len(ticks) // 3)]
        axis.set_xticks(shown, [f"{tick:.3g}" for tick in shown])
        axis.set_xlabel(_cost(result.facts["groups"][0])[1])
        axis.set_title(f"R\N{SUPERSCRIPT TWO} of the bound's drop in {name}")
    axes[2].plot([], [], color="#222222", marker="o", label="S by the F-test")
    axes[2].plot([], [], color="#222222", marker="x", linestyle=":", label="evenly spaced")
    axes[2].legend(loc="lower right", fontsize=8)
    bars = _error_words(result)
    heading(figure, f"right: numbers beside the points: how many timesteps in S; ring: the sampler's own; bars: {bars}")
    if len(result.facts["groups"]) > 1:
        handles, names = axes[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower left", ncols=5)


def _error_words(result: Result) -> str:
    """What the bars are, and the numbers after the sentence's plus-minus signs."""
    return band_words([group["members"] for group in result.facts["groups"]], "updates, and over intervals")


def _r2(result: Result, group: Mapping[str, Any], key: str) -> tuple[np.ndarray, np.ndarray]:
    """(K,2): R^2, the mean of a group's runs, and half the width of its interval."""
    return with_error(result.data[key], result.data[f"{key}_error"], group["members"])


def _cost(group: Mapping[str, Any]) -> tuple[np.ndarray, str]:
    """Cost of a policy update by number of timesteps, and its unit: seconds if the run has recorded its rate."""
    rows, seconds = np.array(group["rows"]), group["seconds_per_row"]
    if seconds is None:
        return rows, "policy update, rows of network calls"
    return rows * seconds, "policy update, seconds (estimated)"


def _by_cost(axis: Axes, result: Result, group: Mapping[str, Any], key: str, color: str) -> None:
    """R^2 by cost, of selected and evenly spaced timesteps."""
    rows, sizes = _cost(group)[0], np.array(group["sizes"])
    value, half = _r2(result, group, key)
    order = 1 + np.argsort(rows[1:])  # the first is the sampler's own
    axis.errorbar(rows[order], value[order, 0], half[order, 0], color=color, marker="o", markersize=4, elinewidth=0.8)
    axis.plot(rows[order], value[order, 1], color=color, marker="x", markersize=4, linestyle=":", linewidth=1.2)
    axis.plot(rows[:1], value[:1, 0], color=color, marker="o", markersize=11, fillstyle="none", linestyle="")
    for k in order:
        if np.isfinite(value[k, 0]):
            axis.annotate(f"{sizes[k]:g}", (rows[k], value[k, 0]), (0, 6), textcoords="offset points", fontsize=8)


def sentence_of(result: Result) -> str:
    """Which timesteps stand for the bound, how well, and what more of them would add."""
    text = joined([_said(result, group) for group in result.facts["groups"]])
    return f"{text[0].upper()}{text[1:]} (\N{PLUS-MINUS SIGN}: {_error_words(result)})."


def _said(result: Result, group: Mapping[str, Any]) -> str:
    of = f"for {group['name']} " if group["name"] else ""
    own = f"{group['sizes'][0]:g}"
    often = ", ".join(map(str, group["often"]))
    low, middle, high = group["quantiles"]
    next_, interval = (_value(*_r2(result, group, key), 0, 0) for key, _ in KINDS)
    control = _value(*_r2(result, group, "r2_next"), 0, 1)
    return (
        f"{of}S of {own} timesteps has its median at t = {middle} (90 % in {low} to {high}, most often {often}), and "
        f"its drop explains R\N{SUPERSCRIPT TWO} = {next_} of the bound's drop in the next update, where as many "
        f"evenly spaced ones explain {control}, and {interval} in the next interval between checkpoints"
        f"{_most(result, group)}"
    )


def _most(result: Result, group: Mapping[str, Any]) -> str:
    """Which number of timesteps predicts the next update best, and at what cost."""
    r2, half = _r2(result, group, "r2_next")
    if np.isnan(r2[1:, 0]).all():
        return ""
    most = 1 + int(np.nanargmax(r2[1:, 0]))
    return (
        f"; the most in the next update, {_value(r2, half, most, 0)}, have {group['sizes'][most]:g} timesteps "
        f"at {group['rows'][most] / group['rows'][0]:.3g} times the rows"
    )


def _value(r2: np.ndarray, half: np.ndarray, k: int, kind: int) -> str:
    """One R^2 with half the width of its interval."""
    return plus_minus(float(r2[k, kind]), float(half[k, kind]), "a part that too few known updates tell")
