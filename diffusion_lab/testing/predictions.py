"""The contract of predictions."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from diffusion_lab.diffusion import NoiseSchedule, Prediction, cosine, linear
from diffusion_lab.streams import Streams
from diffusion_lab.testing.synthetic import images, same, state_of


def check_prediction(make: Callable[[], Prediction], image_shape: tuple[int, ...] = (3, 4, 4)) -> None:
    """The rules of `diffusion_lab.diffusion.prediction`, for a new prediction and for one that has observed updates.

    Args:
        make: returns a new prediction; two calls must return equal ones.
        image_shape: (C, H, W) of the images.

    Raises:
        AssertionError: a rule is broken; the text says which.
    """
    for updates in (0, 5):
        for schedule in (linear(1000), cosine(4000)):
            prediction = make()
            for step in range(updates):
                observe_answers(prediction, schedule, image_shape, step)
            check_prediction_shapes(prediction, schedule, image_shape)
            check_prediction_inverse(prediction, schedule, image_shape)
            check_prediction_parts(prediction, schedule, image_shape)
            check_prediction_purity(prediction, schedule, image_shape)
    check_prediction_resume(make, linear(1000), image_shape)


class Noised(NamedTuple):
    """Noisy images over the whole range of a schedule, float64, and a wrong estimate."""

    x0: Tensor  # (B,C,H,W)
    eps: Tensor  # (B,C,H,W)
    x_t: Tensor  # (B,C,H,W)
    alpha: Tensor  # (B,1,1,1)
    sigma: Tensor  # (B,1,1,1)
    snr: Tensor  # (B,)
    wrong: Tensor  # (B,C,H,W) another x0

    def cast(self, dtype: torch.dtype) -> Noised:
        return Noised(*(part.to(dtype) for part in self))

    @property
    def wrong_eps(self) -> Tensor:
        """The noise of the wrong x0 in the same x_t."""
        return self.eps + self.alpha / self.sigma * (self.x0 - self.wrong)


def noised(schedule: NoiseSchedule, image_shape: tuple[int, ...], seed: int = 0, rows: int = 16) -> Noised:
    """`rows` timesteps from 0 to T-1, equally spread."""
    t = torch.linspace(0, schedule.num_timesteps - 1, rows).long()
    a = schedule.alphas_cumprod[t].reshape(-1, *[1] * len(image_shape))
    x0, wrong = (images(rows, image_shape, 3 * seed + i).double() for i in range(2))
    eps = Streams(seed).normal((rows, *image_shape), "testing", 2).double()
    alpha, sigma = a.sqrt(), (1 - a).sqrt()
    return Noised(x0, eps, alpha * x0 + sigma * eps, alpha, sigma, schedule.snr[t], wrong)


def answers(prediction: Prediction, rows: Noised, seed: int = 0) -> Tensor:
    """A possible output of a network, (B,heads*C,H,W): the target with an error of order 1."""
    target = prediction.target(rows.x0, rows.eps, rows.alpha, rows.sigma)
    return target + 0.3 * Streams(seed).normal(tuple(target.shape), "testing", 9).to(target.dtype)


def observe_answers(prediction: Prediction, schedule: NoiseSchedule, image_shape: tuple[int, ...], step: int) -> None:
    """`errors` and `observe` of one update."""
    rows = noised(schedule, image_shape, step)
    errors = prediction.errors(answers(prediction, rows, step), rows.x0, rows.x_t, rows.alpha, rows.sigma)
    prediction.observe(rows.snr.log(), errors)


def check_prediction_shapes(prediction: Prediction, schedule: NoiseSchedule, image_shape: tuple[int, ...]) -> None:
    """Shapes of all results of a prediction, and that only `parts` and `estimate` have a gradient."""
    name, rows = type(prediction).__name__, noised(schedule, image_shape).cast(torch.float32)
    b, (channels, *size) = len(rows.x0), image_shape
    out = answers(prediction, rows).requires_grad_()
    given = {
        "target": (
            prediction.target(rows.x0, rows.eps, rows.alpha, rows.sigma),
            (b, prediction.heads * channels, *size),
        ),
        "estimate.x0": (prediction.estimate(out, rows.x_t, rows.alpha, rows.sigma).x0, (b, *image_shape)),
        "estimate.eps": (prediction.estimate(out, rows.x_t, rows.alpha, rows.sigma).eps, (b, *image_shape)),
        "native_scale": (prediction.native_scale(rows.snr), (b,)),
        "loss": (prediction.loss(out, rows.x0, rows.eps, rows.alpha, rows.sigma), (b,)),
    }
    for what, (value, shape) in given.items():
        assert value.shape == shape, f"{name}.{what} has shape {tuple(value.shape)}, not {shape}"
        assert bool(value.isfinite().all()), f"{name}.{what} is not finite at every timestep"
    parts = prediction.parts(out, rows.x0, rows.eps, rows.alpha, rows.sigma, rows.snr)
    assert parts.loss.ndim == 2 and len(parts.loss) == b, f"{name}.parts.loss must be (B,K)"
    assert parts.scale.shape == parts.loss.shape, f"{name}.parts.scale must have the shape of parts.loss"
    assert bool((parts.loss >= 0).all() and (parts.scale > 0).all()), f"{name}.parts has a negative loss or scale"
    (gradient,) = torch.autograd.grad(parts.loss.sum(), out)
    assert bool(gradient.isfinite().all()), f"{name}.parts has a gradient that is not finite"
    errors = prediction.errors(out.detach(), rows.x0, rows.x_t, rows.alpha, rows.sigma)
    assert errors.ndim == 2 and len(errors) == b and not errors.requires_grad, f"{name}.errors must be (B,E), detached"


def check_prediction_inverse(prediction: Prediction, schedule: NoiseSchedule, image_shape: tuple[int, ...]) -> None:
    """`estimate` of the target is x0 and eps, and of any output a pair that is consistent with x_t.

    In float64 both are compared directly; in float32 as parts of x_t, alpha x0 and sigma eps, because dividing by alpha
    or sigma amplifies the rounding of the output.
    """
    name = type(prediction).__name__
    for dtype, tolerance in ((torch.float64, 1e-7), (torch.float32, 2e-5)):
        rows = noised(schedule, image_shape).cast(dtype)
        found = prediction.estimate(
            prediction.target(rows.x0, rows.eps, rows.alpha, rows.sigma), rows.x_t, rows.alpha, rows.sigma
        )
        unit = dtype == torch.float64
        for what, estimate, truth, scale in (
            ("x0", found.x0, rows.x0, rows.alpha),
            ("eps", found.eps, rows.eps, rows.sigma),
        ):
            error = float(((estimate - truth) * (1 if unit else scale)).abs().max())
            assert error < tolerance, f"{name}.estimate of the target misses {what} by {error:.1e} in {dtype}"
        x0, eps = prediction.estimate(answers(prediction, rows), rows.x_t, rows.alpha, rows.sigma)
        error = float((rows.alpha * x0 + rows.sigma * eps - rows.x_t).abs().max())
        assert error < tolerance, f"{name}.estimate gives a pair that misses x_t by {error:.1e} in {dtype}"


def check_prediction_parts(prediction: Prediction, schedule: NoiseSchedule, image_shape: tuple[int, ...]) -> None:
    """If all heads give the same estimate, the parts divided by their scales add up to the x0-loss."""
    name, rows = type(prediction).__name__, noised(schedule, image_shape)
    out = prediction.target(rows.wrong, rows.wrong_eps, rows.alpha, rows.sigma)
    parts = prediction.parts(out, rows.x0, rows.eps, rows.alpha, rows.sigma, rows.snr)
    x0_loss = (rows.wrong - rows.x0).square().flatten(1).mean(1)
    total = (parts.loss / parts.scale).sum(1)
    assert torch.allclose(total, x0_loss, rtol=1e-5), f"{name}.parts.loss / parts.scale do not add up to the x0-loss"
    if parts.loss.shape[1] == 1:
        native = prediction.native_scale(rows.snr) * x0_loss
        assert torch.allclose(parts.loss[:, 0], native, rtol=1e-5), f"{name}.native_scale is not loss / x0-loss"
    out = answers(prediction, rows)  # of different heads, so that no selection depends on rounding
    total = prediction.parts(out, rows.x0, rows.eps, rows.alpha, rows.sigma, rows.snr).loss.sum(1)
    native = prediction.loss(out, rows.x0, rows.eps, rows.alpha, rows.sigma)
    assert torch.allclose(native, total, rtol=1e-5), f"{name}.loss is not the sum of its parts"


def check_prediction_purity(prediction: Prediction, schedule: NoiseSchedule, image_shape: tuple[int, ...]) -> None:
    """Only `observe` changes the state, and nothing uses the global random numbers."""
    name, before, outside = type(prediction).__name__, state_of(prediction), torch.random.get_rng_state()
    rows = noised(schedule, image_shape)
    out = answers(prediction, rows)
    prediction.estimate(out, rows.x_t, rows.alpha, rows.sigma)
    prediction.parts(out, rows.x0, rows.eps, rows.alpha, rows.sigma, rows.snr)
    prediction.errors(out, rows.x0, rows.x_t, rows.alpha, rows.sigma)
    prediction.native_scale(rows.snr)
    prediction.log_values()
    assert same(before, state_of(prediction)), f"{name} changed its state outside observe"
    assert torch.equal(torch.random.get_rng_state(), outside), f"{name} used the global random numbers"


def check_prediction_resume(
    make: Callable[[], Prediction], schedule: NoiseSchedule, image_shape: tuple[int, ...]
) -> None:
    """State that is saved and loaded gives the estimates and losses of an uninterrupted prediction."""
    straight, stopped, resumed = make(), make(), make()
    for step in range(3):
        observe_answers(straight, schedule, image_shape, step)
        observe_answers(stopped, schedule, image_shape, step)
    resumed.load_state_dict(state_of(stopped))
    for step in range(3, 6):
        observe_answers(straight, schedule, image_shape, step)
        observe_answers(resumed, schedule, image_shape, step)
    name, rows = type(straight).__name__, noised(schedule, image_shape)
    out = answers(straight, rows)
    assert same(state_of(straight), state_of(resumed)), f"{name} has other state after a resume"
    for what, call in {
        "estimate": lambda p: p.estimate(out, rows.x_t, rows.alpha, rows.sigma),
        "parts": lambda p: p.parts(out, rows.x0, rows.eps, rows.alpha, rows.sigma, rows.snr),
    }.items():
        assert same(call(straight), call(resumed)), f"{name}.{what} differs after a resume"
