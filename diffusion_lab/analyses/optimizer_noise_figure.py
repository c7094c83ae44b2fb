"""The figure of `optimizer_noise`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from diffusion_lab.plotting import line_style, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from diffusion_lab.analyses.base import Result

PANELS = (  # name of the mean, of its error, title
    ("mean_cosine", "cosine_error", "cosine of consecutive updates"),
    ("mean_norm", "norm_error", "norm of an update"),
    ("noise_scale", "noise_scale_error", "noise scale, tr Cov u / |E u|\N{SUPERSCRIPT TWO}"),
)


def draw_updates(result: Result) -> Figure:
    """A panel for each quantity, with a point for each setting and group."""
    facts = result.facts
    figure, axes = panels(len(PANELS), height=3.6)
    places = np.arange(len(facts["settings"]))
    for g, group in enumerate(facts["groups"]):
        style = line_style(g)
        for axis, (key, _, _) in zip(axes, PANELS, strict=True):
            values, halves = (np.array(group[name], dtype=float) for name in (key, f"{key}_half"))
            drawn = {"color": style.color, "capsize": 3, "label": group["name"] or "this run"}
            axis.errorbar(places + 0.08 * g, values, halves, marker="o", linestyle="", **drawn)
    _white_noise(axes, result, places)
    for axis, (_, _, title) in zip(axes, PANELS, strict=True):
        axis.set_xticks(places, facts["settings"])
        axis.set_title(title)
        axis.set_ylim(bottom=min(0.0, axis.get_ylim()[0]))
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower left", ncols=4)
    figure.suptitle(
        f"{facts['steps'] - facts['warmup']} updates after {facts['warmup']} that are not counted, batches of "
        f"{facts['batch_size']}, {facts['repeats']} repeats; bars: two standard errors, "
        "of several seeds their 95 % interval",
        size=9.5,
    )
    return figure


def _white_noise(axes: Sequence[Any], result: Result, places: np.ndarray) -> None:
    """What white noise alone would give: beta1, and through the first point what is proportional to the formulas."""
    beta1, factor = (result.data[key][:, result.facts["warmup"] :].mean(1) for key in ("beta1", "lr_factor"))
    share = (1 - beta1) / (1 + beta1)
    first = {key: result.facts["groups"][0][key][0] or np.nan for key, _, _ in PANELS}
    expected = (
        beta1,
        first["mean_norm"] * factor * np.sqrt(share / share[0]) / factor[0],
        first["noise_scale"] * share / share[0],
    )
    for axis, values in zip(axes, expected, strict=True):
        drawn = {"linestyle": "", "marker": "_", "markersize": 26, "color": "#222222", "zorder": 1}
        axis.plot(places, values, label="white noise alone; norm and scale through the first point", **drawn)
