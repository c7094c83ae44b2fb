"""Momentum annealings against the table of the paper, Demon-Adam, and what reaches torch's Adam."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from diffusion_lab.annealing import MDLRC, Annealing, ConstantBeta1, Demon, Hyper, Linear, Warmup
from diffusion_lab.callbacks import AnnealingCallback
from diffusion_lab.callbacks.training_log import optimizer_values

N = 12_000  # divisible by 10 and 12, so that every tau below is a step
# tau, beta1 and lr/l0 without a floor, and with the floor 0.4; computed by hand from equations 9 and 10 at b0 = 0.8.
TABLE = [
    (0.0, 0.8, 1.0, 0.8, 1.0),
    (0.1, 18 / 23, 0.92, 18 / 23, 0.92),
    (0.2, 16 / 21, 0.84, 16 / 21, 0.84),
    (0.25, 0.75, 0.80, 0.75, 0.80),
    (0.5, 2 / 3, 0.60, 2 / 3, 0.60),
    (0.75, 0.5, 0.40, 0.5, 0.40),
    (5 / 6, 0.4, 1 / 3, 0.4, 1 / 3),
    (0.9, 2 / 7, 0.28, 0.4, 1 / 3),
    (1.0, 0.0, 0.20, 0.4, 1 / 3),
]


@pytest.mark.parametrize(("tau", "beta1", "rate", "floored", "floored_rate"), TABLE)
def test_mdlrc_table(tau, beta1, rate, floored, floored_rate):
    step = round(tau * N)
    assert MDLRC(N, floor=None)(step)[:2] == pytest.approx((rate, beta1))
    assert MDLRC(N)(step)[:2] == pytest.approx((floored_rate, floored))
    assert MDLRC(N, lr_from="unfloored")(step)[:2] == pytest.approx((rate, floored))
    assert MDLRC(N, compensate=False)(step)[:2] == pytest.approx((1.0, floored))
    assert MDLRC(N, decay=False)(step)[:2] == pytest.approx((floored_rate, 0.8))
    assert Demon(N, beta1=0.8)(step)[:2] == pytest.approx((1.0, beta1))


@pytest.mark.parametrize("b0", [0.5, 0.8, 0.9])
def test_the_compensation_is_a_linear_decay(b0):
    for step in range(0, N + 1, 100):
        assert MDLRC(N, b0, floor=None)(step).lr_factor == pytest.approx(1 - b0 * step / N)


def test_mdlrc_stays_at_its_end_after_the_run():
    assert MDLRC(N)(3 * N) == MDLRC(N)(N) and Demon(N)(3 * N) == Demon(N)(N) == Hyper(1.0, 0.0)


def test_demon_begins_at_its_beta():
    demon = Demon(N)
    assert demon(0)[:2] == (1.0, pytest.approx(0.9))
    beta = demon(N // 2).beta1
    assert beta / (1 - beta) == pytest.approx(0.5 * 0.9 / 0.1)


def test_the_linear_control_has_the_rate_of_mdlrc_alone():
    control = ConstantBeta1(0.8, Linear(N, final=0.2))
    for step in range(0, N + 1, 100):
        assert control(step)[:2] == pytest.approx(MDLRC(N, floor=None, decay=False)(step)[:2])
    assert ConstantBeta1(0.8)(17) == Hyper(1.0, 0.8)


def test_warmup_composes():
    both = Warmup(100, then=MDLRC(N))
    assert both(0)[:2] == pytest.approx((0.01, 0.8))
    assert both(N // 2) == MDLRC(N)(N // 2)
    assert ConstantBeta1(0.7, then=Warmup(100))(0)[:2] == pytest.approx((0.01, 0.7))


def test_mdlrc_without_a_floor_is_demon_adam():
    """Demon-Adam: m <- g + beta m, step eta m/sqrt(v). With eta = l0 (1 - b0) the steps of MDLRC under an Adam whose
    m has the factor 1 - beta are the same, up to a lag of order 1/N."""
    steps, rate, b0 = 20_000, 1.0, 0.8
    gradients = np.random.default_rng(0).standard_normal((steps, 8))
    mdlrc, demon = MDLRC(steps, b0, floor=None), Demon(steps, b0)
    ours, theirs = np.zeros(8), np.zeros(8)
    worst, largest = 0.0, 0.0
    for step, g in enumerate(gradients):
        factor, beta, _ = mdlrc(step)
        ours = beta * ours + (1 - beta) * g
        theirs = g + demon(step).beta1 * theirs
        a, b = rate * factor * ours, rate * (1 - b0) * theirs
        worst, largest = max(worst, np.abs(a - b).max()), max(largest, np.abs(b).max())
    assert worst < 2e-4 and largest > 0.5


def adam(fused: bool) -> torch.optim.Adam:
    parameter = torch.nn.Parameter(torch.ones(4))
    return torch.optim.Adam([parameter], lr=0.01, betas=(0.9, 0.999), fused=fused)


@pytest.mark.parametrize("fused", [True, False])
def test_rate_and_beta1_reach_adam_to_the_end(fused):
    """The callback writes param_groups; torch's own update follows them and stays finite when beta1 falls to 0."""
    steps, optimizer = 40, adam(fused)
    trainer = SimpleNamespace(optimizers=[optimizer], global_step=0)
    annealing = MDLRC(steps - 1, floor=None)
    callback = AnnealingCallback(annealing)
    callback.on_train_start(trainer, None)
    parameter = optimizer.param_groups[0]["params"][0]
    m = v = np.zeros(4)
    expected = np.ones(4)
    for step in range(steps):
        trainer.global_step = step
        callback.on_train_batch_start(trainer, None, {}, 0)
        factor, beta1, _ = annealing(step)
        group = optimizer.param_groups[0]
        assert group["betas"] == (beta1, 0.999) and group["lr"] == pytest.approx(0.01 * factor)
        g = np.sin(np.arange(4.0) + step)
        parameter.grad = torch.tensor(g, dtype=torch.float32)
        optimizer.step()
        m, v = beta1 * m + (1 - beta1) * g, 0.999 * v + 0.001 * g**2
        # PyTorch corrects with the present beta1: 1 - beta1^step.
        corrected = m / (1 - beta1 ** (step + 1))
        expected = expected - 0.01 * factor * corrected / (np.sqrt(v / (1 - 0.999 ** (step + 1))) + 1e-8)
        np.testing.assert_allclose(parameter.detach().numpy(), expected, rtol=1e-4, atol=1e-5)
    assert group["betas"][0] == 0.0 and bool(torch.isfinite(parameter).all())


class RisingBeta2(Annealing):
    """beta2 = 1 - (step + 1)^-0.8 (Shazeer & Stern 2018, Adafactor): one class, which a yaml file may name."""

    def __call__(self, step: int) -> Hyper:
        return Hyper(1.0, beta2=1 - (step + 1) ** -0.8)


@pytest.mark.parametrize("wrap", [lambda own: own, lambda own: Warmup(3, own), lambda own: ConstantBeta1(0.8, own)])
def test_beta2_reaches_adam_and_the_log_and_leaves_beta1(wrap):
    optimizer, callback = adam(False), AnnealingCallback(wrap(RisingBeta2()))
    trainer = SimpleNamespace(optimizers=[optimizer], global_step=9, callbacks=[callback])
    callback.on_train_start(trainer, None)
    callback.on_train_batch_start(trainer, None, {}, 0)
    beta1 = callback.annealing(9).beta1 or 0.9
    assert optimizer.param_groups[0]["betas"] == (beta1, 1 - 10**-0.8)
    assert optimizer_values(trainer) == {"optim/lr": 0.01, "optim/beta1": beta1, "optim/beta2": 1 - 10**-0.8}


def test_a_beta2_that_no_annealing_moves_is_not_logged():
    trainer = SimpleNamespace(optimizers=[adam(False)], callbacks=[AnnealingCallback(Demon(N))])
    assert optimizer_values(trainer) == {"optim/lr": 0.01, "optim/beta1": 0.9}


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: MDLRC(0), "^total_steps=0 must be an integer >= 1"),
        (lambda: MDLRC(10, floor=0.8), r"^floor=0.8 must lie in \[0, 0.8\); it must be below beta1"),
        (lambda: MDLRC(10, beta1=0.3), r"^floor=0.4 must lie in \[0, 0.3\); it must be below beta1"),
        (lambda: MDLRC(10, beta1=1.0), r"^beta1=1.0 must lie in \(0, 1\); use 0.8"),
        (lambda: MDLRC(10, lr_from="both"), "^lr_from=both must be one of floored, unfloored; use floored"),
        (lambda: MDLRC(10, compensate=1), "^compensate=1 must be true or false"),
        (lambda: Demon(10, beta1=0.0), r"^beta1=0.0 must lie in \(0, 1\); use 0.9"),
        (lambda: ConstantBeta1(1.0), r"^beta1=1.0 must lie in \[0, 1\); use 0.8"),
    ],
)
def test_bad_arguments_are_named(make, words):
    with pytest.raises(ValueError, match=words):
        make()
