"""The contract of timestep samplers."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from scipy.special import chdtrc
from torch import Tensor

from diffusion_lab.streams import Streams
from diffusion_lab.testing.synthetic import SyntheticProbe, images, same, state_of
from diffusion_lab.timesteps import Context, Draw, Position, StepRecord, TimestepSampler


def check_sampler(
    make: Callable[[], TimestepSampler],
    image_shape: tuple[int, ...] = (1, 8, 8),
    rows: int = 64,
    updates: int = 60,
    draws: int = 20_000,
    num_timesteps: int | None = None,
) -> None:
    """The six rules of `diffusion_lab.timesteps.base`, for a new sampler and for one that has observed updates.

    Args:
        make: returns a new sampler; two calls must return equal ones.
        image_shape: (C, H, W) of the images.
        rows: rows of the global batch, divisible by 4.
        updates: updates observed before the second half of the checks.
        draws: timesteps drawn for the chi-square test against `probabilities`.
        num_timesteps: T that `make` asks for, which the sampler must have, as a run checks; None: any.

    Raises:
        AssertionError: a rule is broken; the text says which.
    """

    def ready() -> TimestepSampler:
        sampler = make()
        asked = sampler.num_timesteps if num_timesteps is None else num_timesteps
        assert sampler.num_timesteps == asked, (
            f"{type(sampler).__name__} must have num_timesteps={asked}, as it is given, and has {sampler.num_timesteps}"
        )
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
    """probabilities(step) is a distribution on {0..T-1}, and computing it changes no state."""
    before = state_of(sampler)
    p = sampler.probabilities(step)
    name = type(sampler).__name__
    assert p.shape == (sampler.num_timesteps,), f"{name}.probabilities has shape {tuple(p.shape)}, not (T,)"
    assert p.dtype == torch.float64, f"{name}.probabilities is {p.dtype}; use float64, or small masses are lost"
    assert bool(torch.isfinite(p).all() and (p >= 0).all()), f"{name}.probabilities has a negative or NaN entry"
    assert abs(float(p.sum()) - 1) < 1e-9, f"{name}.probabilities sums to {float(p.sum())}, not 1"
    assert same(before, state_of(sampler)), f"{name}.probabilities changed the sampler's state"


def check_draws(sampler: TimestepSampler, step: int, image_shape: tuple[int, ...], rows: int) -> None:
    """draw returns int64 timesteps in range, is repeatable, changes no state and uses no global random numbers."""
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

    Timesteps are pooled into bins with at least 10 expected draws. Draws of a stratified sampler vary less than
    independent ones, so the test is one-sided.
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
    freedom = max(1, int(keep.sum()) - 1)
    words = f"chi2={chi2:.1f} at {freedom} degrees of freedom"
    assert chdtrc(freedom, chi2) > 5e-7, f"{name}'s draws do not follow its probabilities: {words}"


def check_weights(sampler: TimestepSampler, step: int) -> None:
    """Weights are exactly 1/(T p_t) with `reweight`, so that the loss is unbiased for the uniform objective, else 1. A
    sampler that has a `weight` of its own and no `reweight` has an objective of its own: any finite weights >= 0."""
    p, name = sampler.probabilities(step), type(sampler).__name__
    t = torch.nonzero(p > 0).flatten()
    weight = sampler.weight(t, step).double()
    if type(sampler).weight is not TimestepSampler.weight and not sampler.reweight:
        finite = bool((torch.isfinite(weight) & (weight >= 0)).all())
        assert finite, f"{name}.weight must be finite and >= 0, and is {float(weight.min())} to {float(weight.max())}"
        return
    target = 1 / (sampler.num_timesteps * p[t]) if sampler.reweight else torch.ones_like(p[t])
    assert torch.allclose(weight, target, rtol=1e-6), f"{name}.weight is not 1, or 1/(T p_t) with reweight"


def check_resume(make: Callable[[], TimestepSampler], image_shape: tuple[int, ...], rows: int, updates: int) -> None:
    """State that is saved and loaded gives the draws of an uninterrupted sampler."""
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


def context_of(step: int, probe: SyntheticProbe | None = None) -> Context:
    """The context of a single process, with seed 0."""
    return Context(Position(step), Streams(0), probe=probe)


def draw_at(sampler: TimestepSampler, x0: Tensor, step: int) -> Draw:
    """One draw with seed 0 and a new synthetic probe."""
    return sampler.draw(x0, context_of(step, SyntheticProbe(sampler.num_timesteps)))
