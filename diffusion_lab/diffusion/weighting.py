"""Loss weightings. Each is written once, as the weight w_x(SNR) on the x0-loss; the weight on the native loss is

    w = w_x / scale,     scale = SNR (eps), 1 (x0), 1 + SNR (v)

(`Prediction.native_scale`), so that the same estimate has the same weighted loss in every prediction. A prediction with
several heads returns its loss in parts, each with the scale of its space.

Here are the base class, `Uncertainty`, which is learned, and what parts that compare losses at different noise are
given of the objective at each timestep, `native_scales` and `x0_weights`. The published weightings are in
`weightings.py`.
"""

from __future__ import annotations

import inspect
import math
from typing import Protocol

import torch
from torch import Tensor, nn

from diffusion_lab.arguments import check_choice, check_integer, check_made, check_overrides
from diffusion_lab.diffusion.prediction import Prediction
from diffusion_lab.diffusion.schedule import NoiseSchedule
from diffusion_lab.failure import WrongResult

NORMALIZATIONS = ("none", "mean1_uniform", "mean1_sampler")
# The features are part of the method, not of the run: the same ones for every seed, drawn without the global numbers.
FEATURES_SEED = 0


class Observed(Protocol):
    """The rows of one update on this process, detached: what a weighting learns from; `timesteps.StepRecord` is one."""

    x0: Tensor  # (n,C,H,W)
    cond: dict[str, Tensor]
    t: Tensor  # (n,) int64
    loss: Tensor  # (n,) native
    objective: Tensor  # (n,) weighted

    def gather(self, local: Tensor) -> Tensor:
        """Rows of all processes in the order of the global batch: (n,...) -> (G,...)."""
        ...

    def gathered(self, objective: bool = False) -> tuple[Tensor, Tensor]:
        """t (G,) and loss (G,) float64 of all processes."""
        ...


class Weighting(nn.Module):
    """Weight of each row's loss. A subclass gives `x0_weight`; a module, because a weighting may learn: by gradients,
    with parameters, or from what it sees of each update in `observe`, with buffers. One that uses more of a row
    than its SNR sets `uses_record` and takes `record` in `forward`.

    With `normalize` the weights are multiplied by one number, so that their mean is 1 and the size of the loss, to
    which gradient clipping reacts, does not depend on the weighting:

        none             1
        mean1_uniform    1 / ((1/T) sum_t w_t)
        mean1_sampler    1 / (sum_t p_t w_t),  p the sampler's probabilities

    `refresh` computes it, at the first step and every 100 steps; the number is in the checkpoint.

    Args:
        normalize: none, or mean weight 1 over uniform timesteps (mean1_uniform) or the sampler's (mean1_sampler).

    Raises:
        ValueError: another word, or a subclass without `x0_weight`, or with one of other arguments.
    """

    factor: Tensor
    uses_record: bool = False  # whether `forward` is given `record`, a `diffusion.Step`

    def __init__(self, normalize: str = "none") -> None:
        super().__init__()
        self._check_methods()
        self.normalize = check_choice("normalize", normalize, NORMALIZATIONS, "use none as published")
        self.register_buffer("factor", torch.ones(()))

    def _check_methods(self) -> None:
        """The subclass defines one of the two weights, with the arguments with which it will be called."""
        kind = type(self)
        if kind is not Weighting and kind.x0_weight is Weighting.x0_weight:
            if kind.native_weight is Weighting.native_weight:
                raise ValueError(f"{kind.__name__} must define x0_weight(snr, step), the weight on the x0-loss")
        check_overrides(self, "x0_weight", "native_weight", "forward")
        for method, names in ((self.x0_weight, ("snr", "step")), (self.native_weight, ("snr", "scale", "step"))):
            signature, asked = inspect.signature(method), f"{method.__name__}({', '.join(names)})"
            try:
                signature.bind(*names)
            except TypeError as error:
                taken = f"{method.__name__}{signature}"
                raise ValueError(f"{kind.__name__} must define {asked}, and defines {taken}: {error}") from error

    def observe(self, record: Observed, snr: Tensor) -> None:
        """Called after every optimizer step, on every process, with its rows and with snr (T,) of the schedule.

        State that is not a parameter changes only here, and only by values that are equal on all processes, such as
        `record.gathered()`; it belongs in buffers, which are in the checkpoint. By default nothing.
        """

    @torch.no_grad()
    def refresh(self, snr: Tensor, scale: Tensor, probabilities: Tensor, step: int) -> None:
        """Recompute the normalising number from all T timesteps; does nothing with `normalize` none.

        Args:
            snr: (T,) of the schedule.
            scale: (T,) `Prediction.native_scale(snr)`.
            probabilities: (T,) the sampler's at this step, times the weights of its draws.
            step: optimizer step.
        """
        if self.normalize == "none":
            return
        weights = self.weight_to_normalize(snr, scale, step).double()
        if self.normalize != "mean1_sampler":
            probabilities = torch.full_like(weights, 1.0 / len(weights))
        self.factor.copy_(1.0 / (probabilities * weights).sum())

    def x0_weight(self, snr: Tensor, step: int) -> Tensor:
        """w_x at this optimizer step: (B,) -> (B,)."""
        raise NotImplementedError(f"{type(self).__name__} has no x0_weight(snr, step); call its native_weight")

    def native_weight(self, snr: Tensor, scale: Tensor, step: int) -> Tensor:
        """Weight on the native loss, w_x / scale, before normalisation; both arguments of one shape, the result's."""
        weight = self.x0_weight(snr, step)
        shape = () if isinstance(weight, int | float) else getattr(weight, "shape", None)
        if shape not in (snr.shape, ()):
            raise WrongResult.of(self, "x0_weight", f"a tensor of the shape of snr, {tuple(snr.shape)}", weight)
        return weight / scale

    def weight_to_normalize(self, snr: Tensor, scale: Tensor, step: int) -> Tensor:
        """The weight that `refresh` normalises to mean 1: the native weight; for a learned weighting its fixed part."""
        return self.native_weight(snr, scale, step)

    def forward(self, native_loss: Tensor, snr: Tensor, scale: Tensor, step: int) -> Tensor:
        """Weighted loss per row.

        Args:
            native_loss: (B,K) mean square error in the space of the prediction, in K parts.
            snr: (B,) signal-to-noise ratio A_t/(1-A_t) of each row.
            scale: (B,K) the native scale of each part.
            step: optimizer step.

        Returns:
            (B,), the parts summed.

        Raises:
            ValueError: the shapes are others.
        """
        if native_loss.ndim != 2 or scale.shape != native_loss.shape or snr.shape != native_loss.shape[:1]:
            given = ", ".join(str(tuple(value.shape)) for value in (native_loss, snr, scale))
            raise ValueError(
                f"native_loss, snr, scale of shapes {given} must be (B,K), (B,), (B,K), K parts of the loss of a row; "
                "with one part use weighting(loss[:, None], snr[t], scale[t, None], step)"
            )
        weight = self.native_weight(snr[:, None].expand_as(scale), scale, step)
        loss = (native_loss * weight).sum(1)
        return loss if self.normalize == "none" else loss * self.factor


class Unit(Weighting):
    """w = 1 on the native loss, whatever the prediction: L_simple of Ho et al. (2020) for eps.

    It is the only weighting whose objective depends on the prediction: w_x = SNR for eps, 1 for x0, 1 + SNR for v.

    Use: as the baseline of every comparison, and to train each prediction with its own loss.
    """

    def native_weight(self, snr: Tensor, scale: Tensor, step: int) -> Tensor:
        return torch.ones_like(snr)


class Uncertainty(Weighting):
    """loss = w l e^-u + u, with l the native loss, w the base's weight and u a learned function of s = SNR^-1/2:

        u(s) = a . sqrt(2) cos(f ln(s)/4 + phi),   f ~ 2 pi N(0, 1), phi ~ 2 pi U(0, 1) fixed, a learned, a = 0 at first

    The minimum over u is u = ln(w E[l]), where the gradients of all noise levels have the same scale. u is added once
    per row, also for a prediction of several heads. It starts at 0, where the loss is the base's.

    Differs from EDM2's code: a is a plain vector that starts at 0, because a weight-normalised one, as theirs, starts
    anywhere; and `normalize` applies to w only, because applied to w e^-u it would cancel any constant in u, and u
    would decrease without bound.

    Use: for long runs with EDM's path. The weight follows the loss, so that no noise level dominates the gradient,
    whatever the sampler draws.

    Args:
        base: the weighting w; EDM's in the paper.
        num_features: number of random Fourier features of ln s, >= 1.
        normalize: none, or mean w 1 over uniform timesteps (mean1_uniform) or the sampler's (mean1_sampler); that of
            the base must be none.
    """

    frequencies: Tensor
    phases: Tensor

    def __init__(self, base: Weighting, num_features: int = 128, normalize: str = "none") -> None:
        super().__init__(normalize)
        check_made("base", base, Weighting, "use one such as EDM()")
        if type(base).forward is not Weighting.forward:
            raise ValueError(
                f"base={type(base).__name__} must be a weight of the noise, x0_weight or native_weight, and "
                "overrides forward, which would not be called; use base=EDM()"
            )
        if base.normalize != "none":
            raise ValueError(f"base.normalize={base.normalize} must be none; use the normalize of uncertainty itself")
        self.base = base
        check_integer("num_features", num_features, 1, "use 128 for the published setting")
        generator = torch.Generator().manual_seed(FEATURES_SEED)
        self.register_buffer("frequencies", 2 * math.pi * torch.randn(num_features, generator=generator))
        self.register_buffer("phases", 2 * math.pi * torch.rand(num_features, generator=generator))
        self.coefficients = nn.Parameter(torch.zeros(num_features))

    def log_uncertainty(self, snr: Tensor) -> Tensor:
        """u: (...) -> (...)."""
        level = -0.125 * snr.float().log()  # ln(s)/4
        features = math.sqrt(2) * torch.cos(level[..., None] * self.frequencies.float() + self.phases.float())
        # A product and a sum, since autocast would take a matrix product to bfloat16.
        return (features * self.coefficients.float()).sum(-1).to(snr.dtype)

    def weight_to_normalize(self, snr: Tensor, scale: Tensor, step: int) -> Tensor:
        return self.base.native_weight(snr, scale, step)

    def x0_weight(self, snr: Tensor, step: int) -> Tensor:
        return self.base.x0_weight(snr, step) * torch.exp(-self.log_uncertainty(snr))

    def native_weight(self, snr: Tensor, scale: Tensor, step: int) -> Tensor:
        """w e^-u. Asked of the base and not of `x0_weight`, because a base such as `Unit` has only a native weight."""
        return self.base.native_weight(snr, scale, step) * torch.exp(-self.log_uncertainty(snr))

    def forward(self, native_loss: Tensor, snr: Tensor, scale: Tensor, step: int) -> Tensor:
        return super().forward(native_loss, snr, scale, step) + self.log_uncertainty(snr)


def native_scales(schedule: NoiseSchedule, prediction: Prediction) -> Tensor:
    """Native loss divided by the x0-loss of the same answer: (T,) float64."""
    t = torch.arange(schedule.num_timesteps, device=schedule.snr.device)
    return prediction.at(schedule, t).native_scale(schedule.snr)


@torch.no_grad()
def x0_weights(schedule: NoiseSchedule, prediction: Prediction, weighting: Weighting) -> Tensor:
    """w_x(t), the weight of the x0-loss in the objective, before normalisation: (T,) float64.

    Those of step 0, for a weighting that changes during training.
    """
    scale = native_scales(schedule, prediction)
    return weighting.native_weight(schedule.snr, scale, 0).double() * scale
