"""The figure of `optimizer_noise`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from diffusion_lab.analyses.seeds import band_words, with_error
from diffusion_lab.plotting import heading, line_style, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from diffusion_lab.analyses.base import Result

PANELS = (  # name of the mean, title
    ("mean_cosine", "cosine of consecutive updates"),
    ("mean_norm", "norm of an update"),
    ("noise_scale", "noise scale, tr Cov u / |E u|\N{SUPERSCRIPT TWO}"),
)


def draw_updates(result: Result) -> Figure:
    """A panel for each quantity, with a point for each setting and group."""
    facts = result.facts
    figure, axes = panels(len(PANELS), height=3.6)
    places = np.arange(len(facts["settings"]))
    for g, group in enumerate(facts["groups"]):
        style = line_style(g)
        for axis, (key, _) in zip(axes, PANELS, strict=True):
            values, halves = of_group(result, group, key)
            drawn = {"color": style.color, "capsize": 3, "label": group["name"] or "this run"}
            axis.errorbar(places + 0.08 * g, values, halves, marker="o", linestyle="", **drawn)
    _white_noise(axes, result, places)
    for axis, (_, title) in zip(axes, PANELS, strict=True):
        axis.set_xticks(places, facts["settings"])
        axis.set_title(title)
        axis.set_ylim(bottom=min(0.0, axis.get_ylim()[0]))
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower left", ncols=4)
    heading(
        figure,
        f"{facts['steps'] - facts['warmup']} updates after {facts['warmup']} that are not counted, batches of "
        f"{facts['batch_size']}, {facts['repeats']} repeats; bars: {error_words(result)}",
    )
    return figure


def of_group(result: Result, group: Mapping[str, Any], key: str) -> tuple[np.ndarray, np.ndarray]:
    """(S,): the mean of a group's models, NaN where it is not finite, and half the width of its interval."""
    error = f"{key.removeprefix('mean_')}_error"  # of mean_cosine: cosine_error
    mean, half = with_error(result.data[key], result.data[error], group["members"])
    return np.where(np.isfinite(mean), mean, np.nan), half


def error_words(result: Result) -> str:
    """What the bars are, and the numbers after the sentence's plus-minus signs."""
    return band_words([group["members"] for group in result.facts["groups"]], "the repeats")


def _white_noise(axes: Sequence[Any], result: Result, places: np.ndarray) -> None:
    """What white noise alone would give: beta1, and through the first point what is proportional to the formulas."""
    beta1, factor = (result.data[key][:, result.facts["warmup"] :].mean(1) for key in ("beta1", "lr_factor"))
    share = (1 - beta1) / (1 + beta1)
    first = {key: of_group(result, result.facts["groups"][0], key)[0][0] for key, _ in PANELS}
    expected = (
        beta1,
        first["mean_norm"] * factor * np.sqrt(share / share[0]) / factor[0],
        first["noise_scale"] * share / share[0],
    )
    for axis, values in zip(axes, expected, strict=True):
        drawn = {"linestyle": "", "marker": "_", "markersize": 26, "color": "#222222", "zorder": 1}
        axis.plot(places, values, label="white noise alone; norm and scale through the first point", **drawn)
