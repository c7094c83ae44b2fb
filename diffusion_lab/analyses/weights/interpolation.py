"""The loss on the straight line through two sets of weights.

    theta = alpha theta_a + (1 - alpha) theta_b

("Why diffusion models are stable and how to make them faster", equation 2, figures 2 and 10), with theta_a the model
that is named first. The height above the straight line between the ends, and the barrier of Entezari et al., "The role
of permutation invariance in linear mode connectivity of neural networks", 2022, definition 2.1, are

    h(alpha) = L(theta) - (alpha L(theta_a) + (1 - alpha) L(theta_b)),     barrier = max over 0 <= alpha <= 1 of h

The barrier is 0 where the loss is convex on the way, and at least 0 because h is 0 at both ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from diffusion_lab.analyses.base import Analysis, Result, Work
from diffusion_lab.analyses.seeds import band_words, groups_of, with_error
from diffusion_lab.analyses.weights.weight_space import between, borrowed, write
from diffusion_lab.analyses.words import joined, plus_minus
from diffusion_lab.arguments import check_integer, check_number
from diffusion_lab.plotting import line_style, log_if_wide, panel_title, panels
from diffusion_lab.training import TrainedModel, labels
from diffusion_lab.training.trained_model import TIMESTEPS, check_timesteps

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST = 6  # panels of groups in the figure
COLUMNS = 3
HEIGHT = 3.4  # inches of a row


class Ends(NamedTuple):
    """The two ends of a line."""

    a: TrainedModel  # at alpha = 1
    b: TrainedModel  # at alpha = 0


class Interpolation(Analysis):
    """Losses on the line through two checkpoints of each run, or through two runs of one network.

    `data.npz` has alpha (A,), and of each pair p = 0, 1, .. the array losses_p (n,A,K) of n images (or latents) and
    K losses; mean (P,A) and standard_error (P,A) of their average over K; height (P,A) and height_standard_error (P,A)
    of h for that average; barrier, barrier_standard_error and barrier_at (P,), the alpha of the maximum.

    Whatever belongs to the loss and is not in `module` (the schedule; a discriminator) is that of theta_a. Buffers are
    interpolated for 0 <= alpha <= 1 and stay those of the nearer end beyond (`weight_space.between`).

    Differs from the paper: at single timesteps and on average, with a height and its standard error, because its figure
    names neither its timesteps nor what is a barrier.

    Args:
        timesteps: those at which a diffusion model is evaluated, on a scale of 1000 whatever T is.
        images: n, number of test images, evenly spread, at least 2.
        points: A, number of values of alpha; 0 and 1 are always among them.
        low: smallest alpha, at most 0.
        high: largest alpha, at least 1.
        batch_size: rows of one network call.

    Raises:
        ValueError: a number out of range; from `check`, models that are no pairs of one network.
    """

    models = TrainedModel

    def __init__(
        self,
        timesteps: Sequence[int] = TIMESTEPS,
        images: int = 32,
        points: int = 41,
        low: float = -0.5,
        high: float = 1.5,
        batch_size: int = 256,
    ) -> None:
        self.timesteps = check_timesteps(timesteps)
        self.images = check_integer("images", images, 2, "use 32; a standard error needs two")
        self.points = check_integer("points", points, 2, "use 41")
        self.low = check_number("low", low, "[]", -10, 0, "use -0.5")
        self.high = check_number("high", high, "[]", 1, 11, "use 1.5")
        self.batch_size = check_integer("batch_size", batch_size, 1, "use 256")

    def check(self, trained: Sequence[TrainedModel]) -> None:
        for model in trained:
            model.check_images(self.images)
        for a, b in pairs_of(trained):
            if _kind(a) != _kind(b):
                raise ValueError(
                    f"run={a.name},{b.name} must be of one network, prediction, schedule and test images, or they "
                    "have no common loss; use two checkpoints of a run, or two of its seeds"
                )

    def run(self, trained: Sequence[TrainedModel], work: Work) -> Result:
        pairs = pairs_of(trained)
        alpha = np.union1d(np.linspace(self.low, self.high, self.points).round(12), [0.0, 1.0])
        fixed_losses = [
            pair.a.fixed_set_loss(self.timesteps, self.images, work.normal, self.batch_size) for pair in pairs
        ]

        @torch.no_grad()
        def one(p: int, i: int) -> dict[str, np.ndarray]:
            module = pairs[p].a.module
            with borrowed(module) as a:
                write(module, between(module, a, pairs[p].b.module.state_dict(), float(alpha[i])))
                return {"losses": fixed_losses[p].rows().double().cpu().numpy()}

        pieces = work.nested("losses", one, len(pairs), len(alpha))
        found = [np.stack([piece["losses"] for piece in some], 1) for some in pieces]
        data = summary(alpha, [losses.mean(2) for losses in found])
        data |= {f"losses_{p}": losses for p, losses in enumerate(found)}
        groups = [{"name": group["name"], "pairs": group["members"]} for group in groups_of([pair.a for pair in pairs])]
        facts = {"images": len(found[0]), "groups": groups, "names": [loss.names for loss in fixed_losses]}
        return Result(data, facts | {"ends": [labels([pair.b, pair.a]) for pair in pairs]})

    def figure(self, result: Result) -> Figure:
        """Losses at each timestep and their average along the line, and what the average has above the chord."""
        groups = result.facts["groups"][:MOST]
        columns = min(len(groups) + 1, COLUMNS)
        rows = -(-(len(groups) + 1) // columns)
        figure, (*axes, last) = panels(columns, rows, HEIGHT, count=len(groups) + 1)
        for g, (axis, group) in enumerate(zip(axes, groups, strict=True)):
            _losses(axis, result, group)
            title = group["name"] or f"loss on the line, mean over {result.facts['images']} images"
            panel_title(axis, title, line_style(g).color if len(groups) > 1 else "#222222", columns)
        _heights(last, result, groups)
        return figure

    def sentence(self, result: Result) -> str:
        data, facts = result.data, result.facts
        said = joined([_group(data, facts, group) for group in facts["groups"]])
        over = band_words(facts["groups"], f"{facts['images']} images or latents", "pairs")
        text = f"On the straight line through the weights of two models {said}"
        return f"{text}; \N{PLUS-MINUS SIGN} is {over}." if "\N{PLUS-MINUS SIGN}" in text else f"{text}."


def pairs_of(trained: Sequence[TrainedModel]) -> list[Ends]:
    """The two checkpoints of each run, or the two runs with one each; the first of two is theta_a.

    Raises:
        ValueError: the models are neither.
    """
    runs: dict[str, list[TrainedModel]] = {}
    for model in trained:
        runs.setdefault(str(model.folder.resolve()), []).append(model)
    if all(len(models) == 2 for models in runs.values()):
        return [Ends(*models) for models in runs.values()]
    if len(trained) == 2:
        return [Ends(*trained)]
    seen = ",".join(f"{model.name}:{model.step}" for model in trained)
    raise ValueError(
        f"checkpoint={seen} must be two of each run, or one of two runs; use checkpoint=step-00001000,last weights=raw"
    )


def summary(alpha: np.ndarray, losses: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """Means, heights and barriers of P pairs, from their losses (n,A)."""
    first, last = (int(np.flatnonzero(alpha == end)[0]) for end in (0, 1))
    heights = [one - alpha * one[:, [last]] - (1 - alpha) * one[:, [first]] for one in losses]
    mean, height = (np.stack([one.mean(0) for one in some]) for some in (losses, heights))
    error, height_error = (
        np.stack([one.std(0, ddof=1) / len(one) ** 0.5 for one in some]) for some in (losses, heights)
    )
    height[:, [first, last]] = height_error[:, [first, last]] = 0
    top = first + height[:, first : last + 1].argmax(1)
    row = np.arange(len(top))
    return {
        "alpha": alpha,
        "mean": mean,
        "standard_error": error,
        "height": height,
        "height_standard_error": height_error,
        "barrier": height[row, top],
        "barrier_standard_error": height_error[row, top],
        "barrier_at": alpha[top],
    }


def _group(data: Any, facts: dict[str, Any], group: dict[str, Any]) -> str:
    """What is said of one group."""
    members, first = group["pairs"], group["pairs"][0]
    barrier, half = (float(v) for v in with_error(data["barrier"], data["barrier_standard_error"], members))
    ends = [float(data["mean"][members, np.flatnonzero(data["alpha"] == end)[0]].mean()) for end in (0, 1)]
    words = [f"{name} ({loss:.3g}" for name, loss in zip(facts["ends"][first], ends, strict=True)]
    of = f" of {group['name']}" if group["name"] else ""
    count = len(facts["names"][first])
    what = f"the loss{of}, averaged over {count} timesteps," if count > 1 else f"the {facts['names'][first][0]}{of}"
    curve = data["mean"][members].mean(0)
    low = f"; on the whole line it is lowest at alpha = {data['alpha'][curve.argmin()]:.2g} ({curve.min():.3g})"
    between_ends = f"between {words[0]} at alpha = 0) and {words[1]} at alpha = 1)"
    share = f", {barrier / max(ends):.2g} times the higher end" if min(ends) > 0 else ""
    if not barrier > half:
        return f"{what} meets no barrier {between_ends} (height {plus_minus(barrier, half)}), as inside one valley{low}"
    at = float(np.mean(data["barrier_at"][members]))
    return (
        f"{what} meets a barrier of {plus_minus(barrier, half)}{share}, at alpha = {at:.2g}, {between_ends}, which do "
        f"not lie in one convex valley{low}"
    )


def _kind(model: TrainedModel) -> tuple[object, ...]:
    """What the ends of a line share: shapes of the weights, other buffers such as the schedule's, and the images."""
    state = model.module.state_dict()
    shapes = tuple((name, tuple(value.shape)) for name, value in state.items())
    fixed = tuple(tuple(v.flatten().tolist()) for name, v in model.module.named_buffers() if name not in state)
    test = model.data.source.test()
    return type(model), shapes, fixed, str(model.config.get("prediction")), test.fingerprint()


def _losses(axis: Axes, result: Result, group: dict[str, Any]) -> None:
    import matplotlib

    data, facts, first = result.data, result.facts, group["pairs"][0]
    alpha, names = data["alpha"], facts["names"][first]
    curves = np.stack([data[f"losses_{p}"].mean(0) for p in group["pairs"]]).mean(0).T  # (K,A)
    colors = matplotlib.colormaps["viridis"](np.linspace(0, 0.9, len(names)))
    for curve, name, color in zip(curves, names, colors, strict=True):
        axis.plot(alpha, curve, color=color if len(names) > 1 else "#222222", linewidth=1.3, label=name)
    average = curves.mean(0)
    if len(names) > 1:
        axis.plot(alpha, average, color="#222222", linewidth=2.4, label="average")
    ends = [int(np.flatnonzero(alpha == end)[0]) for end in (0, 1)]
    axis.plot(alpha[ends], average[ends], color="#222222", linestyle="", marker="o", markersize=6)
    log_if_wide(axis, [curves])
    b, a = facts["ends"][first]
    axis.set_ylabel("loss")
    axis.set_xlabel(f"alpha\n0: {_short(b)}    1: {_short(a)}")
    axis.legend(fontsize=7.5, ncols=2 if len(names) > 4 else 1, loc="upper center", handlelength=1.5)
    low, high = axis.get_ylim()
    axis.set_ylim(low, high * (high / low) ** 0.45 if axis.get_yscale() == "log" else high + 0.35 * (high - low))


def _heights(axis: Axes, result: Result, groups: list[dict[str, Any]]) -> None:
    data = result.data
    inside = (data["alpha"] >= 0) & (data["alpha"] <= 1)
    alpha = data["alpha"][inside]
    for g, group in enumerate(groups):
        members = group["pairs"]
        mean, half = with_error(data["height"][:, inside], data["height_standard_error"][:, inside], members)
        color, dash = line_style(g)
        axis.plot(alpha, mean, color=color, linestyle=dash, label=group["name"])
        axis.fill_between(alpha, mean - half, mean + half, color=color, alpha=0.2, linewidth=0)
    axis.axhline(0, color="#222222", linewidth=1)
    axis.set_xlabel("alpha")
    axis.set_title("average loss \N{MINUS SIGN} line between its ends;\nabove 0: a barrier")
    words = band_words(groups, f"{result.facts['images']} images", "pairs")
    axis.annotate(
        f"shaded: {words}", (0, 0), xycoords="axes fraction", xytext=(4, 4), textcoords="offset points", size=7.5
    )
    if len(groups) > 1:
        axis.legend(fontsize=7.5)


def _short(name: str) -> str:
    """A name that fits below a panel."""
    return name if len(name) <= 24 else f"{name[:10]}\N{HORIZONTAL ELLIPSIS}{name[-12:]}"
