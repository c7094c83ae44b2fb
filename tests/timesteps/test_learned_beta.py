"""The learned Beta sampler: its distribution, reward, statistic and number of network calls."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from scipy.stats import kstest
from sklearn.feature_selection import f_regression

from diffusion_lab.diffusion import Denoiser, Epsilon, FixedLarge, FixedSmall, V, bound_weights, cosine, linear
from diffusion_lab.networks import BetaPolicy, UNet
from diffusion_lab.networks.policy import _mean_over_grid
from diffusion_lab.streams import Streams
from diffusion_lab.timesteps import Context, LearnedBeta, Position, StepRecord, f_statistic
from diffusion_lab.timesteps.beta_policy import beta_masses, draw_beta
from diffusion_lab.training import DenoiserProbe

T, ROWS = 40, 16
WEIGHTS = torch.linspace(1, 0.1, T).double()


def test_the_policy_has_the_published_size_and_starts_nearly_uniform():
    for hidden, parameters in ((128, 372_290), (256, 684_098)):
        policy = BetaPolicy(3, hidden)
        assert sum(p.numel() for p in policy.parameters()) == parameters
        a, b = policy(torch.randn(5, 3, 32, 32))
        torch.testing.assert_close(a, torch.full((5,), 0.97409), atol=2e-5, rtol=0)
        assert torch.equal(a, b)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_the_layout_of_the_policys_weights_changes_only_rounding(dtype, tolerance):
    """Convolutions sum in another order in another layout. The gradient is compared in float64, because in float32
    rounding may decide which pixel is the largest."""
    torch.manual_seed(0)
    policy, x0 = BetaPolicy(3).to(dtype), torch.rand(16, 3, 32, 32, dtype=dtype) * 2 - 1
    torch.nn.init.normal_(policy.last.weight)  # so that the distribution depends on the image
    other = copy.deepcopy(policy)
    other.convs.to(memory_format=torch.contiguous_format)
    assert other.convs[2].weight.is_contiguous() and not policy.convs[2].weight.is_contiguous()
    ours, theirs = (torch.stack(some(x0)) for some in (policy, other))
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=0)
    if dtype == torch.float64:
        gradients = (torch.autograd.grad(a.sum(), list(p.parameters())) for a, p in ((ours, policy), (theirs, other)))
        torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("side", [1, 8, 28, 33, 64])
def test_the_policy_takes_images_of_any_size(side):
    a, _ = BetaPolicy(1)(torch.randn(2, 1, side, side))
    assert a.shape == (2,)


@pytest.mark.parametrize(("a", "b"), [(0.97409, 0.97409), (0.5, 0.7), (5.0, 1.5), (80.0, 80.0)])
def test_draws_follow_the_beta_distribution(a, b):
    n = 20_000
    u = draw_beta(torch.full((n,), a), torch.full((n,), b), Context(Position(0), Streams(3)))
    assert kstest(u.numpy(), "beta", args=(a, b)).pvalue > 1e-4


def test_a_rows_draw_does_not_depend_on_the_split():
    a, b = torch.rand(2, 40, generator=torch.Generator().manual_seed(0)) + 0.5
    for step in range(20):
        whole = draw_beta(a, b, Context(Position(step), Streams(0)))
        for size in (20, 8, 1):
            rows = [slice(i, i + size) for i in range(0, 40, size)]
            places = [Context(Position(step, i, len(rows)), Streams(0)) for i in range(len(rows))]
            parts = [draw_beta(a[one], b[one], place) for one, place in zip(rows, places, strict=True)]
            assert torch.equal(whole, torch.cat(parts))


def test_masses_of_the_rounded_beta_distribution():
    p = beta_masses(torch.tensor([1.0]), torch.tensor([1.0]), 11)  # uniform: the bins at the ends have half the width
    torch.testing.assert_close(p, torch.tensor([0.05, *[0.1] * 9, 0.05]).double())


def test_the_gradient_of_the_log_density_is_that_of_finite_differences():
    policy = BetaPolicy(1, hidden=8).double()
    x0, u, h = torch.randn(1, 1, 8, 8).double(), torch.tensor([0.3]).double(), 1e-6

    def score(shift: float) -> torch.Tensor:
        moved = copy.deepcopy(policy)
        moved.last.bias.data[0] += shift
        return torch.distributions.Beta(*moved(x0)).log_prob(u).sum().detach()

    exact = torch.autograd.grad(torch.distributions.Beta(*policy(x0)).log_prob(u).sum(), policy.last.bias)[0][0]
    assert float(exact) == pytest.approx(float((score(h) - score(-h)) / (2 * h)), rel=1e-6)


@pytest.mark.parametrize("rows", [3, 5, 20])
def test_the_statistic_is_that_of_scikit_learn(rows):
    generator = np.random.default_rng(0)
    x = generator.normal(size=(rows, 30))
    y = x[:, 4] + 0.5 * x[:, 9] + 0.1 * generator.normal(size=rows)
    expected = f_regression(x, y)[0]
    np.testing.assert_allclose(f_statistic(torch.tensor(x), torch.tensor(y)).numpy(), expected, rtol=1e-9)


def test_constant_columns_are_never_selected_and_two_rows_are_too_few():
    x = torch.randn(6, 3)
    x[:, 1] = 2.0
    assert f_statistic(x, x.sum(1))[1] == -torch.inf
    assert f_statistic(torch.randn(2, 4), torch.randn(2)).unique().numel() == 1
    with pytest.raises(ValueError, match="must have at least 2"):
        f_statistic(torch.randn(1, 4), torch.randn(1))


@pytest.mark.parametrize("schedule", [linear, cosine])
def test_bound_weights_with_the_small_variance_are_half_the_drop_of_the_snr(schedule):
    s = schedule()
    c = bound_weights(s, Epsilon(), FixedSmall())[1:] * math.log(2)
    torch.testing.assert_close(c, 0.5 * (s.snr[:-1] - s.snr[1:]) / s.snr[1:], rtol=1e-4, atol=0)


def test_bound_weights_with_the_large_variance_are_the_published_numbers():
    c = bound_weights(linear(), Epsilon(), FixedLarge()) * math.log(2)
    for t, value in ((0, 0.917), (1, 0.273), (10, 0.068), (100, 0.0100), (500, 0.0055), (999, 0.0102)):
        assert float(c[t]) == pytest.approx(value, rel=0.01)
    v = bound_weights(linear(), V(), FixedLarge()) * math.log(2)
    torch.testing.assert_close(v, c * linear().alphas_cumprod, rtol=1e-9, atol=0)


class Quadratic:
    """A probe whose losses are (theta - t/T)^2 for every image, plus noise that depends only on the seed."""

    def __init__(self) -> None:
        self.theta, self.calls = 1.0, []

    def pairs(self, x0, t, index, total, seed, keep_mode=False, **cond):
        self.calls.append((len(x0), seed, keep_mode))
        noise = Streams(seed).normal((total,), "testing")[index]
        return (self.theta - t / T) ** 2 + noise


def update(sampler: LearnedBeta, probe: Quadratic, step: int = 0, rows: int = ROWS) -> torch.Tensor:
    """One draw, one change of theta, one observation; returns the timesteps."""
    x0 = Streams(step).normal((rows, 1, 8, 8), "testing")
    draw = sampler.draw(x0, Context(Position(step), Streams(0), probe=probe))
    probe.theta -= 0.1
    record = StepRecord(x0, {}, draw.t, torch.zeros(rows), torch.zeros(rows))
    sampler.observe(record, Context(Position(step), Streams(0), probe=probe))
    return draw.t


def learned(**arguments) -> LearnedBeta:
    sampler = LearnedBeta(T, WEIGHTS, **arguments)
    sampler.setup((1, 8, 8))
    return sampler


def test_the_queue_holds_the_exact_change_of_the_bound():
    sampler, probe = learned(grid_stride=1), Quadratic()
    update(sampler, probe)
    tau = torch.arange(T).double() / T
    change = (1.0 - tau) ** 2 - (0.9 - tau) ** 2
    torch.testing.assert_close(sampler.changes[0], change, atol=1e-6, rtol=0)
    torch.testing.assert_close(sampler.totals[0], (WEIGHTS * change).sum(), atol=1e-5, rtol=0)


def test_the_probe_is_called_every_so_many_updates_with_the_counted_pairs():
    sampler, probe = learned(every=5, grid_stride=4, reward_every=4), Quadratic()
    for step in range(11):
        update(sampler, probe, step)
    pairs = T // 4 + 1 + ROWS // 4 * 3  # every fourth timestep, and the last
    assert [n for n, _, _ in probe.calls] == [pairs] * 6  # updates 0, 5 and 10, before and after
    seeds = [seed for _, seed, _ in probe.calls]
    assert seeds[0::2] == seeds[1::2] and not any(keep for _, _, keep in probe.calls)


@pytest.mark.parametrize(
    ("arguments", "rows_per_evaluation"), [({}, 11 + 4 * 3), ({"grid_stride": 1, "reward_every": 1}, T + 16 * 3)]
)
def test_a_policy_update_takes_one_forward_pass_per_pair_and_evaluation(arguments, rows_per_evaluation):
    """The released code takes two calls for each, 4 T + 4 |S| B rows in total."""
    network = UNet(1, 1, 8, base_channels=8, channel_multipliers=(1,), num_res_blocks=1, attention_resolutions=())
    probe = DenoiserProbe(Denoiser(network, linear(T), Epsilon(), FixedLarge()), Streams(0), max_rows=16)
    rows = []
    network.register_forward_hook(lambda module, inputs, output: rows.append(len(output)))
    sampler = learned(every=2, **({"grid_stride": 4, "reward_every": 4} | arguments))
    for step in range(3):
        x0 = torch.randn(16, 1, 8, 8)
        draw = sampler.draw(x0, Context(Position(step), Streams(0), probe=probe))
        sampler.observe(
            StepRecord(x0, {}, draw.t, torch.zeros(16), torch.zeros(16)),
            Context(Position(step), Streams(0), probe=probe),
        )
    chunks = -(-rows_per_evaluation // 16)
    assert (
        sum(rows) == 4 * rows_per_evaluation and len(rows) == 4 * chunks
    )  # policy updates at steps 0 and 2, two evaluations each
    assert sampler.probe_rows(3, 16) == sum(rows)  # the number that a dry run counts


@pytest.mark.parametrize("most", [25, 16, 4])
def test_an_evaluation_takes_few_calls_of_equal_size_whose_number_changes_only_rounding(most):
    network = UNet(1, 1, 8, base_channels=8, channel_multipliers=(1,), num_res_blocks=1, attention_resolutions=())
    torch.nn.init.normal_(network.conv_out.weight)  # a new network has zero output
    rows = []
    network.register_forward_hook(lambda module, inputs, output: rows.append(len(output)))
    denoiser = Denoiser(network, linear(T), Epsilon(), FixedLarge())
    x0, t, index = torch.randn(25, 1, 8, 8), torch.arange(25), torch.arange(25)
    whole, split = (DenoiserProbe(denoiser, Streams(0), max_rows=n).pairs(x0, t, index, 25, 0) for n in (25, most))
    assert rows == {25: [25, 25], 16: [25, 13, 12], 4: [25, 4, 4, 4, 4, 3, 3, 3]}[most]
    torch.testing.assert_close(whole, split, rtol=1e-5, atol=0)


@pytest.mark.parametrize("size", [(1, 1), (2, 3), (5, 7), (4, 4), (9, 4)])
def test_the_policys_means_are_those_of_adaptive_pooling(size):
    h = torch.randn(3, 5, *size)
    torch.testing.assert_close(_mean_over_grid(h, 4), torch.nn.functional.adaptive_avg_pool2d(h, 4))


def test_the_released_evaluation_has_fresh_noise_dropout_all_timesteps_and_all_rows():
    sampler = learned(grid_stride=1, reward_every=1, common_noise=False, eval_mode=False, select_from=2)
    probe = Quadratic()
    update(sampler, probe)
    (n, before, keep), (_, after, _) = probe.calls
    assert n == T + 3 * ROWS and before != after and keep


def test_the_policy_moves_towards_the_timesteps_that_were_rewarded():
    sampler = learned(every=1, entropy=0.0, lr=1e-3, reward_every=1)

    class Late(Quadratic):
        """Only updates at late timesteps lower the loss."""

        last = torch.zeros(0)

        def pairs(self, x0, t, index, total, seed, keep_mode=False, **cond):
            gain = torch.zeros(len(x0))
            if self.after:
                image = torch.div(index - 1, 3, rounding_mode="floor").clamp(min=0)
                gain = torch.where(
                    index > 0, (self.last[image] > T / 2).float(), 0.0
                )  # index 0 is the noise of the queue
            return 1.0 - gain

        after = False

    probe = Late()
    for step in range(40):
        x0 = Streams(step).normal((ROWS, 1, 8, 8), "testing")
        probe.after = False
        draw = sampler.draw(x0, Context(Position(step), Streams(0), probe=probe))
        probe.last, probe.after = draw.t, True
        record = StepRecord(x0, {}, draw.t, torch.zeros(ROWS), torch.zeros(ROWS))
        sampler.observe(record, Context(Position(step), Streams(0), probe=probe))
    p = sampler.probabilities(40)
    assert float(p[T // 2 :].sum()) > 0.8


def test_an_entropy_bonus_keeps_the_distribution_flat_without_rewards():
    flat, bare = learned(every=1, entropy=1.0), learned(every=1, entropy=0.0)
    for sampler in (flat, bare):
        with torch.no_grad():
            sampler.policy.last.bias.copy_(torch.tensor([2.0, -1.0]))
        probe = Quadratic()
        probe.pairs = lambda x0, *a, **k: torch.zeros(len(x0))
        for step in range(40):
            update(sampler, probe, step)
    uniform = torch.full((T,), 1.0 / T).double()
    distance = [float((s.probabilities(40) - uniform).abs().sum()) for s in (flat, bare)]
    assert distance[0] < 0.5 * distance[1]


def test_selected_timesteps_are_those_of_the_statistic():
    sampler, probe = learned(every=1, grid_stride=1, select_from=3), Quadratic()
    before = sampler.selected.clone()
    for step in range(3):
        update(sampler, probe, step)
    expected = f_statistic(sampler.changes[:3] * WEIGHTS, sampler.totals[:3]).topk(3).indices.sort().values
    assert before.tolist() == [0, 1, 2] and sampler.selected.tolist() == expected.tolist()


def test_two_rows_select_the_last_timesteps_as_released():
    """All statistics are equal then, and scikit-learn's selection keeps the last of equals."""
    sampler, probe = learned(every=1, grid_stride=1, select_from=2), Quadratic()
    for step in range(2):
        update(sampler, probe, step)
    assert sampler.selected.tolist() == [T - 3, T - 2, T - 1]


@pytest.mark.parametrize("rows", [1, 4])
def test_a_policy_update_does_not_depend_on_the_microbatches(rows):
    """Even if a microbatch has none of the rewarded rows."""
    x0, losses = Streams(0).normal((8, 1, 8, 8), "testing"), torch.zeros(8)
    states = []
    for size in (8, rows):
        sampler, probe, parts = learned(grid_stride=1, reward_every=4), Quadratic(), 8 // size
        for micro in range(parts):
            some = slice(micro * size, (micro + 1) * size)
            sampler.draw(x0[some], Context(Position(0, 0, 1, micro, parts), Streams(0), probe=probe))
        probe.theta -= 0.1
        record = StepRecord(x0, {}, losses.long(), losses, losses, microbatches=(len(x0) // parts,) * parts)
        sampler.observe(record, Context(Position(0, 0, 1, parts - 1, parts), Streams(0), probe=probe))
        states.append(sampler)
    one, many = states
    assert torch.equal(one.changes, many.changes) and bool(one.changes[0].any())
    for a, b in zip(one.policy.parameters(), many.policy.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_the_policy_acts_in_its_own_precision():
    """The distribution that is rewarded, outside autocast, is the one that was sampled inside it."""
    sampler, seen = learned(), []
    torch.nn.init.normal_(sampler.policy.last.weight)  # so that the distribution depends on the image
    sampler.policy.register_forward_hook(lambda module, args, out: seen.append(out[0].detach()))
    x0, context = torch.rand(4, 1, 8, 8), Context(Position(1), Streams(0))
    sampler.draw(x0, context)
    with torch.autocast("cpu", torch.bfloat16):
        sampler.draw(x0, context)
        sampler.policy(x0)
    assert torch.equal(seen[0], seen[1]) and not torch.equal(seen[0], seen[2].float())


def test_common_noise_lowers_the_variance_of_a_real_networks_reward_a_thousandfold():
    torch.manual_seed(0)
    network = UNet(1, 1, 8, base_channels=8, channel_multipliers=(1, 2), num_res_blocks=1, attention_resolutions=())
    for parameter in network.parameters():  # a new network has zero output
        parameter.data += 0.02 * torch.randn_like(parameter)
    denoiser = Denoiser(network, linear(), Epsilon(), FixedLarge())
    probe = DenoiserProbe(denoiser, Streams(0))
    x0, t, n = torch.randn(1, 1, 8, 8).expand(200, -1, -1, -1), torch.full((200,), 300), torch.arange(200)
    before = [probe.pairs(x0, t, n, 200, seed, keep_mode=keep) for seed, keep in ((0, False), (0, True))]
    for parameter in network.parameters():
        parameter.data += 1e-5 * torch.randn_like(parameter)
    common = before[0] - probe.pairs(x0, t, n, 200, 0)
    fresh = before[1] - probe.pairs(x0, t, n, 200, 1, keep_mode=True)
    assert float(fresh.double().var() / common.double().var()) > 1000


@pytest.mark.parametrize(
    ("arguments", "start"),
    [
        ({"every": 0}, "every=0 must"),
        ({"num_selected": 41, "grid_stride": 1}, "num_selected=41 must be an integer in"),
        ({"queue": 2}, "queue=2 must be an integer >= 3"),
        ({"select_from": 1}, "select_from=1 must be an integer in"),
        ({"grid_stride": 40}, "grid_stride=40 must be an integer in"),
        ({"reward_every": 0}, "reward_every=0 must"),
        ({"entropy": -1.0}, "entropy=-1.0 must"),
        ({"entropy_mode": "both"}, "entropy_mode=both must be one of"),
        ({"lr": 0.0}, "lr=0.0 must"),
        ({"clip": -1.0}, "clip=-1.0 must"),
        ({"reward_weights": WEIGHTS[:5]}, "reward_weights of 5 numbers must"),
        ({"reward_weights": WEIGHTS * math.nan}, "reward_weights must be finite"),
    ],
)
def test_bad_values_are_named(arguments, start):
    with pytest.raises(ValueError, match=f"^{start}"):
        LearnedBeta(**({"num_timesteps": T, "reward_weights": WEIGHTS} | arguments))
