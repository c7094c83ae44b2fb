"""Loss weightings. Each is written once, as the weight w_x(SNR) on the x0-loss; the weight on the native loss is

    w = w_x / scale,     scale = SNR (eps), 1 (x0), 1 + SNR (v)

(`Prediction.native_scale`), so one and the same answer has one and the same weighted loss in every prediction.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from diffusion_lab.diffusion.arguments import check_number


class Weighting(nn.Module):
    """Weight of each row's loss. A subclass gives `x0_weight`; a module, because a weighting may learn."""

    def x0_weight(self, snr: Tensor, step: int) -> Tensor:
        """w_x at this optimizer step: (B,) -> (B,)."""
        raise NotImplementedError(f"{type(self).__name__} is not defined on the x0-loss; call native_weight")

    def native_weight(self, snr: Tensor, scale: Tensor, step: int) -> Tensor:
        """Weight on the native loss, w_x / scale: (B,), (B,) -> (B,)."""
        return self.x0_weight(snr, step) / scale

    def forward(self, native_loss: Tensor, snr: Tensor, scale: Tensor, step: int) -> Tensor:
        """Weighted loss per row.

        Args:
            native_loss: (B,) mean square error in the space of the prediction.
            snr: (B,) signal-to-noise ratio A_t/(1-A_t) of each row.
            scale: (B,) `Prediction.native_scale(snr)`.
            step: optimizer step.
        """
        return native_loss * self.native_weight(snr, scale, step)


class Unit(Weighting):
    """w = 1 on the native loss, whatever the prediction: L_simple of Ho et al. (2020) for eps.

    The one weighting that follows the prediction: w_x = SNR for eps, 1 for x0, 1 + SNR for v.
    """

    def native_weight(self, snr: Tensor, scale: Tensor, step: int) -> Tensor:
        return torch.ones_like(snr)


class MinSNR(Weighting):
    """w_x = min(SNR, gamma) (Hang et al. 2023): min(SNR, gamma)/SNR for eps, min(SNR, gamma)/(SNR + 1) for v.

    Differs from the released code: there `min_snr_k` on a v-model applies the formula of eps and `vmin_snr_k` must be
    asked for; here the prediction decides.

    Args:
        gamma: SNR above which the weight stops growing, > 0.
    """

    def __init__(self, gamma: float = 5.0) -> None:
        super().__init__()
        self.gamma = check_number("gamma", gamma, "()", 0, math.inf, "use 5.0 for the published setting")

    def x0_weight(self, snr: Tensor, step: int) -> Tensor:
        return snr.clamp(max=self.gamma)
