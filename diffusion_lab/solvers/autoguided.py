"""Guidance by a weaker model around any solver."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from diffusion_lab.arguments import check_number
from diffusion_lab.diffusion import Denoiser
from diffusion_lab.eval_mode import eval_mode
from diffusion_lab.runs.trained_run import TrainedRun
from diffusion_lab.solvers.base import Around, Bar, Noise, Solver
from diffusion_lab.solvers.spacing import Steps


class Autoguided(Around):
    """The sampling loop of `base` on the model, guided away from a weaker one:

        out = out_weak + scale (out - out_weak)

    with both networks at the same x_t, t and label. The weak model is one of the same kind that was trained for fewer
    steps, is smaller, or both. Unlike classifier-free guidance this needs no label dropout and no labels at all.

    Reference: Karras et al., "Guiding a diffusion model with a bad version of itself", 2024, arXiv 2406.02507, with
    w = scale. There it is written for the estimate D of x0; the network's output is affine in it, with the same
    coefficients for both models, which must agree in schedule, prediction, preconditioning and time.

    Use: for better samples of any model, at the cost of a call of the weak network for each of its own. An earlier
    checkpoint of the same run (`keep_every`) is a weak model at no cost of training.

    Args:
        base: the solver whose network calls are guided.
        weak: the weak model, a trained run or a `Denoiser`.
        scale: strength of the guidance, >= 0; 1 is none, 0 the weak model.
        steps: replaces the steps of the base; None keeps them.

    Raises:
        ValueError: a scale out of range; when called, a weak model that differs in more than its network.
    """

    def __init__(
        self, base: Solver, weak: TrainedRun | Denoiser, scale: float = 2.0, steps: Steps | None = None
    ) -> None:
        super().__init__(base, steps)
        self.weak = weak
        self.scale = check_number("scale", scale, "[)", 0, float("inf"), "use 2.0, or 1.0 for none")

    def describe(self) -> str:
        which = f"-{self.weak.checksum}" if isinstance(self.weak, TrainedRun) else ""
        return f"{self.base.describe()}-autoguided{self.scale:g}{which}"

    def counted(self, model: Denoiser) -> Autoguided:
        solver = super().counted(model)
        solver.weak = model
        return solver

    def check_model(self, denoiser: Denoiser) -> None:
        super().check_model(denoiser)
        which = f"weak.run={self.weak.run}" if isinstance(self.weak, TrainedRun) else "weak"
        for name in _differences(denoiser, self._weak_model()):
            raise ValueError(
                f"{which} must have the {name} of the model that it guides, and has another; train the weak model with "
                "the same settings, for fewer steps or with a smaller network"
            )

        if self.needs_null_label and denoiser.null_label not in (None, self._weak_model().null_label):
            raise ValueError(
                f"{which} must be trained with label dropout, as the model that it guides is, because "
                f"base={type(self.base).__name__} asks both for samples without a label"
            )

    def solve(self, denoiser: Denoiser, x_T: Tensor, noise: Noise, bar: Bar, cond: dict[str, Tensor]) -> Tensor:
        with eval_mode(self._weak_model()):
            return super().solve(denoiser, x_T, noise, bar, cond)

    def model(self, denoiser: Denoiser) -> Denoiser:
        self.check_model(denoiser)
        weak = self._weak_model().to(denoiser.timesteps.device)
        heads = denoiser.prediction.heads
        return denoiser.with_network(Autoguidance(denoiser.network, weak.network, self.scale, heads))

    def _weak_model(self) -> Denoiser:
        return self.weak.opened().denoiser if isinstance(self.weak, TrainedRun) else self.weak


class Autoguidance(nn.Module):
    """Two networks, called one after the other: out = out_weak + scale (out - out_weak).

    The reverse variance is that of the first.

    Args:
        network: of the model.
        weak: of the weak model; its channels of the variance, if it has them, are not used.
        scale: >= 0.
        heads: the prediction's channels per image channel.
    """

    def __init__(self, network: nn.Module, weak: nn.Module, scale: float, heads: int = 1) -> None:
        super().__init__()
        self.network, self.weak, self.scale, self.heads = network, weak, scale, heads

    def forward(self, x: Tensor, t: Tensor, **cond: Tensor) -> Tensor:
        """As the network's: x (B,C,H,W), t (B,) -> (B,out_channels,H,W)."""
        out, guided = self.network(x, t, **cond), self.heads * x.shape[1]
        weak = self.weak(x, t, **cond)[:, :guided]
        return torch.cat([weak + self.scale * (out[:, :guided] - weak), out[:, guided:]], dim=1)


def _differences(model: Denoiser, weak: Denoiser) -> Iterator[str]:
    """What the networks of two models are given or asked for differently."""
    schedules = model.schedule, weak.schedule
    if type(model) is not type(weak):
        yield "kind"
    elif not all(_equal(*(getattr(one, name) for one in schedules)) for name in ("signal_scale", "noise_scale")):
        yield "schedule"
    elif type(model.prediction) is not type(weak.prediction) or not _equal(model.native_scale(), weak.native_scale()):
        yield "prediction"
    elif not _equal(*(one.preconditioning.input_scale(one.schedule) for one in (model, weak))):
        yield "preconditioning"
    elif not _equal(*(one.time.values(one.schedule) for one in (model, weak))):
        yield "time"


def _equal(one: Tensor | None, other: Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    return torch.equal(one.cpu(), other.cpu())
