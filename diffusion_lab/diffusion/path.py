"""The noise schedule of any path from data to noise, x_t = alpha_t x_0 + sigma_t eps with falling SNR.

With alpha_{-1} = 1, sigma_{-1} = 0 and

    r_t = alpha_t / alpha_{t-1}
    b_t = sigma_t^2 - r_t^2 sigma_{t-1}^2       variance added at step t, `betas`
    A_t = alpha_t^2 / (alpha_t^2 + sigma_t^2)   `alphas_cumprod` of the variance-preserving path with the same SNR

the posterior q(x_{t-1} | x_t, x_0) = N(C1 x_0 + C2 x_t, Vp_t I) has (Kingma et al. 2021, appendix A)

    C1 = b_t alpha_{t-1} / sigma_t^2,   C2 = r_t sigma_{t-1}^2 / sigma_t^2,   Vp_t = b_t sigma_{t-1}^2 / sigma_t^2

which are the numbers of `NoiseSchedule` where alpha_t^2 + sigma_t^2 = 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from diffusion_lab.diffusion.schedule import NoiseSchedule


class GaussianPath(NoiseSchedule):
    """All tables of a path, each (T,) float64.

    Args:
        alpha: (T,) scale of the signal, positive.
        sigma: (T,) scale of the noise, positive, such that alpha/sigma falls.

    Raises:
        ValueError: a scale is not positive and finite, or the SNR does not fall.
    """

    def __init__(self, alpha: Tensor | Sequence[float], sigma: Tensor | Sequence[float]) -> None:
        nn.Module.__init__(self)  # the tables are not those of betas
        alpha, sigma = (torch.as_tensor(x, dtype=torch.float64).detach().clone() for x in (alpha, sigma))
        _check(alpha, sigma)
        self._register(_tables(alpha, sigma))

    def respace(self, timesteps: Tensor) -> GaussianPath:
        """The path at some timesteps only.

        Args:
            timesteps: (S,) int64, increasing.
        """
        kept = timesteps.to(self.signal_scale.device)
        return GaussianPath(self.signal_scale[kept], self.noise_scale[kept])


def _tables(alpha: Tensor, sigma: Tensor) -> dict[str, Tensor]:
    log_snr = 2 * (alpha.log() - sigma.log())
    alpha_prev, sigma_prev = torch.cat([alpha.new_ones(1), alpha[:-1]]), torch.cat([sigma.new_zeros(1), sigma[:-1]])
    # b_t / sigma_t^2 = 1 - SNR_t / SNR_{t-1}, the share of the noise that is new, without cancellation; all of it at 0
    new = torch.cat([alpha.new_ones(1), -torch.expm1(log_snr.diff())])
    variance = new * sigma_prev**2
    floored = torch.cat([variance[1:2] if len(alpha) > 1 else sigma**2, variance[1:]])
    added = new * sigma**2
    return {
        "betas": added,
        "log_betas": added.log(),
        "alphas_cumprod": torch.sigmoid(log_snr),
        "snr": log_snr.exp(),
        "log_snr": log_snr,
        "signal_scale": alpha,
        "noise_scale": sigma,
        "noise_level": sigma / alpha,
        "posterior_variance": variance,
        "posterior_log_variance_clipped": floored.log(),
        "posterior_mean_coef1": new * alpha_prev,
        "posterior_mean_coef2": alpha / alpha_prev * (sigma_prev / sigma) ** 2,
    }


def _check(alpha: Tensor, sigma: Tensor) -> None:
    if alpha.ndim != 1 or not len(alpha) or alpha.shape != sigma.shape:
        raise ValueError(
            f"alpha of shape {tuple(alpha.shape)} and sigma of shape {tuple(sigma.shape)} must be two lists of T "
            "numbers; give one of each for every timestep"
        )
    for name, scale in (("alpha", alpha), ("sigma", sigma)):
        wrong = ~((scale > 0) & scale.isfinite())
        if wrong.any():
            t = int(wrong.nonzero()[0])
            raise ValueError(
                f"{name}[{t}]={scale[t].item()} must be positive and finite: no weight is defined at an SNR of 0 or "
                "infinity; use timesteps inside the path, such as midpoints"
            )
    risen = (alpha.log() - sigma.log()).diff() >= 0
    if risen.any():
        t = int(risen.nonzero()[0]) + 1
        raise ValueError(f"alpha[{t}]/sigma[{t}] must be below that of timestep {t - 1}; sort the timesteps by noise")
