"""The mixed prediction: what its rules select, and why the published one starves its heads."""

from __future__ import annotations

import pytest
import torch

from diffusion_lab.diffusion import (
    AverageHead,
    BestHead,
    CombinedPrediction,
    EpsSpace,
    HardMin,
    HeadErrors,
    LearnedGate,
    LeastSquaresHead,
    MeanOfHeads,
    MinSNR,
    MixedPrediction,
    NativeSpace,
    PerBatch,
    PerBin,
    PerPixel,
    PerSample,
    SoftMin,
    VSpace,
    WarmupMin,
    X0Space,
    cosine,
    linear,
)
from diffusion_lab.diffusion.head_gates import native_scales
from diffusion_lab.testing import noised

SHAPE = (2, 4, 4)
HEADS_OF_ONE = {"x0": 0, "v": 1, "eps": 2}


def mixed(space=None, granularity=None, reduction=None, generation_head=None) -> MixedPrediction:
    """The published rule, but for what is given."""
    return MixedPrediction(
        space or NativeSpace(),
        granularity or PerSample(),
        reduction or HardMin(),
        generation_head or BestHead(),
        HeadErrors(),
    )


def equally_good(prediction, rows):
    """One and the same wrong answer in all three heads."""
    return prediction.target(rows.wrong, rows.wrong_eps, rows.alpha, rows.sigma)


def unlike(prediction, rows, seed=0):
    """Heads with different errors."""
    target = prediction.target(rows.x0, rows.eps, rows.alpha, rows.sigma)
    return target + 0.3 * torch.randn(target.shape, generator=torch.Generator().manual_seed(seed), dtype=target.dtype)


def native_losses(prediction, out, rows):
    target = prediction.target(rows.x0, rows.eps, rows.alpha, rows.sigma)
    return (out - target).square().unflatten(1, (3, -1)).flatten(2).mean(2)


def parts_of(prediction, out, rows):
    return prediction.parts(out, rows.x0, rows.eps, rows.alpha, rows.sigma, rows.snr)


@pytest.mark.parametrize("schedule", [linear(1000), cosine(1000)], ids=["linear", "cosine"])
def test_equally_good_heads_in_native_space_never_select_v_and_flip_at_snr_one(schedule):
    """E_v = E_x0 + E_eps is above both, and E_eps = SNR E_x0."""
    prediction, rows = mixed(), noised(schedule, SHAPE, rows=200)
    losses = native_losses(prediction, equally_good(prediction, rows), rows)
    torch.testing.assert_close(losses[:, 1], losses[:, 0] + losses[:, 2])
    loss = parts_of(prediction, equally_good(prediction, rows), rows).loss
    assert (loss[:, 1] == 0).all()
    assert torch.equal(loss[:, 0] > 0, rows.snr > 1)
    assert torch.equal(loss[:, 2] > 0, rows.snr < 1)
    torch.testing.assert_close(prediction.native_scale(rows.snr), rows.snr.clamp(max=1))


def gradients(prediction, out, rows):
    """Size of the gradient that reaches each head, (3,)."""
    out = out.clone().requires_grad_()
    parts_of(prediction, out, rows).loss.sum().backward()
    return out.grad.unflatten(1, (3, -1)).abs().sum((0, 2, 3, 4))


def test_the_published_rule_starves_v_and_the_mean_starves_nobody():
    rows = noised(linear(1000), SHAPE, rows=64)
    prediction = mixed()
    starved = gradients(prediction, equally_good(prediction, rows), rows)
    assert starved[HEADS_OF_ONE["v"]] == 0 and starved[0] > 0 and starved[2] > 0
    for fair in (mixed(reduction=MeanOfHeads()), CombinedPrediction(LeastSquaresHead(), HeadErrors())):
        assert (gradients(fair, equally_good(fair, rows), rows) > 0).all()


def test_the_head_that_is_not_selected_gets_no_gradient_row_by_row():
    rows, prediction = noised(linear(1000), SHAPE, rows=50), mixed()
    out = unlike(prediction, rows).requires_grad_()
    parts_of(prediction, out, rows).loss.sum().backward()
    trained = out.grad.unflatten(1, (3, -1)).flatten(2).abs().sum(2) > 0
    least = native_losses(prediction, out.detach(), rows).argmin(1)
    assert torch.equal(trained, torch.nn.functional.one_hot(least, 3).bool())


@pytest.mark.parametrize(
    ("space", "factor"),
    [
        (NativeSpace(), native_scales),
        (X0Space(), lambda snr: torch.ones(len(snr), 3, dtype=snr.dtype)),
        (EpsSpace(), lambda snr: snr[:, None].expand(-1, 3)),
        (VSpace(), lambda snr: (1 + snr)[:, None].expand(-1, 3)),
    ],
    ids=["native", "x0", "eps", "v"],
)
def test_losses_are_compared_in_the_space(space, factor):
    """Against x0-losses of the heads' answers, converted one by one."""
    prediction, rows = mixed(space), noised(cosine(1000), SHAPE, rows=60)
    out = unlike(prediction, rows)
    x0, v, eps = out.chunk(3, 1)
    estimates = [x0, rows.alpha * rows.x_t - rows.sigma * v, (rows.x_t - rows.sigma * eps) / rows.alpha]
    x0_losses = torch.stack([(e - rows.x0).square().flatten(1).mean(1) for e in estimates], 1)
    expected = (x0_losses * factor(rows.snr)).argmin(1)
    assert torch.equal(parts_of(prediction, out, rows).loss.argmax(1), expected)


def test_granularity_pixel_selects_at_each_position():
    prediction, rows = mixed(granularity=PerPixel()), noised(linear(1000), SHAPE, rows=5)
    out = unlike(prediction, rows)
    errors = (out - prediction.target(rows.x0, rows.eps, rows.alpha, rows.sigma)).square()
    expected = torch.zeros(5, 3, dtype=torch.float64)
    for i in range(5):
        for y in range(4):
            for x in range(4):
                here = [errors[i, 2 * h : 2 * h + 2, y, x].mean() for h in range(3)]
                h = min(range(3), key=lambda k: float(here[k]))
                expected[i, h] += here[h] / 16
    torch.testing.assert_close(parts_of(prediction, out, rows).loss, expected)


def test_granularity_batch_selects_once():
    prediction, rows = mixed(granularity=PerBatch()), noised(linear(1000), SHAPE, rows=9)
    out = unlike(prediction, rows)
    losses = native_losses(prediction, out, rows)
    head = losses.mean(0).argmin()
    expected = torch.zeros_like(losses)
    expected[:, head] = losses[:, head]
    torch.testing.assert_close(parts_of(prediction, out, rows).loss, expected)


def test_granularity_bin_selects_by_what_was_tracked():
    prediction, rows = mixed(X0Space(), PerBin()), noised(linear(1000), SHAPE, rows=40)
    out = unlike(prediction, rows)
    torch.testing.assert_close(parts_of(prediction, out, rows).loss, native_losses(prediction, out, rows) / 3)
    # From now on v is by far the best of the three at every noise.
    good = prediction.target(rows.x0, rows.eps, rows.alpha, rows.sigma)
    good[:, :2] += 5.0
    good[:, 4:] += 5.0
    prediction.observe(rows.snr.log(), prediction.errors(good, rows.x0, rows.x_t, rows.alpha, rows.sigma))
    assert (parts_of(prediction, out, rows).loss.argmax(1) == HEADS_OF_ONE["v"]).all()


def test_softmin_has_the_gradient_of_the_soft_minimum():
    temperature = 0.05
    prediction, rows = mixed(reduction=SoftMin(temperature)), noised(linear(1000), SHAPE, rows=12)
    out = unlike(prediction, rows).requires_grad_()
    (found,) = torch.autograd.grad(parts_of(prediction, out, rows).loss.sum(), out)
    soft = -temperature * torch.exp(-native_losses(prediction, out, rows) / temperature).mean(1).log()
    (expected,) = torch.autograd.grad(soft.sum(), out)
    torch.testing.assert_close(found, expected)


def test_warmup_goes_from_the_mean_to_the_minimum():
    rows = noised(linear(1000), SHAPE, rows=12)
    prediction = mixed(reduction=WarmupMin(steps=4))
    out = unlike(prediction, rows)
    mean = parts_of(mixed(reduction=MeanOfHeads()), out, rows).loss
    least = parts_of(mixed(), out, rows).loss
    errors = prediction.errors(out, rows.x0, rows.x_t, rows.alpha, rows.sigma)
    for update in range(7):
        m = min(1.0, update / 4)
        torch.testing.assert_close(parts_of(prediction, out, rows).loss, (1 - m) * mean + m * least)
        prediction.observe(rows.snr.log(), errors)


def test_learned_gate_finds_the_best_head_and_follows_its_gradient():
    gate = LearnedGate(lr=4.0, bins=2)
    phi = torch.tensor([0.3, 0.4, 1.2], dtype=torch.float64)
    losses = torch.tensor([[1.0, 2.0, 3.0], [1.0, 1.0, 4.0], [5.0, 0.5, 0.5]], dtype=torch.float64)
    relative = losses / losses.sum(1, keepdim=True)
    logits = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    g = torch.softmax(logits, 1)
    objective = ((g[0] * relative[:2]).sum() / 2) + (g[1] * relative[2]).sum()
    (gradient,) = torch.autograd.grad(objective, logits)
    gate.observe(phi, losses)
    torch.testing.assert_close(gate.logits, -4.0 * gradient)
    for _ in range(200):
        gate.observe(phi, 10 * losses)  # the size of the losses has no part in it
    found = gate.of_noise(phi)
    assert found[0, 0] > 0.9 and found[2, 0] < 0.05
    torch.testing.assert_close(found.sum(1), torch.ones(3, dtype=torch.float64))


def test_no_gradient_flows_through_the_selection():
    """parts are gates times losses; with the gates as constants the gradient is g_h dE_h."""
    rows, prediction = noised(linear(1000), SHAPE, rows=6), mixed(reduction=SoftMin(0.1))
    out = unlike(prediction, rows).requires_grad_()
    losses = native_losses(prediction, out, rows)
    gates = torch.softmax(-losses.detach() / 0.1, 1)
    (expected,) = torch.autograd.grad((gates * losses).sum(), out)
    (found,) = torch.autograd.grad(parts_of(prediction, out, rows).loss.sum(), out)
    torch.testing.assert_close(found, expected)


def test_a_weighting_treats_each_part_in_its_own_space():
    """w_x E_x0 per head, times the gate; here 1/3."""
    rows, prediction = noised(linear(1000), SHAPE, rows=20), mixed(reduction=MeanOfHeads())
    out = unlike(prediction, rows)
    parts = parts_of(prediction, out, rows)
    found = MinSNR(5.0)(parts.loss, rows.snr, parts.scale, 0)
    x0, v, eps = out.chunk(3, 1)
    estimates = [x0, rows.alpha * rows.x_t - rows.sigma * v, (rows.x_t - rows.sigma * eps) / rows.alpha]
    x0_loss = sum((e - rows.x0).square().flatten(1).mean(1) for e in estimates) / 3
    torch.testing.assert_close(found, rows.snr.clamp(max=5.0) * x0_loss)


def test_native_scale_of_the_combined_prediction_is_loss_over_x0_loss():
    prediction, rows = CombinedPrediction(LeastSquaresHead(), HeadErrors()), noised(cosine(1000), SHAPE, rows=30)
    loss = parts_of(prediction, equally_good(prediction, rows), rows).loss.sum(1)
    x0_loss = (rows.wrong - rows.x0).square().flatten(1).mean(1)
    torch.testing.assert_close(prediction.native_scale(rows.snr), loss / x0_loss)
    a = rows.snr / (1 + rows.snr)
    torch.testing.assert_close(loss, (1 + rows.snr) * x0_loss * (1 + a**2 + (1 - a) ** 2) / 2)


def test_selections_are_logged_by_bin():
    prediction, rows = mixed(), noised(linear(1000), SHAPE, rows=100)
    out = equally_good(prediction, rows)
    prediction.observe(rows.snr.log(), prediction.errors(out, rows.x0, rows.x_t, rows.alpha, rows.sigma))
    values = prediction.log_values()
    x0, v, eps = (values[f"prediction/head_{head}"] for head in ("x0", "v", "eps"))
    reached = ~x0.isnan()
    assert (v[reached] == 0).all()
    assert (x0[:10][reached[:10]] == 1).all() and (eps[10:][reached[10:]] == 1).all()
    weights = torch.stack([values[f"prediction/weight_{head}"] for head in ("x0", "v", "eps")])
    torch.testing.assert_close(weights.sum(0), torch.ones(20, dtype=torch.float64))


def test_the_best_and_the_average_head_use_the_tracked_errors():
    rows = noised(linear(1000), SHAPE, rows=100)
    for generation_head in (BestHead(), AverageHead()):
        prediction = mixed(generation_head=generation_head)
        out = prediction.target(rows.x0, rows.eps, rows.alpha, rows.sigma)
        out[:, :2] += 3.0
        out[:, 2:4] += 1e-4
        out[:, 4:] += 3.0
        prediction.observe(rows.snr.log(), prediction.errors(out, rows.x0, rows.x_t, rows.alpha, rows.sigma))
        estimate = prediction.estimate(out, rows.x_t, rows.alpha, rows.sigma)
        torch.testing.assert_close(estimate.x0, rows.x0, rtol=0, atol=2e-4)
