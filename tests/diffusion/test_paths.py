"""Models on paths that do not preserve the variance, against their twins on the one that does and closed forms."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from diffusion_lab.diffusion import (
    X0,
    Denoiser,
    EDMPrediction,
    EDMScale,
    Epsilon,
    FixedSmall,
    GaussianPath,
    LogNoise,
    NoiseSchedule,
    PathPosition,
    Prediction,
    PreservingScale,
    V,
    Velocity,
    bits_per_dim,
    bound_weights,
    cosine,
    edm,
    rectified_flow,
)
from diffusion_lab.solvers import DDIM, DDPM, Heun, Solver

PATHS = {"rectified flow": rectified_flow(200), "shifted": rectified_flow(200, shift=3.0), "edm": edm(200)}
PREDICTIONS = [Epsilon(), X0(), V(), EDMPrediction(0.5)]


def twin(path: NoiseSchedule) -> GaussianPath:
    """The variance-preserving path with the same SNR."""
    a = path.alphas_cumprod
    return GaussianPath(a.sqrt(), torch.sigmoid(-path.log_snr).sqrt(), path.position)


class Network(nn.Module):
    """A smooth function of what it is shown and told, float64."""

    def __init__(self, num_timesteps: int = 200) -> None:
        super().__init__()
        self.times: list[Tensor] = []
        self.num_timesteps = num_timesteps

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        self.times.append(t)
        time = t.double().reshape(-1, 1, 1, 1) / self.num_timesteps
        return 0.4 * torch.tanh(1.3 * x + time) + 0.3 * x


def pair(path: NoiseSchedule, prediction: Prediction, rescaled: bool = True) -> tuple[Denoiser, Denoiser]:
    """One network on a path, with its input rescaled, and on the path's twin."""
    scale = PreservingScale() if rescaled else None
    on_path = Denoiser(Network(), path, prediction, FixedSmall(), preconditioning=scale)
    return on_path, Denoiser(Network(), twin(path), prediction, FixedSmall())


@pytest.fixture
def rows() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x0 = (torch.randint(0, 256, (5, 1, 3, 3), generator=generator) / 127.5 - 1).double()
    eps = torch.randn(5, 1, 3, 3, generator=generator, dtype=torch.float64)
    return x0, eps, torch.tensor([0, 1, 90, 150, 199])


def noise(k: int, like: Tensor) -> Tensor:
    return torch.randn(like.shape, generator=torch.Generator().manual_seed(k), dtype=like.dtype)


# -- one model on two paths ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
@pytest.mark.parametrize("prediction", PREDICTIONS, ids=lambda p: type(p).__name__)
def test_paths_of_one_snr_are_one_model_once_the_input_is_rescaled(path, prediction, rows) -> None:
    x0, eps, t = rows
    one, other = pair(path, prediction)
    found, wanted = (m.estimate(m.schedule.perturb(x0, eps, t), t) for m in (one, other))
    for part, of in zip(found, wanted, strict=True):
        torch.testing.assert_close(part, of, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(one.loss(x0, eps, t).native, other.loss(x0, eps, t).native, rtol=1e-6, atol=0)
    plain = pair(path, prediction, rescaled=False)[0]
    assert not torch.allclose(plain.estimate(plain.schedule.perturb(x0, eps, t), t).x0, wanted.x0, rtol=1e-2)


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
@pytest.mark.parametrize(
    "solver",
    [DDIM(20, eta=0.0, clip=False), DDIM(20, eta=1.0), DDPM(20), DDPM(), Heun(8), Heun(8, clip=True)],
    ids=lambda s: s.describe(),
)
def test_a_solver_makes_the_same_images_on_both_paths(path: NoiseSchedule, solver: Solver) -> None:
    x_T = noise(1000, torch.empty(3, 1, 3, 3, dtype=torch.float64))
    one, other = (solver(m, x_T, noise=noise) for m in pair(path, X0()))
    torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-8)
    assert not torch.allclose(solver(pair(path, X0(), rescaled=False)[0], x_T, noise=noise), other, rtol=1e-3)


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
def test_the_bound_is_one_number_on_both_paths(path: NoiseSchedule, rows) -> None:
    one, other = pair(path, X0())
    found, wanted = (bits_per_dim(m, rows[0], noise) for m in (one, other))
    torch.testing.assert_close(found.total, wanted.total, rtol=1e-6, atol=0)
    weights = [bound_weights(s, Epsilon(), FixedSmall()) for s in (path, twin(path))]
    torch.testing.assert_close(*weights, rtol=1e-6, atol=0)


def euler(schedule: NoiseSchedule, network: Network, x_T: Tensor, steps: int) -> Tensor:
    """Euler's method on dx/ds = velocity in the path's own coordinates and parameter, down to its first point."""
    kept = torch.linspace(0, schedule.num_timesteps - 1, steps + 1).round().long().flip(0)
    model = Denoiser(network, schedule, X0(), FixedSmall(), preconditioning=PreservingScale())
    x = x_T if schedule.norm is None else x_T * schedule.norm[-1]
    for here, there in zip(kept[:-1], kept[1:], strict=True):
        t = here.expand(len(x))
        x0, eps = model.estimate(x, t)
        slope = schedule.signal_slope[here] * x0 + schedule.noise_slope[here] * eps
        x = x + (schedule.position[there] - schedule.position[here]) * slope
    return x


def test_euler_on_both_paths_ends_at_one_point_as_the_steps_shrink() -> None:
    """The ODE is one; its discretisations differ by the first order in the steps."""
    path = rectified_flow(12_801)
    s = path.position  # the twin's own velocity, by differentiating (1 - s)/n and s/n, n^2 = (1-s)^2 + s^2
    n = (1 - 2 * s + 2 * s**2).sqrt()
    slopes = -s / n**3, (1 - s) / n**3
    preserving = GaussianPath((1 - s) / n, s / n, s, slopes)
    x_T = noise(5, torch.empty(2, 1, 3, 3, dtype=torch.float64))
    gaps = []
    for steps in (100, 200, 400):
        one, other = (euler(schedule, Network(12_801), x_T, steps) for schedule in (path, preserving))
        gaps.append((one / path.norm[0] - other).abs().max().item())
    assert gaps[0] > 1e-3
    assert [gaps[i] / gaps[i + 1] for i in (0, 1)] == pytest.approx([2, 2], rel=0.1)


# -- velocity -----------------------------------------------------------------------------------------------------


def test_velocity_on_rectified_flow_is_noise_minus_image(rows) -> None:
    x0, eps, t = rows
    path = rectified_flow(200)
    bound, ones = Velocity().at(path, t), torch.ones(5, 1, 1, 1, dtype=torch.float64)
    assert torch.equal(bound.target(x0, eps, ones, ones), eps - x0)
    model = Denoiser(nn.Identity(), path, Velocity(), FixedSmall())
    model._answer = lambda x_t, t, cond: (eps - x0, x_t[:, :0])  # a network that is right
    found = model.estimate(path.perturb(x0, eps, t), t)
    torch.testing.assert_close(found.x0, x0, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(found.eps, eps, rtol=1e-9, atol=1e-9)


def test_losses_of_velocity_x0_and_noise_are_tied_on_rectified_flow() -> None:
    """E_u = E_x0/s^2 = E_eps/(1-s)^2, and E_u = E_v/n^2 with n^2 = (1-s)^2 + s^2 (du = dv/n)."""
    path = rectified_flow(200)
    s, t = path.position, torch.arange(200)
    scale = Velocity().at(path, t).native_scale(path.snr)
    torch.testing.assert_close(scale, 1 / s**2, rtol=1e-10, atol=0)
    torch.testing.assert_close(scale / Epsilon().native_scale(path.snr), 1 / (1 - s) ** 2, rtol=1e-10, atol=0)
    torch.testing.assert_close(scale / V().native_scale(path.snr), 1 / (1 - 2 * s + 2 * s**2), rtol=1e-10, atol=0)
    torch.testing.assert_close(Velocity().native_scale(path.snr), scale)  # without a path: that of rectified flow


def test_velocity_is_the_derivative_of_the_path_for_fixed_image_and_noise(rows) -> None:
    x0, eps, _ = rows
    schedule, h = cosine(2000, max_beta=0.9999), 1 / 2000
    t = torch.tensor([5, 300, 900, 1500, 1990])
    difference = (schedule.perturb(x0, eps, t + 1) - schedule.perturb(x0, eps, t - 1)) / (2 * h)
    found = Velocity().at(schedule, t).target(x0, eps, torch.ones(()), torch.ones(()))
    torch.testing.assert_close(found, difference, rtol=1e-6, atol=1e-6)
    alpha = torch.cos((t + 1) / 2000 * math.pi / 2 / 1.008 + 0.008 / 1.008 * math.pi / 2)
    sine = -math.pi / 2 / 1.008 * (1 - alpha.double().square()).sqrt()
    torch.testing.assert_close(schedule.signal_slope[t], sine, rtol=1e-3, atol=1e-3)


def test_a_respaced_model_keeps_the_velocity_it_was_trained_with(rows) -> None:
    x0, eps, _ = rows
    kept = torch.tensor([0, 40, 150, 199])
    for schedule in (rectified_flow(200, shift=2.0), cosine(200)):
        respaced, t = schedule.respace(kept), torch.tensor([2])
        fine, coarse = Velocity().at(schedule, kept[t]), Velocity().at(respaced, t)
        assert torch.equal(fine.target(x0, eps, x0, x0), coarse.target(x0, eps, x0, x0))
        assert torch.equal(respaced.position, schedule.position[kept])


@pytest.mark.parametrize("schedule", [*PATHS.values(), cosine(200)], ids=[*PATHS, "cosine"])
def test_every_prediction_inverts_its_target_on_every_path(schedule: NoiseSchedule, rows) -> None:
    x0, eps, t = rows
    for prediction in [*PREDICTIONS, Velocity()]:
        model = Denoiser(nn.Identity(), schedule, prediction, FixedSmall())
        x, alpha, sigma = model._point(schedule.perturb(x0, eps, t), t)
        bound = prediction.at(schedule, t)
        found = bound.estimate(bound.target(x0, eps, alpha, sigma), x, alpha, sigma)
        torch.testing.assert_close(found.x0, x0, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(found.eps, eps, rtol=1e-6, atol=1e-6)
        wrong = x0 + 0.1
        wrong_eps = (x - alpha * wrong) / sigma
        parts = bound.parts(bound.target(wrong, wrong_eps, alpha, sigma), x0, eps, alpha, sigma, schedule.snr[t])
        torch.testing.assert_close(parts.loss / parts.scale, torch.full((5, 1), 0.01).double(), rtol=1e-6, atol=0)


# -- EDM ----------------------------------------------------------------------------------------------------------


def test_edm_prediction_is_karras_denoiser(rows) -> None:
    """Written in the paper's coordinates y = x0 + s eps: D(y) = c_skip y + c_out F(c_in y, ln(s)/4)."""
    x0, eps, t = rows
    path, d = edm(200), 0.7
    s = path.noise_scale[t].reshape(-1, 1, 1, 1)
    y = x0 + s * eps
    c_skip, c_out = d**2 / (s**2 + d**2), s * d / (s**2 + d**2).sqrt()
    c_in, c_noise = 1 / (s**2 + d**2).sqrt(), s.log().flatten() / 4
    told = []

    def f(x: Tensor, time: Tensor) -> Tensor:
        told.append(time)
        return torch.sin(x) * (1 + time.reshape(-1, 1, 1, 1))

    class F(nn.Module):
        forward = staticmethod(f)

    model = Denoiser(F(), path, EDMPrediction(d), FixedSmall(), preconditioning=EDMScale(d), time=LogNoise())
    wanted = c_skip * y + c_out * f(c_in * y, c_noise)
    torch.testing.assert_close(model.estimate(path.perturb(x0, eps, t), t).x0, wanted, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(told[0], told[1])
    loss = ((wanted - x0) ** 2 * (s**2 + d**2) / (s * d) ** 2).flatten(1).mean(1)  # EDM's weighted loss
    torch.testing.assert_close(model.loss(x0, eps, t).native, loss, rtol=1e-9, atol=0)


def test_edm_prediction_with_unit_deviation_is_minus_v(rows) -> None:
    x0, eps, t = rows
    schedule = cosine(200)
    alpha, sigma = (scale(t, 4, torch.float64) for scale in (schedule.alpha, schedule.sigma))
    torch.testing.assert_close(EDMPrediction(1.0).target(x0, eps, alpha, sigma), -V().target(x0, eps, alpha, sigma))
    assert not torch.allclose(EDMPrediction(0.5).target(x0, eps, alpha, sigma), -V().target(x0, eps, alpha, sigma))


def test_edm_shows_the_network_inputs_of_variance_one() -> None:
    x0 = 0.5 * noise(1, torch.empty(20_000, dtype=torch.float64))
    eps = noise(2, x0)
    for schedule in (edm(50), rectified_flow(50), cosine(50)):
        scale = EDMScale(0.5).input_scale(schedule)
        for t in (0, 20, 49):
            shown = scale[t] * (schedule.signal_scale[t] * x0 + schedule.noise_scale[t] * eps)
            assert shown.var().item() == pytest.approx(1, abs=0.04)


# -- the network's time -------------------------------------------------------------------------------------------


def test_the_network_is_told_the_time_of_the_original_timesteps(rows) -> None:
    x0, _, _ = rows
    path, kept = rectified_flow(200, shift=3.0), torch.tensor([0, 40, 199])
    u = (kept.double() + 0.5) / 200
    s = 3 * u / (1 + 2 * u)
    for time, wanted in ((PathPosition(1000.0), 1000 * s), (LogNoise(2.0), 0.5 * (s / (1 - s)).log()), (None, kept)):
        model = Denoiser(Network(), path, X0(), FixedSmall(), time=time).respace(kept)
        model.estimate(x0[:3], torch.arange(3))
        torch.testing.assert_close(model.network.times[-1], wanted)


# -- the paths themselves -----------------------------------------------------------------------------------------


def test_rectified_flow_is_a_straight_line_at_midpoints() -> None:
    path = rectified_flow(4)
    assert path.noise_scale.tolist() == [0.125, 0.375, 0.625, 0.875]
    torch.testing.assert_close(path.signal_scale, 1 - path.noise_scale)
    assert (rectified_flow(1000).snr[[0, -1]].log10() - torch.tensor([6.6, -6.6])).abs().max() < 0.01


@pytest.mark.parametrize("shift", [0.5, 3.0])
def test_a_shift_divides_the_snr_by_its_square(shift: float) -> None:
    torch.testing.assert_close(rectified_flow(100, shift).snr * shift**2, rectified_flow(100).snr)
    plain, shifted = cosine(100, max_beta=0.99999), cosine(100, max_beta=0.99999, shift=shift)
    torch.testing.assert_close(shifted.snr[:-1] * shift**2, plain.snr[:-1], rtol=1e-6, atol=0)


def test_edm_levels_are_even_in_the_seventh_root() -> None:
    path = edm(100, sigma_min=0.01, sigma_max=50.0)
    root = path.noise_scale ** (1 / 7)
    torch.testing.assert_close(root.diff(), torch.full((99,), (50 ** (1 / 7) - 0.01 ** (1 / 7)) / 100).double())
    assert torch.equal(path.signal_scale, torch.ones(100).double())


@pytest.mark.parametrize(("steps", "cost"), [(1000, 1.33e-7), (100, 1.33e-5)])
def test_what_the_grid_costs_against_drawing_within_a_bin(steps: int, cost: float) -> None:
    """The velocity loss of the best model of N(0, 1/4) pixels on the linear path, 1/4 / (s^2 + (1-s)^2/4), averaged."""

    def loss(s: Tensor) -> Tensor:
        return 0.25 / (s**2 + 0.25 * (1 - s) ** 2)

    fine = loss(rectified_flow(1_000_000).position).mean()
    error = (loss(rectified_flow(steps).position).mean() / fine - 1).abs()
    assert error.item() == pytest.approx(cost, rel=0.02)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: rectified_flow(shift=0.0), r"shift=0.0 must lie in \(0, inf\); use 1.0"),
        (lambda: cosine(shift=-1.0), r"shift=-1.0 must lie in \(0, inf\); use 1.0"),
        (lambda: edm(sigma_min=3.0, sigma_max=2.0), r"sigma_min=3.0 must lie in \(0, 2\); it must be below"),
        (lambda: edm(rho=0.5), r"rho=0.5 must lie in \[1, inf\)"),
        (lambda: EDMPrediction(0.0), r"sigma_data=0.0 must lie in \(0, inf\)"),
        (lambda: PathPosition(0.0), r"scale=0.0 must lie in \(0, inf\)"),
        (lambda: GaussianPath([0.9, 0.1], [0.1, 0.9], [0.5, 0.2]), "position=.* must be 2 increasing numbers"),
    ],
)
def test_what_is_out_of_range_is_one_sentence(make, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make()
