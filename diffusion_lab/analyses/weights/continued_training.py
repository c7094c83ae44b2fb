"""A copy of a trained model that is trained on, with the run's optimizer, on draws of the analysis; and its updates.

    loss = mean_i (l_i + variance term_i),    l_i the native loss of training image i at t_i with noise eps_i

in training mode, with dropout and with the run's gradient clipping. The model itself does not change. Differs from the
run's own training: the weighting of the losses, the annealing of the rate, the dropout of labels and the augmentation
are left out, so that continuations of different runs differ in their weights and optimizer alone.

Of R copies that are trained on other draws, with u_rk (d,) the update theta_{k+1} - theta_k of copy r at step k, and
v_r its mean over the L counted steps,

    norm                |u_rk|
    cosine              u_{r,k+1} . u_rk / (|u_{r,k+1}| |u_rk|), of one copy at consecutive steps
    signal              S = mean_{r != s} v_r . v_s, an unbiased estimate of |E v|^2
    noise               V = mean_rk |u_rk|^2 - S, where E u is the same in all steps an unbiased estimate of tr Cov u
    noise scale         N = V/S

N is the simple noise scale of McCandlish et al., "An empirical model of large-batch training", 2018, of an update in
place of a gradient. For a constant gradient the cosine is 1 and N = 0. For gradients mu + sigma z, z white, momentum
m <- beta m + (1 - beta) g gives N = (1 - beta)/(1 + beta) d sigma^2/|mu|^2, and for mu = 0 the mean cosine beta.
Products of v have less noise than those of u_k of one step: all pairs of steps enter, L^2 in place of L.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from diffusion_lab.analyses.base import Work
from diffusion_lab.optimizers import Weights
from diffusion_lab.training import TrainedDiffusion

LEAST = 0.01  # of the run's learning rate, below which an update is little more than the rounding of the weights


def check_rate(trained: Sequence[TrainedDiffusion], lr: float | None, fresh: bool) -> None:
    """Raise ValueError if a continuation would take the rate of a last step that an annealing has brought near 0."""
    for model in trained if lr is None and not fresh else ():
        for group in (model.continuation.state() or {}).get("param_groups", ()):
            last, base = group["lr"], group.get("initial_lr", group["lr"])
            if last < LEAST * base:
                raise ValueError(
                    f"run={model.name} must have a rate that moves its weights, and at this step its annealing gives "
                    f"{last:.2g}, below 1 % of {base:g}; use analysis.lr={base:g}, or another checkpoint"
                )


class DrawnBatch(NamedTuple):
    """Rows of one step: x0 and eps (B,C,H,W), t (B,) int64, the conditions, and a key for the dropout masks."""

    x0: Tensor
    eps: Tensor
    t: Tensor
    cond: dict[str, Tensor]
    key: int


class Continued:
    """A copy of a model and an optimizer for it.

    Args:
        model: the model, which stays as it is.
        lr: learning rate; None for that of the run, or where the state is loaded, of its last step.
        fresh: whether the optimizer starts without the state of the checkpoint. It does so anyway where the weights
            have none: averaged ones.

    Attributes:
        denoiser: the copy, in training mode.
        optimizer: its optimizer.
        fresh: whether it started without a state.
    """

    def __init__(self, model: TrainedDiffusion, lr: float | None = None, fresh: bool = False) -> None:
        self.denoiser = copy.deepcopy(model.denoiser).train()
        self.parameters = [p for p in self.denoiser.parameters() if p.requires_grad]
        self.clip = model.continuation.clip
        self.optimizer, self.fresh = model.continuation.optimizer(Weights(self.denoiser), fresh)
        for group in self.optimizer.param_groups if lr is not None else ():
            group["lr"] = lr

    @property
    def lr(self) -> float:
        """The learning rate."""
        return float(self.optimizer.param_groups[0]["lr"])

    @property
    def words(self) -> str:
        """The optimizer in words, e.g. "Adam at 0.0002 with the run's state"."""
        state = "without a state, so that its first steps have about equal size in every weight"
        return f"{type(self.optimizer).__name__} at {self.lr:g} {state if self.fresh else 'with the state of the run'}"

    @torch.enable_grad()
    def step(self, batch: DrawnBatch) -> None:
        """One update."""
        torch.manual_seed(batch.key)  # dropout takes the global generator
        self.optimizer.zero_grad()
        loss = self.denoiser.loss(batch.x0, batch.eps, batch.t, **batch.cond)
        (loss.native + loss.vlb).mean().backward()
        if self.clip:
            nn.utils.clip_grad_norm_(self.parameters, self.clip)
        self.optimizer.step()


def draw(model: TrainedDiffusion, work: Work, size: int, window: tuple[int, int], *position: int) -> DrawnBatch:
    """`size` training images, with replacement, at uniform timesteps window[0] <= t < window[1].

    A function of seed and position alone, with streams that other functions of `work` do not use.
    """
    split, first, last = model.data.source.train(), *window
    u, v = (work.streams.uniform(size, name, *position) for name in ("continued images", "continued timesteps"))
    x0, cond = model.data.conditions.of_images(split, (u * len(split)).long())
    t = first + (v * (last - first)).long()
    eps = work.streams.normal(tuple(x0.shape), "continued noise", *position)
    cond = {name: value.to(work.device) for name, value in cond.items()}
    key = work.streams.key("continued dropout", *position)
    return DrawnBatch(x0.to(work.device), eps.to(work.device), t.to(work.device), cond, key)


class Updates(NamedTuple):
    """Updates of R copies in K steps.

    Attributes:
        norm: (R,K) float64.
        cosine: (R,K-1) float64, between the steps k and k + 1; NaN where an update is zero.
        gram: (R,R) float64, v_r . v_s over the steps after the warm-up.
    """

    norm: np.ndarray
    cosine: np.ndarray
    gram: np.ndarray


@torch.no_grad()
def follow(
    copies: Sequence[Iterable[Tensor]], steps: int, update: Callable[[int, int], object], warmup: int = 0
) -> Updates:
    """Take K steps with every copy, given by its parameters, one copy after another.

    update(r, k) does step k of copy r; the first `warmup` steps do not count in `gram`.
    """
    norm, cosine, means = [], [], []
    for r, copied in enumerate(copies):
        parameters, moved, total = list(copied), [], torch.zeros(())
        norm.append([])
        cosine.append([])
        for k in range(steps):
            old = _flat(parameters)
            with torch.enable_grad():
                update(r, k)
            moved = [*moved[-1:], (_flat(parameters) - old).double()]
            norm[r].append(float(moved[-1].norm()))
            if k:
                cosine[r].append(float(moved[0] @ moved[1] / (norm[r][-2] * norm[r][-1] or float("nan"))))
            if k >= warmup:
                total = total + moved[-1]
        means.append(total / (steps - warmup))
    gram = torch.stack(means) @ torch.stack(means).T
    return Updates(np.array(norm), np.array(cosine), gram.cpu().numpy())


def noise_scale(norm: np.ndarray, gram: np.ndarray) -> tuple[float, float]:
    """N and its jackknife standard error over copies, from the norms (R,L) of the counted steps and the Gram matrix
    (R,R), R >= 3; inf and NaN where no signal is seen."""
    copies = len(gram)
    scale = _scale(norm, gram)
    kept = [[s for s in range(copies) if s != r] for r in range(copies)]
    without = np.array([_scale(norm[some], gram[np.ix_(some, some)]) for some in kept])
    if not np.isfinite([scale, *without]).all():
        return scale, float("nan")
    return scale, float(np.sqrt((copies - 1) / copies * np.square(without - without.mean()).sum()))


def _scale(norm: np.ndarray, gram: np.ndarray) -> float:
    copies, square = len(gram), float(np.square(norm).mean())
    signal = float(gram.sum() - np.trace(gram)) / (copies * (copies - 1))
    return max(0.0, square / signal - 1) if signal > 0 else float("inf") if square > 0 else float("nan")


def _flat(parameters: Sequence[Tensor]) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in parameters])
