"""Contract tests for parts of your own: call them from pytest with a function that makes the part.

    def test_mine():
        check_sampler(lambda: Late(num_timesteps=100))

Each raises an AssertionError that says which rule is broken. Nothing here needs a GPU or a trained model.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from diffusion_lab.diffusion import X0, Epsilon, NoiseSchedule, Prediction, V, Weighting, cosine, linear
from diffusion_lab.streams import Streams
from diffusion_lab.timesteps import Context, Draw, Position, StepRecord, TimestepSampler


class SyntheticProbe:
    """Losses that fall with the timestep, differ between images, and shrink as `updates` grows; a toy network."""

    def __init__(self, num_timesteps: int) -> None:
        self.num_timesteps, self.updates = num_timesteps, 0

    def loss(self, x0: Tensor, t: Tensor, seed: int, **cond: Tensor) -> Tensor:
        noise = Streams(seed).normal((len(x0), len(t)), "testing", seed).abs()
        image = 1.0 + x0.flatten(1).abs().mean(1)
        decay = torch.exp(-4.0 * t / self.num_timesteps)
        return (image[:, None] * decay + 0.01 * noise) / (1.0 + self.updates)

    def pairs(
        self, x0: Tensor, t: Tensor, index: Tensor, total: int, seed: int, keep_mode: bool = False, **cond: Tensor
    ) -> Tensor:
        noise = Streams(seed).normal((total,), "testing", seed).abs()[index]
        image = 1.0 + x0.flatten(1).abs().mean(1)
        return (image * torch.exp(-4.0 * t / self.num_timesteps) + 0.01 * noise) / (1.0 + self.updates)

    def grad_sq_norm(self, x0: Tensor, t: Tensor, seed: int, **cond: Tensor) -> Tensor:
        image = 1.0 + x0.flatten(1).abs().mean(1)
        return (image * torch.exp(-4.0 * t / self.num_timesteps)).double()

    def grad_moments(self, x0: Tensor, t: Tensor, seed: int, **cond: Tensor) -> tuple[Tensor, Tensor]:
        norms = torch.stack([self.grad_sq_norm(x0, at.expand(len(x0)), seed) for at in t])
        return norms.var(1) + 0.1 * norms.mean(1), norms.mean(1)


def check_sampler(
    make: Callable[[], TimestepSampler],
    image_shape: tuple[int, ...] = (1, 8, 8),
    rows: int = 64,
    updates: int = 60,
    draws: int = 20_000,
) -> None:
    """The seven rules of `diffusion_lab.timesteps.base`, for a new sampler and for one that has observed updates.

    Args:
        make: gives a fresh sampler; two calls must give equal ones.
        image_shape: (C, H, W) of the images it is shown.
        rows: rows of the global batch, divisible by 4.
        updates: updates observed before the second half of the checks.
        draws: timesteps drawn for the chi-square test against `probabilities`.

    Raises:
        AssertionError: a rule is broken; the text says which.
    """

    def ready() -> TimestepSampler:
        sampler = make()
        sampler.setup(image_shape)
        return sampler

    fresh, seasoned = ready(), ready()
    observe_updates(seasoned, image_shape, rows, updates)
    for sampler, step in ((fresh, 0), (seasoned, updates)):
        check_probabilities(sampler, step)
        check_draws(sampler, step, image_shape, rows)
        check_split(sampler, step, image_shape, rows)
        check_marginal(sampler, step, image_shape, rows, draws)
        check_weights(sampler, step)
    check_resume(ready, image_shape, rows, updates)


def observe_updates(
    sampler: TimestepSampler, image_shape: tuple[int, ...], rows: int, updates: int, first: int = 0
) -> list[Tensor]:
    """Run draw and observe with synthetic losses; the timesteps drawn in each update."""
    probe, drawn = SyntheticProbe(sampler.num_timesteps), []
    for step in range(first, first + updates):
        x0 = images(rows, image_shape, step)
        probe.updates = step
        draw = sampler.draw(x0, context_of(step, probe=probe))
        loss = probe.loss(x0, draw.t, step).diagonal()
        probe.updates = step + 1
        sampler.observe(StepRecord(x0, {}, draw.t, loss, loss), context_of(step, probe=probe))
        drawn.append(draw.t)
    return drawn


def check_probabilities(sampler: TimestepSampler, step: int) -> None:
    """probabilities(step) is a law on {0..T-1}, and asking for it changes nothing."""
    before = state_of(sampler)
    p = sampler.probabilities(step)
    name = type(sampler).__name__
    assert p.shape == (sampler.num_timesteps,), f"{name}.probabilities has shape {tuple(p.shape)}, not (T,)"
    assert p.dtype == torch.float64, f"{name}.probabilities is {p.dtype}; use float64, or small masses are lost"
    assert bool(torch.isfinite(p).all() and (p >= 0).all()), f"{name}.probabilities has a negative or NaN entry"
    assert abs(float(p.sum()) - 1) < 1e-9, f"{name}.probabilities sums to {float(p.sum())}, not 1"
    assert same(before, state_of(sampler)), f"{name}.probabilities changed the sampler's state"


def check_draws(sampler: TimestepSampler, step: int, image_shape: tuple[int, ...], rows: int) -> None:
    """draw gives int64 timesteps in range, is repeatable, changes no state and leaves global randomness alone."""
    name, before = type(sampler).__name__, state_of(sampler)
    x0, outside = images(rows, image_shape, 0), torch.random.get_rng_state()
    first = draw_at(sampler, x0, step)
    torch.manual_seed(1234)
    second = draw_at(sampler, x0, step)
    torch.random.set_rng_state(outside)
    draw_at(sampler, x0, step)
    assert torch.equal(torch.random.get_rng_state(), outside), f"{name}.draw used the global random numbers"
    assert torch.equal(first.t, second.t), f"{name}.draw differs for equal contexts; use only context's randomness"
    assert first.t.dtype == torch.int64 and first.t.shape == (rows,), f"{name}.draw must give (b,) int64 timesteps"
    inside = bool((first.t >= 0).all() and (first.t < sampler.num_timesteps).all())
    assert inside, f"{name}.draw left 0..T-1: {int(first.t.min())}..{int(first.t.max())}"
    good = first.weight.shape == (rows,) and bool(torch.isfinite(first.weight).all())
    assert good, f"{name}.draw must give (b,) finite weights"
    assert same(before, state_of(sampler)), f"{name}.draw changed persistent state; only observe may"


def check_split(sampler: TimestepSampler, step: int, image_shape: tuple[int, ...], rows: int) -> None:
    """Two processes with two microbatches each draw the timesteps that one process draws for the whole batch."""
    x0 = images(rows, image_shape, 0)
    whole = draw_at(sampler, x0, step).t
    parts, n = [], rows // 4
    for micro in range(2):
        for rank in range(2):
            position = Position(step, rank, 2, micro, 2)
            probe = SyntheticProbe(sampler.num_timesteps)
            parts.append(sampler.draw(x0[position.rows(n)], Context(position, Streams(0), probe=probe)).t)
    assert torch.equal(whole, torch.cat(parts)), (
        f"{type(sampler).__name__}.draw depends on how the batch is split; take rows of context.global_uniform"
    )


def check_marginal(sampler: TimestepSampler, step: int, image_shape: tuple[int, ...], rows: int, draws: int) -> None:
    """Chi-square test of the draws against `probabilities`, at a false alarm rate of about 1e-6.

    Timesteps are pooled to bins that expect at least 10 draws. Draws of a stratified sampler vary less than
    independent ones, so the statistic is judged from above only.
    """
    p = sampler.probabilities(step)
    counts = torch.zeros(sampler.num_timesteps, dtype=torch.float64)
    batches = -(-draws // rows)
    for seed in range(batches):
        x0 = images(rows, image_shape, seed)
        probe = SyntheticProbe(sampler.num_timesteps)
        counts += torch.bincount(
            sampler.draw(x0, Context(Position(step), Streams(seed), probe=probe)).t, minlength=len(p)
        )
    name = type(sampler).__name__
    never = (counts > 0) & (p == 0)
    assert not never.any(), f"{name} drew t={int(never.nonzero()[0])}, whose probability it gives as 0"
    expected = p * batches * rows
    bins = (expected.cumsum(0) / 10).long()
    bins = torch.unique(bins, return_inverse=True)[1]
    pooled_counts = torch.zeros(int(bins.max()) + 1, dtype=torch.float64).index_add_(0, bins, counts)
    pooled = torch.zeros_like(pooled_counts).index_add_(0, bins, expected)
    keep = pooled > 1.0
    chi2 = float(((pooled_counts - pooled)[keep].square() / pooled[keep]).sum())
    freedom = int(keep.sum()) - 1
    # Wilson & Hilferty 1931: (chi2/n)^(1/3) is nearly normal; 4.9 standard deviations are 5e-7.
    z = ((chi2 / max(freedom, 1)) ** (1 / 3) - (1 - 2 / (9 * max(freedom, 1)))) / (2 / (9 * max(freedom, 1))) ** 0.5
    assert z < 4.9, f"{name}'s draws do not follow its probabilities: chi2={chi2:.1f} at {freedom} degrees of freedom"


def check_weights(sampler: TimestepSampler, step: int) -> None:
    """Weights are 1, or exactly 1/(T p_t), so that the reweighted loss is unbiased."""
    p = sampler.probabilities(step)
    t = torch.nonzero(p > 0).flatten()
    weight = sampler.weight(t, step).double()
    target = 1 / (sampler.num_timesteps * p[t]) if sampler.reweight else torch.ones_like(p[t])
    assert torch.allclose(weight, target, rtol=1e-6), f"{type(sampler).__name__}.weight is not 1 or 1/(T p_t)"


def check_resume(make: Callable[[], TimestepSampler], image_shape: tuple[int, ...], rows: int, updates: int) -> None:
    """State saved and loaded in the middle gives the draws of a sampler that went on."""
    name = type(make()).__name__
    straight = make()
    expected = observe_updates(straight, image_shape, rows, 2 * updates)[updates:]
    stopped = make()
    observe_updates(stopped, image_shape, rows, updates)
    resumed = make()
    resumed.load_state_dict(copy.deepcopy(stopped.state_dict()))
    got = observe_updates(resumed, image_shape, rows, updates, first=updates)
    for step, (a, b) in enumerate(zip(expected, got, strict=True), start=updates):
        assert torch.equal(a, b), f"{name} draws other timesteps after a resume, first at step {step}"
    assert same(state_of(straight), state_of(resumed)), f"{name} has other state after a resume"


def check_prediction(make: Callable[[], Prediction], image_shape: tuple[int, ...] = (3, 4, 4)) -> None:
    """The rules of `diffusion_lab.diffusion.prediction`, for a new prediction and for one that has observed updates.

    Args:
        make: gives a fresh prediction; two calls must give equal ones.
        image_shape: (C, H, W) of the images it is shown.

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
    """Images with noise over the whole range of a schedule, float64, and a wrong answer."""

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
        """The noise that goes with the wrong x0 in the same x_t."""
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
    """Something that a network may say, (B,heads*C,H,W): the target with an error of order 1."""
    target = prediction.target(rows.x0, rows.eps, rows.alpha, rows.sigma)
    return target + 0.3 * Streams(seed).normal(tuple(target.shape), "testing", 9).to(target.dtype)


def observe_answers(prediction: Prediction, schedule: NoiseSchedule, image_shape: tuple[int, ...], step: int) -> None:
    """One update's worth of `errors` and `observe`."""
    rows = noised(schedule, image_shape, step)
    errors = prediction.errors(answers(prediction, rows, step), rows.x0, rows.x_t, rows.alpha, rows.sigma)
    prediction.observe(rows.snr.log(), errors)


def check_prediction_shapes(prediction: Prediction, schedule: NoiseSchedule, image_shape: tuple[int, ...]) -> None:
    """Shapes of everything that a prediction gives, and that nothing but `parts` and `estimate` has a gradient."""
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
    """`estimate` of the target is x0 and eps, and of any answer a pair that makes up x_t.

    In float64 both are compared as they are; in float32 as parts of x_t, alpha x0 and sigma eps, because dividing by
    alpha or sigma enlarges the rounding of the answer by as much.
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
    """Of one answer, given by all heads alike, the parts divided by their scales add up to the x0-loss."""
    name, rows = type(prediction).__name__, noised(schedule, image_shape)
    out = prediction.target(rows.wrong, rows.wrong_eps, rows.alpha, rows.sigma)
    parts = prediction.parts(out, rows.x0, rows.eps, rows.alpha, rows.sigma, rows.snr)
    x0_loss = (rows.wrong - rows.x0).square().flatten(1).mean(1)
    total = (parts.loss / parts.scale).sum(1)
    assert torch.allclose(total, x0_loss, rtol=1e-5), f"{name}.parts.loss / parts.scale do not add up to the x0-loss"
    if parts.loss.shape[1] == 1:
        native = prediction.native_scale(rows.snr) * x0_loss
        assert torch.allclose(parts.loss[:, 0], native, rtol=1e-5), f"{name}.native_scale is not loss / x0-loss"
    out = answers(prediction, rows)  # of unlike heads, so that no selection hangs on rounding
    total = prediction.parts(out, rows.x0, rows.eps, rows.alpha, rows.sigma, rows.snr).loss.sum(1)
    native = prediction.loss(out, rows.x0, rows.eps, rows.alpha, rows.sigma)
    assert torch.allclose(native, total, rtol=1e-5), f"{name}.loss is not the sum of its parts"


def check_prediction_purity(prediction: Prediction, schedule: NoiseSchedule, image_shape: tuple[int, ...]) -> None:
    """Nothing but `observe` changes the state, or uses the global random numbers."""
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
    """State saved and loaded in the middle gives the estimates and losses of a prediction that went on."""
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


def check_weighting(make: Callable[[], Weighting], steps: tuple[int, ...] = (0, 7, 10**6)) -> None:
    """The rules of `diffusion_lab.diffusion.weighting`, over the SNR of the linear and the cosine schedule, T = 1000.

    Args:
        make: gives a fresh weighting; two calls must give equal ones.
        steps: optimizer steps at which it is looked at.

    Raises:
        AssertionError: a rule is broken; the text says which.
    """
    for schedule in (linear(), cosine()):
        for step in steps:
            check_native_weights(make(), schedule, step)
            check_one_loss(make(), schedule, step)
            check_normalization(make, schedule, step)
        check_purity(make(), schedule, steps)
        check_weighting_resume(make, schedule, steps[-1])


def check_native_weights(weighting: Weighting, schedule: NoiseSchedule, step: int) -> None:
    """Weights are finite, above 0, and of the shape and the dtype of the SNR."""
    name = type(weighting).__name__
    for dtype in (torch.float32, torch.float64):
        snr = schedule.snr.to(dtype)
        for prediction in (Epsilon(), X0(), V()):
            rows = snr[:, None].expand(-1, 2)  # two parts, as of a prediction with two heads
            weight = weighting.native_weight(rows, prediction.native_scale(rows), step)
            assert weight.shape == rows.shape, f"{name} gives weights of shape {tuple(weight.shape)}, not the SNR's"
            assert weight.dtype == dtype, f"{name} gives {weight.dtype} weights for an SNR of {dtype}"
            good = torch.isfinite(weight) & (weight > 0)
            t = int((~good).any(1).float().argmax())
            assert bool(good.all()), (
                f"{name} must give finite weights above 0; at step {step}, timestep {t}, {weight[t, 0]:g}"
            )


def check_one_loss(weighting: Weighting, schedule: NoiseSchedule, step: int) -> None:
    """One x0 estimate has one weighted loss, whether it is said as eps, x0 or v.

    Left out for a weighting that follows the prediction: one that defines native_weight and no x0_weight.
    """
    try:
        weighting.x0_weight(schedule.snr, step)
    except NotImplementedError:
        return
    losses = [weighted_loss(weighting, schedule, prediction, step) for prediction in (X0(), Epsilon(), V())]
    for loss, prediction in zip(losses[1:], ("eps", "v"), strict=True):
        assert torch.allclose(losses[0], loss, rtol=1e-6), (
            f"{type(weighting).__name__} gives another loss to one answer when it is said as {prediction}; "
            "write the weight on the x0-loss"
        )


def weighted_loss(weighting: Weighting, schedule: NoiseSchedule, prediction: Prediction, step: int) -> Tensor:
    """(T,) losses of one fixed x0 estimate per timestep, said in this prediction; float64."""
    snr = schedule.snr
    x0_loss = 0.1 + torch.linspace(0, 1, len(snr), dtype=torch.float64)
    scale = prediction.native_scale(snr)
    return weighting((x0_loss * scale)[:, None], snr, scale[:, None], step).detach()


def check_normalization(make: Callable[[], Weighting], schedule: NoiseSchedule, step: int) -> None:
    """`refresh` makes the mean weight 1 under the law that `normalize` names, and does nothing for none."""
    snr, ones = schedule.snr, torch.ones(schedule.num_timesteps, 1, dtype=torch.float64)
    p = torch.linspace(1, 2, len(snr), dtype=torch.float64)
    p /= p.sum()
    for word, law in (("mean1_uniform", torch.full_like(p, 1 / len(p))), ("mean1_sampler", p)):
        weighting = make()
        weighting.normalize = word
        scale = Epsilon().native_scale(snr)
        weighting.refresh(snr, scale, p, step)
        mean = float((law * weighting(ones, snr, scale[:, None], step).detach()).sum())
        # The factor is kept in float32.
        assert abs(mean - 1) < 1e-5, f"{type(weighting).__name__} with normalize={word} has mean {mean}, not 1"
    weighting = make()
    weighting.refresh(snr, Epsilon().native_scale(snr), p, step)
    assert same(dict(make().state_dict()), state_of(weighting)), (
        f"{type(weighting).__name__}.refresh must change nothing with normalize=none"
    )


def check_purity(weighting: Weighting, schedule: NoiseSchedule, steps: tuple[int, ...]) -> None:
    """The weight is a function of SNR, scale and step: neither earlier calls nor the global randomness change it."""
    before, random = state_of(weighting), torch.random.get_rng_state()
    first = [weighted_loss(weighting, schedule, X0(), step) for step in steps]
    again = [weighted_loss(weighting, schedule, X0(), step) for step in reversed(steps)][::-1]
    name = type(weighting).__name__
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True)), (
        f"{name} must be a function of the step that it is given; it differs between two equal calls"
    )
    assert torch.equal(random, torch.random.get_rng_state()), f"{name} used the global random numbers"
    assert same(before, state_of(weighting)), f"{name} changed its state in forward; only refresh and training may"


def check_weighting_resume(make: Callable[[], Weighting], schedule: NoiseSchedule, step: int) -> None:
    """State saved and loaded, after training and normalisation, gives the same losses."""
    trained, resumed = make(), make()
    name, scale = type(trained).__name__, schedule.snr
    for parameter in trained.parameters():
        with torch.no_grad():
            parameter += torch.linspace(-0.01, 0.02, parameter.numel(), dtype=parameter.dtype).view_as(parameter)
    for weighting in (trained, resumed):
        weighting.normalize = "mean1_uniform"
    trained.refresh(schedule.snr, scale, torch.ones_like(scale) / len(scale), step)
    resumed.load_state_dict(state_of(trained))
    expected, got = (weighted_loss(weighting, schedule, Epsilon(), step) for weighting in (trained, resumed))
    assert torch.equal(expected, got), f"{name} gives other losses after a resume; keep its state in buffers"
    assert same(state_of(trained), state_of(resumed)), f"{name} has other state after a resume"


def images(rows: int, shape: tuple[int, ...], seed: int) -> Tensor:
    """(rows, *shape) images in [-1, 1], a function of the seed."""
    return Streams(seed).normal((rows, *shape), "testing").clamp(-1, 1)


def context_of(step: int, probe: SyntheticProbe | None = None) -> Context:
    """The context of one process that holds the whole batch, with seed 0."""
    return Context(Position(step), Streams(0), probe=probe)


def draw_at(sampler: TimestepSampler, x0: Tensor, step: int) -> Draw:
    """One draw with seed 0 and a fresh synthetic probe."""
    return sampler.draw(x0, context_of(step, SyntheticProbe(sampler.num_timesteps)))


def state_of(module: nn.Module) -> dict:
    """A deep copy of everything that a checkpoint would hold."""
    return copy.deepcopy(dict(module.state_dict()))


def same(a: object, b: object) -> bool:
    """Equality to the bit through dicts, lists and tensors."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.cpu(), b.cpu())
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)
