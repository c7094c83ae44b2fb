"""Slots of timesteps with equal shares of the loss (Xie & Agam, section 2.1 and Table 1).

The timesteps are divided into K ranges with equal parts of sum_t L_t. Losses decrease by orders of magnitude from t = 0
on, so the first slots have a few timesteps and the last one has most of them. The loss curve is given as numbers, or as
a file with them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from diffusion_lab.arguments import ReadPath, check_flag, check_integer
from diffusion_lab.distributed import broadcast_
from diffusion_lab.files import parse
from diffusion_lab.files_inside import read_inside
from diffusion_lab.npz import unpack
from diffusion_lab.runs.analyses import DATA
from diffusion_lab.runs.lines import read_lines
from diffusion_lab.runs.names import METRICS
from diffusion_lab.timesteps.base import Draw, FixedSampler, TimestepSampler, check_masses
from diffusion_lab.timesteps.context import Context, StepRecord
from diffusion_lab.timesteps.wrappers import stratified_uniform

UNREADABLE = (OSError, ValueError, TypeError, KeyError, IndexError, OverflowError)


def read_curve(loss_curve: Sequence[float] | str | Path | None, num_timesteps: int) -> Tensor:
    """The loss of each timestep, (T,) float64.

    Args:
        loss_curve: losses of L equal ranges of timesteps, L <= T; or a file: a JSON list of them; a run's
            metrics.jsonl, whose last val/loss_t is used; or the data.npz of `analysis=per_timestep` or `slots` of one
            model, which has the loss of every single timestep. Nothing in a file is executed. None: equal losses.
        num_timesteps: T, the number of timesteps.

    Raises:
        ValueError: an unreadable file, losses of other timesteps, or numbers that are no losses.
    """
    if loss_curve is None:
        return torch.ones(num_timesteps, dtype=torch.float64)
    if isinstance(loss_curve, str | Path) and Path(loss_curve).suffix == Path(DATA).suffix:
        return check_losses(_of_analysis(loss_curve, num_timesteps))
    curve = _of_ranges(loss_curve)
    if not 1 <= len(curve) <= num_timesteps:
        raise ValueError(
            f"loss_curve of {len(curve)} numbers must have between 1 and {num_timesteps}, the number of timesteps; "
            "average neighbours"
        )
    return check_losses(curve)[torch.arange(num_timesteps) * len(curve) // num_timesteps]


def check_losses(curve: Tensor) -> Tensor:
    """The curve if its numbers are finite, >= 0 and not all zero, else a ValueError that names the first bad one."""
    return check_masses("loss_curve", curve, "measure the curve again")


def _of_ranges(loss_curve: Sequence[float] | str | Path) -> Tensor:
    """The numbers themselves, or those of a JSON list, or the last val/loss_t of a run's metrics.jsonl."""
    if not isinstance(loss_curve, str | Path):
        return torch.tensor([float(value) for value in loss_curve], dtype=torch.float64)
    path = Path(loss_curve)
    try:
        if path.suffix == Path(METRICS).suffix:
            values = [row for row in read_lines(path.resolve()) if "val/loss_t" in row][-1]["val/loss_t"]
            values = [math.nan if value is None else value for value in values]
        else:
            values = parse(read_inside(path.resolve()).decode("utf-8-sig"))  # the user may have named a link
        return torch.tensor([float(value) for value in values], dtype=torch.float64)
    except UNREADABLE as error:
        raise ValueError(
            f"loss_curve={loss_curve} must be a JSON list of losses, the {METRICS} of a run with val/loss_t, or the "
            f"{DATA} of analysis=per_timestep; it is not ({type(error).__name__})"
        ) from None


def _of_analysis(path: str | Path, num_timesteps: int) -> Tensor:
    """The mean native loss of the one model and head in a file of `per_timestep`."""
    try:
        arrays = unpack(read_inside(Path(path).resolve()))
        t, mean = arrays["timesteps"], arrays["mean"].astype(np.float64)
    except UNREADABLE as error:
        raise ValueError(
            f"loss_curve={path} must be the {DATA} of analysis=per_timestep; it is not ({type(error).__name__})"
        ) from None
    if mean.shape != (1, t.size, 1):
        raise ValueError(
            f"loss_curve={path} must hold one curve, and has the shape {mean.shape}; use an analysis of one checkpoint "
            "of a run whose prediction has one head"
        )
    if not np.array_equal(t, np.arange(num_timesteps)):
        raise ValueError(
            f"loss_curve={path} must hold the loss at each of the {num_timesteps} timesteps, and has {len(t)}; analyse "
            "a run with this schedule, with analysis.every=1"
        )
    return torch.from_numpy(mean[0, :, 0])


def equal_sum_slots(loss: Tensor, num_slots: int) -> Tensor:
    """Edges e (K+1,) int64 with e_0 = 0, e_K = T; slot k is {e_k .. e_{k+1} - 1}.

        slot(t) = min(K - 1, floor(K (C_t - L_t/2)/C_{T-1})),   C_t = sum_{s<=t} L_s

    then moved where needed so that every slot has at least one timestep.

    Args:
        loss: (T,) finite, >= 0, with a positive sum.
        num_slots: K in [1, T].

    Raises:
        ValueError: a loss is negative or not finite, all are zero, or K lies outside [1, T].
    """
    loss = check_losses(torch.as_tensor(loss).detach().double())
    steps = len(loss)
    check_integer("num_slots", num_slots, 1, "use 10, or at most one slot per timestep", maximum=steps)
    middle = loss.cumsum(0) - loss / 2
    slot = (num_slots * middle / loss.sum()).floor().clamp(max=num_slots - 1)
    inner = torch.searchsorted(slot, torch.arange(1, num_slots, dtype=slot.dtype))
    index = torch.arange(1, num_slots)
    # At least one timestep each: e_k >= e_{k-1} + 1 from the left, e_k <= T - (K - k) from the right.
    inner = (inner - index).cummax(0).values + index if num_slots > 1 else inner
    inner = torch.minimum(inner.clamp(min=1), steps - num_slots + index).maximum(index)
    return torch.cat([inner.new_zeros(1), inner, inner.new_tensor([steps])])


class EqualLossSlots(TimestepSampler):
    """K slots of equal loss (ranges of timesteps), each with the same number of rows in every batch of G rows:

        p_t = 1/(K n_k),  n_k = timesteps of the slot of t;   u_i = (pi(i) + r_i)/G -> slot floor(K u_i)

    If the G rows of a batch are a multiple of K, every slot gets exactly G/K of them, uniformly distributed inside the
    slot, so that every batch contains losses of all scales ("selected timesteps contain different scales", Xie & Agam,
    section 2.1). p_t is about proportional to the loss; with `reweight` the objective is the uniform one again, and
    only the variance differs.

    Two controls separate the effect of p_t from that of the mixed batch. `stratify=False` draws each row independently
    from the same p_t, so that the numbers of rows in the slots are multinomial. `Stratified` with a uniform base mixes
    every batch in the same way over K slots of equal width, for any K that divides G, with p_t = 1/T.

    The edges come from `loss_curve`, and with `update_every` they move: the native losses of training are averaged per
    timestep, timesteps without a loss take that of their nearest neighbour, and sums are halved at each move. Without a
    curve all slots have equal width until the first move.

    Use: to repeat the paper; `analysis=slots` shows where the loss lies. In `experiment=schedule_by_sampler` its
    average over the predictions was behind uniform on all four schedules; of the single combinations only eps on the
    linear schedule was better.

    Args:
        num_timesteps: T, the number of timesteps.
        num_slots: K in [1, T].
        loss_curve: losses of equal ranges of timesteps, or a file with losses: a run's metrics.jsonl, or
            analyses/per_timestep/data.npz in its folder (others: `read_curve`); null: measured in training. The
            checkpoint keeps the edges, whatever the file later holds.
        update_every: optimizer steps between two moves of the edges; 0: fixed edges.
        reweight: whether the loss is weighted with 1/(T p_t).
        stratify: whether every batch has the same number of rows in each slot; if not, each row is drawn independently
            from the same distribution.

    Raises:
        ValueError: K outside [1, T], an unusable loss curve, update_every < 0, or neither a curve nor updates
            although there is more than one slot.
    """

    edges: Tensor
    seen_loss: Tensor
    seen_count: Tensor

    def __init__(
        self,
        num_timesteps: int,
        num_slots: int = 10,
        loss_curve: Sequence[float] | ReadPath | None = None,
        update_every: int = 500,
        reweight: bool = False,
        stratify: bool = True,
    ) -> None:
        super().__init__(num_timesteps, reweight)
        self.stratify = check_flag("stratify", stratify, "use true for slots with equal numbers of rows")
        check_integer("update_every", update_every, 0, "use 500 optimizer steps, or 0 to keep the edges")
        if loss_curve is None and update_every == 0 and num_slots > 1:
            raise ValueError(
                "loss_curve=null must be a curve when update_every=0, or the slots never follow the loss; "
                "give sampler.loss_curve or sampler.update_every=500"
            )
        self.num_slots, self.update_every = num_slots, update_every
        self.register_buffer("edges", equal_sum_slots(read_curve(loss_curve, num_timesteps), num_slots))
        self.register_buffer("seen_loss", torch.zeros(num_timesteps, dtype=torch.float64))
        self.register_buffer("seen_count", torch.zeros(num_timesteps, dtype=torch.float64))

    def probabilities(self, step: int) -> Tensor:
        size = self.edges.diff()
        return (1.0 / (self.num_slots * size.double())).repeat_interleave(size, output_size=self.num_timesteps)

    def quantile(self, u: Tensor, step: int) -> Tensor:
        place = u * self.num_slots
        slot = place.long()
        start, end = self.edges[slot], self.edges[slot + 1]
        return start + ((place - slot) * (end - start)).long()

    def draw(self, x0: Tensor, context: Context) -> Draw:
        if not self.stratify:
            return super().draw(x0, context)
        t = self.quantile(stratified_uniform(len(x0), context), context.step)
        return Draw(t, self.weight(t, context.step))

    def weight(self, t: Tensor, step: int) -> Tensor:
        if not self.reweight:
            return torch.ones(len(t), device=t.device)
        slot = torch.searchsorted(self.edges, t, right=True) - 1
        return (self.num_slots * self.edges.diff()[slot] / self.num_timesteps).float()

    def observe(self, record: StepRecord, context: Context) -> None:
        if not self.update_every:
            return
        t, loss = record.gathered()
        self.seen_loss.index_add_(0, t, loss)
        self.seen_count.index_add_(0, t, torch.ones_like(loss))
        if (context.step + 1) % self.update_every == 0:
            curve = self.seen_loss / self.seen_count  # nan without a loss
            self.edges.copy_(equal_sum_slots(fill(curve).cpu(), self.num_slots))
            # A GPU adds the rows of one timestep in any order, so the sums of two processes may differ in the last
            # bit, and an edge by one timestep. All use those of rank 0: one small message per move, none per step.
            broadcast_(self.edges)
            self.seen_loss.mul_(0.5)
            self.seen_count.mul_(0.5)


class SlotRestricted(FixedSampler):
    """Trains on some ranges of timesteps (slots) only: uniform inside them, zero outside (Xie & Agam, Figure 2).

    Use: to measure how training on one range of timesteps changes the loss at the others. A model trained with it alone
    cannot generate images.

    Args:
        num_timesteps: T, the number of timesteps.
        edges: (K+1,) increasing timesteps from 0 to T; slot k, counted from 1, is {edges[k-1] .. edges[k] - 1}; null:
            `num_slots` slots of equal width or, with `loss_curve`, of equal loss. Xie & Agam's ten slots are
            [0,5,13,23,37,56,82,120,177,277,1000].
        num_slots: K in [1, T], used if `edges` is null.
        slots: numbers of the slots to train on, 1 the least noisy, as the paper counts.
        loss_curve: losses or a file with them, as in `sampler=equal_loss_slots`, for slots of equal loss instead of
            equal width; null: none. The checkpoint keeps the slots.

    Raises:
        ValueError: edges that do not increase from 0 to T, edges beside a curve, an unusable curve, or a slot outside
            [1, K].
    """

    def __init__(
        self,
        num_timesteps: int,
        edges: Sequence[int] | None = None,
        num_slots: int = 10,
        slots: Sequence[int] = (3,),
        loss_curve: Sequence[float] | ReadPath | None = None,
    ) -> None:
        if edges is None:
            bounds = equal_sum_slots(read_curve(loss_curve, num_timesteps), num_slots)
        elif loss_curve is not None:
            raise ValueError(f"edges={list(edges)} must be null beside loss_curve, which gives them; use one of both")
        else:
            bounds = torch.as_tensor(list(edges))
            if len(bounds) < 2 or bounds[0] != 0 or bounds[-1] != num_timesteps or bool((bounds.diff() < 1).any()):
                raise ValueError(
                    f"edges={list(edges)} must increase from 0 to {num_timesteps}, the number of timesteps; "
                    "or use null and num_slots=10"
                )
        count = len(bounds) - 1
        outside = [slot for slot in slots if not 1 <= slot <= count]
        if outside or not len(slots):
            wrong = outside[0] if outside else "[]"
            raise ValueError(f"slots={wrong} must be numbers in [1, {count}], 1 the least noisy; use [3]")
        inside = torch.zeros(num_timesteps, dtype=torch.float64)
        for slot in slots:
            inside[int(bounds[slot - 1]) : int(bounds[slot])] = 1
        super().__init__(inside)
        if loss_curve is not None:  # a file may change: what the run began with is in its checkpoint
            for name, buffer in list(self.named_buffers()):
                self.register_buffer(name, buffer)


def fill(curve: Tensor) -> Tensor:
    """Replace each nan by the nearest number, the earlier one of two equally near: (T,) -> (T,). All nan gives ones."""
    known = torch.nonzero(~torch.isnan(curve)).flatten()
    if not len(known):
        return torch.ones_like(curve)
    t = torch.arange(len(curve), device=curve.device)
    after = torch.searchsorted(known, t).clamp(max=len(known) - 1)
    before = (after - 1).clamp(min=0)
    nearer = (t - known[before]).abs() <= (known[after] - t).abs()
    return curve[known[torch.where(nearer, before, after)]]
