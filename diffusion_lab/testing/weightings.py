"""The contract of weightings."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from diffusion_lab.diffusion import X0, Epsilon, NoiseSchedule, Prediction, V, Weighting, cosine, linear
from diffusion_lab.testing.synthetic import same, state_of


def check_weighting(make: Callable[[], Weighting], steps: tuple[int, ...] = (0, 7, 10**6)) -> None:
    """The rules of `diffusion_lab.diffusion.weighting`, over the SNR of the linear and the cosine schedule, T = 1000.

    Args:
        make: returns a new weighting; two calls must return equal ones.
        steps: optimizer steps at which it is evaluated.

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
    """An x0 estimate has the same weighted loss in terms of eps, x0 and v.

    Left out for a weighting that follows the prediction: one that defines native_weight and no x0_weight.
    """
    try:
        weighting.x0_weight(schedule.snr, step)
    except NotImplementedError:
        return
    losses = [weighted_loss(weighting, schedule, prediction, step) for prediction in (X0(), Epsilon(), V())]
    for loss, prediction in zip(losses[1:], ("eps", "v"), strict=True):
        assert torch.allclose(losses[0], loss, rtol=1e-6), (
            f"{type(weighting).__name__} gives the same estimate another loss in terms of {prediction}; "
            "write the weight on the x0-loss"
        )


def weighted_loss(weighting: Weighting, schedule: NoiseSchedule, prediction: Prediction, step: int) -> Tensor:
    """(T,) losses of one fixed x0 estimate per timestep, in terms of this prediction; float64."""
    snr = schedule.snr
    x0_loss = 0.1 + torch.linspace(0, 1, len(snr), dtype=torch.float64)
    scale = prediction.native_scale(snr)
    return weighting((x0_loss * scale)[:, None], snr, scale[:, None], step).detach()


def check_normalization(make: Callable[[], Weighting], schedule: NoiseSchedule, step: int) -> None:
    """`refresh` makes the mean weight 1 under the distribution that `normalize` names, and has no effect for none."""
    snr, ones = schedule.snr, torch.ones(schedule.num_timesteps, 1, dtype=torch.float64)
    p = torch.linspace(1, 2, len(snr), dtype=torch.float64)
    p /= p.sum()
    for word, q in (("mean1_uniform", torch.full_like(p, 1 / len(p))), ("mean1_sampler", p)):
        weighting = make()
        weighting.normalize = word
        scale = Epsilon().native_scale(snr)
        weighting.refresh(snr, scale, p, step)
        mean = float((q * weighting(ones, snr, scale[:, None], step).detach()).sum())
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
    """State that is saved and loaded after training and normalisation gives the same losses."""
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
