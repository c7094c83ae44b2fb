"""The losses by which a mixed prediction compares its heads: their space and the elements over which they are averaged.

A head h with native error n_h has the mean square errors (SNR = S)

    native  E_x0 = x,   E_v = (1 + S) x,   E_eps = S x,       x its mean square error in x0-space

A space defines the factor of x for each head. In the spaces x0, eps and v it is the same for all three, so they rank
the heads in the same way; they differ for soft rules, and if rows of different noise levels are averaged.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from diffusion_lab.diffusion.head_errors import HeadErrors


def native_scales(snr: Tensor) -> Tensor:
    """Native loss of each head divided by its x0-loss: (B,) -> (B,3)."""
    return torch.stack([torch.ones_like(snr), 1 + snr, snr], dim=1)


class Space(ABC):
    """What multiplies each head's x0-loss."""

    @abstractmethod
    def weights(self, snr: Tensor) -> Tensor:
        """(B,) -> (B,3)."""


class NativeSpace(Space):
    """Each head in its own space: (1, 1 + SNR, SNR).

    For heads that are equally good, E_v = E_x0 + E_eps, so v is never the least; x0 is where SNR > 1, eps elsewhere.
    """

    def weights(self, snr: Tensor) -> Tensor:
        return native_scales(snr)


class X0Space(Space):
    """The x0-loss: 1."""

    def weights(self, snr: Tensor) -> Tensor:
        return torch.ones_like(snr)[:, None].expand(-1, 3)


class EpsSpace(Space):
    """The eps-loss, which is the SNR-weighted x0-loss: SNR."""

    def weights(self, snr: Tensor) -> Tensor:
        return snr[:, None].expand(-1, 3)


class VSpace(Space):
    """The v-loss: 1 + SNR."""

    def weights(self, snr: Tensor) -> Tensor:
        return (1 + snr)[:, None].expand(-1, 3)


class Granularity(ABC):
    """Over what the losses are averaged before the heads are compared."""

    @abstractmethod
    def losses(self, squares: Tensor, ratio: Tensor, phi: Tensor, tracker: HeadErrors) -> Tensor:
        """Losses to compare.

        Args:
            squares: (B,3,P) native square error of each head at each of P pixels, mean over channels, detached.
            ratio: (B,3) the space's loss divided by the native one.
            phi: (B,) angle of the noise.
            tracker: what was seen of the heads.

        Returns:
            (B,3,P), or (B,3,1) for one choice per row.
        """


class PerSample(Granularity):
    """One choice per image."""

    def losses(self, squares: Tensor, ratio: Tensor, phi: Tensor, tracker: HeadErrors) -> Tensor:
        return (squares.mean(2) * ratio)[:, :, None]


class PerBatch(Granularity):
    """One choice for the rows of one backward pass (those of this process and microbatch), by their mean loss.

    The one granularity whose result depends on how the global batch is split: nothing is exchanged in mid-step.
    """

    def losses(self, squares: Tensor, ratio: Tensor, phi: Tensor, tracker: HeadErrors) -> Tensor:
        return (squares.mean(2) * ratio).mean(0, keepdim=True).expand(len(squares), -1)[:, :, None]


class PerBin(Granularity):
    """One choice per bin of noise, by the running mean of the loss; equal losses before anything was tracked."""

    def losses(self, squares: Tensor, ratio: Tensor, phi: Tensor, tracker: HeadErrors) -> Tensor:
        losses = torch.where(tracker.seen, tracker.mean_squares(phi) * ratio, 1.0)
        return losses.to(squares.dtype)[:, :, None]


class PerPixel(Granularity):
    """One choice at each position, by the mean over its channels."""

    def losses(self, squares: Tensor, ratio: Tensor, phi: Tensor, tracker: HeadErrors) -> Tensor:
        return squares * ratio[:, :, None]
