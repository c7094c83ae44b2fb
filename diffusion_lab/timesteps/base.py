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
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from diffusion_lab.arguments import check_flag, check_integer
from diffusion_lab.distributed import gather_rows
from diffusion_lab.streams import Streams


class Draw(NamedTuple):
    """Timesteps `t` (b,) int64 in [0, T-1] and their weights `weight` (b,) in the loss."""

    t: Tensor
    weight: Tensor


class Position(NamedTuple):
    """The position of a microbatch: optimizer step, process, and microbatch within the update."""

    step: int
    rank: int = 0
    world_size: int = 1
    micro: int = 0
    accumulate: int = 1

    def rows(self, n: int) -> slice:
        """The rows of the global batch that are the n rows of this process and microbatch."""
        start = (self.micro * self.world_size + self.rank) * n
        return slice(start, start + n)

    def global_rows(self, n: int) -> int:
        """Rows of the global batch, G, if each process and microbatch has n."""
        return n * self.world_size * self.accumulate


class Probe(Protocol):
    """Evaluates the network's loss outside the training step, in eval mode and without gradients of the run."""

    def loss(self, x0: Tensor, t: Tensor, seed: int, **cond: Tensor) -> Tensor:
        """Native loss of each image at each timestep: (B,C,H,W), (K,) -> (B,K). The noise is a function of `seed`."""
        ...

    def pairs(
        self, x0: Tensor, t: Tensor, index: Tensor, total: int, seed: int, keep_mode: bool = False, **cond: Tensor
    ) -> Tensor:
        """Native loss of each image at its own timestep: (N,C,H,W), (N,) -> (N,).

        The noise of a pair is a function of `seed` and of its number `index` (N,) in [0, total). With `keep_mode` the
        network stays in training mode, with dropout.
        """
        ...

    def grad_sq_norm(self, x0: Tensor, t: Tensor, seed: int, **cond: Tensor) -> Tensor:
        """Squared norm of each image's own gradient at its own timestep: (B,C,H,W), (B,) -> (B,)."""
        ...

    def grad_moments(self, x0: Tensor, t: Tensor, seed: int, **cond: Tensor) -> tuple[Tensor, Tensor]:
        """At each timestep, over single images' gradients g: |g - mean g|^2 summed / (B-1), and the mean of |g|^2.

        (B,C,H,W), (K,) -> (K,), (K,), equal on all processes, which must all call it with the same arguments.
        """
        ...


class Context:
    """What `draw` and `observe` are given besides data, and their only source of random numbers.

    Args:
        position: optimizer step k (the same in the `draw` and the `observe` of one update), process, microbatch.
        streams: the run's random numbers; a draw uses the stream "timesteps".
        device: of the random numbers.
        probe: evaluates losses, or None outside a run.
        cond: conditions of the current rows, the network's keywords.
    """

    def __init__(
        self,
        position: Position,
        streams: Streams,
        device: torch.device | str = "cpu",
        probe: Probe | None = None,
        cond: dict[str, Tensor] | None = None,
    ) -> None:
        self.step, self.rank, self.world_size, self.micro, self.accumulate = position
        self.probe = probe
        self.cond = cond or {}
        self.device = device
        self._position = position
        self._streams = streams
        self._calls = 0

    def probe_for(self, sampler: object) -> Probe:
        """The probe, for a sampler that needs one.

        Raises:
            ValueError: there is no probe.
        """
        if self.probe is None:
            name = type(sampler).__name__
            raise ValueError(f"probe=None must be a Probe, because {name} evaluates losses; give Context(probe=...)")
        return self.probe

    def global_uniform(self, n: int, columns: int | None = None) -> Tensor:
        """(G,) float64 in [0, 1): the numbers of the whole global batch, equal on every process and microbatch.

        With `columns`, (G, columns). Each call within one draw returns new numbers.
        """
        self._calls += 1
        size = self._position.global_rows(n)
        u = self._streams.uniform(size * (columns or 1), "timesteps", self.step, self._calls, device=self.device)
        return u if columns is None else u.view(size, columns)

    def uniform(self, n: int, columns: int | None = None) -> Tensor:
        """(n,) or (n, columns) float64 in [0, 1): this process's and microbatch's rows of `global_uniform`."""
        return self.global_uniform(n, columns)[self.rows(n)]

    def rows(self, n: int) -> slice:
        """The rows of the global batch that are the n local ones."""
        return self._position.rows(n)

    def global_rows(self, n: int) -> int:
        """G for n local rows."""
        return self._position.global_rows(n)

    @property
    def generator(self) -> torch.Generator:
        """A generator that is equal on every process and microbatch of this update; new numbers at each access."""
        self._calls += 1
        return self._streams.generator(self.device, "timesteps", self.step, self._calls)


@dataclass
class StepRecord:
    """The rows of one update on this process, detached from the graph.

    Attributes:
        x0: (A*b, C, H, W) clean images, in the order of the microbatches.
        cond: conditioning of these rows.
        t: (A*b,) int64 timesteps.
        loss: (A*b,) native loss of each row: the mean over C, H, W of the squared error to the prediction's target.
        objective: (A*b,) the same after weighting and with the bound's variance term, before the draw's weight.
        errors: (A*b, E) errors that a prediction of several heads tracks; None or E = 0 otherwise.
        accumulate: A.
        weight: (A*b,) weight of each row from the draw, or None.
    """

    x0: Tensor
    cond: dict[str, Tensor]
    t: Tensor
    loss: Tensor
    objective: Tensor
    errors: Tensor | None = None
    accumulate: int = 1
    weight: Tensor | None = None
    _all: tuple[Tensor, Tensor, Tensor] | None = field(default=None, repr=False)

    @staticmethod
    def join(records: Sequence[StepRecord]) -> StepRecord:
        """The record of an update from those of its microbatches."""
        if len(records) == 1:
            return records[0]
        x0, t, loss, objective = (
            torch.cat([getattr(r, name) for r in records]) for name in ("x0", "t", "loss", "objective")
        )
        cond = {key: torch.cat([r.cond[key] for r in records]) for key in records[0].cond}
        tracked = [r.errors for r in records if r.errors is not None]
        errors = torch.cat(tracked) if tracked else None
        weights = [r.weight for r in records if r.weight is not None]
        weight = torch.cat(weights) if weights else None
        return StepRecord(x0, cond, t, loss, objective, errors, accumulate=len(records), weight=weight)

    def gather(self, local: Tensor) -> Tensor:
        """Rows of all processes in the order of the global batch: (A*b, ...) -> (G, ...), equal on all of them.

        The order does not depend on how the global batch is split. Must be called by every process or by none.
        """
        rows = gather_rows(local)  # process by process
        rows = rows.unflatten(0, (-1, self.accumulate, len(local) // self.accumulate))
        return rows.transpose(0, 1).flatten(0, 2)  # the global batch is cut into microbatches first

    def gathered(self, objective: bool = False) -> tuple[Tensor, Tensor]:
        """t (G,) and loss (G,) float64 by `gather`, with one communication however often it is called.

        With `objective` the weighted loss instead of the native one.
        """
        if self._all is None:
            local = torch.stack([self.t.double(), self.loss.double(), self.objective.double()], dim=1)
            rows = self.gather(local)
            self._all = rows[:, 0].long(), rows[:, 1], rows[:, 2]
        t, loss, weighted = self._all
        return t, weighted if objective else loss


class TimestepSampler(nn.Module, ABC):
    """A distribution p_k of training timesteps {0..T-1} that may depend on the step k and on observed losses.

    A subclass defines `probabilities`; the rest has defaults:

        draw:     t = min{j : sum_{i<=j} p_k(i) > u},  u uniform,   weight 1, or 1/(T p_k(t)) with `reweight`
        observe:  nothing

    With weight 1 the sampler changes the objective to sum_t p_t L_t; with 1/(T p_t) it estimates the uniform
    objective (1/T) sum_t L_t without bias.

    Args:
        num_timesteps: T >= 1.
        reweight: whether the loss carries 1/(T p_t).

    Raises:
        ValueError: T < 1.
    """

    num_timesteps: int
    reweight: bool
    # Names of state entries that may be NaN or infinite; other entries prevent writing a checkpoint.
    may_be_infinite: tuple[str, ...] = ()
    uses_probe: bool = False  # whether it calls the probe, for which each process needs the whole network

    def __init__(self, num_timesteps: int, reweight: bool = False) -> None:
        super().__init__()
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
        reweight: as in `TimestepSampler`; every probability must then be positive.

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


def check_drawn_by_quantile(base: TimestepSampler) -> None:
    """ValueError if a sampler to be wrapped overrides `draw`: a wrapper calls only its `quantile`."""
    if type(base).draw is not TimestepSampler.draw:
        raise ValueError(
            f"base={type(base).__name__} must draw by its inverse CDF; choose a sampler without a draw of its own"
        )
