"""What training inside one window of timesteps does to the loss in every other window.

The timesteps 0..T-1 are cut into W windows. From one checkpoint, K steps at timesteps inside window w alone give

    D_wv = mean over t in window v of (L_t after - L_t before)

with the native loss L_t of the same test images and noise, for every v. With the share s_v of window v among all
timesteps, the mean loss over all t changes by s_w D_ww inside the window and by sum_{v != w} s_v D_wv outside. If the
second is larger than what the first decreases, what is learned at some timesteps costs more at the others.

References: Kim et al., "Adaptive Non-uniform Timestep Sampling for Accelerating Diffusion Model Training", CVPR 2025,
Fig. 4; Xie & Agam, "Rethinking Timesteps Samplers and Prediction Types", Fig. 2, for windows of equal loss. Neither
states K, the optimizer or the learning rate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from diffusion_lab.analyses.base import Analysis, Result, Work
from diffusion_lab.analyses.images import native_losses
from diffusion_lab.analyses.losses.per_timestep import PerTimestep
from diffusion_lab.analyses.seeds import band_words, groups_of, with_error
from diffusion_lab.analyses.weights.continued_training import Continued, check_rate, draw
from diffusion_lab.analyses.words import joined
from diffusion_lab.arguments import check_choice, check_flag, check_integer, check_number
from diffusion_lab.plotting import heading, line_style, panels, timestep_axis
from diffusion_lab.timesteps import equal_sum_slots
from diffusion_lab.training import TrainedDiffusion

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from diffusion_lab.diffusion import Denoiser

LINEAR = 1.0  # percent, below which the scales of the figure are linear
KINDS = {"width": "equal width", "slots": "equal loss"}
SLOT_IMAGES = 8  # test images of the loss curve that defines slots


class Interdependence(Analysis):
    """The W x W matrix of changes, with standard errors.

    `data.npz` has edges (W+1,), window v is {e_v .. e_{v+1} - 1}; timesteps (P,) that are evaluated; before (M,P) the
    losses of M models, means over the images; change (M,R,W,P) of R repeats, row w trained in window w; matrix
    (M,W,W), D; its standard errors draws_error over the repeats, which differ in the training images, timesteps and
    noise, image_error over the test images, and standard_error, the root of the sum of their squares; relative
    (M,W,W) and relative_error, D and its error over the loss before in the window; inside, outside and net (M,W), the
    changes of the mean loss over all t, with net_error (M,W).

    Args:
        windows: width for windows of equal width, or slots for windows of equal loss by the mean curve of the models.
        num_windows: W, at least 2.
        steps: K, optimizer steps inside each window.
        batch_size: training images per step.
        repeats: R, number of repeats with other draws, at least 2.
        lr: learning rate, >= 0; None for that of the run.
        fresh: whether the optimizer starts without the checkpoint's state. Adam's first steps without one are of size
            lr in each weight whatever the gradient, which changes untrained windows more. Averaged weights
            (weights=ema) have no state.
        images: number of test images, evenly spread, at least 2.
        points: largest number of evaluated timesteps in a window, evenly spread.
        shown: windows, counted from 1, of which the figure shows the change at single timesteps.

    Raises:
        ValueError: a number out of range; from `check`, models whose losses cannot be compared.
    """

    def __init__(
        self,
        windows: str = "width",
        num_windows: int = 10,
        steps: int = 20,
        batch_size: int = 32,
        repeats: int = 3,
        lr: float | None = None,
        fresh: bool = False,
        images: int = 24,
        points: int = 8,
        shown: Sequence[int] = (3, 5, 7, 9),
    ) -> None:
        self.windows = check_choice("windows", windows, tuple(KINDS), "use width")
        self.num_windows = check_integer("num_windows", num_windows, 2, "use 10")
        self.steps = check_integer("steps", steps, 1, "use 20")
        self.batch_size = check_integer("batch_size", batch_size, 1, "use 32")
        self.repeats = check_integer("repeats", repeats, 2, "use 3; a standard error needs two")
        self.lr = None if lr is None else check_number("lr", lr, "[)", 0, float("inf"), "use null for the run's")
        self.fresh = check_flag("fresh", fresh, "use false for the state of the checkpoint")
        self.images = check_integer("images", images, 2, "use 24; a standard error needs two")
        self.points = check_integer("points", points, 1, "use 8")
        self.shown = [check_integer("shown", w, 1, "use [3,5,7,9]") for w in shown]

    def check(self, trained: Sequence[TrainedDiffusion]) -> None:
        PerTimestep(self.images).check(trained)
        total = trained[0].denoiser.num_timesteps
        if self.num_windows > total:
            raise ValueError(f"analysis.num_windows={self.num_windows} must be at most the {total} timesteps; use 10")
        if beyond := [w for w in self.shown if w > self.num_windows]:
            raise ValueError(
                f"analysis.shown={self.shown} must be windows of 1 to {self.num_windows}; leave {beyond[0]} out"
            )
        check_rate(trained, self.lr, self.fresh)

    def run(self, trained: Sequence[TrainedDiffusion], work: Work) -> Result:
        edges = self._edges(trained, work)
        t, window = self._points(edges)
        drawn = [model.test_images(self.images) for model in trained]

        def losses(m: int, denoiser: Denoiser) -> np.ndarray:
            return native_losses(denoiser.eval(), drawn[m], t, len(t), work)

        def before(m: int) -> Mapping[str, np.ndarray]:
            return {"loss": losses(m, trained[m].denoiser)}

        def one(m: int, r: int, w: int) -> Mapping[str, np.ndarray]:
            copied = Continued(trained[m], self.lr, self.fresh)
            for k in range(self.steps):
                copied.step(draw(trained[m], work, self.batch_size, (int(edges[w]), int(edges[w + 1])), r, w, k))
            return {"change": losses(m, copied.denoiser) - first[m]}

        first = work.stacked("before", before, len(trained))["loss"]  # (M,n,P)
        change = work.stacked("windows", one, len(trained), self.repeats, self.num_windows)["change"]  # (M,R,W,n,P)
        data = {"edges": edges.numpy(), "timesteps": t.numpy()} | summary(first, change, edges.numpy(), window)
        groups = groups_of(trained)
        facts = {
            "windows": KINDS[self.windows],
            "num_windows": self.num_windows,
            "steps": self.steps,
            "batch_size": self.batch_size,
            "repeats": self.repeats,
            "images": len(trained[0].test_images(self.images)[0]),
            "shown": self.shown,
            "optimizers": [Continued(trained[group["members"][0]], self.lr, self.fresh).words for group in groups],
            "groups": [_of_group(group, data) for group in groups],
        }
        return Result(data, facts)

    def _edges(self, trained: Sequence[TrainedDiffusion], work: Work) -> Tensor:
        """(W+1,) int64."""
        if self.windows == "width":
            return equal_sum_slots(torch.ones(trained[0].denoiser.num_timesteps), self.num_windows)
        curves = PerTimestep(SLOT_IMAGES).measure(trained, work)["mean"]  # (M,T,heads)
        return equal_sum_slots(torch.from_numpy(curves.mean((0, 2))), self.num_windows)

    def _points(self, edges: Tensor) -> tuple[Tensor, np.ndarray]:
        """Evaluated timesteps (P,), and the window of each (P,)."""
        pairs = zip(edges.tolist(), edges[1:].tolist(), strict=False)
        points = [np.unique(np.linspace(a, b - 1, self.points).round().astype(int)) for a, b in pairs]
        return torch.from_numpy(np.concatenate(points)), np.repeat(np.arange(len(points)), list(map(len, points)))

    def figure(self, result: Result) -> Figure:
        """A row for each group: the matrix, and the change at single timesteps of some windows."""
        facts = result.facts
        figure, axes = panels(2, len(facts["groups"]), height=4.4)
        largest = 100 * float(np.abs(result.data["relative"]).max())
        for i, group in enumerate(facts["groups"]):
            image = _matrix(axes[2 * i], result, group, max(largest, 2 * LINEAR))
            bar = figure.colorbar(image, ax=axes[2 * i], shrink=0.8, format=_signed)
            bar.set_label("change of the loss, %")
            _curves(axes[2 * i + 1], result, group)
        bands = band_words(facts["groups"], "the repeats")
        heading(
            figure,
            f"{facts['steps']} steps of {facts['batch_size']} images inside one of {facts['num_windows']} windows of "
            f"{facts['windows']}; {facts['images']} test images, {facts['repeats']} repeats; shaded: {bands}",
        )
        return figure

    def sentence(self, result: Result) -> str:
        facts = result.facts
        pairs = zip(facts["groups"], facts["optimizers"], strict=True)
        said = joined([self._said(*pair, facts["num_windows"]) for pair in pairs])
        return (
            f"After {facts['steps']} steps inside one of {facts['num_windows']} windows of {facts['windows']}, {said}."
        )

    def _said(self, group: Mapping[str, Any], optimizer: str, windows: int) -> str:
        name = f"{group['name']}: " if group["name"] else ""
        return (
            f"{name}the loss changes by {_percent(group['inside'])} in the trained window and by "
            f"{_percent(group['outside'])} in the others (means over the windows); its mean over all timesteps rises, "
            f"so the increase outside exceeds the decrease inside, for {group['harmful']} of the {windows} windows, "
            f"falls for {group['useful']} and is within {group['uncertainty']} for {group['open']} ({optimizer})"
        )


def summary(before: np.ndarray, change: np.ndarray, edges: np.ndarray, window: np.ndarray) -> dict[str, np.ndarray]:
    """The arrays of `data.npz` from losses (M,n,P) before and changes (M,R,W,n,P)."""
    count, repeats, images = len(edges) - 1, change.shape[1], change.shape[3]
    mean_in = np.stack([(window == v) / (window == v).sum() for v in range(count)], 1)  # (P,W)
    own, share = np.eye(count), np.diff(edges) / edges[-1]
    by_window = change @ mean_in  # (M,R,W,n,W)
    matrix = by_window.mean((1, 3))
    loss = (before @ mean_in).mean(1)[:, None]  # (M,1,W)
    errors = _errors(by_window.mean(3), by_window.mean(1), repeats, images)
    net = by_window @ share  # (M,R,W,n)
    inside = np.einsum("mwv,wv,v->mw", matrix, own, share)
    return {
        "before": before.mean(1),
        "change": change.mean(3),
        "matrix": matrix,
        "draws_error": errors[0],
        "image_error": errors[1],
        "standard_error": errors[2],
        "relative": matrix / loss,
        "relative_error": errors[2] / loss,
        "inside": inside,
        "outside": matrix @ share - inside,
        "net": net.mean((1, 3)),
        "net_error": _errors(net.mean(3), net.mean(1), repeats, images)[2],
    }


def _errors(by_repeat: np.ndarray, by_image: np.ndarray, repeats: int, images: int) -> tuple[np.ndarray, ...]:
    """Standard errors over repeats (M,R,W,...), over images (M,W,n,...), and of both."""
    draws = by_repeat.std(1, ddof=1) / repeats**0.5
    image = by_image.std(2, ddof=1) / images**0.5
    return draws, image, np.hypot(draws, image)


def _of_group(group: dict[str, Any], data: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Means over seeds; windows whose net change is more than its uncertainty above or below zero are counted."""
    own = np.eye(len(data["edges"]) - 1, dtype=bool)
    net, half = with_error(data["net"], data["net_error"], group["members"])
    one_seed = len(group["members"]) == 1
    uncertainty = "two standard errors over draws and images" if one_seed else "the 95 % interval over the seeds"
    harmful, useful = int((net > half).sum()), int((net < -half).sum())
    relative = data["relative"][group["members"]].mean(0)
    numbers = {"inside": float(relative[own].mean()), "outside": float(relative[~own].mean())}
    counts = {"harmful": harmful, "useful": useful, "open": len(net) - harmful - useful}
    return group | {"uncertainty": uncertainty} | numbers | counts


def _percent(value: float) -> str:
    return f"{100 * value:+{',.0f' if abs(value) >= 1 else '.2g'}} %".replace("-", "\N{MINUS SIGN}")


def _matrix(axis: Axes, result: Result, group: dict[str, Any], largest: float) -> Any:
    """Rows: the trained window; columns: the evaluated one."""
    from matplotlib.colors import SymLogNorm

    percent = 100 * result.data["relative"][group["members"]].mean(0)
    edges = result.data["edges"]
    names = [f"{a}\N{EN DASH}{b - 1}" if b - a > 1 else str(a) for a, b in zip(edges, edges[1:], strict=False)]
    image = axis.imshow(percent, cmap="RdBu_r", norm=SymLogNorm(LINEAR, vmin=-largest, vmax=largest, base=10))
    shade = np.asarray(image.norm(percent))
    size = (7.5 if largest < 100 else 6.5) if len(names) <= 10 else 5
    for (w, v), value in np.ndenumerate(percent) if len(names) <= 20 else ():
        dark = not 0.15 < shade[w, v] < 0.85
        axis.text(v, w, _short(value), ha="center", va="center", size=size, color="white" if dark else "black")
    places = range(len(names))
    axis.set_xticks(places, names, rotation=60, ha="right", size=size)
    axis.set_yticks(places, names, size=size)
    axis.grid(False)
    axis.set_xlabel("evaluated timesteps")
    axis.set_ylabel("trained timesteps")
    name = f"{group['name']}: " if group["name"] else ""
    axis.set_title(f"{name}change of the loss in %; diagonal: the trained window")
    return image


def _curves(axis: Axes, result: Result, group: dict[str, Any]) -> None:
    """Change over the loss before at each evaluated timestep, with its band."""
    data, edges = result.data, result.data["edges"]
    change = 100 * data["change"] / data["before"][:, None, None]  # (M,R,W,P)
    error = change.std(1, ddof=1) / change.shape[1] ** 0.5
    mean, half = with_error(change.mean(1), error, group["members"])
    for i, w in enumerate(result.facts["shown"]):
        style, t = line_style(i), data["timesteps"]
        label = f"trained in window {w}, t = {edges[w - 1]} to {edges[w] - 1}"
        axis.plot(t, mean[w - 1], color=style.color, linestyle=style.dash, label=label)
        low, high = mean[w - 1] - half[w - 1], mean[w - 1] + half[w - 1]
        axis.fill_between(t, low, high, color=style.color, alpha=0.12, linewidth=0)
        inside = (t >= edges[w - 1]) & (t < edges[w])
        axis.plot(t[inside], mean[w - 1][inside], color=style.color, linewidth=5, alpha=0.5, solid_capstyle="butt")
    axis.axhline(0, color="#222222", linewidth=0.8)
    axis.set_yscale("symlog", linthresh=LINEAR)
    axis.yaxis.set_major_formatter(_signed)
    if edges[1] - edges[0] < edges[-1] / 50:
        timestep_axis(axis, 0, edges[-1])
    axis.set_xlim(0, edges[-1])
    axis.set_xlabel("timestep t")
    axis.set_title("change of the loss in % at t; thick: the trained window")
    axis.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2)


def _signed(value: float, _: object) -> str:
    return f"{value:+g}".replace("-", "\N{MINUS SIGN}") if value else "0"


def _short(value: float) -> str:
    text = f"{value:+.1f}" if abs(value) < 9.95 else f"{value:+.0f}" if abs(value) < 999.5 else f"{value / 1000:+.1f}k"
    return text.replace("-", "\N{MINUS SIGN}")
