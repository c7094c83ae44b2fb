"""Which prediction knows the image best at which noise? The error of x0_hat by timestep, of every prediction and head.

    E_x0(t) = 1/n sum_i |x0_hat(x_t, t) - x0_i|^2 / (C H W),     x_t = sqrt(A_t) x0_i + sqrt(1 - A_t) eps_i

over n test images, each with a noise of its own, the same for all t and models. Models of eps, x0 and v share this
axis, because each answer is an estimate of x0: E_x0 = E / scale_t with `Prediction.head_scales`. x0_hat is not clipped.
A model with several heads has a curve for each, and one for the answer that it generates with.

Xie & Agam, section 2.2, state without a number that x0 is better near t = T, eps near t = 0, and v alike at all t; and,
in Figure 4, that v avoids tints at high resolution. The hue error of what the models generate is measured for the
latter, on images with three channels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from diffusion_lab.analyses.base import Analysis, Result, Work
from diffusion_lab.analyses.images import (
    Images,
    at_timesteps,
    check_alike,
    check_solver,
    latents_of,
    samples_of,
    schedule_and_images,
    with_noise,
)
from diffusion_lab.analyses.samples.lowest_line import crossings, segments, winners
from diffusion_lab.analyses.seeds import band_words, groups_of, with_error
from diffusion_lab.analyses.words import joined, plus_minus
from diffusion_lab.arguments import check_integer
from diffusion_lab.metrics.sample_metrics import hue_error
from diffusion_lab.plotting import heading, line_style, log_axis, panels, row_names, timestep_axis
from diffusion_lab.solvers import Solver
from diffusion_lab.training import TrainedDiffusion

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TOGETHER = "all heads"
MOST_CROSSINGS = 3


class PredictionAbility(Analysis):
    """x0-space error of each model and head at t = 0, `every`, 2 `every`, ..., and the best one at each t.

    A row is a model's head, or its answer of all heads; a line is a row averaged over the seeds of a method.
    `data.npz` has timesteps (K,), image (n,), errors (R,n,K), mean and standard_error (R,K) of the R rows; for L lines
    line_mean (L,K) and line_half (L,K), half the 95 % interval over seeds, or two standard errors over images; best
    (K,), the line with the least error; lower (L,L,K), 1 where the first line is below the second by more than the half
    width of their difference, -1 where it is above; decided (K,), whether the best is below all others by that;
    worst_ratio and worst_t (L,), the largest ratio to the best line. For images with three channels also hue_error and
    hue_standard_error (M,) of M models, in grey levels: in super-resolution the metric's, else of the mean colour of
    the samples.

    Args:
        solver: how the samples for the hue error are generated.
        images: n, number of test images, evenly spread, at least 2.
        every: distance between evaluated timesteps.
        samples: number of generated images of each model for the hue error, which RGB images have, at least 2.
        batch_size: rows of one network call.

    Raises:
        ValueError: a number out of range; from `check`, too few test images, or models of other schedules, test
            images or conditions.
    """

    def __init__(
        self, solver: Solver, images: int = 64, every: int = 5, samples: int = 64, batch_size: int = 256
    ) -> None:
        self.solver = solver
        self.images = check_integer("images", images, 2, "use 64; a standard error needs two")
        self.every = check_integer("every", every, 1, "use 1 for all timesteps")
        self.samples = check_integer("samples", samples, 2, "use 64; a standard error needs two")
        self.batch_size = check_integer("batch_size", batch_size, 1, "use 256")

    def check(self, trained: Sequence[TrainedDiffusion]) -> None:
        for model in trained:
            model.check_images(self.images)
        kinds = [(*schedule_and_images(model), frozenset(model.data.conditions.names)) for model in trained]
        must = "be runs with the same schedule, test images and conditions, or their errors cannot be compared"
        check_alike(trained, kinds, f"{must}; use one at a time")
        check_solver(self.solver, trained)

    def run(self, trained: Sequence[TrainedDiffusion], work: Work) -> Result:
        t = torch.arange(0, trained[0].denoiser.num_timesteps, self.every)
        drawn = [model.test_images(self.images) for model in trained]
        n = len(drawn[0][0])

        def one(m: int, i: int) -> Mapping[str, np.ndarray]:
            return {"error": self._errors(trained[m], drawn[m], i, t, work)}

        pieces = work.nested("errors", one, len(trained), n)
        rows = [np.stack([piece["error"] for piece in some]) for some in pieces]  # (n,K,A)
        errors = np.concatenate([some.transpose(2, 0, 1) for some in rows])
        lines = lines_of_answers(trained)
        data = {"timesteps": t.numpy(), "image": drawn[0][0].numpy(), "errors": errors, "mean": errors.mean(1)}
        data["standard_error"] = errors.std(1, ddof=1) / n**0.5
        data |= winners(errors, [line["rows"] for line in lines])
        data["worst_t"] = data["timesteps"][data.pop("worst_at")]
        facts = {"images": n, "lines": lines, "groups": groups_of(trained), "solver": self.solver.describe()}
        facts["segments"] = segments(data["timesteps"], data["best"], data["decided"])
        facts["crossings"] = crossings(data["timesteps"], data["lower"])
        if trained[0].data.source.pixels().channels == 3:
            hue = np.array(self._hue(trained, work))
            data |= {"hue_error": hue[:, 0], "hue_standard_error": hue[:, 1]}
            facts |= {"samples": self.samples, "paired": trained[0].data.conditions.task.paired}
            facts["latents"] = latents_of(trained[0], work).rule
        return Result(data, facts)

    @torch.no_grad()
    def _errors(self, model: TrainedDiffusion, images: Images, i: int, t: Tensor, work: Work) -> np.ndarray:
        """(K,A) float64: of the heads, and if there are several of the answer of all, for image i with its noise."""
        denoiser, parts = model.denoiser, []
        scales = denoiser.head_scales()
        for x0, eps, some, cond in at_timesteps(*with_noise(images, i, work), t, self.batch_size):
            found = denoiser.head_losses(x0, eps, some, **cond).double() / scales[some]
            if denoiser.prediction.heads > 1:
                answer = denoiser.estimate(denoiser.schedule.perturb(x0, eps, some), some, **cond).x0
                together = (answer - x0).double().square().flatten(1).mean(1, keepdim=True)
                found = torch.cat([found, together], dim=1)
            parts.append(found.cpu().numpy())
        return np.concatenate(parts)

    def _hue(self, trained: Sequence[TrainedDiffusion], work: Work) -> list[tuple[float, float]]:
        """Hue error and its standard error of each model's samples, from the latents of its seed."""
        seeds = [latents_of(model, work).seed for model in trained]
        every = samples_of(trained, seeds, self.samples, min(self.batch_size, 32), self.solver, work)
        found = []
        for model, samples in zip(trained, every, strict=True):
            if model.data.conditions.task.paired:
                found.append(paired_hue(samples, model.data.conditions.given_and_truth(range(self.samples))[1]))
            else:
                _, x0, _ = model.test_images(max(self.samples, 1024))
                found.append(mean_hue(samples, model.data.source.to_pixels(x0).cpu()))
        return found

    def figure(self, result: Result) -> Figure:
        """The errors by timestep, their ratio to the least, and the hue errors where there are some."""
        coloured = "hue_error" in result.data
        figure, axes = panels(3 if coloured else 2, height=3.8)
        t, lines, mean = result.data["timesteps"], result.facts["lines"], result.data["line_mean"]
        least = mean.min(0)
        for i, (line, middle, half) in enumerate(zip(lines, mean, result.data["line_half"], strict=True)):
            color, dash = line_style(i)
            low = np.maximum(middle - half, middle / 10)  # a logarithmic axis has no zero
            for axis, unit in zip(axes, (1.0, least), strict=False):
                axis.plot(t, middle / unit, color=color, linestyle=dash, label=line["name"] or "x0-space error")
                axis.fill_between(t, low / unit, (middle + half) / unit, color=color, alpha=0.2, linewidth=0)
        for axis in axes[:2]:
            log_axis(axis)
            timestep_axis(axis, t[0], t[-1])
        axes[0].set_title("mean square error of the estimate of x0")
        axes[1].set_title("the same, divided by the least of all lines")
        axes[1].set_ylim(bottom=min(0.7, float((mean / least).max()) ** -0.08))  # room for the strip
        if len(lines) > 1:
            _strip(axes[1], result)
        if coloured:
            _hue(axes[2], result)
        words = band_words(lines, f"{result.facts['images']} test images", "rows")
        strip = "; strip below: the best line, faint where another may be as good" if len(lines) > 1 else ""
        heading(figure, f"common noise; shaded: {words}{strip}")
        handles, names = axes[0].get_legend_handles_labels()
        columns = max(1, 130 // (max(map(len, names)) + 8))
        figure.legend(handles, names, loc="outside lower left", ncols=columns, handlelength=3)
        return figure

    def sentence(self, result: Result) -> str:
        """Which line is best where, how much worse each is at worst, and the hue errors."""
        data, facts = result.data, result.facts
        lines, t = facts["lines"], data["timesteps"]
        if len(lines) == 1:
            mean = data["line_mean"][0]
            parts = [
                f"The x0-space error goes from {mean[0]:.3g} at t = {t[0]} to {mean[-1]:.3g} at t = {t[-1]}, and there "
                "is no other prediction to compare it with"
            ]
        else:
            parts = [_best(result), _worst(result)]
        parts.append(_hue_words(result))
        words = band_words(lines, f"{facts['images']} test images", "rows")
        return f"{'; '.join(parts)}; decided by {words}."


def lines_of_answers(trained: Sequence[TrainedDiffusion]) -> list[dict[str, Any]]:
    """A line for each group and answer: its name, and its rows, which are the answers of model after model."""
    words = [model.denoiser.prediction.head_names for model in trained]
    answers = [[*some, *([TOGETHER] if len(some) > 1 else [])] for some in words]
    first = np.cumsum([0, *map(len, answers)])
    return [
        {
            "name": ": ".join(word for word in (group["name"], answer) if word),
            "rows": [int(first[m]) + a for m in group["members"]],
        }
        for group in groups_of(trained)
        for a, answer in enumerate(answers[group["members"][0]])
    ]


def paired_hue(samples: Tensor, truths: Tensor) -> tuple[float, float]:
    """Mean hue error of (n,C,H,W) bytes to their truths, and its standard error over the samples."""
    errors = hue_error(samples, truths)
    return float(errors.mean()), float(errors.std() / math.sqrt(len(errors)))


def mean_hue(samples: Tensor, images: Tensor) -> tuple[float, float]:
    """|difference of the mean colours|_2 / sqrt(C) in grey levels, and its standard error.

    The hue error of two sets without pairs, (n,C,H,W) and (m,C,H,W) bytes; a tint that all samples share. The square of
    the difference of two means is larger than that of what they estimate by the sum of their variances, which is
    subtracted; where that leaves nothing, the error is 0, so that of equal colours it is still above 0 in the mean. The
    standard error is that of the difference in the direction in which it lies, without what is subtracted.
    """
    colours = [some.double().mean((2, 3)) for some in (samples, images)]
    shift = colours[0].mean(0) - colours[1].mean(0)
    size = shift.norm()
    direction = shift / size if size > 0 else torch.zeros_like(shift)
    noise = sum(float(some.var(0).sum()) / len(some) for some in colours)
    variance = sum(float((some @ direction).var()) / len(some) for some in colours)
    square = float(size) ** 2 - noise
    return (0.0 if square < 0 else math.sqrt(square / len(shift))), math.sqrt(variance / len(shift))


def _strip(axis: Axes, result: Result) -> None:
    """The colour of the best line along the axis, faint where it is not better than all others."""
    t, width = result.data["timesteps"], np.diff(result.data["timesteps"], append=result.data["timesteps"][-1] + 1)
    for start, size, best, sure in zip(t, width, result.data["best"], result.data["decided"], strict=True):
        axis.axvspan(
            start, start + size, ymax=0.04, color=line_style(best).color, alpha=1.0 if sure else 0.25, linewidth=0
        )


def _hue(axis: Axes, result: Result) -> None:
    """The hue error of each method's samples."""
    groups = result.facts["groups"]
    for row, group in enumerate(groups):
        middle, half = with_error(result.data["hue_error"], result.data["hue_standard_error"], group["members"])
        axis.errorbar(middle, row, xerr=half, color=line_style(row).color, marker="o", capsize=3)
    row_names(axis, [group["name"] or "samples" for group in groups])
    axis.set_xlim(left=0)
    axis.set_xlabel("hue error, grey levels")
    against = "to their truths" if result.facts["paired"] else "of the mean colour"
    axis.set_title(f"tint of {result.facts['samples']} samples, {against}")


def _best(result: Result) -> str:
    """The true image is best known by ..., and which lines cross where."""
    names, found = [line["name"] for line in result.facts["lines"]], result.facts["segments"]
    said = [f"{names[line]} at t = {a} to {b}" if a < b else f"{names[line]} at t = {a}" for a, b, line in found]
    share = 100 * float(result.data["decided"].mean())
    first = (
        f"The true image is best known by {joined(said, by=', ')} (one is "
        f"better than all others at {share:.0f} % of the timesteps)"
        if found
        else "No prediction knows the true image better than all others at any t"
    )
    crossed = [
        f"{names[i]} is better than {names[j]} up to t = {a} and worse from {b} on"
        for i, j, a, b in result.facts["crossings"]
    ]
    if not crossed:
        return f"{first}; no two of them cross"
    return f"{first}; {joined(crossed, MOST_CROSSINGS, by=', ')}"


def _worst(result: Result) -> str:
    pairs = zip(result.facts["lines"], result.data["worst_ratio"], result.data["worst_t"], strict=True)
    said = [
        f"{line['name']} {f'{ratio:.3g}' if ratio < 1000 else f'{ratio:,.0f}'} times at t = {t}"
        for line, ratio, t in pairs
    ]
    return f"the largest ratios to the least error are {joined(said, by=', ')}"


def _hue_words(result: Result) -> str:
    if "hue_error" not in result.data:
        return "the hue error is left out, because the images do not have three colours"
    said = []
    for group in result.facts["groups"]:
        mean, half = with_error(result.data["hue_error"], result.data["hue_standard_error"], group["members"])
        name = f"{group['name']} " if group["name"] else ""
        said.append(f"{name}{plus_minus(float(mean), float(half))}")
    return f"the hue error of the samples in grey levels is {joined(said, by=', ')}"
