"""Weights by the spread of the losses at such noise: noisy losses count less."""

import torch
from torch import Tensor

from diffusion_lab.diffusion import Weighting


class BySpread(Weighting):
    """1/(running standard deviation of the native loss), in `bins` equal ranges of ln SNR from -10 to 10."""

    moments: Tensor

    def __init__(self, bins: int = 8, decay: float = 0.9, normalize: str = "none") -> None:
        super().__init__(normalize)
        self.bins, self.decay = bins, decay
        self.register_buffer("moments", torch.tensor([[0.0, 1.0]]).repeat(bins, 1))

    def bin(self, snr: Tensor) -> Tensor:
        return ((snr.log() + 10) / 20 * self.bins).long().clamp(0, self.bins - 1)

    def observe(self, record, snr: Tensor) -> None:
        t, loss = record.gathered()
        one_hot = torch.nn.functional.one_hot(self.bin(snr[t]), self.bins).to(loss)
        count = one_hot.sum(0)[:, None]
        seen = one_hot.T @ torch.stack([loss, loss.square()], 1) / count.clamp(min=1)
        moved = self.decay * self.moments + (1 - self.decay) * seen
        self.moments.copy_(torch.where(count > 0, moved.to(self.moments), self.moments))

    def native_weight(self, snr: Tensor, scale: Tensor, step: int) -> Tensor:
        mean, square = self.moments.unbind(1)
        return (square - mean.square()).clamp(min=1e-4).rsqrt()[self.bin(snr)].to(snr)
