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

from diffusion_lab.analyses.base import Analysis, Result
from diffusion_lab.analyses.continued import Continued, draw
from diffusion_lab.analyses.interdependence_figure import draw_matrices
from diffusion_lab.analyses.per_timestep import PerTimestep
from diffusion_lab.analyses.seeds import Group, groups_of, with_error
from diffusion_lab.analyses.words import joined
from diffusion_lab.arguments import check_choice, check_flag, check_integer, check_number
from diffusion_lab.timesteps import equal_sum_slots
from diffusion_lab.training import Trained

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from diffusion_lab.analyses.work import Work
    from diffusion_lab.diffusion import Denoiser

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
        windows: "width" or "slots", of equal loss by the mean curve of the models.
        num_windows: W, at least 2.
        steps: K.
        batch_size: training images per step.
        repeats: R, at least 2.
        lr: learning rate, >= 0; None for that of the run.
        fresh: whether the optimizer starts without the checkpoint's state. Adam's first steps without one are of size
            lr in each weight whatever the gradient, which changes untrained windows more. Averaged weights have no
            state.
        images: number of test images, at least 2.
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

    def check(self, trained: Sequence[Trained]) -> None:
        PerTimestep(self.images).check(trained)
        total = trained[0].denoiser.num_timesteps
        if self.num_windows > total:
            raise ValueError(f"analysis.num_windows={self.num_windows} must be at most the {total} timesteps; use 10")
        if beyond := [w for w in self.shown if w > self.num_windows]:
            raise ValueError(
                f"analysis.shown={self.shown} must be windows of 1 to {self.num_windows}; leave {beyond[0]} out"
            )

    def run(self, trained: Sequence[Trained], work: Work) -> Result:
        edges = self._edges(trained, work)
        t, window = self._points(edges)
        drawn = [model.test_images(self.images) for model in trained]
        noise = [torch.stack([work.normal(tuple(x0.shape[1:]), int(i)) for i in ids]) for ids, x0, _ in drawn]

        def losses(m: int, denoiser: Denoiser) -> np.ndarray:
            return _losses(denoiser.eval(), drawn[m][1], noise[m], t.to(work.device), drawn[m][2])

        def before(m: int) -> Mapping[str, np.ndarray]:
            return {"loss": losses(m, trained[m].denoiser)}

        def one(m: int, r: int, w: int) -> Mapping[str, np.ndarray]:
            copied = Continued(trained[m], self.lr, self.fresh)
            for k in range(self.steps):
                copied.step(draw(trained[m], work, self.batch_size, (int(edges[w]), int(edges[w + 1])), r, w, k))
            return {"change": losses(m, copied.denoiser) - first[m]}

        models, shape = range(len(trained)), (len(trained), self.repeats, self.num_windows)
        first = [piece["loss"] for piece in work.map("before", before, [(m,) for m in models])]
        pieces = work.map("windows", one, [tuple(map(int, place)) for place in np.ndindex(*shape)])
        change = np.stack([piece["change"] for piece in pieces]).reshape(*shape, *first[0].shape)  # (M,R,W,n,P)
        data = {"edges": edges.numpy(), "timesteps": t.numpy()} | summary(
            np.stack(first), change, edges.numpy(), window
        )
        return Result(data, self._facts(trained, data))

    def _edges(self, trained: Sequence[Trained], work: Work) -> Tensor:
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

    def _facts(self, trained: Sequence[Trained], data: Mapping[str, np.ndarray]) -> dict[str, Any]:
        groups = groups_of(trained)
        return {
            "windows": KINDS[self.windows],
            "num_windows": self.num_windows,
            "steps": self.steps,
            "batch_size": self.batch_size,
            "repeats": self.repeats,
            "images": len(trained[0].test_images(self.images)[0]),
            "shown": self.shown,
            "optimizers": [Continued(trained[group.members[0]], self.lr, self.fresh).words for group in groups],
            "groups": [_of_group(group, data) for group in groups],
        }

    def figure(self, result: Result) -> Figure:
        return draw_matrices(result)

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


def _of_group(group: Group, data: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Means over seeds; windows whose net change is more than its uncertainty above or below zero are counted."""
    own = np.eye(len(data["edges"]) - 1, dtype=bool)
    net, half = with_error(data["net"], data["net_error"], group.members)
    single = len(group.members) == 1
    uncertainty = "two standard errors over draws and images" if single else "the 95 % interval over the seeds"
    harmful, useful = int((net > half).sum()), int((net < -half).sum())
    relative = data["relative"][group.members].mean(0)
    numbers = {"inside": float(relative[own].mean()), "outside": float(relative[~own].mean())}
    counts = {"harmful": harmful, "useful": useful, "open": len(net) - harmful - useful}
    return {"name": group.name, "members": group.members, "uncertainty": uncertainty} | numbers | counts


@torch.no_grad()
def _losses(denoiser: Denoiser, x0: Tensor, eps: Tensor, t: Tensor, cond: dict[str, Tensor]) -> np.ndarray:
    """Native losses (n,P), float64, of images (n,C,H,W) at timesteps (P,), a network call per image."""
    rows = []
    for i in range(len(x0)):
        here = {key: value[i].expand(len(t), *value.shape[1:]) for key, value in cond.items()}
        shape = (len(t), *x0.shape[1:])
        rows.append(denoiser.loss(x0[i].expand(shape), eps[i].expand(shape), t, **here).native)
    return torch.stack(rows).double().cpu().numpy()


def _percent(value: float) -> str:
    return f"{100 * value:+{',.0f' if abs(value) >= 1 else '.2g'}} %".replace("-", "\N{MINUS SIGN}")
