"""A weighting that learns how uncertain the loss is at each noise level (Karras et al. 2024, EDM2, equation 14)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from diffusion_lab.arguments import check_integer, check_made
from diffusion_lab.diffusion.weighting import Weighting

# The features are part of the method, not of the run: the same ones for every seed, drawn without the global numbers.
FEATURES_SEED = 0


class Uncertainty(Weighting):
    """loss = w l e^-u + u with w the base's weight and u a learned function of the noise level s = SNR^-1/2:

        u(s) = a . sqrt(2) cos(f ln(s)/4 + phi),   f ~ 2 pi N(0, 1), phi ~ 2 pi U(0, 1) fixed, a learned, a = 0 at first

    The minimum over u is u = ln(w E[l]), at which every noise level's gradient has one scale. u is added once per row,
    also for a prediction of several heads. It starts at 0, where the loss is the base's.

    Differs from EDM2's code: a is a plain vector that starts at 0, because a weight-normalised one, as theirs, starts
    anywhere; and normalisation acts on w alone, because it would undo any constant in e^-u and let u fall without end.

    Use: long runs with EDM's path: the weight follows the loss, so that no timestep dominates the gradient whatever
    the sampler draws.

    Args:
        base: the weighting w; EDM's in the paper.
        num_features: number of random Fourier features, >= 1.
        normalize: as in `Weighting`, for w; the base's own must be none.
    """

    frequencies: Tensor
    phases: Tensor

    def __init__(self, base: Weighting, num_features: int = 128, normalize: str = "none") -> None:
        super().__init__(normalize)
        check_made("base", base, Weighting, "use one such as EDM()")
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
