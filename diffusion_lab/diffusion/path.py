"""The noise schedule of any path from data to noise, x_t = alpha_t x_0 + sigma_t eps with falling SNR; paths by name.

With alpha_{-1} = 1, sigma_{-1} = 0 and

    r_t = alpha_t / alpha_{t-1}
    b_t = sigma_t^2 - r_t^2 sigma_{t-1}^2       variance added at step t, `betas`
    A_t = alpha_t^2 / (alpha_t^2 + sigma_t^2)   `alphas_cumprod` of the variance-preserving path with the same SNR

the posterior q(x_{t-1} | x_t, x_0) = N(C1 x_0 + C2 x_t, Vp_t I) has (Kingma et al. 2021, appendix A)

    C1 = b_t alpha_{t-1} / sigma_t^2,   C2 = r_t sigma_{t-1}^2 / sigma_t^2,   Vp_t = b_t sigma_{t-1}^2 / sigma_t^2

which are the numbers of `NoiseSchedule` where alpha_t^2 + sigma_t^2 = 1.

What depends on the SNR alone (the denoiser, the weight on the x0-loss, the bound) is the same on all paths: x_t/n_t
with n_t = sqrt(alpha_t^2 + sigma_t^2), `norm`, is a point of the variance-preserving path with the same SNR.

On the paths by name, T timesteps stand at the midpoints u_k = (k + 1/2)/T of T equal bins, so that neither end, where
the SNR is infinite or 0, is a timestep: at T = 1000 the SNR of the linear path runs from 4e6 to 2.5e-7. A solver's last
step leads from the first midpoint to the data.

What the grid costs: the mean of a smooth function of u over the midpoints differs from its integral by O(1/T^2). For
the best velocity loss of Gaussian data of variance 1/4 on the linear path it is 1.3e-7 of the integral at T = 1000 and
1.3e-5 at T = 100 (tests/diffusion/test_paths.py), so drawing within a bin would gain nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor, nn

from diffusion_lab.arguments import check_integer, check_number
from diffusion_lab.diffusion.schedule import NoiseSchedule, midpoints, slopes_of
from diffusion_lab.diffusion.schedules import MAX_TIMESTEPS

SLOPES = ("signal_slope", "noise_slope")
PRESERVES = 1e-12  # |n_t - 1| below which a path counts as variance preserving, and x_t is its own coordinate


class GaussianPath(NoiseSchedule):
    """All tables of a path, each (T,) float64.

    Args:
        alpha: (T,) scale of the signal, positive.
        sigma: (T,) scale of the noise, positive, such that alpha/sigma falls.
        position: (T,) the path's parameter s in [0, 1], increasing; None for the midpoints (k + 1/2)/T.
        slopes: d alpha/ds and d sigma/ds, (T,) each, of which the velocity is made; None for differences of the tables.

    Raises:
        ValueError: a scale is not positive and finite, the SNR does not fall, or the position does not increase.
    """

    def __init__(
        self,
        alpha: Tensor | Sequence[float],
        sigma: Tensor | Sequence[float],
        position: Tensor | Sequence[float] | None = None,
        slopes: tuple[Tensor, Tensor] | None = None,
    ) -> None:
        nn.Module.__init__(self)  # the tables are not those of betas
        alpha, sigma = (torch.as_tensor(x, dtype=torch.float64).detach().clone() for x in (alpha, sigma))
        _check(alpha, sigma)
        s = midpoints(len(alpha)) if position is None else torch.as_tensor(position, dtype=torch.float64)
        _check_position(s, len(alpha))
        given = slopes_of(alpha, sigma, s) if slopes is None else dict(zip(SLOPES, slopes, strict=True))
        norm = (alpha.square() + sigma.square()).sqrt()
        preserving = bool((norm - 1).abs().max() < PRESERVES)
        self._register(_tables(alpha, sigma) | given | {"position": s, "norm": None if preserving else norm})

    @property
    def retained(self) -> Tensor:
        alpha = self.signal_scale
        return (alpha / torch.cat([alpha.new_ones(1), alpha[:-1]])).square()

    @property
    def noise_variance(self) -> Tensor:
        return self.noise_scale.square()

    def respace(self, timesteps: Tensor) -> Self:
        """The path at some timesteps only, of the same class.

        Args:
            timesteps: (S,) int64, increasing.
        """
        kept = timesteps.to(self.signal_scale.device)
        slopes = self.signal_slope[kept], self.noise_slope[kept]
        path = GaussianPath(self.signal_scale[kept], self.noise_scale[kept], self.position[kept], slopes)
        return self._respaced(path, timesteps)


def _tables(alpha: Tensor, sigma: Tensor) -> dict[str, Tensor]:
    log_snr = 2 * (alpha.log() - sigma.log())
    alpha_prev, sigma_prev = torch.cat([alpha.new_ones(1), alpha[:-1]]), torch.cat([sigma.new_zeros(1), sigma[:-1]])
    # b_t / sigma_t^2 = 1 - SNR_t / SNR_{t-1}, the share of the noise that is new, without cancellation; all of it at 0
    new = torch.cat([alpha.new_ones(1), -torch.expm1(log_snr.diff())])
    variance = new * sigma_prev**2
    # Vp_1 is a variance in the units of x_{t=0}, that of the last step in the units of the data.
    last = (variance[1:2] if len(alpha) > 1 else sigma**2) / (alpha[0] ** 2 + sigma[0] ** 2)
    floored = torch.cat([last, variance[1:]])
    added, power, power_prev = new * sigma**2, alpha**2 + sigma**2, alpha_prev**2 + sigma_prev**2
    return {
        "betas": added,
        "log_variance_large": (added * power_prev / power).log(),
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


def _check_position(s: Tensor, total: int) -> None:
    if s.shape != (total,) or not bool((s.diff() > 0).all()) or not bool(((s >= 0) & (s <= 1)).all()):
        raise ValueError(f"position={s.tolist()[:3]}.. must be {total} increasing numbers in [0, 1], 0 at the data")


def rectified_flow(num_timesteps: int = 1000, shift: float = 1.0) -> GaussianPath:
    """The straight line alpha = 1 - s, sigma = s (Lipman et al. 2023; Liu et al. 2023), with s = 0 at the data.

        s_k = shift u_k / (1 + (shift - 1) u_k),   u_k = (k + 1/2)/T

    The shift of Esser et al. 2024 (SD3, equation 23) divides the SNR by shift^2 at each u: sqrt(m/n) for images of m
    pixels where n pixels had none; 3 in SD3 at 1024 x 1024. d x_t/ds = eps - x_0 whatever the shift.

    Differs from SiT (Ma et al. 2024): its time runs from noise to data, t = 1 - s, and its velocity is x_0 - eps.

    Use: for flow matching, as in SiT, SD3 and Flux, with prediction=velocity.

    Args:
        num_timesteps: T, the number of timesteps, which stand at the midpoints of equal bins of u.
        shift: > 0, divides the SNR by shift^2: 1 for none, more for noisier timesteps, 3 in SD3 at 1024 x 1024 pixels.
    """
    u = _grid(num_timesteps)
    check_number("shift", shift, "()", 0, math.inf, "use 1.0 for none or 3.0 as SD3 at 1024 pixels")
    s = shift * u / (1 + (shift - 1) * u)
    # 1 - s without cancellation; it is what the SNR at the noisy end depends on.
    return GaussianPath((1 - u) / (1 + (shift - 1) * u), s, s, (-torch.ones_like(s), torch.ones_like(s)))


def edm(num_timesteps: int = 1000, sigma_min: float = 0.002, sigma_max: float = 80.0, rho: float = 7.0) -> GaussianPath:
    """alpha = 1 and sigma from sigma_min to sigma_max (Karras et al. 2022, EDM, equation 5):

        sigma_k = (sigma_min^(1/rho) + u_k (sigma_max^(1/rho) - sigma_min^(1/rho)))^rho,   u_k = (k + 1/2)/T

    Its velocity is d x_t/d sigma = eps; its position is u_k.

    Use: for EDM's training; `method=edm` sets it with EDM's prediction, preconditioning and sampler. Generate with
    solver=heun.

    Args:
        num_timesteps: T, the number of timesteps.
        sigma_min: lowest noise level in units of the images, > 0.
        sigma_max: highest noise level in units of the images.
        rho: >= 1; with 1 the steps of sigma are even, and the larger it is, the denser are the levels at low noise, up
            to even steps of ln sigma.
    """
    u = _grid(num_timesteps)
    check_number("sigma_max", sigma_max, "()", 0, math.inf, "use 80.0 for the published setting")
    check_number("sigma_min", sigma_min, "()", 0, sigma_max, "it must be below sigma_max, 0.002 in the paper")
    check_number("rho", rho, "[)", 1, math.inf, "use 7.0 for the published setting")
    low, high = sigma_min ** (1 / rho), sigma_max ** (1 / rho)
    sigma = (low + u * (high - low)) ** rho
    return GaussianPath(torch.ones_like(sigma), sigma, u, (torch.zeros_like(sigma), torch.ones_like(sigma)))


def _grid(num_timesteps: int) -> Tensor:
    check_integer("num_timesteps", num_timesteps, 1, "use 1000", maximum=MAX_TIMESTEPS)
    return midpoints(num_timesteps)
