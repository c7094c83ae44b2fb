"""How beta1 of Adam changes its updates: cosine from step to step, norm, and noise scale (`updates.py`).

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

from diffusion_lab.analyses.base import Analysis, Result
from diffusion_lab.analyses.continued import Continued, draw
from diffusion_lab.analyses.seeds import groups_of, over_seeds
from diffusion_lab.analyses.updates import follow, noise_scale
from diffusion_lab.annealing import MDLRC, Annealing, ConstantBeta1
from diffusion_lab.arguments import check_flag, check_integer, check_number
from diffusion_lab.plotting import line_style, panels
from diffusion_lab.training import Trained

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from diffusion_lab.analyses.work import Work

BETA1 = "\N{GREEK SMALL LETTER BETA}1"
PANELS = (  # name of the mean, of its error, title
    ("mean_cosine", "cosine_error", "cosine of consecutive updates"),
    ("mean_norm", "norm_error", "norm of an update"),
    ("noise_scale", "noise_scale_error", "noise scale, tr Cov u / |E u|\N{SUPERSCRIPT TWO}"),
)


class OptimizerNoise(Analysis):
    """Cosine, norm and noise scale of updates for S settings of beta1.

    `data.npz` has gram (M,S,K,R,R) of M models and cosine (M,S,R,K-1), with beta1 (S,K) and lr_factor (S,K) of each
    step; and, over the steps after the warm-up, mean_cosine, mean_norm and noise_scale (M,S), with cosine_error and
    norm_error, standard errors over the R repeats, and noise_scale_error, that of the jackknife over them.

    Args:
        beta1: constant values in [0, 1).
        mdlrc: first beta1 of MDLRC in (0, 1); None for no MDLRC.
        floor: least beta1 of MDLRC, in [0, mdlrc).
        steps: K.
        warmup: first steps that are not counted, in which the momentum of the checkpoint, or of none, fades.
        batch_size: training images per step.
        repeats: R, at least 3.
        lr: learning rate, >= 0; None for that of the run.
        fresh: whether the optimizer starts without the checkpoint's state; averaged weights have none.

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
        self.annealings: dict[str, Annealing] = {
            f"\N{GREEK SMALL LETTER BETA}1 = {b:g}": ConstantBeta1(b) for b in beta1
        }
        if mdlrc is not None:
            self.annealings["MDLRC"] = MDLRC(steps, mdlrc, floor)
        if not self.annealings:
            raise ValueError("beta1=[] must have a value where mdlrc=null; use [0.9,0.4]")
        self.batch_size = check_integer("batch_size", batch_size, 1, "use 32")
        self.repeats = check_integer("repeats", repeats, 3, "use 4; the jackknife needs three")
        self.lr = None if lr is None else check_number("lr", lr, "[)", 0, float("inf"), "use null for the run's")
        self.fresh = check_flag("fresh", fresh, "use false for the state of the checkpoint")

    def check(self, trained: Sequence[Trained]) -> None:
        for model in trained:
            optimizer, _ = model.continuation.optimizer([torch.nn.Parameter(torch.zeros(1))], fresh=True)
            if "betas" not in optimizer.defaults:
                kind = type(optimizer).__name__
                raise ValueError(
                    f"run={model.name} must have trained with an optimizer with beta1, and did with {kind}; use another"
                )

    def run(self, trained: Sequence[Trained], work: Work) -> Result:
        settings = list(self.annealings.values())

        def one(m: int, s: int) -> Mapping[str, np.ndarray]:
            return self._updates(trained[m], settings[s], work)._asdict()

        places = [(m, s) for m in range(len(trained)) for s in range(len(settings))]
        pieces = work.map("updates", one, places)
        gram, cosine = (
            np.stack([piece[key] for piece in pieces]).reshape(len(trained), len(settings), *pieces[0][key].shape)
            for key in ("gram", "cosine")
        )
        hyper = np.array([[annealing(k) for k in range(self.steps)] for annealing in settings], dtype=float)
        data = {"gram": gram, "cosine": cosine, "lr_factor": hyper[..., 0], "beta1": hyper[..., 1]}
        data |= summary(gram[:, :, self.warmup :], cosine[..., self.warmup :])
        return Result(data, self._facts(trained, data))

    def _updates(self, model: Trained, annealing: Annealing, work: Work) -> Any:
        copies = [Continued(model, self.lr, self.fresh) for _ in range(self.repeats)]
        base = copies[0].lr

        def update(r: int, k: int) -> None:
            factor, beta1 = annealing(k)
            for group in copies[r].optimizer.param_groups:
                group["lr"], group["betas"] = base * factor, (beta1, group["betas"][1])
            copies[r].step(draw(model, work, self.batch_size, (0, model.denoiser.num_timesteps), r, k))

        return follow([copied.parameters for copied in copies], self.steps, update)

    def _facts(self, trained: Sequence[Trained], data: Mapping[str, np.ndarray]) -> dict[str, Any]:
        groups = groups_of(trained)
        return {
            "settings": list(self.annealings),
            "steps": self.steps,
            "warmup": self.warmup,
            "batch_size": self.batch_size,
            "repeats": self.repeats,
            "optimizers": [Continued(trained[group.members[0]], self.lr, self.fresh).words for group in groups],
            "groups": [_of_group(group.name, group.members, data) for group in groups],
        }

    def figure(self, result: Result) -> Figure:
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
            f"{facts['steps'] - facts['warmup']} updates after {facts['warmup']}, batches of {facts['batch_size']}, "
            f"{facts['repeats']} repeats; bars: two standard errors, of several seeds their 95 % interval",
            size=9.5,
        )
        return figure

    def sentence(self, result: Result) -> str:
        facts = result.facts
        said = [self._said(facts["settings"], *pair) for pair in zip(facts["groups"], facts["optimizers"], strict=True)]
        text = "; ".join(said[:6]) + ("; and so on" if len(said) > 6 else "")
        return f"{text[0].upper()}{text[1:]}."

    def _said(self, settings: Sequence[str], group: Mapping[str, Any], optimizer: str) -> str:
        def each(key: str, unit: str = "") -> str:
            pairs = zip(settings, group[key], group[f"{key}_half"], strict=True)
            return ", ".join(f"{name} {_number(value, half)}{unit}" for name, value, half in pairs)

        name = f"{group['name']}: " if group["name"] else ""
        return (
            f"{name}the cosine of consecutive updates is {each('mean_cosine')}, where white noise alone would give "
            f"{BETA1}; the noise scale of an update, its variance over its squared mean, is "
            f"{each('noise_scale')} ({optimizer})"
        )


def summary(gram: np.ndarray, cosine: np.ndarray) -> dict[str, np.ndarray]:
    """Means (M,S) over steps and repeats, and their errors, of gram (M,S,K,R,R) and cosine (M,S,R,K')."""
    repeats = gram.shape[-1]
    by_repeat = cosine.mean(3)
    norm = np.sqrt(np.diagonal(gram, axis1=3, axis2=4)).mean(2)  # (M,S,R)
    scales = np.array([[noise_scale(one) for one in model] for model in gram])  # (M,S,2)
    return {
        "mean_cosine": by_repeat.mean(2),
        "cosine_error": by_repeat.std(2, ddof=1) / repeats**0.5,
        "mean_norm": norm.mean(2),
        "norm_error": norm.std(2, ddof=1) / repeats**0.5,
        "noise_scale": scales[..., 0],
        "noise_scale_error": scales[..., 1],
    }


def _of_group(name: str, members: list[int], data: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Means over seeds with half the width of their interval; of a single seed two standard errors."""
    group: dict[str, Any] = {"name": name, "members": members}
    for key, error, _ in PANELS:
        mean, half = over_seeds(data[key], members)
        half = 2 * data[error][members[0]] if len(members) == 1 else half
        group |= {key: _plain(mean), f"{key}_half": _plain(half)}
    return group


def _white_noise(axes: Sequence[Any], result: Result, places: np.ndarray) -> None:
    """What white noise alone would give: beta1, and through the first point what is proportional to the formulas."""
    beta1, factor = result.data["beta1"].mean(1), result.data["lr_factor"].mean(1)
    share = (1 - beta1) / (1 + beta1)
    first = {key: result.facts["groups"][0][key][0] or np.nan for key, _, _ in PANELS}
    expected = (
        beta1,
        first["mean_norm"] * factor * np.sqrt(share / share[0]) / factor[0],
        first["noise_scale"] * share / share[0],
    )
    for axis, values in zip(axes, expected, strict=True):
        axis.plot(places, values, color="#222222", linestyle=":", marker="_", label="white noise alone", zorder=1)


def _plain(values: np.ndarray) -> list[float | None]:
    return [float(value) if np.isfinite(value) else None for value in values]


def _number(value: float | None, half: float | None) -> str:
    if value is None:
        return "not measurable"
    return f"{value:.3g}" + (f" \N{PLUS-MINUS SIGN} {half:.2g}" if half is not None else "")
