"""InfoNoise against closed forms: for Gaussian data of variance v the smallest error is m = v sigma^2/(v + sigma^2)."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from diffusion_lab.diffusion import (
    EDM,
    X0,
    EDMPrediction,
    Epsilon,
    MinSNR,
    NoiseSchedule,
    Unit,
    V,
    Velocity,
    linear,
    native_scales,
    rectified_flow,
    x0_weights,
)
from diffusion_lab.streams import Streams
from diffusion_lab.timesteps import Context, InfoNoise, Position, StepRecord, Uniform

VARIANCE, PIXELS = 0.25, 64
PAIRS = [(Epsilon(), Unit()), (V(), MinSNR()), (X0(), Unit()), (Velocity(), Unit()), (EDMPrediction(), EDM())]


SCHEDULES = {"linear": linear(200), "rectified flow": rectified_flow(200)}


def sampler_of(schedule: NoiseSchedule, pair=PAIRS[0], **arguments) -> InfoNoise:
    prediction, weighting = pair
    scale, weight = native_scales(schedule, prediction), x0_weights(schedule, prediction, weighting)
    settings = {"warmup_steps": 20, "every": 10, **arguments}
    return InfoNoise(schedule, scale, weight, Uniform(schedule.num_timesteps), **settings)


def record(t: Tensor, loss: Tensor) -> StepRecord:
    """With images of two values, whose variance is exactly that of the data."""
    n = len(t)
    values = torch.tensor([1.0, -1.0] * n)[:n] * math.sqrt(VARIANCE * (n - 1) / (n - n % 2))
    return StepRecord(values.view(n, 1, 1, 1).expand(n, 1, 8, 8), {}, t, loss, loss)


def context(step: int) -> Context:
    return Context(Position(step), Streams(0))


def smallest_error(schedule: NoiseSchedule) -> Tensor:
    variance = schedule.noise_level**2
    return VARIANCE * variance / (VARIANCE + variance)


def train(sampler: InfoNoise, error: Tensor, scale: Tensor, steps: int = 200, rows: int = 256) -> Tensor:
    """p after training with a model whose x0-loss has the mean `error` (T,), and chi-square noise of 64 pixels."""
    for step in range(steps):
        t = sampler.draw(torch.zeros(rows, 1, 1, 1), context(step)).t
        noise = Streams(step).normal((rows, PIXELS), "testing").double().square().mean(1)
        sampler.observe(record(t, (error * scale)[t] * noise), context(step))
    return sampler.probabilities(steps)


def allocation(schedule: NoiseSchedule, error: Tensor, gate: float) -> Tensor:
    """rho D: the information per ln sigma times the gate times the width of each bin, normalised."""
    sigma = schedule.noise_level
    log_sigma = sigma.log()
    edges = torch.cat([(3 * log_sigma[:1] - log_sigma[1:2]) / 2, (log_sigma[1:] + log_sigma[:-1]) / 2])
    edges = torch.cat([edges, (3 * log_sigma[-1:] - log_sigma[-2:-1]) / 2])
    rho = error / sigma**2 * sigma**3 / (sigma**3 + gate**3) * edges.diff()
    return rho / rho.sum()


def apart(p: Tensor, q: Tensor) -> float:
    """Total variation."""
    return 0.5 * float((p - q).abs().sum())


@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)
@pytest.mark.parametrize("pair", PAIRS, ids=["eps unit", "v min_snr", "x0 unit", "velocity unit", "edm edm"])
def test_p_times_w_approaches_the_closed_form_under_every_weighting(schedule, pair) -> None:
    scale, weight = native_scales(schedule, pair[0]), x0_weights(schedule, *pair)
    error = smallest_error(schedule)
    p = train(sampler_of(schedule, pair), error, scale)
    closed = allocation(schedule, error, 0.15)
    assert apart(p * weight / (p * weight).sum(), closed) < 0.02
    # A network that has learned nothing answers the mean of the images: its error is v everywhere.
    flat = train(sampler_of(schedule, pair), torch.full_like(error, VARIANCE), scale)
    assert apart(flat * weight / (flat * weight).sum(), closed) > 0.3


def test_no_error_is_above_the_variance_of_the_images() -> None:
    """Eps prediction with an eps-loss of 0.01 more than the smallest: its x0-loss at the most noise is 70 times v."""
    schedule = SCHEDULES["linear"]
    m = smallest_error(schedule) + 0.01 / schedule.snr
    closed = allocation(schedule, m.clamp(max=VARIANCE), 0.15) / schedule.snr
    p = train(sampler_of(schedule), m, schedule.snr)
    assert apart(p, closed / closed.sum()) < 0.02
    free = allocation(schedule, m, 0.15) / schedule.snr
    assert apart(p, free / free.sum()) > 0.5


def test_it_forgets_the_errors_of_the_untrained_network() -> None:
    schedule, scale = SCHEDULES["linear"], native_scales(SCHEDULES["linear"], Epsilon())
    sampler, error = sampler_of(schedule), smallest_error(schedule)
    target = allocation(schedule, error, 0.15) / schedule.snr
    target = target / target.sum()
    before = train(sampler, torch.full_like(error, VARIANCE), scale)
    assert apart(before, target) > 0.1
    assert apart(train(sampler, error, scale, steps=300), target) < 0.02


def test_p_is_that_of_the_warm_up_until_the_first_change() -> None:
    schedule = SCHEDULES["linear"]
    flat = torch.full((200,), 1 / 200, dtype=torch.float64)
    for steps, same in ((19, True), (20, False)):
        p = train(sampler_of(schedule, warmup_steps=11), smallest_error(schedule), schedule.snr, steps)
        assert torch.allclose(p, flat, rtol=1e-9) is same


def test_the_gate_by_rule_is_the_largest_sigma_with_enough_information() -> None:
    """q = m/sigma^3 = v/(sigma (v + sigma^2)) falls, so q >= 0.05 q(sigma_0) up to one root of a cubic."""
    schedule = rectified_flow(4000)
    sampler = sampler_of(schedule, gate=None, cutoff=0.05, smoothing=0.05, bins=400)
    t = torch.arange(4000)
    error = smallest_error(schedule)
    sampler.observe(record(t, error * schedule.snr), context(0))
    sigma = schedule.noise_level
    q = VARIANCE / (sigma * (VARIANCE + sigma**2))
    expected = float(sigma[q >= 0.05 * q[0]].max())
    assert float(sampler.log_values()["gate"]) == pytest.approx(expected, rel=0.05)
    # The error of a half-trained network at low noise makes the largest q, and the gate smaller, not larger.
    floor = sampler_of(schedule, gate=None, cutoff=0.05, smoothing=0.05, bins=400)
    floor.observe(record(t, (error + 0.01) * schedule.snr), context(0))
    assert float(floor.log_values()["gate"]) < 0.2 * expected


def test_without_a_gate_p_keeps_the_lowest_noise() -> None:
    schedule = SCHEDULES["linear"]
    p, gated = (train(sampler_of(schedule, gate=c), smallest_error(schedule), schedule.snr) for c in (0.0, 0.15))
    target = allocation(schedule, smallest_error(schedule), 0.0) / schedule.snr
    assert apart(p, target / target.sum()) < 0.02 and float(gated[0] / gated[-1]) < 0.1 * float(p[0] / p[-1])


def test_timesteps_without_a_loss_take_those_of_their_neighbours() -> None:
    schedule = SCHEDULES["linear"]
    sampler = sampler_of(schedule, PAIRS[2], warmup_steps=0, every=1, gate=0.0)
    t = torch.tensor([3, 100, 101])
    sampler.observe(record(t, smallest_error(schedule)[t]), context(0))
    p = sampler.probabilities(1)
    assert bool((p > 0).all() and torch.isfinite(p).all())


@pytest.mark.parametrize("loss", [0.0, math.nan, math.inf])
def test_losses_without_information_leave_p_and_what_was_seen(loss: float) -> None:
    schedule = SCHEDULES["linear"]
    sampler = sampler_of(schedule, warmup_steps=0, every=1)
    before = sampler.probabilities(0)
    sampler.observe(record(torch.arange(200), torch.full((200,), loss, dtype=torch.float64)), context(0))
    assert torch.equal(sampler.probabilities(1), before) and bool(torch.isfinite(sampler.total).all())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"gate": -0.1}, "gate=-0.1 must lie in [0, inf)"),
        ({"gate_power": 0.0}, "gate_power=0.0 must lie in (0, inf)"),
        ({"cutoff": 0.0}, "cutoff=0.0 must lie in (0, 1]"),
        ({"smoothing": 0.0}, "smoothing=0.0 must lie in (0, inf)"),
        ({"momentum": 1.0}, "momentum=1.0 must lie in [0, 1)"),
        ({"every": 0}, "every=0 must be an integer >= 1"),
        ({"bins": 0}, "bins=0 must be an integer >= 1"),
        ({"warmup_steps": -1}, "warmup_steps=-1 must be an integer >= 0"),
    ],
)
def test_bad_arguments_are_named(arguments, words) -> None:
    with pytest.raises(ValueError) as error:
        sampler_of(SCHEDULES["linear"], **arguments)
    assert str(error.value).startswith(words)


def test_a_weight_of_zero_is_named() -> None:
    schedule = SCHEDULES["linear"]
    weight = torch.ones(200)
    weight[7] = 0
    with pytest.raises(ValueError, match=r"^x0_weight\[7\]=0 must be positive and finite"):
        InfoNoise(schedule, torch.ones(200), weight, Uniform(200))


def test_the_weight_of_the_x0_loss_in_the_usual_objectives() -> None:
    """1/s^2 for velocity on rectified flow, 1/c_out^2 for EDM's F with unit weights."""
    schedule = rectified_flow(100)
    s, sigma = schedule.position, schedule.noise_level
    assert torch.allclose(x0_weights(schedule, Velocity(), Unit()), s**-2)
    c_out = sigma * 0.5 / (sigma**2 + 0.25).sqrt()
    assert torch.allclose(x0_weights(schedule, EDMPrediction(0.5), Unit()), c_out**-2)
    assert torch.allclose(x0_weights(schedule, Epsilon(), MinSNR(5.0)), schedule.snr.clamp(max=5.0))
