"""The variance of the gradient of single pairs of image and noise, at each timestep.

With the gradients g_i of N pairs at timestep t (`rows.py`) and their mean m,

    V_t = 1/(N-1) sum_i |g_i - m|^2         trace of the covariance
    U_t = |m|^2 - V_t/N                     unbiased for the squared norm of the expected gradient

V_t / U_t is the batch size at which noise and signal are equal. The bound weighs the loss by c_t
(`diffusion.bound_weights`), which makes its variance c_t^2 V_t and leaves V_t / U_t as it is. Everything follows from
|g_i|^2 and g_i . sum_j g_j, also without one pair: the standard errors are the jackknife's over pairs. Pair i has the
same image at all t and a noise of its own at each, and the jackknife leaves it out at all of them.

Reference: Kim et al., "Adaptive Non-uniform Timestep Sampling for Accelerating Diffusion Model Training", CVPR 2025,
Figures 2 and 6. Differs from it: N, the timesteps and the standard errors are stated there nowhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from diffusion_lab.analyses.base import Analysis, Result, Work
from diffusion_lab.analyses.gradients.rows import gradient_blocks, jackknife, moments, without_each
from diffusion_lab.analyses.images import check_training_images, training_images, weights_of_bound
from diffusion_lab.analyses.seeds import band_words, group_band, groups_of
from diffusion_lab.analyses.words import joined, plus_minus
from diffusion_lab.arguments import check_integer
from diffusion_lab.distributed import rank, sum_, world_size
from diffusion_lab.plotting import heading, line_style, log_axis, panels, timestep_axis
from diffusion_lab.timesteps.grid import interpolated
from diffusion_lab.training import TrainedDiffusion

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KEPT = 2**30  # bytes of gradients that wait for their sum; those beyond are computed a second time
PANELS = (
    ("variance", "variance of the gradient, V"),
    ("relative", "V / squared mean gradient"),
    ("weighted", "V with the bound's weight, c\N{SUPERSCRIPT TWO} V"),
)


class GradientVarianceByTimestep(Analysis):
    """V_t, V_t / U_t and c_t^2 V_t on a grid: about `points` evenly spaced timesteps, all below 11, and the last.

    The weights are those that are given: `weights=raw` for the gradients of training. `data.npz` has timesteps (K,),
    image (N,) the numbers of the training images; square_norm and with_sum (M,K,N), |g_i|^2 and g_i . sum_j g_j, of M
    models; variance, squared_mean, relative and weighted (M,K), each with NAME_error, its standard error; weight (M,K)
    c_t in bits/dim; and for each model early_late, early_late_weighted (M,) with their errors, the ratio of the mean of
    V, and of c^2 V, over t < T/10 to that over t >= T/2. Under several processes each takes a part of the pairs. Of a
    large network the gradients of all pairs are not kept, so each but the first ones is computed twice.

    Args:
        pairs: N >= 3, pairs of training image and noise at each timestep.
        points: number of evenly spaced timesteps; those below 11 and the last one are added.
        batch_size: rows of one network call.

    Raises:
        ValueError: a number out of range; from `check`, fewer images than pairs, models with different numbers of
            timesteps, or a prediction of several heads. Their schedules may differ.
    """

    def __init__(self, pairs: int = 64, points: int = 50, batch_size: int = 32) -> None:
        self.pairs = check_integer("pairs", pairs, 3, "use 64; the jackknife needs three")
        self.points = check_integer("points", points, 2, "use 50")
        self.batch_size = check_integer("batch_size", batch_size, 1, "use 32")

    def check(self, trained: Sequence[TrainedDiffusion]) -> None:
        check_training_images(trained, self.pairs, "analysis.pairs")
        for model in trained:
            weights_of_bound(model)

    def run(self, trained: Sequence[TrainedDiffusion], work: Work) -> Result:
        steps = trained[0].denoiser.num_timesteps
        t = sorted({*range(0, steps, max(1, steps // self.points)), *range(min(11, steps)), steps - 1})
        drawn = [training_images(model, self.pairs) for model in trained]

        def one(m: int, k: int) -> Mapping[str, np.ndarray]:
            return self._products(trained[m], *drawn[m], t[k], work)

        data = work.stacked("gradients", one, len(trained), len(t))
        data |= {"timesteps": np.array(t), "image": drawn[0][0].numpy()}
        data["weight"] = np.stack([weights_of_bound(model).cpu().numpy()[t] for model in trained])
        data |= _statistics(data, steps)
        return Result(data, {"pairs": self.pairs, "timesteps": steps, "curves": _curves(trained, data)})

    def _products(
        self, model: TrainedDiffusion, ids: Tensor, x0: Tensor, cond: dict[str, Tensor], t: int, work: Work
    ) -> dict[str, np.ndarray]:
        """|g_i|^2 and g_i . sum_j g_j of all pairs, equal on all processes."""
        mine = torch.arange(len(x0)).tensor_split(world_size())[rank()]
        eps = torch.stack([work.normal(tuple(x0.shape[1:]), int(ids[i]), t) for i in mine])
        steps = torch.full((len(mine),), t, device=x0.device)

        def blocks(start: int) -> Iterator[Tensor]:
            given = {key: value[mine][start:] for key, value in cond.items()}
            rows = x0[mine][start:], eps[start:], steps[start:]
            return gradient_blocks(model.denoiser, *rows, given, self.batch_size)

        numbers = sum(p.numel() for p in model.denoiser.parameters() if p.requires_grad)
        total, kept, seen = x0.new_zeros(numbers, dtype=torch.float64), list[Tensor](), 0
        for block in blocks(0):
            for g in block:
                total += g  # a row at a time, as the sum of all in double precision would copy the block
            seen += len(block)
            kept += [block] if seen * block[0].nbytes <= KEPT else []
        total = sum_(total)
        found = torch.zeros(2, len(x0), dtype=torch.float64, device=x0.device)
        again = blocks(sum(map(len, kept))) if sum(map(len, kept)) < seen else iter(())
        rows = (g.double() for block in chain(kept, again) for g in block)
        found[:, mine] = torch.stack([torch.stack([g.square().sum(), g @ total]) for g in rows], dim=1)
        square, product = sum_(found).cpu().numpy()
        return {"square_norm": square, "with_sum": product}

    def figure(self, result: Result) -> Figure:
        data, curves = result.data, result.facts["curves"]
        figure, axes = panels(len(PANELS), height=3.6)
        for axis, (key, title) in zip(axes, PANELS, strict=True):
            for g, curve in enumerate(curves):
                _draw(axis, data, key, curve, g)
            timestep_axis(axis, 0, result.facts["timesteps"])
            log_axis(axis)
            axis.set_title(title)
        above = "; triangle: at least this (the mean is not distinct from 0)" if _limits(data).any() else ""
        pairs = f"{result.facts['pairs']} pairs of image and noise at each t"
        heading(figure, f"{pairs}; shaded: {_error_words(result)}{above}")
        if len(curves) > 1:
            figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower left", ncols=5, handlelength=3)
        return figure

    def sentence(self, result: Result) -> str:
        steps, curves = result.facts["timesteps"], result.facts["curves"]
        ratios, weighted = (
            [(float(value), float(half)) for value, half in (group_band(result.data, key, curve) for curve in curves)]
            for key in ("early_late", "early_late_weighted")
        )
        said = []
        for curve, plain, other in zip(curves, ratios, weighted, strict=True):
            of = f" for {curve['name']}" if curve["name"] else ""
            said.append(f"{plus_minus(*plain)} times{of} ({plus_minus(*other)} with the bound's weights)")
        higher = sum(ratio - half > 1 for ratio, half in ratios)
        lower = sum(ratio + half < 1 for ratio, half in ratios)
        verdict = (
            f"higher at small t in {higher} of {len(curves)} cases, lower in {lower}"
            if len(curves) > 1
            else "higher at small t"
            if higher
            else "lower at small t"
            if lower
            else "not decided by these pairs"
        )
        largest = max(curves, key=lambda curve: curve["largest_over_smallest"])
        return (
            f"The variance of the gradient at t < {steps // 10} is, relative to t >= {steps // 2}, "
            f"{joined(said, by=', ')}: {verdict}; between single timesteps it differs up to "
            f"{largest['largest_over_smallest']:,.3g} times, from t = {largest['at'][0]} to t = {largest['at'][1]} "
            f"(\N{PLUS-MINUS SIGN}: {_error_words(result)})."
        )


def _statistics(data: Mapping[str, np.ndarray], steps: int) -> dict[str, np.ndarray]:
    variance, mean = moments(data["square_norm"], data["with_sum"])
    each_variance, each_mean = without_each(data["square_norm"], data["with_sum"])
    c = data["weight"][..., None] ** 2
    found = {"variance": (variance, each_variance), "squared_mean": (mean, each_mean)}
    found["relative"] = (variance / mean, each_variance / each_mean)
    found["weighted"] = (c[..., 0] * variance, c * each_variance)
    for key, (value, each) in (("early_late", found["variance"]), ("early_late_weighted", found["weighted"])):
        found[key] = (
            _early_over_late(value[..., None], data["timesteps"], steps)[..., 0],
            _early_over_late(each, data["timesteps"], steps),
        )
    values = {key: value for key, (value, _) in found.items()}
    return values | {f"{key}_error": jackknife(each) for key, (_, each) in found.items()}


def _early_over_late(values: np.ndarray, timesteps: np.ndarray, steps: int) -> np.ndarray:
    """Mean over t < T/10 by that over t >= T/2, linear between the grid's points: (M,K,n) -> (M,n)."""
    grid = torch.from_numpy(timesteps)
    every = interpolated(torch.from_numpy(np.moveaxis(values, 1, -1)), grid).numpy()
    return every[..., : max(1, steps // 10)].mean(-1) / every[..., steps // 2 :].mean(-1)


def _curves(trained: Sequence[TrainedDiffusion], data: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
    """A line for each group of seeds, and at which timesteps its variance is largest and smallest."""
    curves = []
    for group in groups_of(trained):
        mean, t = data["variance"][group["members"]].mean(0), data["timesteps"]
        low, high = int(mean.argmin()), int(mean.argmax())
        ends = {"largest_over_smallest": float(mean[high] / mean[low]), "at": [int(t[high]), int(t[low])]}
        curves.append(group | ends)
    return curves


def _error_words(result: Result) -> str:
    """What the bands are, and the numbers after the sentence's plus-minus signs."""
    return band_words(result.facts["curves"], f"{result.facts['pairs']} pairs")


def _draw(axis: Axes, data: Mapping[str, np.ndarray], key: str, curve: Mapping[str, Any], g: int) -> None:
    """The line of a group, with its interval; for a ratio only where the denominator is distinct from 0."""
    drawn, t, members = line_style(g), data["timesteps"], curve["members"]
    mean, half = group_band(data, key, curve)
    limit = _limits(data)[members].any(0) if key == "relative" else np.zeros(len(t), dtype=bool)
    shown = np.where(limit | (mean <= 0), np.nan, mean)
    axis.plot(t, shown, color=drawn.color, linestyle=drawn.dash, label=curve["name"] or "all pairs")
    low = np.maximum(shown - half, shown / 5)  # a logarithmic axis has no zero
    axis.fill_between(t, low, shown + half, color=drawn.color, alpha=0.2, linewidth=0)
    if limit.any():
        most = data["squared_mean"] + 2 * data["squared_mean_error"]
        bound = (data["variance"] / most)[members].min(0)
        axis.plot(t[limit], bound[limit], color=drawn.color, linestyle="", marker="^", markersize=4, fillstyle="none")


def _limits(data: Mapping[str, np.ndarray]) -> np.ndarray:
    """(M,K): where the squared mean is less than two standard errors above 0."""
    return data["squared_mean"] < 2 * data["squared_mean_error"]
