"""The loss of a model at every timestep, with common noise, beside the floor that no model can beat.

    loss_t = 1/n sum_i E(x0_i, eps_i, t),     se_t = sd_i E(x0_i, eps_i, t) / sqrt(n)

over n test images. eps_i is a function of (seed, i) alone: it is the same for all t and all models, so differences
between timesteps and models are not caused by the noise. E is the unweighted mean square error of one head of the
prediction. In the spaces of x0, eps and v it is the same number times a function of t,

    E_x0 = E / scale_t,     E_eps = SNR_t E_x0,     E_v = (1 + SNR_t) E_x0

with `Prediction.head_scales`. loss - floor (`likelihood.py`) is the *excess*: what a better model could still gain. The
loss alone is also high where the image cannot be known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from diffusion_lab.analyses.base import Analysis, Result, Work
from diffusion_lab.analyses.images import Images, at_timesteps, check_alike, schedule_and_images, with_noise
from diffusion_lab.analyses.losses.floor import bound_floor, least_losses
from diffusion_lab.analyses.seeds import band_words, lines_of, with_error
from diffusion_lab.analyses.words import joined
from diffusion_lab.arguments import check_integer
from diffusion_lab.plotting import LineStyle, heading, line_style, log_axis, panels
from diffusion_lab.training import TrainedDiffusion

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TINY = np.finfo(float).tiny
PANELS = (  # array, its standard error, title
    ("mean", "standard_error", "native loss, mean square error"),
    ("excess", "excess_standard_error", "excess: native loss \N{MINUS SIGN} floor"),
    ("bound_mean", "bound_standard_error", "term of the variational bound, bits/dim"),
)


class PerTimestep(Analysis):
    """Mean and standard error of the native loss at t = 0, `every`, 2 `every`, ...

    `data.npz` has timesteps (K,), image (n,) the numbers of the test images, losses (M,n,K,heads) of M models, and
    their mean (M,K,heads) and standard_error (M,K,heads) over the images; the same two as x0_, eps_ and v_; bound_mean
    (M,K) and bound_standard_error (M,K), the term L_t of the variational bound in bits/dim, from estimates that are not
    clipped, and its bound_floor (M,K); floor and floor_standard_error (M,K,heads), native; and excess = mean
    - floor with excess_standard_error.

    Args:
        images: n, number of test images, evenly spread, at least 2; the floor is a mean over as many training images.
        every: distance between evaluated timesteps. Use 10 for a large training set: with 60,000 images of 28x28
            pixels, the floor takes 4 s for each of its images and 1000 timesteps on 2 cores.
        batch_size: rows of one network call.

    Raises:
        ValueError: a number out of range; from `check`, models whose losses cannot be compared.
    """

    def __init__(self, images: int = 64, every: int = 1, batch_size: int = 256) -> None:
        self.images = check_integer("images", images, 2, "use 64; a standard error needs two")
        self.every = check_integer("every", every, 1, "use 1 for all timesteps")
        self.batch_size = check_integer("batch_size", batch_size, 1, "use 256")

    def check(self, trained: Sequence[TrainedDiffusion]) -> None:
        for model in trained:
            model.check_images(self.images)
        must = "be runs with the same prediction, schedule and test images, or their native losses cannot be compared"
        kinds = [(type(model.denoiser.prediction), *schedule_and_images(model)) for model in trained]
        check_alike(trained, kinds, f"{must}; use one at a time")

    def run(self, trained: Sequence[TrainedDiffusion], work: Work) -> Result:
        data, snr = self.measure(trained, work), trained[0].denoiser.schedule.snr.cpu()
        t = torch.from_numpy(data["timesteps"])
        scale = trained[0].denoiser.head_scales().cpu().numpy()[t]  # (K,heads)
        for space, of_x0 in {"x0": snr**0, "eps": snr, "v": 1 + snr}.items():
            factor = of_x0.numpy()[t][:, None] / scale
            data |= {f"{space}_{key}": factor * data[key] for key in ("mean", "standard_error")}
        floors = least_losses(trained, t, self.images, work)
        data["floor"], data["floor_standard_error"] = (
            np.stack([scale * value[:, None] for value in some])
            for some in ([floor.mean for floor in floors], [floor.standard_error for floor in floors])
        )
        data["bound_floor"] = np.stack(
            [bound_floor(model.denoiser, t, floor.mean) for model, floor in zip(trained, floors, strict=True)]
        )
        data["excess"] = data["mean"] - data["floor"]
        data["excess_standard_error"] = np.hypot(data["standard_error"], data["floor_standard_error"])
        facts = {"images": len(data["image"]), "floor_of": floors[0].of, "curves": self._curves(trained, data)}
        return Result(data, facts)

    def measure(self, trained: Sequence[TrainedDiffusion], work: Work) -> dict[str, np.ndarray]:
        """The arrays of `data.npz` that need the networks."""
        drawn = [model.test_images(self.images) for model in trained]
        t = torch.arange(0, trained[0].denoiser.num_timesteps, self.every)
        n = len(drawn[0][0])
        found = work.stacked("losses", lambda m, i: self._losses(trained[m], drawn[m], i, t, work), len(trained), n)
        losses, bound = found["loss"], found["bound"]
        return {
            "timesteps": t.numpy(),
            "image": drawn[0][0].numpy(),
            "losses": losses,
            "mean": losses.mean(1),
            "standard_error": losses.std(1, ddof=1) / n**0.5,
            "bound_mean": bound.mean(1),
            "bound_standard_error": bound.std(1, ddof=1) / n**0.5,
        }

    @torch.no_grad()
    def _losses(self, model: TrainedDiffusion, images: Images, i: int, t: Tensor, work: Work) -> dict[str, np.ndarray]:
        """Native losses (K,heads) and terms of the bound (K,), float64, of image i with its noise."""
        x0, eps, cond = with_noise(images, i, work)
        rows = at_timesteps(x0, eps, cond, t, self.batch_size)
        parts = [model.denoiser.losses_and_bound(*given, **here) for *given, here in rows]
        loss, bound = (torch.cat(part).double().cpu().numpy() for part in zip(*parts, strict=True))
        return {"loss": loss, "bound": bound}

    def _curves(self, trained: Sequence[TrainedDiffusion], data: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
        """Of each line: its models, where the loss is largest and smallest, and its excess over the floor."""
        curves, t = [], data["timesteps"]
        for line in lines_of(trained):
            mean, half, excess, beside, floor = _values(data, line["members"], line["head"])
            most, least, gain = int(mean.argmax()), int(mean.argmin()), int(excess.argmax())
            curves.append(
                line
                | {
                    "largest": [int(t[most]), float(mean[most])],
                    "smallest": [int(t[least]), float(mean[least])],
                    "relative_half_width": float(np.max(half / np.maximum(mean, TINY))),
                    "floor_share": float(floor.sum() / max(mean.sum(), TINY)),
                    "largest_excess": [int(t[gain]), float(excess[gain])],
                    "lowest_in_half_widths": float(np.min(excess / np.maximum(beside, TINY))),
                }
            )
        return curves

    def figure(self, result: Result) -> Figure:
        data, curves = result.data, result.facts["curves"]
        figure, axes = panels(len(PANELS), height=3.6)
        for axis, (key, error, title) in zip(axes, PANELS, strict=True):
            hidden = 0
            for i, curve in enumerate(curves):
                if data[key].ndim == 3:
                    values, errors = data[key][..., curve["head"]], data[error][..., curve["head"]]
                elif curve["head"] == 0:  # the bound is of the model, not of a head
                    values, errors = data[key], data[error]
                else:
                    continue
                mean, half = with_error(values, errors, curve["members"])
                _band(axis, data["timesteps"], mean, half, line_style(i), curve["name"] or "loss of the test images")
                hidden += int((mean <= 0).sum())
            axis.set_title(f"{title}\n{hidden} points at or below 0 are not drawn" if hidden else title)
        for axis, key, floors in ((axes[0], "mean", data["floor"]), (axes[2], "bound_mean", data["bound_floor"])):
            _draw_floors(axis, data["timesteps"], data[key].min(), floors, curves, result.facts["floor_of"])
        for axis in axes:
            log_axis(axis)
            axis.set_xlabel("timestep t")
        words = band_words(curves, f"{result.facts['images']} test images")
        images = f"loss: mean over {result.facts['images']} test images, common noise"
        heading(figure, f"{images}; shaded: {words}{_other_images(result)}")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower left", ncols=5, handlelength=3)
        return figure

    def sentence(self, result: Result) -> str:
        parts = []
        for curve in result.facts["curves"]:
            (most, large), (least, small), (gain, excess) = (
                curve[key] for key in ("largest", "smallest", "largest_excess")
            )
            ratio = f"{large / small:,.3g} times" if small > 0 else "infinitely"
            where = f"at t = {most} ({large:.3g}), is {ratio} the smallest, at t = {least} ({small:.3g})"
            floor = (
                f"the floor is {100 * curve['floor_share']:.3g} % of the loss summed over t, and the excess is largest "
                f"at t = {gain} ({excess:.3g})"
            )
            parts.append(f"{curve['name'] + ': the' if curve['name'] else 'The'} largest native loss, {where}; {floor}")
        worst = max(curve["relative_half_width"] for curve in result.facts["curves"])
        words = band_words(result.facts["curves"], f"{result.facts['images']} images")
        below = int((result.data["excess"] < 0).any((0, 2)).sum())
        under = (
            f"; at {below} of {len(result.data['timesteps'])} timesteps a loss lies below the floor" if below else ""
        )
        return (
            f"{joined(parts)}{under}{_other_images(result) if below else ''}; the bands ({words}) are at most "
            f"{100 * worst:.2g} % of the mean to each side."
        )


def _values(data: Mapping[str, np.ndarray], members: Sequence[int], head: int) -> tuple[np.ndarray, ...]:
    """(K,) of a line: mean and half width of the loss, of the excess, and the floor."""
    cut = {key: data[key][..., head] for key in ("mean", "standard_error", "excess", "excess_standard_error")}
    loss = with_error(cut["mean"], cut["standard_error"], members)
    excess = with_error(cut["excess"], cut["excess_standard_error"], members)
    return *loss, *excess, data["floor"][members, :, head].mean(0)


def _other_images(result: Result) -> str:
    """Why a loss may lie below its floor; "" where the floor is a formula."""
    known = not result.data["floor_standard_error"].any()
    return "" if known else "; the floor is a mean over training images, so that a loss of test images may lie below it"


def _draw_floors(
    axis: Axes, t: np.ndarray, lowest: float, floors: np.ndarray, curves: Sequence[Mapping[str, Any]], of: str
) -> None:
    """Dotted: each of the floors (M,K) or (M,K,heads) once, where it is not far below the lowest number drawn."""
    drawn: list[np.ndarray] = []
    for i, curve in enumerate(curves):
        floor = floors[curve["members"][0]]
        floor = floor[:, curve["head"]] if floor.ndim == 2 else floor
        if any(np.array_equal(floor, other, equal_nan=True) for other in drawn):
            continue
        drawn.append(floor)
        shown = np.where(floor > lowest / 3, floor, np.nan)
        if np.isfinite(shown).any():
            color = "#222222" if len(drawn) == 1 else line_style(i).color
            name = f"floor of {of}" if len(drawn) == 1 else f"floor, {curve['name']}"
            axis.plot(t, shown, color=color, linestyle=":", label=name)


def _band(axis: Axes, t: np.ndarray, mean: np.ndarray, half: np.ndarray, drawn: LineStyle, name: str) -> None:
    """A line with its band on a logarithmic axis, broken where the mean is not positive."""
    shown = np.where(mean > 0, mean, np.nan)
    axis.plot(t, shown, color=drawn.color, linestyle=drawn.dash, label=name)
    low = np.maximum(shown - half, np.nanmin(shown, initial=np.inf) / 2)  # a logarithmic axis has no zero
    axis.fill_between(t, low, shown + half, color=drawn.color, alpha=0.2, linewidth=0)
