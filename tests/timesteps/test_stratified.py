"""Stratified draws: one per slice, each with the base's distribution, less variance."""

from collections.abc import Callable

import pytest
import torch

from diffusion_lab.streams import Streams
from diffusion_lab.timesteps import (
    Antithetic,
    Context,
    LogitNormal,
    LowDiscrepancy,
    Mixture,
    Position,
    Stratified,
    TimestepSampler,
    Uniform,
)


def draw(sampler, rows, seed=0, step=0):
    return sampler.draw(torch.zeros(rows, 1, 1, 1), Context(Position(step), Streams(seed))).t


def test_every_slice_has_exactly_one_draw():
    for seed in range(5):
        t = draw(Stratified(Uniform(1000)), 100, seed)
        assert (t // 10).sort().values.tolist() == list(range(100))


def test_batch_mean_varies_far_less_than_independently():
    base = LogitNormal(1000)
    plain = torch.stack([draw(base, 64, seed).double().mean() for seed in range(200)])
    spread = torch.stack([draw(Stratified(base), 64, seed).double().mean() for seed in range(200)])
    assert float(spread.var() / plain.var()) < 0.02
    assert float(spread.mean()) == pytest.approx(float(plain.mean()), abs=4 * float(plain.std()) / 200**0.5)


def test_a_row_is_not_tied_to_a_slice():
    """Row 0 draws from both halves, so images in a fixed order do not get fixed timesteps."""
    first = torch.stack([draw(Stratified(Uniform(2)), 64, 0, step)[0] for step in range(100)])
    assert 25 < int(first.sum()) < 75


def test_a_base_with_its_own_draw_is_rejected():
    class Own(Uniform):
        def draw(self, x0, context):
            return super().draw(x0, context)

    with pytest.raises(ValueError, match="base=Own must draw by its inverse CDF"):
        Stratified(Own(10))


def test_base_state_is_in_the_state_dict():
    from diffusion_lab.timesteps import LossSecondMoment

    sampler: TimestepSampler = Stratified(LossSecondMoment(10))
    assert {"base.history", "base.count"} == set(sampler.state_dict())


@pytest.mark.parametrize("wrapped", [Stratified, LowDiscrepancy, Antithetic, Mixture])
def test_a_sampler_inside_another_has_its_probe_its_log_and_its_infinities(
    wrapped: Callable[[TimestepSampler], TimestepSampler],
) -> None:
    class Probing(Uniform):
        uses_probe = True
        may_be_infinite = ("table",)

        def log_values(self) -> dict[str, torch.Tensor]:
            return {"table": torch.zeros(3)}

    sampler = wrapped(Probing(10))
    assert sampler.uses_probe and sampler.may_be_infinite == ("base.table",)
    assert sampler.log_values().keys() == {"table"}
    assert not wrapped(Uniform(10)).uses_probe and wrapped(Uniform(10)).log_values() == {}
