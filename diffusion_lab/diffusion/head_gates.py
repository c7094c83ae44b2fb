"""How a mixed prediction compares its three heads, and what weights, or gates, their losses get.

A head h with native error n_h has the mean square errors (SNR = S)

    native  E_x0 = x,   E_v = (1 + S) x,   E_eps = S x,       x its mean square error in x0-space

A space defines the factor of x for each head. In the spaces x0, eps and v it is the same for all three, so they rank
the heads in the same way; they differ for soft rules, and if rows of different noise levels are averaged. A granularity
defines the elements over which they are averaged.

A reduction turns the losses into gates: weights >= 0 that sum to 1 and multiply the heads' losses. Gates are computed
from detached losses L (B,3,P), so no gradient flows through the selection.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor

from diffusion_lab.arguments import check_integer, check_number
from diffusion_lab.diffusion.head_errors import HeadErrors, noise_bin, sum_by_bin
from diffusion_lab.diffusion.schedule import Tables


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

    For heads that are equally good, E_v = E_x0 + E_eps, so v never has the least loss; x0 has it where SNR > 1, and eps
    elsewhere.
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


class Reduction(Tables, ABC):
    """From losses to gates."""

    @abstractmethod
    def forward(self, losses: Tensor, phi: Tensor, updates: Tensor) -> Tensor:
        """Gates.

        Args:
            losses: (B,3,P).
            phi: (B,) angle of the noise.
            updates: () int64, optimizer steps observed.

        Returns:
            As `losses`, sum 1 over the heads.
        """

    def of_noise(self, phi: Tensor) -> Tensor | None:
        """The gates (B,3) float64 where they depend on the noise alone, so that generation can use them; else None."""
        return None

    def observe(self, phi: Tensor, losses: Tensor) -> None:
        """The losses (G,3) of one update's rows, in the selection's space, of all processes."""


class HardMin(Reduction):
    """Gate 1 for the least loss, 0 for the others; equal losses share it.

    A head that is never the least gets a gradient of exactly 0.
    """

    def forward(self, losses: Tensor, phi: Tensor, updates: Tensor) -> Tensor:
        least = (losses == losses.amin(1, keepdim=True)).to(losses.dtype)
        return least / least.sum(1, keepdim=True)


class SoftMin(Reduction):
    """g = softmax(-L/temperature), the gradient of -temperature log mean_h exp(-L_h/temperature).

    Args:
        temperature: in units of the loss, > 0; -> 0 the hard minimum, -> infinity the mean.
    """

    def __init__(self, temperature: float = 0.1) -> None:
        super().__init__()
        self.temperature = check_number("temperature", temperature, "()", 0, math.inf, "use 0.1")

    def forward(self, losses: Tensor, phi: Tensor, updates: Tensor) -> Tensor:
        return torch.softmax(-losses / self.temperature, dim=1)


class MeanOfHeads(Reduction):
    """1/3 each: the control, in which every head learns everywhere."""

    def forward(self, losses: Tensor, phi: Tensor, updates: Tensor) -> Tensor:
        return torch.full_like(losses, 1 / 3)

    def of_noise(self, phi: Tensor) -> Tensor:
        return phi.new_full((len(phi), 3), 1 / 3)


class WarmupMin(Reduction):
    """(1 - m)/3 + m (hard minimum),  m = min(1, updates/steps): every head learns before they compete.

    A ramp in place of an epsilon-greedy draw: the same gates in expectation for m = 1 - epsilon, with no random
    numbers and no variance from them.

    Args:
        steps: optimizer steps until the minimum alone is left, >= 1.
    """

    def __init__(self, steps: int = 10_000) -> None:
        super().__init__()
        self.steps = check_integer("steps", steps, 1, "use 10000")
        self.minimum = HardMin()

    def forward(self, losses: Tensor, phi: Tensor, updates: Tensor) -> Tensor:
        share = (updates / self.steps).clamp(max=1.0).to(losses.dtype)
        return (1 - share) / 3 + share * self.minimum(losses, phi, updates)


class LearnedGate(Reduction):
    """g = softmax(logits of the row's bin of noise), learned by gradient descent on sum_h g_h l_h in `observe`:

        logits_h <- logits_h - lr  mean_i g_h (l_ih - sum_k g_k l_ik),     l_i = L_i / sum_h L_ih

    the mean over the update's rows in the bin. l is detached from the network: the gates learn which head is good,
    never to make one good. The logits are buffers with a rule of their own rather than parameters of the optimizer,
    so weight decay, clipping and averaging leave them alone, and l instead of L makes lr independent of the noise.
    The granularity has no part in it.

    Args:
        lr: learning rate of the logits, > 0.
        bins: number of equal ranges of phi, >= 1.
    """

    logits: Tensor

    def __init__(self, lr: float = 0.1, bins: int = 20) -> None:
        super().__init__()
        self.lr = check_number("lr", lr, "()", 0, math.inf, "use 0.1")
        self.bins = check_integer("bins", bins, 1, "use 20")
        self.register_buffer("logits", torch.zeros(bins, 3, dtype=torch.float64))

    def forward(self, losses: Tensor, phi: Tensor, updates: Tensor) -> Tensor:
        return self.of_noise(phi).to(losses.dtype)[:, :, None].expand_as(losses)

    def of_noise(self, phi: Tensor) -> Tensor:
        return torch.softmax(self.logits, dim=1)[noise_bin(phi, self.bins)]

    @torch.no_grad()
    def observe(self, phi: Tensor, losses: Tensor) -> None:
        gate, relative = self.of_noise(phi), losses.double() / losses.double().sum(1, keepdim=True)
        gradient = gate * (relative - (gate * relative).sum(1, keepdim=True))
        count, sums = sum_by_bin(noise_bin(phi, self.bins), gradient, self.bins)
        self.logits -= self.lr * sums / count.clamp(min=1)[:, None]
