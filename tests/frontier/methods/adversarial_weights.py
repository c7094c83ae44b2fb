"""Weights of the noise levels that are trained to make the loss large, against the network."""

import torch
from torch import Tensor, nn

from diffusion_lab.diffusion import Weighting


class Adversarial(Weighting):
    """w = K softmax(a)_k over K equal ranges of ln SNR from -10 to 10; a climbs the loss that the network descends.

    The value is w l. Its gradient is w dl to the network and -strength l dw to a.
    """

    def __init__(self, bins: int = 8, strength: float = 1.0, normalize: str = "none") -> None:
        super().__init__(normalize)
        self.bins, self.strength = bins, strength
        self.logits = nn.Parameter(torch.zeros(bins))

    def native_weight(self, snr: Tensor, scale: Tensor, step: int) -> Tensor:
        k = ((snr.log() + 10) / 20 * self.bins).long().clamp(0, self.bins - 1)
        return self.bins * self.logits.softmax(0)[k].to(snr.dtype)

    def forward(self, native_loss: Tensor, snr: Tensor, scale: Tensor, step: int) -> Tensor:
        climbed = super().forward(native_loss.detach(), snr, scale, step)
        with torch.no_grad():
            weight = self.native_weight(snr[:, None].expand_as(scale), scale, step) * self.factor
        return (native_loss * weight).sum(1) - self.strength * (climbed - climbed.detach())
