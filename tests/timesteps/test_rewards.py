"""The controls of the learned Beta sampler: shuffled and zero rewards, and the reward at all timesteps."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from scipy.stats import beta as beta_distribution
from scipy.stats import chisquare
from torch.distributions import Beta

from diffusion_lab.cli.config import compose_train
from diffusion_lab.cli.run_parts import part
from diffusion_lab.streams import Streams
from diffusion_lab.timesteps import (
    Context,
    LearnedBeta,
    Position,
    Rewards,
    ShuffledRewards,
    StepRecord,
    ZeroRewards,
)
from diffusion_lab.timesteps.beta_policy import beta_masses

T, ROWS, SHAPE = 40, 64, (1, 8, 8)
WEIGHTS = torch.linspace(1, 0.1, T).double()


def context(step: int = 0, seed: int = 0, probe: object = None) -> Context:
    return Context(Position(step), Streams(seed), probe=probe)


class LateIsGood:
    """A probe by which an update lowers the loss of exactly those images whose timestep was in the later half."""

    def __init__(self) -> None:
        self.gain = torch.zeros(0)

    def pairs(self, x0, t, index, total, seed, keep_mode=False, **cond):
        image = (index - 1).clamp(min=0)  # |S| = 1, and every row is rewarded; number 0 is the queue's noise
        return 1.0 - torch.where(index > 0, self.gain[image], 0.0) if len(self.gain) else torch.ones(len(x0))


def updates(sampler: LearnedBeta, count: int, always: torch.Tensor | None = None) -> None:
    """`count` policy updates, each after one draw; the images are a function of the step, or the same ones `always`."""
    probe = LateIsGood()
    for number in range(count):
        step = number * sampler.every
        x0 = images(step) if always is None else always
        probe.gain = torch.zeros(0)
        t = sampler.draw(x0, context(step, probe=probe)).t
        probe.gain = (t >= sampler.num_timesteps / 2).float()
        sampler.observe(StepRecord(x0, {}, t, t.float(), t.float()), context(step, probe=probe))


def images(step: int, rows: int = ROWS) -> torch.Tensor:
    return Streams(step).normal((rows, *SHAPE), "testing").clamp(-1, 1)


def small(**arguments) -> LearnedBeta:
    given = {"every": 1, "num_selected": 1, "select_from": 20, "reward_every": 1, "hidden": 8} | arguments
    sampler = LearnedBeta(T, WEIGHTS, **given)
    sampler.setup(SHAPE)
    return sampler


def of_method(method: str) -> LearnedBeta:
    """The sampler that `diffusion-lab train method=...` builds, with the rows and |S| that the probe above takes."""
    words = [f"method={method}", f"schedule.num_timesteps={T}", "sampler.num_selected=1", "sampler.reward_every=1"]
    sampler = part(compose_train([*words, "sampler.lr=1e-3", "sampler.hidden=16"], Path("run")), "sampler")
    sampler.setup(SHAPE)
    return sampler


def weights(sampler: LearnedBeta) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in sampler.policy.parameters()])


def entropy_alone(policy: torch.nn.Module, count: int, every: int, lr: float, clip: float, c: float) -> torch.Tensor:
    """The policy's weights after `count` steps of Adam on -c mean H(Beta(a, b)), and of nothing else."""
    policy = copy.deepcopy(policy)
    optimizer = torch.optim.Adam(policy.parameters(), lr=lr)
    for number in range(count):
        optimizer.zero_grad()
        a, b = policy(images(number * every))
        (-c * Beta(a.double(), b.double()).entropy().mean()).backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), clip)
        optimizer.step()
    return torch.cat([parameter.detach().flatten() for parameter in policy.parameters()])


def test_zero_rewards_are_gradient_ascent_on_the_entropy_alone():
    zero, measured = of_method("learned_beta_zero"), of_method("learned_beta")
    assert torch.equal(weights(zero), weights(measured))
    for sampler in (zero, measured):
        torch.nn.init.constant_(sampler.policy.last.bias, 1.0)  # away from the uniform distribution
    start, expected = weights(zero), entropy_alone(zero.policy, 12, zero.every, lr=1e-3, clip=1.0, c=0.01)
    for sampler in (zero, measured):
        updates(sampler, 12)
    assert float((weights(zero) - expected).abs().max()) < 1e-6
    # Negative controls: the policy has moved, and with the measured rewards it moves elsewhere.
    assert float((expected - start).abs().max()) > 5e-3
    assert float((weights(measured) - expected).abs().max()) > 5e-3


@pytest.mark.parametrize("bias", [(0.5, 0.5), (2.0, -1.0)])
def test_zero_rewards_end_at_the_uniform_distribution_which_has_the_largest_entropy(bias):
    """From the published start and from another one, on the same eight images, to which the ascent converges."""
    sampler, x0 = small(rewards=ZeroRewards(), lr=1e-2), images(0, 8)
    with torch.no_grad():
        sampler.policy.last.bias.copy_(torch.tensor(bias))
    updates(sampler, 150, always=x0)
    with torch.no_grad():
        a, b = sampler.policy(x0)
    torch.testing.assert_close(torch.stack([a, b]), torch.ones(2, 8), atol=1e-3, rtol=0)
    uniform = beta_masses(torch.ones(1), torch.ones(1), T)
    torch.testing.assert_close(sampler.probabilities(0), uniform, atol=1e-3, rtol=0)


def test_measured_rewards_move_the_distribution_where_shuffled_and_zero_ones_do_not():
    late = {}
    for method in ("learned_beta", "learned_beta_shuffled", "learned_beta_zero"):
        sampler = of_method(method)
        updates(sampler, 40)
        late[method] = float(sampler.probabilities(0)[T // 2 :].sum())
    assert late["learned_beta"] > 0.8
    assert late["learned_beta_zero"] == pytest.approx(0.5, abs=0.01)
    assert late["learned_beta_shuffled"] == pytest.approx(0.5, abs=0.05)


def gradient_of(sampler: LearnedBeta, x0: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """The gradient of one policy update without rewards."""
    parameters, kept = list(sampler.policy.parameters()), []

    def keep() -> None:
        kept.extend(parameter.grad.flatten() for parameter in parameters)

    sampler.optimizer.step = keep
    sampler._learn(x0, u, ZeroRewards()(torch.ones(len(x0)).double(), context()))
    return torch.cat(kept)


def test_zero_rewards_with_the_entropy_inside_descend_on_half_its_square():
    """`entropy_mode=released`: the mean over u of -c H log pi(u) has the gradient of c H^2/2, which is -H times that of
    the additive bonus -c H. The mean is over 4096 quantiles of the distribution, so that no draw is in it."""
    found = {}
    for mode in ("released", "additive"):
        sampler = small(entropy_mode=mode, entropy=0.5, clip=float("inf"))
        with torch.no_grad():
            sampler.policy.last.bias.copy_(torch.tensor([2.0, 1.0]))
            a, b = (value.double() for value in sampler.policy(images(0, 1)))
        u = torch.tensor(beta_distribution(a.item(), b.item()).ppf((torch.arange(4096).double() + 0.5) / 4096))
        found[mode] = gradient_of(sampler, images(0, 1).expand(4096, *SHAPE), u)
    strength = -float(Beta(a, b).entropy())
    assert 0.05 < strength < 0.5
    error = found["released"] - strength * found["additive"]
    assert float(error.norm() / found["released"].norm()) < 0.01


@pytest.mark.parametrize("rows", [2, 3, 16, 33])
def test_every_row_gets_the_reward_of_another_one(rows):
    measured = torch.arange(rows).double()
    for step in range(20):
        shuffled = ShuffledRewards()(measured, context(step))
        assert shuffled.sort().values.tolist() == measured.tolist()
        assert not bool((shuffled == measured).any())


def test_the_permutation_is_a_function_of_seed_and_step_and_independent_of_the_draws():
    measured, shuffle = torch.arange(64).double(), ShuffledRewards()
    first, again = context(3), context(3)
    again.uniform(64)  # a draw before it changes nothing
    assert torch.equal(shuffle(measured, first), shuffle(measured, again))
    for other in (context(4), context(3, seed=1)):
        assert not torch.equal(shuffle(measured, first), shuffle(measured, other))
    one, two = context(3), context(3)
    assert one.generator_of("rewards").initial_seed() != two.generator.initial_seed()


def test_every_other_row_is_equally_likely():
    measured, counts = torch.arange(5), torch.zeros(5, 5)
    for step in range(2000):
        shuffled = ShuffledRewards()(measured.double(), context(step)).long()
        counts[measured, shuffled] += 1
    assert counts.diagonal().sum() == 0
    assert chisquare(counts[~torch.eye(5, dtype=torch.bool)]).pvalue > 1e-4


@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("rewards", [ShuffledRewards(), None])
def test_shuffled_rewards_do_not_depend_on_the_microbatches(rows, rewards):
    x0, losses, states = images(0, 12), torch.zeros(12), []
    for size in (12, rows):
        sampler, probe, parts = small(rewards=rewards, reward_every=3), LateIsGood(), 12 // size
        for micro in range(parts):
            some = slice(micro * size, (micro + 1) * size)
            position = Position(0, 0, 1, micro, parts)
            sampler.draw(x0[some], Context(position, Streams(0), probe=probe))
        probe.gain = torch.tensor([0.0, 2.0, 0.5, 1.0])  # of the four rewarded rows
        record = StepRecord(x0, {}, losses.long(), losses, losses, microbatches=(len(x0) // parts,) * parts)
        sampler.observe(record, Context(Position(0, 0, 1, parts - 1, parts), Streams(0), probe=probe))
        states.append(weights(sampler))
    torch.testing.assert_close(*states)
    assert not torch.equal(states[0], weights(small()))


class Kept(Rewards):
    """Keeps what it is given."""

    def __call__(self, measured, context):
        self.seen = measured
        return measured


@pytest.mark.parametrize("count", [1, 3, 10, T])
def test_the_reward_of_all_timesteps_is_the_whole_change_of_the_bound(count):
    """With E_t = (theta - t/T)^2 and S = {0..T-1}: R = sum_t c_t (E_t(theta) - E_t(theta'))."""

    class Parabola:
        theta = 1.0

        def pairs(self, x0, t, index, total, seed, keep_mode=False, **cond):
            return (self.theta - t.double() / T) ** 2 * (1 + x0[:, 0, 0, 0].double() ** 2)

    kept = Kept()
    sampler, probe, x0 = small(num_selected=count, rewards=kept, grid_stride=13), Parabola(), images(0, 8)
    t = sampler.draw(x0, context(probe=probe)).t
    probe.theta = 0.9
    sampler.observe(StepRecord(x0, {}, t, t.float(), t.float()), context(probe=probe))
    tau = torch.arange(T).double() / T
    change = WEIGHTS * ((1.0 - tau) ** 2 - (0.9 - tau) ** 2)
    expected = change[:count].sum() * (1 + x0[:, 0, 0, 0].double() ** 2)  # S begins as {0, .., |S| - 1}
    torch.testing.assert_close(kept.seen, expected)
    assert sampler.probe_rows(1, 8) == 2 * (len(sampler._grid) + 8 * count)


def test_too_few_rows_to_shuffle_are_named():
    sampler = small(rewards=ShuffledRewards(), reward_every=4)
    sampler.check(5)
    with pytest.raises(ValueError, match=r"^reward_every=4 must leave at least 2 rewarded rows .* of 4, .*; use"):
        sampler.check(4)
    small(reward_every=4).check(1)
