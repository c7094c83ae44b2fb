"""Samplers around another: draws spread evenly over a batch (variance reduction), and a share of uniform draws."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from diffusion_lab.arguments import check_number
from diffusion_lab.timesteps.base import Draw, TimestepSampler, check_drawn_by_quantile
from diffusion_lab.timesteps.context import Context, StepRecord


class Wrapper(TimestepSampler, ABC):
    """A sampler around another, which is set up and checked, observes and logs as it would alone.

    Args:
        base: a sampler that draws by its inverse CDF.
        reweight: whether the loss is weighted with 1/(T p_t).

    Raises:
        ValueError: the base has a `draw` of its own.
    """

    def __init__(self, base: TimestepSampler, reweight: bool) -> None:
        check_drawn_by_quantile(base)
        super().__init__(base.num_timesteps, reweight)
        self.base = base
        self.uses_probe = base.uses_probe
        self.may_be_infinite = tuple(f"base.{name}" for name in base.may_be_infinite)

    def setup(self, image_shape: tuple[int, ...]) -> None:
        self.base.setup(image_shape)

    def check(self, batch_size: int) -> None:
        self.base.check(batch_size)

    def observe(self, record: StepRecord, context: Context) -> None:
        self.base.observe(record, context)

    def log_values(self) -> dict[str, Tensor]:
        return self.base.log_values()


class Spread(Wrapper):
    """A sampler whose numbers in [0, 1) are drawn jointly for the whole batch; a subclass defines `numbers`.

    Args:
        base: a sampler that draws by its inverse CDF; its distribution, weights and state are unchanged.

    Raises:
        ValueError: the base has a `draw` of its own.
    """

    def __init__(self, base: TimestepSampler) -> None:
        check_drawn_by_quantile(base)  # before its attributes are read
        super().__init__(base, base.reweight)

    @abstractmethod
    def numbers(self, n: int, context: Context) -> Tensor:
        """(n,) float64 in [0, 1), each uniformly distributed: the rows of this process and microbatch."""

    def probabilities(self, step: int) -> Tensor:
        return self.base.probabilities(step)

    def quantile(self, u: Tensor, step: int) -> Tensor:
        return self.base.quantile(u, step)

    def weight(self, t: Tensor, step: int) -> Tensor:
        return self.base.weight(t, step)

    def draw(self, x0: Tensor, context: Context) -> Draw:
        t = self.quantile(self.numbers(len(x0), context), context.step)
        return Draw(t, self.weight(t, context.step))


class Stratified(Spread):
    """One draw from each of G equal slices of the base's probability mass, G the rows of the global batch.

        u_i = (pi(i) + r_i) / G,   r_i uniform in [0, 1),   t_i = base's inverse CDF at u_i

    with a random permutation pi of {0..G-1} for each update, equal on all processes. Every single t_i has the base's
    distribution, so the expected loss and gradient stay the same while their variance falls. The slices are those of
    the global batch, whatever number of processes and microbatches it is split into.

    Differs from k-diffusion `stratified_uniform`, which gives process r the slices r, r+W, ...: a permutation needs
    no layout, so one process and many draw the same timestep for the same image.

    Use: like `low_discrepancy`, when each row is to stay random inside its slice.

    Args:
        base: a sampler that draws by its inverse CDF.

    Raises:
        ValueError: the base overrides `draw`.
    """

    def numbers(self, n: int, context: Context) -> Tensor:
        return stratified_uniform(n, context)


class LowDiscrepancy(Spread):
    """One random number for the whole batch, then equal distances (Kingma et al. 2021, VDM, `model_vdm`).

        u_i = (u_0 + pi(i)/G) mod 1,   t_i = base's inverse CDF at u_i

    with one u_0 and one random permutation pi for each update, equal on all processes. Every t_i has the base's
    distribution; the batch together covers it as evenly as G points can.

    Differs from VDM, where u_i belongs to row i: with images in a random order that is the same, but a permutation
    keeps row i independent of its place in the batch.

    Use: when the loss itself is to have little noise, as for curves of the bound, and for small batches. It costs
    nothing and does not change p_t.

    Args:
        base: a sampler that draws by its inverse CDF.
    """

    def numbers(self, n: int, context: Context) -> Tensor:
        size, mine = context.global_rows(n), context.rows(n)
        place = torch.randperm(size, generator=context.generator, device=context.device)[mine]
        return (context.global_uniform(n)[0] + place / size) % 1.0


class Antithetic(Spread):
    """Pairs of opposite draws: row i < G/2 takes u_i, row i + G/2 takes 1 - u_i.

        t_i = F^-1(u_i),   t_{i+G/2} = F^-1(1 - u_i),   F the base's cumulative distribution

    For the uniform base these are the pairs t, T-1-t of DDIM's code (`runners/diffusion.py`). Every single draw has
    the base's distribution.

    Differs from DDIM's code: 1 - u in place of T-1-t, because that keeps the distribution of a base that is not
    symmetric; and exactly half of the rows are opposite, where it has n//2 + 1 independent draws of n.

    Use: when the loss rises or falls steadily with t. The deviations of the two losses of a pair then partly cancel,
    and the mean over a batch has less noise, at no cost.

    Args:
        base: a sampler that draws by its inverse CDF.
    """

    def numbers(self, n: int, context: Context) -> Tensor:
        size, mine = context.global_rows(n), context.rows(n)
        half = (size + 1) // 2
        row = torch.arange(size, device=context.device)[mine]
        u = context.global_uniform(n)[row % half]
        # 1 - u lies in (0, 1]; the largest double below 1 keeps it inside [0, 1).
        return torch.where(row < half, u, (1 - u).clamp(max=1 - 2**-53))


def stratified_uniform(n: int, context: Context) -> Tensor:
    """This process's n rows of (pi(i) + r_i)/G: one number in each of G equal slices of [0, 1), in random order."""
    size, mine = context.global_rows(n), context.rows(n)
    slices = torch.randperm(size, generator=context.generator, device=context.device)[mine]
    return (slices + context.uniform(n)) / size


class Mixture(Wrapper):
    """p_t = q/T + (1 - q) b_t with b the base's distribution: every p_t >= q/T, so 1/(T p_t) <= 1/q.

    A draw takes one uniform number u: below q it is stretched over the uniform distribution, above over the base's.

    Use: around a sampler that hardly draws some timesteps, so that every one is trained, and to bound the importance
    weights of `reweight`.

    Args:
        base: a sampler that draws by its inverse CDF; `reweight` of the base is not used.
        uniform: q in [0, 1], share of the uniform distribution.
        reweight: whether the loss is weighted with 1/(T p_t), p the mixed distribution.

    Raises:
        ValueError: the base has a `draw` of its own, or q lies outside [0, 1].
    """

    def __init__(self, base: TimestepSampler, uniform: float = 0.1, reweight: bool = False) -> None:
        super().__init__(base, reweight)
        check_number("uniform", uniform, "[]", 0, 1, "use 0.1 as the share of the uniform distribution")
        if reweight and uniform == 0.0 and bool((base.probabilities(0) == 0).any()):
            raise ValueError(
                "uniform=0.0 must be > 0 with reweight=true, which divides by probabilities that the base has as 0; "
                "use 0.1"
            )
        self.uniform = uniform

    def probabilities(self, step: int) -> Tensor:
        return self.uniform / self.num_timesteps + (1 - self.uniform) * self.base.probabilities(step)

    def quantile(self, u: Tensor, step: int) -> Tensor:
        below_one = 1 - 2**-53
        flat = (u / max(self.uniform, 1e-300)).clamp(max=below_one)
        rest = ((u - self.uniform) / max(1 - self.uniform, 1e-300)).clamp(0, below_one)
        based = self.base.quantile(rest, step)
        return torch.where(u < self.uniform, (flat * self.num_timesteps).long(), based)
