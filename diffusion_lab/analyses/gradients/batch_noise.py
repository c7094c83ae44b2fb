"""The variance of a batch's gradient over its draws: how much is due to the timesteps, the noise and the images.

The gradient of a batch is G = 1/B sum_i w_i g(x_i, t_i, eps_i), with independent images and noises, and timesteps and
weights from a sampler. By the law of total variance, traces throughout and w as a function of t,

    Var G = Var_t E[G | t]                                  timesteps: 1/B for independent draws, less for spread ones
          + 1/B sum_t p_t w_t^2  E_x Var_eps g(x, t, eps)   noise
          + 1/B sum_t p_t w_t^2  Var_x E_eps g(x, t, eps)   images

Only the first part depends on how the rows of a batch are drawn together (`batch_draws.py`), so an even spread cannot
remove more than it. A sampler that changes the expected gradient trains on another objective: its variance is taken
relative to the squared norm of its own expected gradient, |E G|^2.

The measurement is ours. Approximations: between the grid's timesteps the parts and mean gradients are linear; the
gradients are sketched (`rows.py`). Standard errors are the jackknife's over images, and include that over
draws where draws were simulated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from diffusion_lab.analyses.base import Analysis, Result, Work
from diffusion_lab.analyses.gradients.batch_draws import coverages, draws_independently, informed, numbers, sampler_draw
from diffusion_lab.analyses.gradients.rows import GradientTable, measure
from diffusion_lab.analyses.images import check_training_images
from diffusion_lab.analyses.seeds import band_words, group_band, groups_of
from diffusion_lab.analyses.words import joined, plus_minus
from diffusion_lab.arguments import check_integer
from diffusion_lab.plotting import PALETTE, heading, line_style, log_axis, panels, row_names
from diffusion_lab.timesteps import FixedSampler, TimestepSampler
from diffusion_lab.timesteps.grid import interpolated, placed
from diffusion_lab.training import TrainedDiffusion

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

IDEAL = "importance (limit)"  # the name of the best independent sampler
PARTS = ("timesteps", "noise", "images")
TITLE_PAD = 22  # points between a panel and its title, where the parts' legend is


class BatchNoise(Analysis):
    """Variance of a batch's gradient due to timesteps, noise and images, by sampler and batch size, and their sum
    relative to that of uniform draws.

    To the samplers given, it adds one that the measured gradients themselves define, with the least variance of all
    independent unbiased draws: p_t ~ sqrt(E|g_t|^2), weight 1/(T p_t). Samplers that learn from losses have seen ten
    losses of the model at each timestep; those whose distribution depends on the step are at the model's.

    `data.npz` has grid (K,), batch_size (R,), probability (M,S,T) of S samplers and M models; parts (M,S,R,3), the
    variance due to timesteps, noise and images; squared_mean (M,S), |E G|^2; relative (M,S,R), (Var G / |E G|^2)
    divided by the same of uniform draws, NaN where an expected gradient that differs from uniform's is not distinct
    from 0; and share (M,3), the parts of the variance with uniform draws, which no batch size changes. Each has a
    NAME_error. same (M,S) says whether the expected gradient is that of uniform draws; it then cancels in `relative`.

    Args:
        num_timesteps: T of the samplers, which must be that of the runs.
        samplers: the samplers by the name that they have in figure and sentence.
        batch_sizes: B, numbers of rows, increasing.
        images: n, number of training images, at least 3.
        noises: number of noises for each image and timestep, at least 2.
        points: number of timesteps of the grid, denser at low noise.
        draws: number of simulated batches, for samplers whose rows are not independent, at least 2.
        sketch: s, the numbers that are kept of a gradient.
        batch_size: rows of one network call.

    Raises:
        ValueError: a number out of range; from `check`, another number of timesteps, fewer images, or a sampler that
            evaluates the network itself.
    """

    def __init__(
        self,
        num_timesteps: int,
        samplers: Mapping[str, TimestepSampler],
        batch_sizes: Sequence[int] = (4, 8, 16, 32, 64, 128),
        images: int = 32,
        noises: int = 2,
        points: int = 32,
        draws: int = 300,
        sketch: int = 4096,
        batch_size: int = 64,
    ) -> None:
        self.num_timesteps = check_integer("num_timesteps", num_timesteps, 2, "use 1000")
        if not samplers or not batch_sizes:
            raise ValueError("samplers={} and batch_sizes must each name at least one; use those of the yaml file")
        self.samplers = dict(samplers)
        cure = "use [4,8,16,32,64,128]"
        self.batch_sizes = [check_integer("batch_sizes", rows, 1, cure) for rows in batch_sizes]
        if sorted(set(self.batch_sizes)) != self.batch_sizes:
            raise ValueError(f"batch_sizes={self.batch_sizes} must increase; {cure}")
        self.images = check_integer("images", images, 3, "use 32; the jackknife needs three")
        self.noises = check_integer("noises", noises, 2, "use 2; a variance needs two")
        self.points = check_integer("points", points, 2, "use 32")
        self.draws = check_integer("draws", draws, 2, "use 300")
        self.sketch = check_integer("sketch", sketch, 1, "use 4096")
        self.batch_size = check_integer("batch_size", batch_size, 1, "use 64")

    def check(self, trained: Sequence[TrainedDiffusion]) -> None:
        check_training_images(trained, self.images)
        steps = trained[0].denoiser.num_timesteps
        if steps != self.num_timesteps:
            raise ValueError(f"analysis.num_timesteps={self.num_timesteps} must be those of the runs; use {steps}")
        for name, sampler in self.samplers.items():
            if sampler.uses_probe:
                raise ValueError(
                    f"analysis.samplers.{name} must draw without evaluations of its own; use loss_second_moment"
                )
            if sampler.num_timesteps != steps:
                raise ValueError(f"analysis.samplers.{name} must have the runs' {steps} timesteps; use num_timesteps")

    def run(self, trained: Sequence[TrainedDiffusion], work: Work) -> Result:
        models, steps = list(trained), self.num_timesteps
        density_of_points = (torch.arange(steps).double() + 1).rsqrt()  # squares of equal steps
        grid = placed(density_of_points, self.points)
        tables = measure(models, grid, self.images, self.noises, self.sketch, self.batch_size, work)
        samplers = informed(self.samplers, models, self.batch_size, work)
        for some, table in zip(samplers, tables, strict=True):
            some[IDEAL] = _ideal(table, grid)
        names = list(samplers[0])
        draws = self._draws(models, samplers, grid, work)
        densities = [
            {name: sampler_draw(sampler, model.step, grid) for name, sampler in some.items()}
            for model, some in zip(models, samplers, strict=True)
        ]
        found = [
            numbers(table, some, {name: draws.get((m, name), {}) for name in names}, self.batch_sizes)
            for m, (table, some) in enumerate(zip(tables, densities, strict=True))
        ]
        data = {key: np.stack([one[key] for one in found]) for key in found[0]}
        data |= {"grid": grid.numpy(), "batch_size": np.array(self.batch_sizes)}
        facts = {"samplers": names, "images": self.images, "noises": self.noises, "sketch": self.sketch}
        # Of each group: which samplers have the expected gradient of uniform draws for all of its models.
        groups = [g | {"same": data["same"][g["members"]].all(0).tolist()} for g in groups_of(trained)]
        return Result(data, facts | {"groups": groups})

    def _draws(
        self,
        models: list[TrainedDiffusion],
        samplers: Sequence[Mapping[str, TimestepSampler]],
        grid: torch.Tensor,
        work: Work,
    ) -> dict[tuple[int, str], dict[int, np.ndarray]]:
        """Simulated coverages (draws,K) by batch size, of each model and sampler whose draws are not independent."""

        def one(m: int, name: str, rows: int) -> Mapping[str, np.ndarray]:
            sampler, step = samplers[m][name], models[m].step
            return {"coverage": coverages(sampler, sampler_draw(sampler, step, grid), rows, self.draws, step, work)}

        tasks = [
            (m, name, rows)
            for m in range(len(models))
            for name, sampler in samplers[m].items()
            if not draws_independently(sampler)
            for rows in self.batch_sizes
        ]
        found: dict[tuple[int, str], dict[int, np.ndarray]] = {}
        for (m, name, rows), piece in zip(tasks, work.map("draws", one, tasks), strict=True):
            found.setdefault((m, name), {})[rows] = piece["coverage"]
        return found

    def figure(self, result: Result) -> Figure:
        """A row of three panels for each group."""
        groups = result.facts["groups"]
        figure, axes = panels(3, len(groups), height=max(3.0, 0.28 * (len(result.facts["samplers"]) + 5)))
        for g, group in enumerate(groups):
            _draw_group(axes[3 * g : 3 * g + 3], result, group)
        note = (
            "" if result.data["same"].all() else "; *: a sampler of another objective, with another expected gradient"
        )
        heading(
            figure, f"variance of the gradient of a batch; whiskers, cut at the edges: {_error_words(result)}{note}"
        )
        parts = axes[0].legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, borderpad=0.2)
        parts.set_in_layout(False)  # it is wider than its panel
        figure.legend(*axes[2].get_legend_handles_labels(), loc="outside lower left", ncols=5, handlelength=3)
        return figure

    def sentence(self, result: Result) -> str:
        """What evenly spread draws can remove, and which sampler has the least variance at small and large batches."""
        said = joined([_said(result, group) for group in result.facts["groups"]])
        return (
            "Evenly spread timesteps can remove only the part of the variance of a batch's gradient that comes from "
            f"the timesteps: {said} (\N{PLUS-MINUS SIGN}: {_error_words(result)})."
        )


def _ideal(table: GradientTable, grid: torch.Tensor) -> TimestepSampler:
    """p_t ~ sqrt(E|g_t|^2) of the measured gradients, reweighted."""
    parts, _ = table.parts()
    second = parts.noise + parts.images.clip(min=0) + np.diagonal(parts.gram).clip(min=0)
    root = interpolated(torch.from_numpy(second), grid).sqrt()
    return FixedSampler(root.clamp(min=1e-6 * float(root.max()) or 1.0), reweight=True)


def _error_words(result: Result) -> str:
    """What the whiskers are, and the numbers after the sentence's plus-minus signs."""
    return band_words(result.facts["groups"], f"{result.facts['images']} images")


def _draw_group(axes: Sequence[Axes], result: Result, group: Mapping[str, Any]) -> None:
    """Bars of the parts at the smallest and the largest batch, and the part from the timesteps over all batches."""
    sizes, members = result.data["batch_size"], group["members"]
    names = [name + ("" if same else "*") for name, same in zip(result.facts["samplers"], group["same"], strict=True)]
    relative, half = group_band(result.data, "relative", group)  # (S,R)
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


def _said(result: Result, group: Mapping[str, Any]) -> str:
    names, sizes = result.facts["samplers"], result.data["batch_size"]
    share, half = group_band(result.data, "share", group)
    percent = [f"{100 * value:.3g}" for value in share]
    from_t = plus_minus(100 * float(share[0]), 100 * float(half[0]))
    of = f"{group['name']}: " if group["name"] else ""
    relative, halves = group_band(result.data, "relative", group)
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
