"""Do models generate the same image from the same noise? The peak signal-to-noise ratio between their samples.

N models generate the images q_{i,j}, i = 1..M, j = 1..N, from x_T(i) and the noises of the solver's steps, which are
the same for all models. Equation 1 of "Why diffusion models are stable" (CLTS, MDLRC), with model 1 as the reference:

    C = 1/M sum_i 1/(N-1) sum_{j>=2} PSNR(q_{i,1}, q_{i,j}),     PSNR = 10 log10(255^2 / mse) dB on bytes

A high C alone says little: any two digits on a black ground have a PSNR above 0. The control compares images from
different noise, PSNR(q_{i,a}, q_{pi(i),b}) with a permutation pi without fixed points. What the noise decides is

    PSNR(paired) - PSNR(shuffled)

Differs from the paper: all pairs of models are given beside its reference, because C depends on which model is the
first, and the shuffled pairs are ours. The paper does not state the peak; we use bytes and 255.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from textwrap import shorten
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from diffusion_lab.analyses.base import Analysis, Result, Work
from diffusion_lab.analyses.images import check_alike, check_solver, samples_of
from diffusion_lab.analyses.seeds import groups_of, over_seeds
from diffusion_lab.analyses.words import joined
from diffusion_lab.arguments import check_integer
from diffusion_lab.metrics.sample_metrics import psnr
from diffusion_lab.plotting import WIDTH, heading, line_style, picture_rows, row_names
from diffusion_lab.solvers import Solver
from diffusion_lab.training import TrainedDiffusion, TrainedModel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHOWN = 8  # images of each model in the figure
ROWS = 10  # models whose images are shown, and comparisons that are drawn
WORDS = 24  # characters of a model's name
MANY = 20  # models that all have their number at the matrix
LESS = " less square difference than unrelated images"
UNALIKE = ", so they are no more alike than unrelated images"
ABOVE = " above shuffled pairs ("


class Consistency(Analysis):
    """PSNR of paired and of shuffled images, for all pairs of models, within groups of seeds and between groups.

    `data.npz` has paired and shuffled (N,N,M) in dB for models a and b and image i, infinite for equal images;
    permutation (M,); samples (N,8,C,H,W), the first images; equation_1, C over all models; and for each of P
    comparisons, a group with itself or two groups: groups (P,2), pairs (P,) of models in it, reference (P,), C within a
    group with its first model as the reference, NaN between groups, equal_images (P,), the share of pairs of equal
    images, the means over models and images mean_paired, mean_shuffled and mean_difference (P,), and half_paired,
    half_shuffled and half_difference (P,), half the widths of their 95 % intervals over the images.

    The intervals are over images, for these models; other seeds may differ by more. With conditions, sample i of every
    model has the same condition, so shuffled pairs differ in it too.

    Args:
        solver: how diffusion models sample.
        images: M, number of images, at least 2; 32 in the paper.
        batch_size: images at a time; the noise of an image does not depend on it.

    Raises:
        ValueError: a number out of range; from `check`, fewer than two models, models of other images, or in
            super-resolution too few test images.
    """

    models = TrainedModel

    def __init__(self, solver: Solver, images: int = 32, batch_size: int = 32) -> None:
        self.solver = solver
        self.images = check_integer("images", images, 2, "use 32; shuffled pairs need two")
        self.batch_size = check_integer("batch_size", batch_size, 1, "use 32")

    def check(self, trained: Sequence[TrainedModel]) -> None:
        if len(trained) < 2:
            raise ValueError(f"run={trained[0].name} must be at least two models to compare; use 'run=[A,B]'")
        sources = [model.data.source for model in trained]
        shown = [(source.pixels().shape, source.test().fingerprint()) for source in sources]
        check_alike(trained, shown, "be models of the same images; use one data set at a time")
        for model in trained:
            if model.data.conditions.task.paired:  # beyond them, images would have the same condition again
                model.check_images(self.images)
        check_solver(self.solver, trained)

    def run(self, trained: Sequence[TrainedModel], work: Work) -> Result:
        common = [work.streams.seed] * len(trained)
        samples = samples_of(trained, common, self.images, self.batch_size, self.solver, work)
        order = torch.randperm(self.images, generator=work.streams.generator("cpu", "analysis", 0))
        permutation = torch.empty_like(order)
        permutation[order] = order.roll(1)  # one cycle, so no image stays in its place
        groups = groups_of(trained)
        paired, shuffled = between(samples, torch.arange(self.images)), between(samples, permutation)
        data = {
            "paired": paired,
            "shuffled": shuffled,
            "permutation": permutation.numpy(),
            "samples": samples[:, :SHOWN].numpy(),
            "equation_1": paired[0, 1:].mean(),
            **compared([group["members"] for group in groups], paired, shuffled),
        }
        facts = {
            "images": self.images,
            "solver": self._sampled_by(trained),
            "groups": [group["name"] for group in groups],
            "sizes": [len(group["members"]) for group in groups],
            "models": _short_names(groups),
        }
        return Result(data, facts)

    def _sampled_by(self, trained: Sequence[TrainedModel]) -> str:
        """The solver, and of which models where others generate without one."""
        diffusion = sum(isinstance(model, TrainedDiffusion) for model in trained)
        which = f"{TrainedDiffusion.kind} by " if diffusion < len(trained) else ""
        return f"{which}{self.solver.describe()}" if diffusion else ""

    def figure(self, result: Result) -> Figure:
        """The images themselves, the PSNR of paired beside shuffled ones, and that of every pair of models."""
        from matplotlib.figure import Figure

        named = comparisons(result)[:ROWS]
        names = [shorten(name, WORDS, placeholder="\N{HORIZONTAL ELLIPSIS}") for name in result.facts["models"]]
        names = [f"{name}  {number}" for number, name in enumerate(names, start=1)]
        rows = max(min(len(names), ROWS), len(named))
        figure = Figure(figsize=(WIDTH, max(3.2, 0.32 * rows + 1.6)), layout="constrained")
        pictures, means, pairs = figure.subplots(1, 3, width_ratios=(1.5, 0.9, 1.0))
        picture_rows(pictures, result.data["samples"][:ROWS], names[:ROWS])
        pictures.set_xlabel("image")
        pictures.set_title("each column: the same noise")
        _means(means, result, named)
        _pairs(pairs, result.data["paired"].mean(2))
        solver = f" ({result.facts['solver']})" if result.facts["solver"] else ""
        heading(
            figure, f"{result.facts['images']} images of each model from the same noise{solver}; bars: 95 % over images"
        )
        return figure

    def sentence(self, result: Result) -> str:
        data, facts, names = result.data, result.facts, comparisons(result)
        said = joined(_shortened([_said(data, p, name) for p, name in enumerate(names)]))
        if np.isnan(data["reference"]).all():
            c = _decibels(float(data["equation_1"]))
            said = f"C is {c} over {len(data['paired'])} models with {facts['models'][0]} as the reference; {said}"
        solver = f" ({facts['solver']})" if facts["solver"] else ""
        return (
            f"From equal noise, {said}; intervals are 95 % over the {facts['images']} images of these models{solver}."
        )


def between(samples: Tensor, permutation: Tensor) -> np.ndarray:
    """PSNR of image i of model a and image permutation(i) of model b: (N,M,C,H,W) -> (N,N,M) float64."""
    return np.stack([[psnr(a, b[permutation], 0.0).numpy() for b in samples] for a in samples])


def compared(groups: Sequence[Sequence[int]], paired: np.ndarray, shuffled: np.ndarray) -> dict[str, np.ndarray]:
    """Means over models and images, of each group with two models and of each two groups: arrays (P,) and (P,2)."""
    control = (shuffled + shuffled.transpose(1, 0, 2)) / 2
    rows: dict[str, list[object]] = {}
    for g, h in [*((g, g) for g in range(len(groups))), *combinations(range(len(groups)), 2)]:
        pairs = [(a, b) for a in groups[g] for b in groups[h] if g != h or a < b]
        if not pairs:
            continue
        first, second = (list(some) for some in zip(*pairs, strict=True))
        real, chance = paired[first, second].mean(0), control[first, second].mean(0)  # (M,)
        row = {
            "groups": (g, h),
            "pairs": len(pairs),
            "reference": paired[groups[g][0], groups[g][1:]].mean() if g == h else np.nan,
            "equal_images": np.isinf(paired[first, second]).mean(),
        }
        with np.errstate(invalid="ignore"):  # infinity - infinity where all images of a model are equal
            difference = real - chance
        for name, values in {"paired": real, "shuffled": chance, "difference": difference}.items():
            mean, half = over_images(values)
            row |= {f"mean_{name}": mean, f"half_{name}": half}
        for key, value in row.items():
            rows.setdefault(key, []).append(value)
    return {key: np.array(values) for key, values in rows.items()}


def over_images(values: np.ndarray) -> tuple[float, float]:
    """Mean of (M,) and half the width of its 95 % interval, which is NaN if a value is infinite."""
    if not np.isfinite(values).all():
        return float(values.mean()), float("nan")
    mean, half = over_seeds(values, range(len(values)))
    return float(mean), float(half)


def comparisons(result: Result) -> list[str]:
    """A name for each comparison: a group, or two groups."""
    names, sizes = result.facts["groups"], result.facts["sizes"]
    return [
        f"{sizes[g]} runs{' of ' + names[g] if names[g] else ''}" if g == h else f"{names[g]} and {names[h]}"
        for g, h in result.data["groups"].tolist()
    ]


def _said(data: Mapping[str, np.ndarray], p: int, name: str) -> str:
    """What comparison p says, e.g. `the 3 seeds of eps agree to ...`."""
    group, other = data["groups"][p]
    paired, chance, above, half = (
        float(data[key][p]) for key in ("mean_paired", "mean_shuffled", "mean_difference", "half_difference")
    )
    agree = f"{name} agree to {_decibels(paired)}"
    if group == other:
        pairs = f" ({_decibels(paired)} over all pairs)" if data["pairs"][p] > 1 else ""
        agree = f"{name} agree to C = {_decibels(float(data['reference'][p]))}{pairs}"
    if np.isinf(paired):
        agree = f"{agree}, for {100 * data['equal_images'][p]:.3g} % of the pairs of images are equal in every byte"
    if np.isinf(chance):
        return f"{agree}, but some images from other noise are equal too"
    if np.isinf(paired):
        return agree
    said = f"{agree}, {above:.1f} \N{PLUS-MINUS SIGN} {half:.1f} dB{ABOVE}{chance:.1f} dB)"
    if above - half > 0:
        return f"{said}, {10 ** (above / 10):.2g} times{LESS}"
    return f"{said}{UNALIKE}"


def _shortened(parts: Sequence[str]) -> list[str]:
    """The parts, with what recurs in full only the first time."""
    kept, seen = [], set()
    for part in parts:
        for full, short in ((LESS, " less"), (UNALIKE, ", no more than chance"), (ABOVE, " above (")):
            if full in part and full in seen:
                part = part.replace(full, short)
            elif full in part:
                seen.add(full)
        kept.append(part)
    return kept


def _decibels(value: float) -> str:
    return "infinite" if np.isinf(value) else f"{value:.1f} dB"


def _short_names(groups: Sequence[Mapping[str, Any]]) -> list[str]:
    """A name for each model: its group, with its number where the group has several."""
    named = {
        m: " ".join(filter(None, (group["name"], f"run {k}" if len(group["members"]) > 1 else "")))
        for group in groups
        for k, m in enumerate(group["members"], start=1)
    }
    return [named[m] or "run 1" for m in sorted(named)]


def _means(axis: Axes, result: Result, comparisons: Sequence[str]) -> None:
    """Paired and shuffled PSNR with their intervals; an infinite one at the right edge."""
    count = len(comparisons)
    finite = [result.data[f"mean_{key}"][:count] for key in ("paired", "shuffled")]
    top = max([float(value) for value in np.concatenate(finite) if np.isfinite(value)], default=50.0)
    edge = 1.25 * top
    for i, (key, word, marker) in enumerate((("paired", "same noise", "o"), ("shuffled", "other noise", "s"))):
        mean, half = result.data[f"mean_{key}"][:count], result.data[f"half_{key}"][:count]
        place = np.where(np.isfinite(mean), mean, edge)
        width = np.nan_to_num(half, nan=0.0)
        color = line_style(i).color
        axis.errorbar(place, range(count), xerr=width, color=color, linestyle="", marker=marker, capsize=3, label=word)
        for row in np.flatnonzero(np.isinf(mean)):
            axis.annotate("\N{INFINITY}", (edge, row), xytext=(6, 0), textcoords="offset points", va="center", size=12)
    if np.isinf(result.data["mean_paired"][:count]).any():
        axis.set_xlim(right=1.1 * edge)
    row_names(axis, comparisons)
    axis.set_xlabel("PSNR between models, dB")
    axis.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, handletextpad=0.2, columnspacing=0.8, borderpad=0)


def _pairs(axis: Axes, mean: np.ndarray) -> None:
    """PSNR of every two models (N,N), with the number in each field where there are few."""
    n = len(mean)
    inside = np.where(np.eye(n, dtype=bool), np.nan, mean)
    shown = np.where(np.isfinite(inside), inside, np.nan)
    low, high = (np.nanmin(shown), np.nanmax(shown)) if np.isfinite(shown).any() else (0.0, 1.0)
    axis.imshow(shown, cmap="Blues", vmin=low - 0.3 * (high - low) - 1, vmax=high + 0.5 * (high - low) + 1)
    for row in range(n if n <= ROWS else 0):
        for column in range(n):
            value = inside[row, column]
            text = "same" if row == column else "\N{INFINITY}" if np.isinf(value) else f"{value:.1f}"
            axis.text(
                column, row, text, ha="center", va="center", size=8 if n < 6 else 7 if n < 9 else 6, color="#222222"
            )
    numbers = [str(number) if n <= MANY or number % 10 == 0 else "" for number in range(1, n + 1)]
    axis.set_xticks(range(n), numbers)
    axis.set_yticks(range(n), numbers)
    axis.set_xlabel("number of the model")
    axis.tick_params(length=0)
    axis.grid(False)
    axis.spines[:].set_visible(False)
    axis.set_title("PSNR of each pair, dB")
