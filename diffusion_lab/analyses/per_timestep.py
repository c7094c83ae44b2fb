"""The native loss of a model at every timestep, with common noise.

    loss_t = 1/n sum_i E(x0_i, eps_i, t),     se_t = sd_i E(x0_i, eps_i, t) / sqrt(n)

over n test images. eps_i is a function of (seed, i) alone: it is the same for all t and all models, so differences
between timesteps and models are not caused by the noise. E is the unweighted mean square error of one head of the
prediction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from diffusion_lab.analyses.base import Analysis, Result
from diffusion_lab.arguments import check_integer
from diffusion_lab.plotting import line_style, log_axis, name_lines, panels
from diffusion_lab.training import Trained, labels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from diffusion_lab.analyses.work import Work


class PerTimestep(Analysis):
    """Mean and standard error of the native loss at t = 0, `every`, 2 `every`, ...

    `data.npz` has timesteps (K,), image (n,), the numbers of the test images, losses (M,n,K,heads) of M models, and
    their mean (M,K,heads) and standard_error (M,K,heads) over the images.

    Args:
        images: n, number of test images, at least 2.
        every: distance between evaluated timesteps.
        batch_size: rows of one network call.

    Raises:
        ValueError: a number out of range; from `check`, models whose losses cannot be compared.
    """

    def __init__(self, images: int = 64, every: int = 1, batch_size: int = 256) -> None:
        self.images = check_integer("images", images, 2, "use 64; a standard error needs two")
        self.every = check_integer("every", every, 1, "use 1 for all timesteps")
        self.batch_size = check_integer("batch_size", batch_size, 1, "use 256")

    def check(self, trained: Sequence[Trained]) -> None:
        kinds = {
            (type(m.denoiser.prediction), m.denoiser.num_timesteps, m.data.source.test().fingerprint()) for m in trained
        }
        if len(kinds) > 1:
            names = ",".join(dict.fromkeys(model.name for model in trained))
            raise ValueError(
                f"run={names} must be runs with the same prediction, timesteps and test images, or their native losses "
                "cannot be compared; use one at a time"
            )

    def run(self, trained: Sequence[Trained], work: Work) -> Result:
        drawn = [model.test_images(self.images) for model in trained]
        t = torch.arange(0, trained[0].denoiser.num_timesteps, self.every)

        def one(m: int, i: int) -> Mapping[str, np.ndarray]:
            ids, x0, cond = drawn[m]
            eps = work.normal(tuple(x0.shape[1:]), int(ids[i]))
            cond = {key: value[i] for key, value in cond.items()}
            return {"loss": self._losses(trained[m], x0[i], eps, t, cond).numpy()}

        n = len(drawn[0][0])
        pieces = work.map("losses", one, [(m, i) for m in range(len(trained)) for i in range(n)])
        losses = np.stack([piece["loss"] for piece in pieces]).reshape(len(trained), n, len(t), -1)
        data = {
            "timesteps": t.numpy(),
            "image": drawn[0][0].numpy(),
            "losses": losses,
            "mean": losses.mean(1),
            "standard_error": losses.std(1, ddof=1) / n**0.5,
        }
        return Result(data, {"images": n, "curves": self._curves(trained, data)})

    @torch.no_grad()
    def _losses(self, model: Trained, x0: Tensor, eps: Tensor, t: Tensor, cond: dict[str, Tensor]) -> Tensor:
        """(K,heads) float64: the losses of one image (C,H,W) with one noise (C,H,W)."""
        parts = []
        for some in t.to(x0.device).split(self.batch_size):
            rows = {key: value.expand(len(some), *value.shape) for key, value in cond.items()}
            images, noises = (value.expand(len(some), *value.shape) for value in (x0, eps))
            parts.append(model.denoiser.head_losses(images, noises, some, **rows).double().cpu())
        return torch.cat(parts)

    def _curves(self, trained: Sequence[Trained], data: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
        """For each model and head: its name, and where its loss is largest and smallest."""
        curves, t = [], data["timesteps"]
        for m, label in enumerate(labels(trained)):
            for head, word in enumerate(trained[m].denoiser.prediction.head_names):
                mean, error = data["mean"][m, :, head], data["standard_error"][m, :, head]
                most, least = int(mean.argmax()), int(mean.argmin())
                name = ", ".join([*([label] if len(trained) > 1 else []), *([word] if word else [])])
                curves.append(
                    {
                        "name": name,
                        "largest": [int(t[most]), float(mean[most])],
                        "smallest": [int(t[least]), float(mean[least])],
                        "relative_error": float(np.max(error / np.maximum(mean, np.finfo(float).tiny))),
                    }
                )
        return curves

    def figure(self, result: Result) -> Figure:
        data = result.data
        figure, (axis,) = panels(1, height=3.6)
        t, heads = data["timesteps"], data["mean"].shape[2]
        ends = []
        for i, curve in enumerate(result.facts["curves"]):
            mean, error = (data[key][i // heads, :, i % heads] for key in ("mean", "standard_error"))
            color, dash = line_style(i)
            axis.plot(t, mean, color=color, linestyle=dash, label=curve["name"])
            low = np.maximum(mean - 2 * error, mean.min() / 2)  # positive, for the logarithmic axis
            axis.fill_between(t, low, mean + 2 * error, color=color, alpha=0.2, linewidth=0)
            ends.append((float(mean[-1]), curve["name"], color))
        log_axis(axis)
        axis.set_xlabel("timestep t")
        axis.set_ylabel("native loss")
        axis.set_title(f"mean over {result.facts['images']} test images, common noise; shaded: two standard errors")
        if len(ends) > 1:
            name_lines(figure, [axis], [ends])
        return figure

    def sentence(self, result: Result) -> str:
        parts = []
        for curve in result.facts["curves"]:
            (most, large), (least, small) = curve["largest"], curve["smallest"]
            ratio = f"{large / small:,.3g} times" if small > 0 else "infinitely"
            where = f"at t = {most} ({large:.3g}), is {ratio} the smallest, at t = {least} ({small:.3g})"
            parts.append(f"{curve['name'] + ': the' if curve['name'] else 'The'} largest native loss, {where}")
        worst = max(curve["relative_error"] for curve in result.facts["curves"])
        text = "; ".join(parts[:6]) + ("; and so on" if len(parts) > 6 else "")
        return (
            f"{text}; standard errors over {result.facts['images']} images are at most {100 * worst:.2g} % of the mean."
        )
