"""Noise schedules by name. Each function returns a `NoiseSchedule`; T = num_timesteps, u = i/T.

`linear`, `quadratic`, `sqrt_linear` give the betas; `cosine`, `sigmoid`, `laplace` give a continuous A(u), from which
b_i = min(1 - A((i+1)/T) / A(i/T), max_beta). The table is then the running product of 1 - b_i, not A(u) itself.
`fdm` and `damped` transform another schedule.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from diffusion_lab.arguments import check_integer, check_number
from diffusion_lab.diffusion.schedule import NoiseSchedule

MAX_TIMESTEPS = 1_000_000  # tables of T numbers are made, on the processor; the papers' largest T is 4000


def linear(num_timesteps: int = 1000, beta_start: float = 1e-4, beta_end: float = 0.02) -> NoiseSchedule:
    """b = linspace(k beta_start, k beta_end, T) with k = 1000/T (Ho et al. 2020; k: Nichol & Dhariwal 2021).

    Differs from ddpm-torch: it has no k, because its T is 1000 throughout; the factor keeps A_{T-1} for any T.

    Use: to repeat DDPM and most papers until 2022. At 8 to 64 pixels many of its timesteps are nearly pure noise.

    Args:
        num_timesteps: T, the number of timesteps; above 1000 beta_end, so 21 or more for the default.
        beta_start: first beta at T = 1000.
        beta_end: last beta at T = 1000.
    """
    _check_ends(num_timesteps, beta_start, beta_end, "0.0001 and 0.02 are DDPM's")
    scale = 1000 / num_timesteps
    if scale * beta_end >= 1:
        raise ValueError(
            f"num_timesteps={num_timesteps} must be above {1000 * beta_end:g}, since the betas are scaled by "
            "1000/num_timesteps; raise it or lower beta_end"
        )
    return NoiseSchedule(torch.linspace(scale * beta_start, scale * beta_end, num_timesteps, dtype=torch.float64))


def quadratic(num_timesteps: int = 1000, beta_start: float = 1e-4, beta_end: float = 0.02) -> NoiseSchedule:
    """b = linspace(sqrt(beta_start), sqrt(beta_end), T)^2 (the "quad" of DDPM's and of Kim et al.'s code).

    The betas are not rescaled with T: with far fewer than 1000 timesteps much signal is left at the end.

    Use: to repeat papers that have it, and as a schedule between linear and cosine.

    Args:
        num_timesteps: T, the number of timesteps.
        beta_start: first beta.
        beta_end: last beta.
    """
    _check_ends(num_timesteps, beta_start, beta_end, "0.0001 and 0.02 are the published values")
    root = torch.linspace(beta_start**0.5, beta_end**0.5, num_timesteps, dtype=torch.float64)
    return NoiseSchedule(root**2)


def sqrt_linear(num_timesteps: int = 1000, beta_start: float = 0.0015, beta_end: float = 0.0195) -> NoiseSchedule:
    """b = linspace(sqrt(beta_start), sqrt(beta_end), T)^2: linear in sqrt(beta) (Rombach et al. 2022, their code).

    The formula of `quadratic` under latent diffusion's constants: 0.0015, 0.0195 for CelebA-HQ; 0.00085, 0.012 for
    Stable Diffusion.

    Differs from latent-diffusion's code: there the key "linear" means this curve and "sqrt_linear" the truly linear
    one; here a name says what is linear.

    Use: for latents of an autoencoder, as in latent diffusion and Stable Diffusion 1 and 2.

    Args:
        num_timesteps: T, the number of timesteps.
        beta_start: first beta.
        beta_end: last beta.
    """
    return quadratic(num_timesteps, beta_start, beta_end)


def cosine(
    num_timesteps: int = 1000, offset: float = 0.008, max_beta: float = 0.999, shift: float = 1.0
) -> NoiseSchedule:
    """A(u) = cos^2(pi/2 (u + offset)/(1 + offset)) / A(0) (Nichol & Dhariwal 2021, equation 17).

    With a shift the SNR is divided by shift^2 at each u, SNR'(u) = SNR(u)/shift^2, as images of d x d pixels need where
    d_0 x d_0 needed none: shift = d/d_0, d_0 = 64 (Hoogeboom et al. 2023, simple diffusion, section 3.1).

    Use: for images of up to 64 pixels, and the default: the best combination of `experiment=schedule_by_sampler` on
    digits has it. For larger images raise the noise with `shift`.

    Args:
        num_timesteps: T, the number of timesteps.
        offset: added to u in [0, 1], which keeps the first betas away from 0; > 0.
        max_beta: clip of the betas, in (0, 1). It acts on the last step only.
        shift: > 0, divides the SNR by shift^2: 1 for none, image_size/64 in simple diffusion.
    """
    _check_length(num_timesteps, 1, "use 1000 or 4000")
    check_number("offset", offset, "()", 0, math.inf, "use 0.008 for the published setting")
    check_number("shift", shift, "()", 0, math.inf, "use 1.0 for none, image_size/64 as in simple diffusion")
    u = _grid(num_timesteps)
    curve = torch.cos((u + offset) / (1 + offset) * (math.pi / 2)) ** 2
    if shift != 1:
        curve = curve / curve[0]
        curve = curve / (curve + shift**2 * (1 - curve))
    return _from_curve(curve, max_beta)


def sigmoid(
    num_timesteps: int = 1000, start: float = -3.0, end: float = 3.0, tau: float = 1.0, max_beta: float = 0.999
) -> NoiseSchedule:
    """A(u) = [S(end/tau) - S((start + u (end - start))/tau)] / [S(end/tau) - S(start/tau)], S(z) = 1/(1+e^-z)
    (Jabri et al. 2022; Chen 2023, algorithm 1).

    Differs from diffusers' "sigmoid": that one makes the betas, not A, a sigmoid of u.

    Use: for large images, when the schedule is to be tuned: start, end and tau move the noise.

    Args:
        num_timesteps: T, the number of timesteps.
        start: argument of S at u = 0, below `end`.
        end: argument of S at u = 1.
        tau: temperature, > 0; a smaller one is steeper.
        max_beta: clip of the betas, in (0, 1). It acts on the last step only.
    """
    _check_length(num_timesteps, 1, "use 1000")
    check_number("end", end, "()", -math.inf, math.inf, "use 3.0 for the published setting")
    check_number("start", start, "()", -math.inf, end, "it is the low end of the sigmoid, -3.0 in the papers")
    check_number("tau", tau, "()", 0, math.inf, "use 1.0 for the published setting")
    u = _grid(num_timesteps)
    s = torch.sigmoid((start + u * (end - start)) / tau)
    return _from_curve((s[-1] - s) / (s[-1] - s[0]), max_beta)


def laplace(num_timesteps: int = 1000, mean: float = 0.0, scale: float = 0.5, max_beta: float = 0.999) -> NoiseSchedule:
    """ln SNR(u) = mean - scale sgn(1/2 - u) ln(1 - 2|u - 1/2|),  A(u) = S(ln SNR(u)),  S(z) = 1/(1+e^-z): under
    uniform u the log-SNR has a Laplace distribution (Hang et al. 2024).

    Differs from diffusers: it returns sqrt(A) where A is expected, apparently a mistake, and adds 1e-6 inside
    the logarithm; here the infinite log-SNR at u = 1 is met by `max_beta`.

    Use: to put most timesteps near the middle of ln SNR with the schedule instead of the sampler.

    Args:
        num_timesteps: T, the number of timesteps, 2 or more.
        mean: centre of the log-SNR in nats.
        scale: its spread in nats, > 0.
        max_beta: clip of the betas, in (0, 1). It acts on the last step only.
    """
    _check_length(num_timesteps, 2, "use 1000")
    check_number("mean", mean, "()", -math.inf, math.inf, "use 0.0 for the published setting")
    check_number("scale", scale, "()", 0, math.inf, "use 0.5 for the published setting")
    u = _grid(num_timesteps)
    log_snr = mean - scale * torch.sign(0.5 - u) * torch.log(1 - 2 * (u - 0.5).abs())
    return _from_curve(torch.sigmoid(log_snr), max_beta)


def fdm(
    num_timesteps: int = 1000, multiplier: float = 1.0, offset: float = 0.008, max_beta: float = 0.999
) -> NoiseSchedule:
    """The cosine schedule's A, damped: Fast Diffusion Model (Wu et al. 2023) as a schedule of its own, see `damped`.

        A'_t / A'_{t-1} = S_t^2 / S_{t-1}^2,   S_t = A_t^m (1 - m ln A_t),   A'_0 = A_0

    Use: to try the process of Fast Diffusion Model as a schedule. `method=fdm`, which follows the released code, keeps
    the run's schedule and scales what the network is shown (preconditioning=fdm).

    Args:
        num_timesteps: T, the number of timesteps.
        multiplier: m > 0. The SNR is 1 later than on the cosine schedule for m = 0.5 and 1, earlier for m = 2.
        offset: of the cosine: added to u in [0, 1], which keeps the first betas away from 0; > 0.
        max_beta: clip of the betas, in (0, 1), of the cosine and of the result. It acts on the last step only.
    """
    return damped(cosine(num_timesteps, offset, max_beta), multiplier, max_beta)


def damped(host: NoiseSchedule, multiplier: float = 1.0, max_beta: float = 0.999) -> NoiseSchedule:
    """The schedule whose signal falls as the mean of a critically damped oscillator driven by the host's A:

        A'_t / A'_{t-1} = S_t^2 / S_{t-1}^2,   S_t = A_t^m (1 - m ln A_t),   A'_0 = A_0

    Unlike `FDMScale` this changes the SNR. S_0^2 itself is within 1e-10 of 1 on a cosine schedule, an SNR of 1e10 that
    float32 cannot hold; so the noise of the first step, and with it the least noise of all, is the host's.

    Differs from Fast Diffusion Model (Wu et al. 2023): it keeps the host's noise-to-signal ratio and changes the mean's
    scale alone, which is `FDMScale`; this one is the process that its equation would give at constant variance.

    Args:
        host: gives A.
        multiplier: m > 0. The SNR is 1 later than the host's for m = 0.5 and 1, earlier for m = 2.
        max_beta: clip of the betas, in (0, 1).
    """
    check_number("multiplier", multiplier, "()", 0, math.inf, "use 1.0")
    check_number("max_beta", max_beta, "()", 0, 1, "use 0.999 for the published setting")
    # ln S = ln(1 + z) - z with z = -m ln A; near A = 1 this keeps the digits that S itself has lost.
    preserving = host.norm is None  # then the betas are those of A
    z = -multiplier * (torch.log1p(-host.betas).cumsum(0) if preserving else F.logsigmoid(host.log_snr))
    betas = -torch.expm1(2 * (torch.log1p(z) - z).diff())
    first = host.betas[:1] if preserving else torch.sigmoid(-host.log_snr[:1])
    return NoiseSchedule(torch.cat([first, betas.clamp(max=max_beta)]))


def _grid(num_timesteps: int) -> Tensor:
    """u = 0, 1/T, ..., 1: (T+1,) float64."""
    return torch.arange(num_timesteps + 1, dtype=torch.float64) / num_timesteps


def _from_curve(curve: Tensor, max_beta: float) -> NoiseSchedule:
    """(T+1,) values of A, up to a constant factor -> schedule with b_i = min(1 - A_{i+1}/A_i, max_beta)."""
    check_number("max_beta", max_beta, "()", 0, 1, "use 0.999 for the published setting")
    return NoiseSchedule((1 - curve[1:] / curve[:-1]).clamp(max=max_beta))


def _check_length(num_timesteps: int, minimum: int, cure: str) -> None:
    check_integer("num_timesteps", num_timesteps, minimum, cure, maximum=MAX_TIMESTEPS)


def _check_ends(num_timesteps: int, beta_start: float, beta_end: float, cure: str) -> None:
    _check_length(num_timesteps, 1, "use 1000")
    check_number("beta_end", beta_end, "()", 0, 1, cure)
    check_number("beta_start", beta_start, "()", 0, beta_end, f"it is the first beta, below beta_end; {cure}")
