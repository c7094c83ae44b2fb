"""The noise schedule: how much signal and how much noise is left at each timestep.

Symbols, with zero-based timesteps t = 0 (least noise) .. T-1:

    b_t                     variance added at step t, `betas`
    A_t = prod_{s<=t}(1-b_s)        `alphas_cumprod`, with A_{-1} = 1
    x_t = sqrt(A_t) x_0 + sqrt(1-A_t) eps,  eps ~ N(0, I)
    sqrt(A_t), sqrt(1-A_t)          `signal_scale`, `noise_scale`
    SNR_t = A_t / (1-A_t)           `snr`;  ln SNR_t is `log_snr`
    sqrt(1/SNR_t)                   noise level in units of the signal (Karras et al. 2022), `noise_level`

and the posterior q(x_{t-1} | x_t, x_0) = N(C1 x_0 + C2 x_t, Vp_t I)  (Ho et al. 2020, equations 6 and 7):

    C1 = b_t sqrt(A_{t-1}) / (1-A_t),   C2 = sqrt(1-b_t) (1-A_{t-1}) / (1-A_t),   Vp_t = b_t (1-A_{t-1}) / (1-A_t)

That is the variance-preserving path; any other one, x_t = alpha_t x_0 + sigma_t eps, is a `GaussianPath` (`path.py`).
Both have, beside the tables above,

    s_t in (0, 1)                       the path's own parameter, 0 at the data, `position`
    the velocity's a, b                 `signal_slope`, `noise_slope`: u = a x_0 + b eps, d alpha/ds and d sigma/ds
    n_t = sqrt(alpha_t^2 + sigma_t^2)   `norm`; None here, where it is 1

The schedules themselves are in `schedules.py` and `path.py`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Self, TypeVar

import torch
from torch import Tensor, nn

# Below this A the float32 numbers 1/sqrt(A) and SNR are close to the ends of their range.
SMALLEST_ALPHAS_CUMPROD = 1e-30
Module = TypeVar("Module", bound=nn.Module)


def working_dtype(x: Tensor) -> torch.dtype:
    """float64 for float64, else float32, also for half precisions: the conversions divide by alpha or sigma."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def extract(table: Tensor, t: Tensor, ndim: int = 1, dtype: torch.dtype = torch.float32) -> Tensor:
    """Entries of a table: (T,), (B,) int64 -> (B, 1, ..., 1) with `ndim` dimensions, of `dtype`; with a map of times
    (B,1,H,W), which has them already, of its shape.

    One gather on the device of both; nothing waits for it. t must lie in [0, T): it is not checked here, because a
    check would wait for the device, and a negative t counts from the end as everywhere in PyTorch.
    """
    entries = table[t].to(dtype)
    return entries if t.ndim > 1 else entries.reshape(-1, *[1] * (ndim - 1))


def copied(module: Module) -> Module:
    """A module of the same class with the same parameters, buffers and submodules, which can be replaced in it.

    What a subclass overrides or keeps stays; its constructor is not called.
    """
    made = copy.copy(module)
    for name in ("_parameters", "_buffers", "_modules"):
        made.__dict__[name] = made.__dict__[name].copy()
    return made


class Tables(nn.Module):
    """A module whose own buffers keep their type when a surrounding module is cast by .half() or .to(dtype)."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        if recurse:
            for module in self.children():
                module._apply(fn)
        for name, table in list(self.named_buffers(recurse=False)):
            self._buffers[name] = table.to(fn(table).device)
        return self


class NoiseSchedule(Tables):
    """All tables of a schedule, each (T,) float64, computed once from the betas.

    An immutable value: nothing is in the state dict, and the tables keep float64 when the module around them is cast
    to another dtype (they follow it to another device).

    Args:
        betas: (T,) b_t, each in (0, 1).

    Raises:
        ValueError: a beta outside (0, 1), or so much noise that A_{T-1} < 1e-30.
    """

    betas: Tensor
    log_variance_large: Tensor
    alphas_cumprod: Tensor
    snr: Tensor
    log_snr: Tensor
    signal_scale: Tensor
    noise_scale: Tensor
    noise_level: Tensor
    posterior_variance: Tensor
    posterior_log_variance_clipped: Tensor
    posterior_mean_coef1: Tensor
    posterior_mean_coef2: Tensor
    position: Tensor
    signal_slope: Tensor
    noise_slope: Tensor
    norm: Tensor | None

    def __init__(self, betas: Tensor | Sequence[float]) -> None:
        super().__init__()
        b = torch.as_tensor(betas, dtype=torch.float64).detach().clone()
        _check_betas(b)
        a = (1 - b).cumprod(0)
        _check_alphas_cumprod(a)
        a_prev = torch.cat([a.new_ones(1), a[:-1]])
        variance = b * (1 - a_prev) / (1 - a)
        # Vp_0 = 0 has no logarithm; Nichol & Dhariwal (2021) put Vp_1 in its place. A single step has b_0 alone.
        floored = torch.cat([variance[1:2] if len(b) > 1 else b, variance[1:]])
        tables = {
            "betas": b,
            "log_variance_large": b.log(),
            "alphas_cumprod": a,
            "snr": a / (1 - a),
            "log_snr": a.log() - torch.log1p(-a),
            "signal_scale": a.sqrt(),
            "noise_scale": (1 - a).sqrt(),
            "noise_level": ((1 - a) / a).sqrt(),
            "posterior_variance": variance,
            "posterior_log_variance_clipped": floored.log(),
            "posterior_mean_coef1": b * a_prev.sqrt() / (1 - a),
            "posterior_mean_coef2": (1 - b).sqrt() * (1 - a_prev) / (1 - a),
        }
        position = midpoints(len(b)).to(b.device)
        self._register(tables | slopes_of(a.sqrt(), (1 - a).sqrt(), position) | {"position": position, "norm": None})

    def _register(self, tables: Mapping[str, Tensor | None]) -> None:
        for name, table in tables.items():
            self.register_buffer(name, table, persistent=False)

    @property
    def num_timesteps(self) -> int:
        """T."""
        return len(self.betas)

    @property
    def retained(self) -> Tensor:
        """(alpha_t/alpha_{t-1})^2, the share of the signal's power that step t keeps: (T,)."""
        return 1 - self.betas

    @property
    def noise_variance(self) -> Tensor:
        """sigma_t^2: (T,)."""
        return 1 - self.alphas_cumprod

    def alpha(self, t: Tensor, ndim: int = 1, dtype: torch.dtype = torch.float32) -> Tensor:
        """alpha_t = sqrt(A_t), the scale of the signal: (B,) -> (B, 1, ..., 1) with `ndim` dimensions."""
        return extract(self.signal_scale, t, ndim, dtype)

    def sigma(self, t: Tensor, ndim: int = 1, dtype: torch.dtype = torch.float32) -> Tensor:
        """sigma_t = sqrt(1 - A_t), the scale of the noise: (B,) -> (B, 1, ..., 1) with `ndim` dimensions."""
        return extract(self.noise_scale, t, ndim, dtype)

    def perturb(self, x0: Tensor, eps: Tensor, t: Tensor) -> Tensor:
        """x_t = sqrt(A_t) x_0 + sqrt(1-A_t) eps: (B,...), (B,...), (B,) or a map -> (B,...).

        float64 where x_0 is.
        """
        dtype = working_dtype(x0)
        return self.alpha(t, x0.ndim, dtype) * x0 + self.sigma(t, x0.ndim, dtype) * eps

    def posterior_mean(self, x0: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """C1 x_0 + C2 x_t, the mean of q(x_{t-1} | x_t, x_0): (B,...), (B,...), (B,) or a map -> (B,...).

        float64 where x_t is.
        """
        dtype = working_dtype(x_t)
        coef1 = extract(self.posterior_mean_coef1, t, x0.ndim, dtype)
        coef2 = extract(self.posterior_mean_coef2, t, x0.ndim, dtype)
        return coef1 * x0 + coef2 * x_t

    def respace(self, timesteps: Tensor) -> Self:
        """The schedule that visits only some timesteps, with the same A there (Nichol & Dhariwal 2021, section 4).

            b_k = 1 - A_{t_k} / A_{t_{k-1}}

        It is of the same class. A subclass that keeps (T,) tables of its own in buffers has their entries at these
        timesteps; anything else that depends on the timesteps it replaces in a `respace` of its own.

        Args:
            timesteps: (S,) int64, increasing.
        """
        # On the host, where checking the tables costs nothing; in one copy from a GPU and without a wait back to it.
        names = ("position", "signal_slope", "noise_slope")
        tables = torch.stack([self.alphas_cumprod, *(getattr(self, name) for name in names)])
        a, *kept = tables.cpu()[:, timesteps.cpu()]
        schedule = NoiseSchedule(1 - a / torch.cat([a.new_ones(1), a[:-1]]))
        # Those of the path, not of its fewer points: the network was trained with them.
        schedule._register(dict(zip(names, kept, strict=True)))
        return self._respaced(schedule, timesteps)

    def _respaced(self, made: NoiseSchedule, timesteps: Tensor) -> Self:
        """This schedule with the tables of another at some timesteps of this one."""
        device, total, result = self.betas.device, self.num_timesteps, copied(self)
        for name, table in self.named_buffers(recurse=False):
            if name not in made._buffers and table.shape[:1] == (total,):
                result._buffers[name] = table[timesteps.to(device, non_blocking=True)]
        for name, table in made._buffers.items():
            result._buffers[name] = None if table is None else table.to(device, non_blocking=True)
        return result

    def extra_repr(self) -> str:
        a = self.alphas_cumprod
        return f"num_timesteps={len(a)}, alphas_cumprod={a[0]:.6g}..{a[-1]:.4g}"


def midpoints(num_timesteps: int) -> Tensor:
    """(k + 1/2)/T, k = 0..T-1: (T,) float64."""
    return (torch.arange(num_timesteps, dtype=torch.float64) + 0.5) / num_timesteps


def slopes_of(alpha: Tensor, sigma: Tensor, position: Tensor) -> dict[str, Tensor]:
    """d alpha/ds and d sigma/ds by differences of second order inside and of first order at the ends: (T,) each.

    A single timestep has the slope from the data, where alpha = 1 and sigma = 0.
    """
    if len(position) == 1:
        return {"signal_slope": (alpha - 1) / position, "noise_slope": sigma / position}
    pair = {"signal_slope": alpha, "noise_slope": sigma}
    return {name: torch.gradient(scale, spacing=(position,))[0] for name, scale in pair.items()}


def _check_betas(b: Tensor) -> None:
    if b.ndim != 1 or not len(b):
        raise ValueError(f"betas of shape {tuple(b.shape)} must be a list of at least one number; give (T,) betas")
    outside = ~((b > 0) & (b < 1))
    if outside.any():
        t = int(outside.nonzero()[0])
        raise ValueError(
            f"betas[{t}]={b[t].item()} must lie in (0, 1); a last beta of 1 leaves no signal to predict, 0.999 is the "
            "usual clip"
        )


def _check_alphas_cumprod(a: Tensor) -> None:
    if not a[0] < 1 or not (a.diff() < 0).all():
        raise ValueError("betas must each be above 1e-15 to change alphas_cumprod in float64; raise the smallest one")
    if a[-1] < SMALLEST_ALPHAS_CUMPROD:
        t = int((a < SMALLEST_ALPHAS_CUMPROD).nonzero()[0])
        raise ValueError(
            f"betas leave alphas_cumprod[{t}]={a[t]:.2g}, which must be at least {SMALLEST_ALPHAS_CUMPROD:g}; "
            "lower beta_end or num_timesteps"
        )
