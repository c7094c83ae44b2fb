"""How beta1 of Adam changes its updates: cosine from step to step, norm, and noise scale (`continued_training.py`).

From one checkpoint, K steps are taken with each beta1 and with MDLRC, whose beta1 falls from its first value to its
floor within the K steps while the learning rate falls with it (equations 9 and 10). Everything else is the same, also
the images, timesteps and noises of each repeat. The paper argues that a smaller beta1 lets the noise of the newest
gradient into the update, which the average of the weights feels, and that MDLRC compensates for it with the learning
rate; it measures neither.

Under white noise alone the cosine would be beta1, the norm proportional to sqrt((1 - beta1)/(1 + beta1)), and the noise
scale proportional to (1 - beta1)/(1 + beta1).

Reference: "Why diffusion models are stable and how to make them faster", section 4.3 and Appendix C.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from diffusion_lab.analyses.base import Analysis, Result, Work
from diffusion_lab.analyses.seeds import band_words, groups_of, with_error
from diffusion_lab.analyses.weights.continued_training import Continued, Updates, check_rate, draw, follow, noise_scale
from diffusion_lab.analyses.words import capitalised, joined, plus_minus
from diffusion_lab.annealing import MDLRC, Annealing, ConstantBeta1
from diffusion_lab.arguments import check_flag, check_integer, check_number
from diffusion_lab.optimizers import set_betas
from diffusion_lab.plotting import heading, line_style, panels
from diffusion_lab.training import TrainedDiffusion

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BETA1 = "\N{GREEK SMALL LETTER BETA}1"
PANELS = (  # name of the mean, title
    ("mean_cosine", "cosine of consecutive updates"),
    ("mean_norm", "norm of an update"),
    ("noise_scale", "noise scale, tr Cov u / |E u|\N{SUPERSCRIPT TWO}"),
)


class OptimizerNoise(Analysis):
    """Cosine, norm and noise scale of updates for S settings of beta1.

    `data.npz` has norm (M,S,R,K) and cosine (M,S,R,K-1) of M models, and gram (M,S,R,R), the products of the mean
    updates of the repeats; beta1 (S,K) and lr_factor (S,K) of each step; and, over the steps after the warm-up,
    mean_cosine, mean_norm and noise_scale (M,S), with cosine_error and norm_error, standard errors over the R repeats,
    and noise_scale_error, that of the jackknife over them.

    Args:
        beta1: constant values in [0, 1).
        mdlrc: first beta1 of MDLRC, which runs over the steps of this analysis, in (0, 1); None for no MDLRC.
        floor: least beta1 of MDLRC, in [0, mdlrc).
        steps: K, number of updates with each setting.
        warmup: number of first steps that are not counted, in which the momentum of the checkpoint, or of none, fades.
        batch_size: training images per step.
        repeats: R, number of repeats with other draws, the same for each setting, at least 3.
        lr: learning rate, >= 0; None for that of the run.
        fresh: whether the optimizer starts without the checkpoint's state; averaged weights (weights=ema) have none.

    Raises:
        ValueError: a number out of range; from `check`, a run whose optimizer has no beta1.
    """

    def __init__(
        self,
        beta1: Sequence[float] = (0.9, 0.8, 0.6, 0.4),
        mdlrc: float | None = 0.8,
        floor: float = 0.4,
        steps: int = 60,
        warmup: int = 20,
        batch_size: int = 32,
        repeats: int = 4,
        lr: float | None = None,
        fresh: bool = False,
    ) -> None:
        self.steps = check_integer("steps", steps, 2, "use 60")
        self.warmup = check_integer("warmup", warmup, 0, "use 20, below steps - 1", maximum=steps - 2)
        self.annealings: dict[str, Annealing] = {f"{BETA1} = {b:g}": ConstantBeta1(b) for b in beta1}
        if mdlrc is not None:
            self.annealings["MDLRC"] = MDLRC(steps, mdlrc, floor)
        if not self.annealings:
            raise ValueError("beta1=[] must have a value where mdlrc=null; use [0.9,0.4]")
        self.batch_size = check_integer("batch_size", batch_size, 1, "use 32")
        self.repeats = check_integer("repeats", repeats, 3, "use 4; the jackknife needs three")
        self.lr = None if lr is None else check_number("lr", lr, "[)", 0, float("inf"), "use null for the run's")
        self.fresh = check_flag("fresh", fresh, "use false for the state of the checkpoint")

    def check(self, trained: Sequence[TrainedDiffusion]) -> None:
        for model in trained:
            optimizer, _ = model.continuation.optimizer([torch.nn.Parameter(torch.zeros(1))], fresh=True)
            if "betas" not in optimizer.defaults:
                kind = type(optimizer).__name__
                raise ValueError(
                    f"run={model.name} must have trained with an optimizer with beta1, and did with {kind}; use another"
                )
        check_rate(trained, self.lr, self.fresh)

    def run(self, trained: Sequence[TrainedDiffusion], work: Work) -> Result:
        settings = list(self.annealings.values())

        def one(m: int, s: int) -> Mapping[str, np.ndarray]:
            return self._updates(trained[m], settings[s], work)._asdict()

        data = work.stacked("updates", one, len(trained), len(settings))
        hyper = np.array([[annealing(k)[:2] for k in range(self.steps)] for annealing in settings], dtype=float)
        data |= {"lr_factor": hyper[..., 0], "beta1": hyper[..., 1]}
        data |= summary(data["norm"][..., self.warmup :], data["cosine"][..., self.warmup :], data["gram"])
        groups = groups_of(trained)
        facts = {
            "settings": list(self.annealings),
            "steps": self.steps,
            "warmup": self.warmup,
            "batch_size": self.batch_size,
            "repeats": self.repeats,
            "optimizers": [Continued(trained[group["members"][0]], self.lr, self.fresh).words for group in groups],
            "groups": groups,
        }
        return Result(data, facts)

    def _updates(self, model: TrainedDiffusion, annealing: Annealing, work: Work) -> Updates:
        copies = [Continued(model, self.lr, self.fresh) for _ in range(self.repeats)]
        base = copies[0].lr

        def update(r: int, k: int) -> None:
            factor, beta1, _ = annealing(k)
            for group in copies[r].optimizer.param_groups:
                group["lr"] = base * factor
                set_betas(group, beta1)
            copies[r].step(draw(model, work, self.batch_size, (0, model.denoiser.num_timesteps), r, k))

        return follow([copied.parameters for copied in copies], self.steps, update, self.warmup)

    def figure(self, result: Result) -> Figure:
        """A panel for each quantity, with a point for each setting and group."""
        facts = result.facts
        figure, axes = panels(len(PANELS), height=3.6)
        places = np.arange(len(facts["settings"]))
        for g, group in enumerate(facts["groups"]):
            style = line_style(g)
            for axis, (key, _) in zip(axes, PANELS, strict=True):
                values, halves = _of_group(result, group, key)
                drawn = {"color": style.color, "capsize": 3, "label": group["name"] or "this run"}
                axis.errorbar(places + 0.08 * g, values, halves, marker="o", linestyle="", **drawn)
        _white_noise(axes, result, places)
        for axis, (_, title) in zip(axes, PANELS, strict=True):
            axis.set_xticks(places, facts["settings"])
            axis.set_title(title)
            axis.set_ylim(bottom=min(0.0, axis.get_ylim()[0]))
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower left", ncols=4)
        heading(
            figure,
            f"{facts['steps'] - facts['warmup']} updates after {facts['warmup']} that are not counted, batches of "
            f"{facts['batch_size']}, {facts['repeats']} repeats; bars: {_error_words(result)}",
        )
        return figure

    def sentence(self, result: Result) -> str:
        facts = result.facts
        pairs = zip(facts["groups"], facts["optimizers"], strict=True)
        text = joined([self._said(result, *pair) for pair in pairs])
        return f"{capitalised(text, facts['groups'])}; \N{PLUS-MINUS SIGN} is {_error_words(result)}."

    def _said(self, result: Result, group: Mapping[str, Any], optimizer: str) -> str:
        def each(key: str) -> str:
            values = zip(result.facts["settings"], *_of_group(result, group, key), strict=True)
            return ", ".join(
                f"{plus_minus(float(value), float(half), 'not measurable')} for {name}" for name, value, half in values
            )

        name = f"{group['name']}: " if group["name"] else ""
        return (
            f"{name}the cosine of consecutive updates is {each('mean_cosine')}, "
            f"{self._compared(*_of_group(result, group, 'mean_cosine'))}; the noise scale of an update, its variance "
            f"over its squared mean, is {each('noise_scale')} ({optimizer})"
        )

    def _compared(self, cosine: np.ndarray, halves: np.ndarray) -> str:
        """The cosines beside those of white noise, the mean beta1 of the counted steps."""
        counted, annealings = range(self.warmup, self.steps), self.annealings.values()
        noise = [float(np.mean([annealing(k).beta1 or 0.0 for k in counted])) for annealing in annealings]
        known = [
            (value - beta1, half)
            for value, half, beta1 in zip(cosine, halves, noise, strict=True)
            if np.isfinite(value) and np.isfinite(half)
        ]
        text = f"where white noise alone would give {BETA1}"
        if known and all(gap + half < 0 for gap, half in known):
            return f"{text}, so consecutive gradients oppose one another more than by chance"
        if known and all(gap > half for gap, half in known):
            return f"{text}, so consecutive gradients agree more than by chance"
        return text


def summary(norm: np.ndarray, cosine: np.ndarray, gram: np.ndarray) -> dict[str, np.ndarray]:
    """Means (M,S) over steps and repeats, and errors, of norm (M,S,R,L), cosine (M,S,R,L-1) and gram (M,S,R,R)."""
    root = gram.shape[-1] ** 0.5
    by_repeat, sizes = cosine.mean(3), norm.mean(3)
    pairs = [[noise_scale(*one) for one in zip(*model, strict=True)] for model in zip(norm, gram, strict=True)]
    scales = np.array(pairs)  # (M,S,2)
    return {
        "mean_cosine": by_repeat.mean(2),
        "cosine_error": by_repeat.std(2, ddof=1) / root,
        "mean_norm": sizes.mean(2),
        "norm_error": sizes.std(2, ddof=1) / root,
        "noise_scale": scales[..., 0],
        "noise_scale_error": scales[..., 1],
    }


def _of_group(result: Result, group: Mapping[str, Any], key: str) -> tuple[np.ndarray, np.ndarray]:
    """(S,): the mean of a group's models, NaN where it is not finite, and half the width of its interval."""
    error = f"{key.removeprefix('mean_')}_error"  # of mean_cosine: cosine_error
    mean, half = with_error(result.data[key], result.data[error], group["members"])
    return np.where(np.isfinite(mean), mean, np.nan), half


def _error_words(result: Result) -> str:
    """What the bars are, and the numbers after the sentence's plus-minus signs."""
    return band_words(result.facts["groups"], "the repeats")


def _white_noise(axes: Sequence[Any], result: Result, places: np.ndarray) -> None:
    """What white noise alone would give: beta1, and through the first point what is proportional to the formulas."""
    beta1, factor = (result.data[key][:, result.facts["warmup"] :].mean(1) for key in ("beta1", "lr_factor"))
    share = (1 - beta1) / (1 + beta1)
    first = {key: _of_group(result, result.facts["groups"][0], key)[0][0] for key, _ in PANELS}
    expected = (
        beta1,
        first["mean_norm"] * factor * np.sqrt(share / share[0]) / factor[0],
        first["noise_scale"] * share / share[0],
    )
    for axis, values in zip(axes, expected, strict=True):
        drawn = {"linestyle": "", "marker": "_", "markersize": 26, "color": "#222222", "zorder": 1}
        axis.plot(places, values, label="white noise alone; norm and scale through the first point", **drawn)
