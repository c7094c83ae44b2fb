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

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from diffusion_lab.analyses.base import Analysis, Result
from diffusion_lab.analyses.best_line import crossings, segments, winners
from diffusion_lab.analyses.generation import check_solver
from diffusion_lab.analyses.hue import mean_hue, paired_hue
from diffusion_lab.analyses.prediction_figure import figure_of
from diffusion_lab.analyses.prediction_words import sentence_of
from diffusion_lab.analyses.seeds import groups_of
from diffusion_lab.arguments import check_integer
from diffusion_lab.solvers import Solver
from diffusion_lab.training import Trained

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from diffusion_lab.analyses.work import Work

TOGETHER = "all heads"


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
        images: n, test images, at least 2.
        every: distance between evaluated timesteps.
        samples: generated images of each model.
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

    def check(self, trained: Sequence[Trained]) -> None:
        for model in trained:
            model.check_images(self.images)
        kinds = {
            (
                tuple(m.denoiser.schedule.snr.tolist()),
                m.data.source.test().fingerprint(),
                *sorted(m.data.conditions.names),
            )
            for m in trained
        }
        if len(kinds) > 1:
            names = ",".join(dict.fromkeys(model.name for model in trained))
            raise ValueError(
                f"run={names} must be runs with the same schedule, test images and conditions, or their errors cannot "
                "be compared; use one at a time"
            )
        check_solver(self.solver, trained)

    def run(self, trained: Sequence[Trained], work: Work) -> Result:
        t = torch.arange(0, trained[0].denoiser.num_timesteps, self.every)
        drawn = [model.test_images(self.images) for model in trained]
        n = len(drawn[0][0])

        def one(m: int, i: int) -> Mapping[str, np.ndarray]:
            ids, x0, cond = drawn[m]
            eps = work.normal(tuple(x0.shape[1:]), int(ids[i]))
            here = {key: value[i] for key, value in cond.items()}
            return {"error": self._errors(trained[m], x0[i], eps, t, here)}

        pieces = work.map("errors", one, [(m, i) for m in range(len(trained)) for i in range(n)])
        rows = [np.stack([p["error"] for p in pieces[m * n : (m + 1) * n]]) for m in range(len(trained))]  # (n,K,A)
        errors = np.concatenate([some.transpose(2, 0, 1) for some in rows])
        lines = lines_of_answers(trained)
        data = {"timesteps": t.numpy(), "image": drawn[0][0].numpy(), "errors": errors, "mean": errors.mean(1)}
        data["standard_error"] = errors.std(1, ddof=1) / n**0.5
        data |= winners(errors, [line["rows"] for line in lines])
        data["worst_t"] = data["timesteps"][data.pop("worst_at")]
        groups = [group._asdict() for group in groups_of(trained)]
        facts = {"images": n, "lines": lines, "groups": groups, "solver": self.solver.describe()}
        facts["segments"] = segments(data["timesteps"], data["best"], data["decided"])
        facts["crossings"] = crossings(data["timesteps"], data["lower"])
        if trained[0].data.source.pixels().channels == 3:
            hue = np.array(self._hue(trained, work))
            data |= {"hue_error": hue[:, 0], "hue_standard_error": hue[:, 1]}
            facts |= {"samples": self.samples, "paired": trained[0].data.conditions.task.paired}
        return Result(data, facts)

    @torch.no_grad()
    def _errors(self, model: Trained, x0: Tensor, eps: Tensor, t: Tensor, cond: dict[str, Tensor]) -> np.ndarray:
        """(K,A) float64: of the heads, and if there are several of the answer of all, for one image (C,H,W)."""
        denoiser, parts = model.denoiser, []
        scales = denoiser.head_scales()
        for some in t.to(x0.device).split(self.batch_size):
            rows = {key: value.expand(len(some), *value.shape) for key, value in cond.items()}
            images, noises = (value.expand(len(some), *value.shape) for value in (x0, eps))
            found = denoiser.head_losses(images, noises, some, **rows).double() / scales[some]
            if denoiser.prediction.heads > 1:
                answer = denoiser.estimate(denoiser.schedule.perturb(images, noises, some), some, **rows).x0
                together = (answer - images).double().square().flatten(1).mean(1, keepdim=True)
                found = torch.cat([found, together], dim=1)
            parts.append(found.cpu().numpy())
        return np.concatenate(parts)

    def _hue(self, trained: Sequence[Trained], work: Work) -> list[tuple[float, float]]:
        """Hue error and its standard error of each model's samples, from the same latents."""
        chunks = torch.arange(self.samples).split(min(self.batch_size, 32))

        def one(m: int, ids: Tensor) -> Mapping[str, np.ndarray]:
            return {"samples": trained[m].samples(ids.tolist(), work.streams.seed, self.solver, len(ids)).numpy()}

        pieces = work.map("samples", one, [(m, ids) for m in range(len(trained)) for ids in chunks])
        every = torch.from_numpy(np.concatenate([piece["samples"] for piece in pieces]))
        found = []
        for model, samples in zip(trained, every.unflatten(0, (len(trained), -1)), strict=True):
            source, conditions = model.data.source, model.data.conditions
            if conditions.task.paired:
                found.append(paired_hue(samples, conditions.given_and_truth(range(self.samples))[1]))
            else:
                _, x0, _ = model.test_images(max(self.samples, 1024))
                found.append(mean_hue(samples, source.to_pixels(x0).cpu()))
        return found

    def figure(self, result: Result) -> Figure:
        return figure_of(result)

    def sentence(self, result: Result) -> str:
        return sentence_of(result)


def lines_of_answers(trained: Sequence[Trained]) -> list[dict[str, Any]]:
    """A line for each group and answer: its name, and its rows, which are the answers of model after model."""
    words = [model.denoiser.prediction.head_names for model in trained]
    answers = [[*some, *([TOGETHER] if len(some) > 1 else [])] for some in words]
    first = np.cumsum([0, *map(len, answers)])
    return [
        {
            "name": ": ".join(word for word in (group.name, answer) if word),
            "rows": [int(first[m]) + a for m in group.members],
        }
        for group in groups_of(trained)
        for a, answer in enumerate(answers[group.members[0]])
    ]
