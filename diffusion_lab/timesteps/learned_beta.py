"""The learned Beta sampler (Kim et al., CVPR 2025, section 5; released code ku-dmlab/Adaptive-Timestep-Sampler).

A small network, the policy, maps a clean image to the two parameters of a Beta distribution on its timestep:

    (a_i, b_i) = policy(x0_i),   u_i ~ Beta(a_i, b_i),   t_i = round(u_i (T-1))

Its reward is the decrease of the variational bound by the update with these timesteps. With E_tau the loss of one
image at timestep tau and c_tau its weight in the bound (`diffusion.likelihood.bound_weights`),

    R_i = sum_{tau in S} c_tau (E_tau(theta_k, x0_i) - E_tau(theta_{k+1}, x0_i))                            (eq. 14)
    phi <- Adam step on  -(mean_i R_i log pi(u_i | x0_i) + c_H mean_i H(Beta(a_i, b_i)))                    (eq. 13)

once every f_S updates. S holds the few timesteps whose change best predicts the change of the whole bound: one image's
changes at all timesteps go into a queue of |Q| rows, and S is the |S| columns with the largest F-statistic against
their sum.

The queue may measure a grid of P timesteps instead of all T. The changes of E are interpolated linearly between its
points (`timesteps.grid`), which gives all T columns and their sum, so that S is chosen among all timesteps. On the full
grid this is exactly the published selection.

The reward needs the losses before and after an update. The bound's term is KL = c_tau E_tau + const in closed form, so
each evaluation is one network call for all pairs of image and timestep; with equal noise in both evaluations and
without dropout, the difference is only the effect of the update. With one noise for a row of the queue its columns are
a smooth function of the timestep, which a grid can interpolate. With a noise for each column they are not: the largest
F-statistics of 1000 columns and a few rows are then due to chance, and depend on the grid.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Beta

from diffusion_lab.arguments import check_choice, check_flag, check_integer, check_number
from diffusion_lab.distributed import sum_
from diffusion_lab.networks.policy import BetaPolicy
from diffusion_lab.streams import Streams
from diffusion_lab.timesteps.base import Draw, TimestepSampler
from diffusion_lab.timesteps.beta_policy import (
    Probed,
    ProbePairs,
    Rewards,
    best_timesteps,
    beta_masses,
    draw_beta,
    queue_pairs,
    reward_pairs,
)
from diffusion_lab.timesteps.context import Context, Probe, StepRecord, joined
from diffusion_lab.timesteps.grid import default_grid, masses, strided

REMEMBERED = 64  # images whose distributions make up the running marginal
ENTROPY_MODES = ("additive", "released")


class LearnedBeta(TimestepSampler):
    """t_i = round(u_i (T-1)), u_i ~ Beta(policy(x0_i)), with a small network as the policy. Every f_S updates it is
    trained with REINFORCE on the decrease of the variational bound by an update with these timesteps, estimated on the
    few timesteps S that predict it best (formulas: `diffusion_lab.timesteps.learned_beta`).

    The loss has weight 1: the weights c of the bound enter only through the reward, as published.

    `probabilities` is a running estimate: the mean distribution of the first 64 images of the last batch that updated
    the policy.

    Differs from Kim et al. and the released code, by default: common random numbers and eval mode for both evaluations
    of the loss, because fresh noise and dropout make up more than 99 % of the released reward's variance; one noise for
    all timesteps of a row of the queue, see the module; entropy as an additive bonus, because inside the reward, where
    it is not detached, its bonus vanishes for the uniform policy; S is selected from 5 rows of the queue on, because
    with 2 rows all F-statistics are equal; a grid of 100 timesteps and a part of the batch, because the reward's noise
    allows it. `sampler=learned_beta_released` has the released behaviour.

    The default grid has seven tenths of its points in proportion to the weights c of the bound (with the cosine
    schedule t > 990 has 98 % of them), the rest evenly spaced, because the loss may also change where c is small, and
    both ends. From the same measured changes of 30 U-Nets on digits (10 seeds of each schedule, 12 rows) every timestep
    of its S is within one stride of one of the full grid's in 10 of 10 seeds with linear, 8 with quadratic and 9 with
    cosine; with every tenth timestep and no weights, in 0, 2 and 0.

    Use: to repeat the paper, with several seeds, since what the policy learns differs between them. Each step costs
    more than with a fixed distribution. In `experiment=schedule_by_sampler` no combination of schedule and prediction
    was better with it than with uniform timesteps, and with x0 it was far worse.

    Args:
        num_timesteps: T >= 2.
        reward_weights: (T,) c_t on the native loss, finite, >= 0.
        every: f_S >= 1, optimizer steps between two policy updates.
        num_selected: |S| in [1, T], number of timesteps that the reward is computed from. T gives the exact reward of
            eq. 12, at T network calls for each rewarded row before and after the update.
        queue: |Q| >= 3, number of rows that S is selected from; a row has the changes of one image's losses.
        select_from: number of rows from which on S is selected, in [2, |Q|]; before, S is {0, .., |S| - 1}.
        grid_stride: stride of the timesteps that a row of the queue measures, always with the last one; 0: the default
            grid of about 100 timesteps; 1: all T.
        reward_every: every how many rows of the batch one is rewarded, >= 1; 1: all.
        common_noise: whether both evaluations use the same noise, and the queue one noise for all timesteps of a row.
        eval_mode: whether dropout is off in both evaluations.
        entropy: c_H >= 0, weight of the entropy.
        entropy_mode: additive, or released, which has the entropy inside the reward and not detached.
        lr: learning rate of the policy's Adam, > 0; in the paper 1e-2 for linear and quadratic schedules, 1e-3 for
            cosine.
        clip: largest 2-norm of the policy's gradient, > 0.
        hidden: width of the policy; in the paper 128 for CIFAR-10, 256 for CelebA-HQ and ImageNet.
        hidden_layers: number of hidden layers of the policy.
        seed: seed of the policy's initial weights.
        rewards: rewards to update the policy with in place of the measured ones, as a control; null: the measured ones.

    Raises:
        ValueError: an argument outside its range.
    """

    uses_probe = True
    policy: BetaPolicy
    changes: Tensor
    totals: Tensor
    filled: Tensor
    selected: Tensor
    law: Tensor
    _grid: Tensor
    _c: Tensor
    _mass: Tensor

    def __init__(
        self,
        num_timesteps: int,
        reward_weights: Tensor,
        every: int = 40,
        num_selected: int = 3,
        queue: int = 20,
        select_from: int = 5,
        grid_stride: int = 0,
        reward_every: int = 4,
        common_noise: bool = True,
        eval_mode: bool = True,
        entropy: float = 1e-2,
        entropy_mode: str = "additive",
        lr: float = 1e-2,
        clip: float = 1.0,
        hidden: int = 128,
        hidden_layers: int = 2,
        seed: int = 0,
        rewards: Rewards | None = None,
    ) -> None:
        super().__init__(check_integer("num_timesteps", num_timesteps, 2, "use 1000 as published"))
        stride = check_integer("grid_stride", grid_stride, 0, "use 0 for about 100 points", maximum=num_timesteps - 1)
        check_reward_weights(reward_weights, num_timesteps)
        grid = strided(num_timesteps, stride) if stride else default_grid(reward_weights)
        self.every = check_integer("every", every, 1, "use 40 optimizer steps as published")
        cure = "use 3 as published, or the number of timesteps for all of them"
        check_integer("num_selected", num_selected, 1, cure, maximum=num_timesteps)
        check_integer("queue", queue, 3, "use 20 rows: columns of two have equal F-statistics")
        cure = "use 5, at most the queue's rows"
        self.select_from = check_integer("select_from", select_from, 2, cure, maximum=queue)
        self.reward_every = check_integer("reward_every", reward_every, 1, "use 1 to reward the whole batch")
        self.common_noise = check_flag("common_noise", common_noise, "use true for a reward of low noise")
        self.eval_mode = check_flag("eval_mode", eval_mode, "use true for a reward of low noise")
        self.entropy = check_number("entropy", entropy, "[)", 0, math.inf, "use 0.01 as published")
        self.entropy_mode = check_choice("entropy_mode", entropy_mode, ENTROPY_MODES, "use additive")
        self.lr = check_number("lr", lr, "()", 0, math.inf, "use 0.01, or 0.001 with the cosine schedule")
        self.clip = check_number("clip", clip, "(]", 0, math.inf, "use 1.0")
        # The policy is made in `setup`; an invalid size is rejected before a run begins.
        self._hidden = check_integer("hidden", hidden, 1, "use 128 as published")
        self._hidden_layers = check_integer("hidden_layers", hidden_layers, 1, "use 2 as published")
        self._seed = seed
        self.rewards = rewards
        self.register_buffer("_grid", grid, persistent=False)
        self.register_buffer("_c", reward_weights.double(), persistent=False)
        self.register_buffer("_mass", masses(reward_weights, grid), persistent=False)
        self.register_buffer("changes", torch.zeros(queue, len(grid), dtype=torch.float64))
        self.register_buffer("totals", torch.zeros(queue, dtype=torch.float64))
        self.register_buffer("filled", torch.zeros((), dtype=torch.int64))
        self.register_buffer("selected", torch.arange(num_selected))  # {0, 1, 2} as published
        self.register_buffer("law", torch.full((REMEMBERED, 2), float(torch.nn.functional.softplus(torch.tensor(0.5)))))
        self._probed: list[Probed] = []

    def setup(self, image_shape: tuple[int, ...]) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(Streams(self._seed).key("init", 1))
            self.policy = BetaPolicy(image_shape[0], self._hidden, self._hidden_layers)
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=self.lr)

    def check(self, batch_size: int) -> None:
        rows, least = -(-batch_size // self.reward_every), 1 if self.rewards is None else self.rewards.minimum
        if rows < least:
            raise ValueError(
                f"reward_every={self.reward_every} must leave at least {least} rewarded rows of a batch of "
                f"{batch_size}, which {type(self.rewards).__name__} needs; use a larger batch_size or reward_every=1"
            )

    def probe_rows(self, steps: int, batch_size: int) -> int:
        rewarded = -(-batch_size // self.reward_every)
        return -(-steps // self.every) * 2 * (len(self._grid) + rewarded * len(self.selected))

    def probabilities(self, step: int) -> Tensor:
        return beta_masses(self.law[:, 0], self.law[:, 1], self.num_timesteps)

    # -- before the update --------------------------------------------------------------------------------------

    def draw(self, x0: Tensor, context: Context) -> Draw:
        with torch.no_grad():
            a, b = self._act(x0)
            u = draw_beta(a, b, context)
        t = (u * (self.num_timesteps - 1)).round().long()
        if context.step % self.every == 0:
            self._probe_before(x0, u, context)
        return Draw(t, self.weight(t, context.step))

    def _act(self, x0: Tensor) -> tuple[Tensor, Tensor]:
        """The policy in its own precision, whatever the run's, so that the rewarded distribution is the drawn one."""
        with torch.autocast(x0.device.type, enabled=False):
            return self.policy(x0.to(self.law.dtype))

    def _probe_before(self, x0: Tensor, u: Tensor, context: Context) -> None:
        """Probe this microbatch's pairs at theta_k, and keep their losses for `observe`."""
        points, chosen, every = len(self._grid), len(self.selected), self.reward_every
        start = context.rows(len(x0)).start
        first = min(-start % every, len(x0))  # a small microbatch may have none
        mine = torch.arange(first, len(x0), every, device=x0.device)  # rows 0, every, ... of the global batch
        number = torch.div(start + mine, every, rounding_mode="floor")
        pairs = reward_pairs(x0, context.cond, mine, number, self.selected, first=points)
        if context.micro == 0:
            pairs = joined([queue_pairs(x0, context.cond, self._grid), pairs])
        total = points + -(-context.global_rows(len(x0)) // every) * chosen
        before = self._losses(context.probe_for(self), pairs, total, seed=2 * context.step)
        # The first microbatch begins a new list, which discards draws that were never observed.
        self._probed = [*self._probed[: context.micro], Probed(pairs, total, before, x0[mine], u[mine])]

    def _losses(self, probe: Probe, pairs: ProbePairs, total: int, seed: int) -> Tensor:
        """E_t of each pair: (N,) float64."""
        number = pairs.index
        if self.common_noise:  # the pairs of the queue share noise number 0
            shared = len(self._grid) - 1
            number, total = (number - shared).clamp(min=0), total - shared
        keep_mode = not self.eval_mode
        return probe.pairs(pairs.x0, pairs.t, number, total, seed, keep_mode=keep_mode, **pairs.cond).double()

    # -- after it -----------------------------------------------------------------------------------------------

    def observe(self, record: StepRecord, context: Context) -> None:
        if context.step % self.every:
            return
        probed: Probed = joined(self._probed)
        self._probed = []
        seed = 2 * context.step + (not self.common_noise)
        change = probed.before - self._losses(context.probe_for(self), probed.pairs, probed.total, seed)
        queued = probed.pairs.index < len(self._grid)
        row = torch.zeros_like(self.changes[0]).index_add_(0, probed.pairs.index[queued], change[queued])
        of_bound = self._c[probed.pairs.t[~queued]] * change[~queued]
        reward = of_bound.view(-1, len(self.selected)).sum(1)
        if self.rewards is not None:
            points, size = len(self._grid), len(self.selected)  # pair = points + row * size + column
            number = torch.div(probed.pairs.index[~queued][::size] - points, size, rounding_mode="floor")
            reward = self.rewards.of_rows(reward, number, (probed.total - points) // size, context)
        self._learn(probed.rewarded, probed.u, reward)
        self._remember(record)
        self._select(sum_(row))

    def _learn(self, x0: Tensor, u: Tensor, reward: Tensor) -> None:
        """One Adam step of the policy on the rewarded rows of all processes."""
        parameters = list(self.policy.parameters())
        count = sum_(torch.tensor(float(len(x0)), device=x0.device))
        with torch.enable_grad():
            beta = Beta(*(value.double() for value in self._act(x0)), validate_args=False)
            score, entropy = beta.log_prob(u), beta.entropy()
            if self.entropy_mode == "released":
                gain = score * (reward + self.entropy * entropy)
            else:
                gain = score * reward + self.entropy * entropy
            gradients = torch.autograd.grad(-gain.sum() / count, parameters)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = sum_(gradient.detach().clone())
        torch.nn.utils.clip_grad_norm_(parameters, self.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()

    @torch.no_grad()
    def _remember(self, record: StepRecord) -> None:
        parameters = record.gather(torch.stack(self._act(record.x0), dim=1))
        rows = torch.arange(REMEMBERED, device=parameters.device) % len(parameters)
        self.law.copy_(parameters[rows])

    def _select(self, row: Tensor) -> None:
        """Push the changes of one image's loss on the grid; with enough rows, choose S for the next policy update."""
        size = len(self.totals)
        slot = int(self.filled) % size
        self.changes[slot], self.totals[slot] = row, self._mass @ row
        self.filled.add_(1)
        rows = min(int(self.filled), size)
        if rows >= self.select_from:
            seen = self.changes[:rows], self.totals[:rows]
            self.selected.copy_(best_timesteps(*seen, self._grid, self._c, len(self.selected)))

    # -- the optimizer's state ----------------------------------------------------------------------------------

    def get_extra_state(self) -> dict[str, Any]:
        return {"optimizer": self.optimizer.state_dict()}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(state["optimizer"])

    def _apply(self, fn: Any, recurse: bool = True) -> LearnedBeta:
        super()._apply(fn, recurse)
        for moments in self.optimizer.state.values() if hasattr(self, "optimizer") else ():
            for key, value in moments.items():
                if key != "step":  # Adam keeps its count on the host
                    moments[key] = fn(value)
        return self


def check_reward_weights(weights: Tensor, num_timesteps: int) -> None:
    """ValueError unless there is one finite weight >= 0 per timestep."""
    if len(weights) != num_timesteps:
        raise ValueError(
            f"reward_weights of {len(weights)} numbers must have {num_timesteps}, one per timestep; "
            "use those of the run's own schedule"
        )
    if not bool(torch.isfinite(weights).all() and (weights >= 0).all()):
        raise ValueError("reward_weights must be finite numbers >= 0; choose variance=fixed_large")
