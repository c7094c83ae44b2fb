"""How three answers become one: against formulas evaluated another way, and against simulated errors."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from diffusion_lab.diffusion import (
    AverageHead,
    BestHead,
    CombinedPrediction,
    GateHead,
    HeadErrors,
    LeastSquaresHead,
    SNRHead,
    cosine,
    linear,
)
from diffusion_lab.diffusion.mixed_prediction import observation

ANGLES = [1e-3, 0.2, 0.7, 0.79, 1.2, 1.5, math.pi / 2 - 1e-5]


def q_of(phi: list[float]) -> torch.Tensor:
    angle = torch.tensor(phi, dtype=torch.float64)
    return observation(angle.cos(), angle.sin())


def random_moments(count: int, seed: int = 0) -> torch.Tensor:
    """(count,3,3) second moments with sizes over two decades and correlations of both signs."""
    generator = torch.Generator().manual_seed(seed)
    a = torch.randn(count, 3, 3, generator=generator, dtype=torch.float64)
    size = torch.pow(10, torch.rand(count, 3, generator=generator, dtype=torch.float64) * 2 - 1)
    return (a @ a.mT) * size[:, :, None] * size[:, None, :]


def c_matrix(q: torch.Tensor, moments: torch.Tensor) -> torch.Tensor:
    return moments / q[:, :, None] / q[:, None, :]


@pytest.mark.parametrize("seed", range(3))
def test_least_squares_is_the_minimum_over_the_simplex(seed):
    """No weights of a fine grid do better, and the error is that of the weights."""
    moments, q = random_moments(len(ANGLES), seed), q_of(ANGLES)
    weights = LeastSquaresHead(ridge=0.0).weights(q, moments, None)
    assert (weights >= 0).all()
    torch.testing.assert_close(weights.sum(1), torch.ones(len(q), dtype=torch.float64))
    steps = np.linspace(0, 1, 201)
    grid = torch.tensor([(a, b, 1 - a - b) for a in steps for b in steps if a + b <= 1 + 1e-12], dtype=torch.float64)
    c = c_matrix(q, moments)
    found = torch.einsum("bi,bij,bj->b", weights, c, weights)
    others = torch.einsum("gi,bij,gj->bg", grid, c, grid).amin(1)
    assert (found <= others * (1 + 1e-6)).all()


def test_least_squares_is_the_closed_form_where_that_is_not_negative():
    """w = C^-1 1 / (1^T C^-1 1), solved in x0-space with numpy."""
    q = q_of([0.5, 0.8, 1.0])
    moments = torch.tensor([[1.0, 0.1, -0.2], [0.1, 0.7, 0.15], [-0.2, 0.15, 1.3]], dtype=torch.float64).expand(3, 3, 3)
    weights = LeastSquaresHead(ridge=0.0).weights(q, moments, None)
    for row, c in zip(weights, c_matrix(q, moments), strict=True):
        w = np.linalg.solve(c.numpy(), np.ones(3))
        w /= w.sum()
        assert (w > 0).all()  # so the bound is not active, and the two must agree
        np.testing.assert_allclose(row.numpy(), w, rtol=1e-7)


def test_ridge_adds_to_the_diagonal_of_the_moments():
    q, ridge = q_of([0.5, 1.0]), 0.3
    moments = random_moments(2, 5)
    added = moments + ridge * torch.diag_embed(moments.diagonal(dim1=1, dim2=2))
    expected = LeastSquaresHead(ridge=0.0).weights(q, added, None)
    torch.testing.assert_close(LeastSquaresHead(ridge).weights(q, moments, None), expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    "head", [BestHead(), AverageHead(), SNRHead(), LeastSquaresHead()], ids=lambda h: type(h).__name__
)
def test_weights_are_finite_and_sum_to_one_in_hard_cases(head):
    q = q_of(ANGLES)
    perfect = torch.zeros(3, 3, dtype=torch.float64)
    same = torch.ones(3, 3, dtype=torch.float64)  # one and the same error: singular
    huge = torch.diag(torch.tensor([1e-12, 1.0, 1e20], dtype=torch.float64))
    for moments in (perfect, same, huge, same * 1e-25):
        weights = head.weights(q, moments.expand(len(q), 3, 3), None)
        assert weights.isfinite().all() and (weights >= 0).all()
        torch.testing.assert_close(weights.sum(1), torch.ones(len(q), dtype=torch.float64))


def test_best_head_has_the_least_x0_error():
    q, moments = q_of(ANGLES), random_moments(len(ANGLES), 3)
    expected = c_matrix(q, moments).diagonal(dim1=1, dim2=2).argmin(1)
    assert torch.equal(BestHead().weights(q, moments, None).argmax(1), expected)


def test_average_is_by_the_inverse_error_in_x0_space():
    q, moments = q_of([0.4, 1.1]), random_moments(2, 4)
    inverse = 1 / c_matrix(q, moments).diagonal(dim1=1, dim2=2)
    torch.testing.assert_close(AverageHead().weights(q, moments, None), inverse / inverse.sum(1, keepdim=True))


def test_the_threshold_lies_at_snr_one():
    weights = SNRHead().weights(q_of([math.pi / 4 - 1e-6, math.pi / 4 + 1e-6]), torch.eye(3).expand(2, 3, 3), None)
    assert weights.tolist() == [[0, 0, 1], [1, 0, 0]]


def test_gate_head_is_the_gate():
    gate = torch.tensor([[0.2, 0.3, 0.5]], dtype=torch.float64)
    assert GateHead().weights(q_of([0.3]), torch.eye(3)[None], gate) is gate


def test_before_tracking_least_squares_is_the_training_gate():
    prediction = CombinedPrediction(LeastSquaresHead(0.05), HeadErrors())
    q = q_of(ANGLES)
    weights = prediction.generation_head.weights(q, prediction.tracker.matrix(torch.tensor(ANGLES).double()), None)
    torch.testing.assert_close(weights, q.square() / 2)
    snr = (q[:, 2] / q[:, 0]).square()
    gates = prediction.gates(torch.ones(len(q), 3, 4), torch.tensor(ANGLES), snr)[:, :, 0]
    torch.testing.assert_close(gates, q.square() / 2)


def noisy_heads(schedule, t, std, seed):
    """x0, x_t, scales and an answer whose native errors are normal with the covariance `std` (3,3) std^T."""
    generator = torch.Generator().manual_seed(seed)
    x0 = torch.rand(len(t), 1, 16, 16, generator=generator) * 2 - 1
    eps = torch.randn(x0.shape, generator=generator)
    alpha, sigma = schedule.alpha(t, 4), schedule.sigma(t, 4)
    n = torch.einsum("hk,bkxy->bhxy", std, torch.randn(len(t), 3, 16, 16, generator=generator))
    target = torch.cat([x0, alpha * eps - sigma * x0, eps], 1)
    return x0, schedule.perturb(x0, eps, t), alpha, sigma, target + n


@pytest.mark.parametrize("schedule", [linear(1000), cosine(4000)], ids=["linear", "cosine"])
def test_after_tracking_the_combination_beats_every_head_and_stays_finite(schedule):
    """Also at the last timestep of cosine-4000, where 1/alpha is 8e4: nothing overflows, and no bin is poisoned."""
    std = torch.tensor([[0.3, 0.0, 0.0], [0.1, 0.25, 0.0], [-0.05, 0.1, 0.4]])
    prediction = CombinedPrediction(LeastSquaresHead(0.0), HeadErrors(bins=40))
    every = torch.arange(0, schedule.num_timesteps, 8)
    last = torch.full((64,), schedule.num_timesteps - 1)
    for seed in range(4):
        t = torch.cat([every, last])
        x0, x_t, alpha, sigma, out = noisy_heads(schedule, t, std, seed)
        prediction.observe(schedule.log_snr[t], prediction.errors(out, x0, x_t, alpha, sigma))
    moments = prediction.tracker.matrix(prediction.tracker.centres())
    torch.testing.assert_close(moments, (std @ std.T).double().expand(40, 3, 3), rtol=0.1, atol=0.02)
    t = torch.cat([every, last])
    x0, x_t, alpha, sigma, out = noisy_heads(schedule, t, std, 99)
    found = prediction.estimate(out, x_t, alpha, sigma)
    assert found.x0.isfinite().all() and found.eps.isfinite().all()
    torch.testing.assert_close(alpha * found.x0 + sigma * found.eps, x_t, rtol=0, atol=1e-5)
    head_x0, head_v, head_eps = out.chunk(3, 1)
    singles = [head_x0, alpha * x_t - sigma * head_v, (x_t - sigma * head_eps) / alpha]
    mine = (found.x0 - x0).square().flatten(1).mean(1) / sigma.flatten().square()  # the v-error: even over t
    for part in range(4):  # quarters of the timesteps
        some = t * 4 // schedule.num_timesteps == part
        theirs = [((s - x0).square().flatten(1).mean(1) / sigma.flatten().square())[some].mean() for s in singles]
        assert mine[some].mean() < 0.97 * min(theirs)


def test_a_single_head_comes_back_as_it_is():
    """The way through v changes x0 from the x0 head and eps from the eps head by rounding alone."""
    schedule = cosine(4000)
    t = torch.tensor([0, 5, 1000, 2000, 3000, 3990, 3999])
    _, x_t, alpha, sigma, out = noisy_heads(schedule, t, 0.1 * torch.eye(3), 0)
    heads = out.chunk(3, 1)
    for i, name in ((0, "x0"), (2, "eps")):

        class Only(SNRHead):
            def weights(self, q, moments, gate, i=i):
                return torch.eye(3, dtype=q.dtype)[i].expand_as(q)

        found = CombinedPrediction(Only(), HeadErrors()).estimate(out, x_t, alpha, sigma)
        torch.testing.assert_close(getattr(found, name), heads[i], rtol=0, atol=2e-6)
