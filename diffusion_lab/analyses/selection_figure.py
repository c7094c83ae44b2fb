"""What `Selection` draws and says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from diffusion_lab.plotting import heading, line_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from diffusion_lab.analyses.base import Result

KINDS = (("r2_next", "the next update"), ("r2_interval", "the next interval"))
MOST = 6  # groups in words
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
            _by_cost(axis, group, key, drawn.color)
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
    bars = "95 % intervals over seeds; of one seed, two standard errors" if _seeds(result) else "two standard errors"
    heading(figure, f"right: numbers beside the points: how many timesteps in S; ring: the sampler's own; bars: {bars}")
    if len(result.facts["groups"]) > 1:
        handles, names = axes[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower left", ncols=5)


def _seeds(result: Result) -> bool:
    """Whether a group has several seeds."""
    return any(len(group["members"]) > 1 for group in result.facts["groups"])


def _cost(group: Mapping[str, Any]) -> tuple[np.ndarray, str]:
    """Cost of a policy update by number of timesteps, and its unit: seconds if the run has recorded its rate."""
    rows, seconds = np.array(group["rows"]), group["seconds_per_row"]
    if seconds is None:
        return rows, "policy update, rows of network calls"
    return rows * seconds, "policy update, seconds (estimated)"


def _by_cost(axis: Axes, group: Mapping[str, Any], key: str, color: str) -> None:
    """R^2 by cost, of selected and evenly spaced timesteps."""
    rows, sizes = _cost(group)[0], np.array(group["sizes"])
    value, error = (np.array(group[name], dtype=float) for name in (key, f"{key}_error"))
    order = 1 + np.argsort(rows[1:])  # the first is the sampler's own
    axis.errorbar(
        rows[order], value[order, 0], 2 * error[order, 0], color=color, marker="o", markersize=4, elinewidth=0.8
    )
    axis.plot(rows[order], value[order, 1], color=color, marker="x", markersize=4, linestyle=":", linewidth=1.2)
    axis.plot(rows[:1], value[:1, 0], color=color, marker="o", markersize=11, fillstyle="none", linestyle="")
    for k in order:
        if np.isfinite(value[k, 0]):
            axis.annotate(f"{sizes[k]:g}", (rows[k], value[k, 0]), (0, 6), textcoords="offset points", fontsize=8)


def sentence_of(result: Result) -> str:
    """Which timesteps stand for the bound, how well, and what more of them would add."""
    groups = result.facts["groups"]
    said = [_said(group) for group in groups[:MOST]]
    more = f"; and so on for {len(groups) - MOST} more" if len(groups) > MOST else ""
    error = (
        "half of the 95 % interval over seeds" if _seeds(result) else "standard error over updates, and over intervals"
    )
    text = "; ".join(said)
    return f"{text[0].upper()}{text[1:]}{more} (\N{PLUS-MINUS SIGN}: {error})."


def _said(group: Mapping[str, Any]) -> str:
    of = f"for {group['name']} " if group["name"] else ""
    own = f"{group['sizes'][0]:g}"
    often = ", ".join(map(str, group["often"]))
    low, middle, high = group["quantiles"]
    next_, interval = (_value(group, key, 0, 0) for key, _ in KINDS)
    control = _value(group, "r2_next", 0, 1)
    return (
        f"{of}S of {own} timesteps has its median at t = {middle} (90 % in {low} to {high}, most often {often}), and "
        f"its drop explains R\N{SUPERSCRIPT TWO} = {next_} of the bound's drop in the next update, where as many "
        f"evenly spaced ones explain {control}, and {interval} in the next interval between checkpoints{_most(group)}"
    )


def _most(group: Mapping[str, Any]) -> str:
    """Which number of timesteps predicts the next update best, and at what cost."""
    best = [-1.0 if value is None else value for value, _ in group["r2_next"][1:]]
    most = 1 + int(np.argmax(best))
    if best[most - 1] < 0:
        return ""
    return (
        f"; the most in the next update, {_value(group, 'r2_next', most, 0)}, have {group['sizes'][most]:g} timesteps "
        f"at {group['rows'][most] / group['rows'][0]:.3g} times the rows"
    )


def _value(group: Mapping[str, Any], key: str, k: int, kind: int) -> str:
    """R^2 with its error."""
    value, error = group[key][k][kind], group[f"{key}_error"][k][kind]
    if value is None:
        return "a part that too few known updates tell"
    return f"{value:.3g}" + (f" \N{PLUS-MINUS SIGN} {error:.1g}" if error is not None else "")
