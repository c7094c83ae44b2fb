"""The learned Beta sampler (Kim et al., CVPR 2025, section 3; released code ku-dmlab/Adaptive-Timestep-Sampler).

A small network, the policy, looks at a clean image and gives the two parameters of a Beta law on its timestep:

    (a_i, b_i) = policy(x0_i),   u_i ~ Beta(a_i, b_i),   t_i = round(u_i (T-1))

It is rewarded by how much the update with these timesteps lowers the variational bound. With E_tau the loss of one
image at timestep tau and c_tau its weight in the bound (`diffusion.likelihood.bound_weights`),

    R_i = sum_{tau in S} c_tau (E_tau(theta_k, x0_i) - E_tau(theta_{k+1}, x0_i))                            (eq. 14)
    phi <- Adam step on  -(mean_i R_i log pi(u_i | x0_i) + c_H mean_i H(Beta(a_i, b_i)))                    (eq. 13)

once every f_S updates. S holds the few timesteps whose change best predicts the change of the whole bound: one image's
changes at all timesteps of a grid go into a queue of |Q| rows, and S is the |S| columns with the largest F-statistic
against their sum.

The reward needs looks at the losses before and after an update. The bound's term is KL = c_tau E_tau + const in closed
form, so a look is one network call for all pairs of image and timestep; with equal noise on both sides and without
dropout, the difference is the update's effect alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributions import Beta

from diffusion_lab.distributed import broadcast_, rank, sum_, world_size
from diffusion_lab.networks.policy import BetaPolicy
from diffusion_lab.streams import Streams
from diffusion_lab.timesteps.base import Context, Draw, Probe, StepRecord, TimestepSampler
from diffusion_lab.timesteps.beta import beta_masses, draw_beta

REMEMBERED = 64  # images whose laws make up the running marginal
ENTROPY_MODES = ("additive", "released")


class Look(NamedTuple):
    """The pairs of image and timestep that one microbatch is looked at, and what they cost before the update."""

    step: int
    x0: Tensor  # (N,C,H,W), the image of each pair
    cond: dict[str, Tensor]  # (N,...)
    t: Tensor  # (N,) timesteps
    index: Tensor  # (N,) number of the pair among those of the global batch: its noise
    total: int  # pairs of the global batch
    before: Tensor  # (N,) losses at theta_k
    rewarded: Tensor  # (M,C,H,W) images whose actions are rewarded; their pairs are the last M |S|
    u: Tensor  # (M,) their actions


class LearnedBeta(TimestepSampler):
    """t_i = round(u_i (T-1)), u_i ~ Beta(policy(x0_i)), the policy trained on the drop of the bound; see the module.

    The loss carries weight 1: the weights c of the bound enter through the reward alone, as published.

    `probabilities` is a running estimate: the mean law of the first 64 images of the last batch that taught the policy.

    Differs from Kim et al. and the released code, by default: common random numbers and eval mode for both looks,
    because fresh noise and dropout make up more than 99 % of the released reward's variance; entropy as an additive
    bonus, because inside the reward, where it is not detached, its bonus vanishes for the uniform policy; selection
    from 5 rows of the queue on, because with 2 rows all F-statistics are equal; a grid of about 100 timesteps and a
    part of the batch, because the reward's noise allows it. `sampler=learned_beta_released` has the released behaviour.
    Differs from the released code in both: updates are counted over the run, not within the epoch; the look takes one
    network call where that takes two; the actions of one batch do not depend on the number of processes.

    Args:
        num_timesteps: T >= 2.
        reward_weights: (T,) c_t on the native loss, finite, >= 0.
        every: f_S >= 1, updates between two lessons.
        num_selected: |S| in [1, number of grid points].
        queue: |Q| >= 3 rows.
        select_from: rows from which S is selected, in [2, |Q|].
        grid_stride: every how many timesteps the queue looks; 0: so that there are about 100; 1: all T.
        reward_every: every how many rows of the batch are rewarded, >= 1.
        common_noise: whether both looks use the same noise.
        eval_mode: whether dropout is off in both looks.
        entropy: c_H >= 0.
        entropy_mode: additive, or released (inside the reward and not detached).
        lr: of the policy's Adam, > 0: 1e-2 for linear and quadratic schedules, 1e-3 for cosine.
        clip: largest 2-norm of the policy's gradient, > 0.
        hidden: width of the policy: 128 for CIFAR-10, 256 for the larger sets.
        hidden_layers: hidden layers of the policy.
        seed: of the policy's weights.

    Raises:
        ValueError: an argument outside its range.
    """

    policy: BetaPolicy
    changes: Tensor
    totals: Tensor
    filled: Tensor
    selected: Tensor
    law: Tensor
    _grid: Tensor
    _c: Tensor

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
    ) -> None:
        super().__init__(num_timesteps)
        stride = grid_stride or max(1, num_timesteps // 100)
        grid = torch.arange(0, num_timesteps, stride)
        _check(num_timesteps, reward_weights, every, num_selected, len(grid), queue, select_from, grid_stride)
        _check_learning(reward_every, entropy, entropy_mode, lr, clip)
        self.every, self.reward_every, self.select_from = every, reward_every, select_from
        self.common_noise, self.eval_mode = common_noise, eval_mode
        self.entropy, self.entropy_mode, self.lr, self.clip = entropy, entropy_mode, lr, clip
        self._hidden, self._hidden_layers, self._seed = hidden, hidden_layers, seed
        self.register_buffer("_grid", grid, persistent=False)
        self.register_buffer("_c", reward_weights.double(), persistent=False)
        self.register_buffer("changes", torch.zeros(queue, len(grid), dtype=torch.float64))
        self.register_buffer("totals", torch.zeros(queue, dtype=torch.float64))
        self.register_buffer("filled", torch.zeros((), dtype=torch.int64))
        self.register_buffer("selected", torch.arange(num_selected))  # {0, 1, 2} as published
        self.register_buffer("law", torch.full((REMEMBERED, 2), float(torch.nn.functional.softplus(torch.tensor(0.5)))))
        self._looks: list[Look] = []

    def setup(self, image_shape: tuple[int, ...]) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(Streams(self._seed).key("init", 1))
            self.policy = BetaPolicy(image_shape[0], self._hidden, self._hidden_layers)
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=self.lr)

    def probabilities(self, step: int) -> Tensor:
        return beta_masses(self.law[:, 0], self.law[:, 1], self.num_timesteps)

    def quantile(self, u: Tensor, step: int) -> Tensor:
        raise NotImplementedError("LearnedBeta draws from the law of each image; it has no quantile of its own")

    # -- before the update --------------------------------------------------------------------------------------

    def draw(self, x0: Tensor, context: Context) -> Draw:
        with torch.no_grad():
            u = draw_beta(*self.policy(x0), context)
        t = (u * (self.num_timesteps - 1)).round().long()
        if context.step % self.every == 0:
            self._look_before(x0, u, context)
        return Draw(t, self.weight(t, context.step))

    def _look_before(self, x0: Tensor, u: Tensor, context: Context) -> None:
        """Choose the pairs of this microbatch and look at them at theta_k."""
        n, points, chosen = len(x0), len(self._grid), len(self.selected)
        start, size = context.rows(n).start, context.global_rows(n)
        number = torch.arange(start, start + n, device=x0.device)
        mine = torch.arange(-start % self.reward_every, n, self.reward_every, device=x0.device)
        row = mine.repeat_interleave(chosen)
        pair = torch.arange(chosen, device=x0.device).repeat(len(mine))
        images, t = [x0[row]], [self.selected[pair]]
        index = [points + torch.div(number[row], self.reward_every, rounding_mode="floor") * chosen + pair]
        cond = {key: [value[row]] for key, value in context.cond.items()}
        if context.micro == 0:
            # The queue's one image is the first of the global batch; each process looks at its share of the grid.
            share = torch.arange(rank(), points, world_size(), device=x0.device)
            images.insert(0, broadcast_(x0[:1].clone()).expand(len(share), *x0.shape[1:]))
            t.insert(0, self._grid[share])
            index.insert(0, share)
            for key, value in context.cond.items():
                cond[key].insert(0, broadcast_(value[:1].clone()).expand(len(share), *value.shape[1:]))
        if self._looks and self._looks[0].step != context.step:
            self._looks = []  # a step that was drawn but never observed
        total = points + -(-size // self.reward_every) * chosen
        look = Look(
            context.step,
            torch.cat(images),
            {key: torch.cat(values) for key, values in cond.items()},
            torch.cat(t),
            torch.cat(index),
            total,
            torch.empty(0),
            x0[mine],
            u[mine],
        )
        before = self._costs(_probe(context), look, seed=2 * context.step)
        self._looks = [*self._looks[: context.micro], look._replace(before=before)]

    def _costs(self, probe: Probe, look: Look, seed: int) -> Tensor:
        """c_t E_t of each pair: (N,) float64."""
        loss = probe.pairs(look.x0, look.t, look.index, look.total, seed, keep_mode=not self.eval_mode, **look.cond)
        return loss.double() * self._c[look.t]

    # -- after it -----------------------------------------------------------------------------------------------

    def observe(self, record: StepRecord, context: Context) -> None:
        if context.step % self.every:
            return
        looks, self._looks = self._looks, []
        joined = _join(looks)
        seed = 2 * context.step + (not self.common_noise)
        change = joined.before - self._costs(_probe(context), joined, seed)
        queued = joined.index < len(self._grid)
        row = torch.zeros_like(self.changes[0]).index_add_(0, joined.index[queued], change[queued])
        reward = change[~queued].view(-1, len(self.selected)).sum(1)
        self._learn(joined.rewarded, joined.u, reward)
        self._remember(record)
        self._select(sum_(row))

    def _learn(self, x0: Tensor, u: Tensor, reward: Tensor) -> None:
        """One Adam step of the policy on the rewarded rows of all processes."""
        parameters = list(self.policy.parameters())
        count = sum_(torch.tensor(float(len(x0)), device=x0.device))
        with torch.enable_grad():
            law = Beta(*(value.double() for value in self.policy(x0)), validate_args=False)
            score, entropy = law.log_prob(u), law.entropy()
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
        law = record.gather(torch.stack(self.policy(record.x0), dim=1))
        rows = torch.arange(REMEMBERED, device=law.device) % len(law)
        self.law.copy_(law[rows])

    def _select(self, row: Tensor) -> None:
        """Push the changes of one image on the grid; with enough of them, choose S anew for the next lesson."""
        size = len(self.totals)
        slot = int(self.filled) % size
        self.changes[slot], self.totals[slot] = row, row.sum()
        self.filled.add_(1)
        rows = min(int(self.filled), size)
        if rows >= self.select_from:
            score = f_statistic(self.changes[:rows], self.totals[:rows])
            self.selected.copy_(self._grid[score.topk(len(self.selected)).indices].sort().values)

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


def f_statistic(deltas: Tensor, total: Tensor) -> Tensor:
    """Univariate F-test of each column against the total: (n,T), (n,) -> (T,) float64.

        F = r^2/(1 - r^2) (n - 2),   r the correlation of the column with the total

    -inf for a column, or a total, that does not vary. Equal to scikit-learn's `f_regression`.

    Raises:
        ValueError: fewer than 2 rows.
    """
    if len(deltas) < 2:
        raise ValueError(f"deltas of {len(deltas)} rows must have at least 2; push more rows first")
    x = deltas.double() - deltas.double().mean(0)
    y = total.double() - total.double().mean()
    spread = x.square().sum(0) * y.square().sum()
    r2 = ((x * y[:, None]).sum(0).square() / spread.clamp(min=torch.finfo(torch.float64).tiny)).clamp(max=1.0)
    f = r2 / (1 - r2) * (len(deltas) - 2)
    # With two rows every correlation is 1 and F is 0 * inf: no column is better than another.
    f = torch.nan_to_num(f, nan=0.0, posinf=torch.inf)
    return torch.where(spread > 0, f, -torch.inf)


def _join(looks: list[Look]) -> Look:
    """The pairs of all microbatches, those of the queue first."""
    if len(looks) == 1:
        return looks[0]
    tensors = {
        name: torch.cat([getattr(look, name) for look in looks])
        for name in ("x0", "t", "index", "before", "rewarded", "u")
    }
    cond = {key: torch.cat([look.cond[key] for look in looks]) for key in looks[0].cond}
    return looks[0]._replace(cond=cond, **tensors)


def _probe(context: Context) -> Probe:
    if context.probe is None:
        raise ValueError("probe=None must be a Probe, because LearnedBeta looks at losses; give Context(probe=...)")
    return context.probe


def _check(
    num_timesteps: int,
    reward_weights: Tensor,
    every: int,
    num_selected: int,
    points: int,
    queue: int,
    select_from: int,
    grid_stride: int,
) -> None:
    if num_timesteps < 2:
        raise ValueError(f"num_timesteps={num_timesteps} must be at least 2; use 1000 as published")
    if len(reward_weights) != num_timesteps:
        raise ValueError(
            f"reward_weights of {len(reward_weights)} numbers must have {num_timesteps}, one per timestep; "
            "use those of the run's own schedule"
        )
    if not bool(torch.isfinite(reward_weights).all() and (reward_weights >= 0).all()):
        raise ValueError("reward_weights must be finite numbers >= 0; choose variance=fixed_large")
    if every < 1:
        raise ValueError(f"every={every} must be at least 1 optimizer step; use 40 as published")
    if not 0 <= grid_stride < num_timesteps:
        raise ValueError(f"grid_stride={grid_stride} must lie in [0, {num_timesteps}); use 0 for about 100 points")
    if not 1 <= num_selected <= points:
        raise ValueError(
            f"num_selected={num_selected} must lie in [1, {points}], the timesteps that the queue looks at; use 3 as "
            "published"
        )
    if queue < 3:
        raise ValueError(f"queue={queue} must be at least 3 rows, or no F-statistic tells columns apart; use 20")
    if not 2 <= select_from <= queue:
        raise ValueError(f"select_from={select_from} must lie in [2, {queue}], the queue's rows; use 5")


def _check_learning(reward_every: int, entropy: float, entropy_mode: str, lr: float, clip: float) -> None:
    if reward_every < 1:
        raise ValueError(f"reward_every={reward_every} must be at least 1 row; 1 rewards the whole batch")
    if not entropy >= 0:
        raise ValueError(f"entropy={entropy} must be >= 0; use 0.01 as published")
    if entropy_mode not in ENTROPY_MODES:
        raise ValueError(f"entropy_mode={entropy_mode} must be one of {', '.join(ENTROPY_MODES)}; use additive")
    for name, value, cure in (("lr", lr, "0.01, or 0.001 with the cosine schedule"), ("clip", clip, "1.0")):
        if not value > 0:
            raise ValueError(f"{name}={value} must be > 0; use {cure}")
