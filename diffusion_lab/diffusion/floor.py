"""The least loss that any model can have on a finite set of images: that of the set's exact denoiser.

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

from collections.abc import Iterable

import torch
from torch import Tensor


def empirical_floor(x0: Tensor, eps: Tensor, snr: Tensor, images: Iterable[Tensor]) -> Tensor:
    """Equation (2) for one image and one noise, at K signal-to-noise ratios: (K,) float64.

    The softmax is accumulated over chunks, so that memory is O(K (n + D)) whatever N is; the result is exact up to
    float64's rounding.

    Args:
        x0: x_i of D numbers in any shape; one of `images`.
        eps: its noise, of the same shape.
        snr: (K,) positive.
        images: x_1 .. x_N in chunks (n,...), each image once for each time it is in the set.
    """
    x0, eps, snr = x0.double().flatten(), eps.double().flatten(), snr.double()
    top = torch.full_like(snr, -torch.inf)  # the largest logit so far
    total, square = torch.zeros_like(snr), torch.zeros_like(snr)
    mean = snr.new_zeros(len(snr), len(x0))
    for chunk in images:
        d = chunk.double().flatten(1) - x0
        length = d.square().sum(1)
        logits = torch.outer(snr.sqrt(), d @ eps) - torch.outer(snr / 2, length)
        highest = torch.maximum(top, logits.amax(1))
        kept, r = (top - highest).exp(), (logits - highest[:, None]).exp_()
        total, square = total * kept + r.sum(1), square * kept + r @ length
        mean, top = mean * kept[:, None] + r @ d, highest
    return (square / total - (mean / total[:, None]).square().sum(1)).clamp(min=0) / len(x0)
