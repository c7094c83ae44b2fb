"""The interface of timestep samplers.

Timesteps are drawn before the update of step k, and its losses are observed after it:

    theta_k  --draw-->  t ~ p_k, weight w  --loss, optimizer-->  theta_{k+1}  --observe-->  p_{k+1}

Symbols: T timesteps, t in {0..T-1} with 0 the least noisy; b rows of this process and microbatch; A microbatches of
one update (gradient accumulation); W processes; G = b*A*W rows of the global batch.

A sampler is a small `torch.nn.Module` without reference to trainer, module or logger. Its contract, which
`diffusion_lab.testing.check_sampler` verifies for every file in conf/sampler:

1. `draw` runs inside the training step, at theta_k, once per microbatch.
2. `observe` runs once per optimizer step, at theta_{k+1}, on every process.
3. Persistent state changes only in `observe`, and only from values that are equal on all processes.
4. All state is buffers, parameters or extra state, so the checkpoint has it.
5. `probabilities(step)` is the marginal distribution of what `draw` returns.
6. `draw` uses only random numbers from `context`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from diffusion_lab.arguments import check_flag, check_integer, check_made, check_overrides
from diffusion_lab.timesteps.context import Context, StepRecord


class Draw(NamedTuple):
    """Timesteps `t` (b,) int64 in [0, T-1] and their weights `weight` (b,) in the loss."""

    t: Tensor
    weight: Tensor


class TimestepSampler(nn.Module, ABC):
    """A distribution p_k of training timesteps {0..T-1} that may depend on the step k and on observed losses.

    A subclass defines `probabilities`; the rest has defaults:

        draw:     t = min{j : sum_{i<=j} p_k(i) > u},  u uniform,   weight 1, or 1/(T p_k(t)) with `reweight`
        observe:  nothing

    With weight 1 the sampler changes the objective to sum_t p_t L_t; with 1/(T p_t) it estimates the uniform
    objective (1/T) sum_t L_t without bias.

    Args:
        num_timesteps: T >= 1.
        reweight: whether the loss is weighted with 1/(T p_t), which keeps the uniform objective.

    Raises:
        ValueError: T < 1, or a subclass of a sampler overrides what the sampler's own draws do not use.
    """

    num_timesteps: int
    reweight: bool
    # Names of state entries that may be NaN or infinite; other entries prevent writing a checkpoint.
    may_be_infinite: tuple[str, ...] = ()
    uses_probe: bool = False  # whether it calls the probe, for which each process needs the whole network

    def __init__(self, num_timesteps: int, reweight: bool = False) -> None:
        super().__init__()
        check_overrides(self, "probabilities", "quantile", "draw")
        check_overrides(self, "quantile", "draw")
        check_overrides(self, "weight", "draw")
        self.num_timesteps = check_integer("num_timesteps", num_timesteps, 1, "use 1000 as most papers do")
        self.reweight = check_flag("reweight", reweight, "true makes the loss unbiased for the uniform objective")

    def setup(self, image_shape: tuple[int, ...]) -> None:
        """Called once with (C,H,W), before state is loaded and before the first draw. Networks are made here."""

    def check(self, batch_size: int) -> None:
        """Called before step 1 with the rows of an update; raises a ValueError if they are too few."""

    def log_values(self) -> dict[str, Tensor]:
        """Current values for the log, as `sampler/<name>`, each () or (n,); equal on all processes."""
        return {}

    def probe_rows(self, steps: int, batch_size: int) -> int:
        """Forward passes of single images in the probe over these steps and all processes, with a backward pass counted
        as two; for the estimate of a run's cost."""
        return 0

    @abstractmethod
    def probabilities(self, step: int) -> Tensor:
        """(T,) float64, sums to 1: the marginal distribution of a draw at this step. Changes nothing."""

    def quantile(self, u: Tensor, step: int) -> Tensor:
        """Inverse of the cumulative probabilities: (n,) in [0, 1) -> (n,) int64."""
        return invert(self.probabilities(step).cumsum(0), u)

    def weight(self, t: Tensor, step: int) -> Tensor:
        """(n,) float32: 1, or 1/(T p_t) with `reweight`."""
        if not self.reweight:
            return torch.ones(len(t), device=t.device)
        return (1.0 / (self.num_timesteps * self.probabilities(step)[t])).float()

    def draw(self, x0: Tensor, context: Context) -> Draw:
        """Timesteps and weights for the rows x0 (b,C,H,W)."""
        t = self.quantile(context.uniform(len(x0)), context.step)
        return Draw(t, self.weight(t, context.step))

    def observe(self, record: StepRecord, context: Context) -> None:
        """Called with the rows of an update, after it. State may change only here."""


class FixedSampler(TimestepSampler):
    """A distribution that never changes: p and its cumulative sum are computed once.

    Args:
        probabilities: (T,) non-negative, finite numbers with a positive sum; they are divided by it.
        reweight: whether the loss is weighted with 1/(T p_t), for which every p_t must be positive.

    Raises:
        ValueError: a probability is negative, not finite, or zero although `reweight` divides by it.
    """

    _p: Tensor
    _cdf: Tensor

    def __init__(self, probabilities: Tensor, reweight: bool = False) -> None:
        super().__init__(len(probabilities), reweight)
        p = check_probabilities(probabilities, reweight)
        self.register_buffer("_p", p, persistent=False)
        self.register_buffer("_cdf", p.cumsum(0), persistent=False)

    def probabilities(self, step: int) -> Tensor:
        return self._p

    def quantile(self, u: Tensor, step: int) -> Tensor:
        return invert(self._cdf, u)


def invert(cdf: Tensor, u: Tensor) -> Tensor:
    """Smallest index whose cumulative probability exceeds u: (T,), (n,) -> (n,) int64.

    u is scaled by the last entry, which is 1 only up to rounding, so that no draw falls beyond T-1 and a timestep
    of probability zero is never drawn.
    """
    return torch.searchsorted(cdf, u * cdf[-1], right=True).clamp_(max=len(cdf) - 1)


def check_probabilities(p: Tensor, reweight: bool) -> Tensor:
    """p (T,) as float64 with sum 1, or a ValueError that names the offending timestep."""
    p = check_masses("probabilities", p.detach().double(), "correct the probabilities")
    p = p / p.sum()
    if reweight:
        t = int(p.argmin())
        weight = (1 / (len(p) * p[t])).float()  # as `TimestepSampler.weight`
        if not torch.isfinite(weight):
            raise ValueError(
                f"reweight=True must not divide by a probability of zero or next to it, which t={t} has ({p[t]:.1e}); "
                "use reweight=false or mix the distribution with a uniform one"
            )
    return p


def check_masses(name: str, values: Tensor, cure: str) -> Tensor:
    """`values` (n,) if they are finite, >= 0 and not all zero, else a ValueError that names the first bad one."""
    bad = torch.nonzero(~torch.isfinite(values) | (values < 0)).flatten()
    if len(bad):
        i = int(bad[0])
        raise ValueError(f"{name}[{i}]={values[i].item()} must be a finite number >= 0; {cure}")
    if not values.sum() > 0:
        raise ValueError(f"{name}=all zero must have a positive sum; {cure}")
    return values


def check_sampler(name: str, value: Any) -> TimestepSampler:
    """`value` if it is a sampler, else ValueError, e.g. for `LogitNormal` in place of `LogitNormal(1000)`."""
    return check_made(name, value, TimestepSampler, "use one such as LogitNormal(num_timesteps=1000)")


def check_drawn_by_quantile(base: TimestepSampler) -> None:
    """ValueError if what is to be wrapped is no sampler, or one with a `draw` of its own: a wrapper calls only its
    `quantile`."""
    check_sampler("base", base)
    if type(base).draw is not TimestepSampler.draw:
        raise ValueError(
            f"base={type(base).__name__} must draw by its inverse CDF; choose a sampler without a draw of its own"
        )
