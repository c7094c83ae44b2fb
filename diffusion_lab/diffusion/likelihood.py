"""The variational bound on -log P(x_0) (Ho et al. 2020, equation 5), in bits per dimension:

    -log2 P(x_0) / D  <=  sum_t L_t + L_T
    L_0 = -log2 P(x_0 | x_1) / D                                      discretised decoder
    L_t = KL(q(x_{t-1} | x_t, x_0) || p(x_{t-1} | x_t)) / (D ln 2)    t = 1 .. T-1
    L_T = KL(q(x_{T-1} | x_0) || N(0, n^2 I)) / (D ln 2)              the prior, nothing is learned in it

where D = C H W and n^2 = alpha_{T-1}^2 + sigma_{T-1}^2, 1 on a variance-preserving path. Each function serves a
respaced denoiser as well: the bound is then that of its fewer steps.

`EmpiricalFloor` is the least loss that any model can have on a finite set of images, that of the set's exact denoiser.
Let x0 be uniform over x_1 .. x_N, and x_t = alpha x_i + sigma eps. With d_j = x_j - x_i and SNR = alpha^2/sigma^2, the
posterior probabilities of the N images are a softmax

    r_j  proportional to  exp(sqrt(SNR) eps.d_j - SNR |d_j|^2 / 2)                              (1)

and the smallest mean square error in x0-space, given x_t, is the posterior's variance per dimension,

    floor_i = (sum_j r_j |d_j|^2 - |sum_j r_j d_j|^2) / D,     floor = E_{i,eps} floor_i          (2)

No model has a smaller expected loss over these N images. Times `native_scale(SNR)` it is the floor in the space of a
prediction. The mean over i and eps is left to the caller; (2) has a smaller variance than the squared error of the
posterior mean, whose conditional expectation it is.

For images drawn from a distribution, the floor of the N images is in expectation at most that of the distribution,
because the smallest mean square error is concave in the distribution; so it also lies below the loss on images that
training never saw.

(1) and (2) are Bayes' rule for Gaussian noise; see e.g. Karras et al. 2022, "Elucidating the Design Space of
Diffusion-Based Generative Models", appendix B.3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from diffusion_lab.diffusion.denoiser import Denoiser
from diffusion_lab.diffusion.prediction import Prediction
from diffusion_lab.diffusion.schedule import NoiseSchedule, working_dtype
from diffusion_lab.diffusion.variance import FixedLarge, Variance, bound_term


class Bound(NamedTuple):
    """The bound and its parts, bits/dim."""

    terms: Tensor  # (B,T) L_t
    prior: Tensor  # (B,) L_T
    total: Tensor  # (B,) their sum


def vlb_terms(denoiser: Denoiser, x0: Tensor, eps: Tensor, t: Tensor, clip: bool = False, **cond: Tensor) -> Tensor:
    """L_t in bits/dim at given noise and timesteps, one network call: -> (B,).

    Args:
        denoiser: used in the mode it is in.
        x0: (B,C,H,W) in [-1, 1]; at t = 0 on the 256 levels of 8-bit images.
        eps: (B,C,H,W) noise.
        t: (B,) int64.
        clip: whether the estimate of x0 is clipped to [-1, 1]: off in training, on when a likelihood is reported.
        **cond: given to the network.
    """
    reverse = denoiser.reverse(denoiser.schedule.perturb(x0, eps, t), t, clip, **cond)
    return bound_term(x0, reverse.x0, reverse.log_variance, t, denoiser.schedule)


def bound_weights(schedule: NoiseSchedule, prediction: Prediction, variance: Variance) -> Tensor:
    """c_t such that L_t = c_t E_t + constant, E_t the native loss: -> (T,) float64, bits/dim.

        c_t = b_t^2 / (2 V_t (1-b_t) (1-A_t) ln 2) on the eps-loss, times native -> eps: SNR_t / native_scale(SNR_t)

    (Kim et al. 2025, eq. 4; Ho et al. 2020, eq. 12); on any path with r_t^2 sigma_t^2, r_t = alpha_t/alpha_{t-1}, in
    place of (1-b_t) (1-A_t). At t = 0 it is the same formula with V_0 = Vp_1, not the decoder's likelihood. A learned
    variance has no fixed V_t: b_t stands for it.

    Args:
        schedule: the noise schedule.
        prediction: the prediction, with one head.
        variance: that of the reverse step.

    Raises:
        ValueError: a prediction of several heads, whose loss is not in one space.
    """
    if prediction.heads != 1:
        raise ValueError(
            f"prediction={type(prediction).__name__} must have one head, because the bound is one number times one "
            "loss; use prediction=eps, x0 or v"
        )
    t = torch.arange(schedule.num_timesteps, device=schedule.betas.device)
    fixed = FixedLarge() if variance.channels else variance
    v = fixed.log_variance(torch.empty(len(t), 0, device=t.device), t, schedule).double().exp().flatten()
    on_eps = schedule.betas.square() / (2 * v * schedule.retained * schedule.noise_variance * math.log(2))
    return on_eps * schedule.snr / prediction.at(schedule, t).native_scale(schedule.snr)


def prior_term(x0: Tensor, schedule: NoiseSchedule) -> Tensor:
    """L_T in bits/dim: (B,...) -> (B,).   1/2 (A x0^2 - A - ln(1-A)) / ln 2 per dimension, A = A_{T-1}."""
    a = schedule.alphas_cumprod[-1]
    # In float64: -A - ln(1-A) is about A^2/2, far below float32's resolution of its two parts.
    per_dim = 0.5 * (a * x0.double().square() - a - torch.log1p(-a))
    return (per_dim.flatten(1).mean(1) / math.log(2)).to(working_dtype(x0))


@torch.no_grad()
def bits_per_dim(denoiser: Denoiser, x0: Tensor, noise: Callable[[int, Tensor], Tensor], **cond: Tensor) -> Bound:
    """The whole bound, one draw of noise per timestep, estimates clipped to [-1, 1]: T network calls.

    Args:
        denoiser: used in the mode it is in; call eval() first.
        x0: (B,C,H,W) in [-1, 1] on the 256 levels of 8-bit images.
        noise: noise(k, like) -> eps for the k-th call, k = 0 the noisiest timestep.
        **cond: given to the network.
    """
    total = denoiser.num_timesteps
    terms = []
    for t in range(total):
        steps = torch.full((len(x0),), t, device=x0.device)
        terms.append(vlb_terms(denoiser, x0, noise(total - 1 - t, x0), steps, clip=True, **cond))
    table, prior = torch.stack(terms, 1), prior_term(x0, denoiser.schedule)
    return Bound(table, prior, table.sum(1) + prior)


class EmpiricalFloor:
    """Equation (2) for one image and one noise, at K signal-to-noise ratios, of images that come in chunks.

    The softmax is accumulated over chunks, so that memory is O(K (n + D)) whatever N is; the result is exact up to
    float64's rounding.

    Args:
        x0: x_i of D numbers in any shape.
        eps: its noise, of the same shape.
        snr: (K,) positive.
    """

    def __init__(self, x0: Tensor, eps: Tensor, snr: Tensor) -> None:
        self.x0, self.eps, self.snr = x0.double().flatten(), eps.double().flatten(), snr.double()
        self._top = torch.full_like(self.snr, -torch.inf)  # the largest logit so far
        self._total, self._square = torch.zeros_like(self.snr), torch.zeros_like(self.snr)
        self._mean = self.snr.new_zeros(len(self.snr), len(self.x0))

    def add(self, images: Tensor) -> None:
        """A chunk (n,...) of x_1 .. x_N; x_i is one of these, and each counts once for each time it is added."""
        d = images.double().flatten(1) - self.x0
        length = d.square().sum(1)
        logits = torch.outer(self.snr.sqrt(), d @ self.eps) - torch.outer(self.snr / 2, length)
        highest = torch.maximum(self._top, logits.amax(1))
        kept, r = (self._top - highest).exp(), (logits - highest[:, None]).exp_()
        self._total, self._square = self._total * kept + r.sum(1), self._square * kept + r @ length
        self._mean.mul_(kept[:, None]).addmm_(r, d)  # in place, as it is the largest
        self._top = highest

    def value(self) -> Tensor:
        """(K,) float64 the floor, once all images have been added."""
        total, square, mean = self._total, self._square, self._mean
        return (square / total - (mean / total[:, None]).square().sum(1)).clamp(min=0) / len(self.x0)


def empirical_floor(x0: Tensor, eps: Tensor, snr: Tensor, images: Iterable[Tensor]) -> Tensor:
    """The value (K,) of `EmpiricalFloor(x0, eps, snr)` for x_1 .. x_N in chunks (n,...)."""
    floor = EmpiricalFloor(x0, eps, snr)
    for chunk in images:
        floor.add(chunk)
    return floor.value()
