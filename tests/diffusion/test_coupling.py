"""The pairing of noise and images against all permutations of five, and noise that is another in target or input."""

from __future__ import annotations

from itertools import permutations

import pytest
import torch

from diffusion_lab.diffusion import (
    X0,
    Coupling,
    Denoiser,
    Epsilon,
    Immiscible,
    InputPerturbation,
    MinibatchOT,
    Offset,
    TrainingNoise,
    V,
    cosine,
)

POWER = {Immiscible: 1, MinibatchOT: 2}
COUPLINGS = list(POWER)


def batch(size: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x0 = torch.rand(size, 1, 2, 1, generator=generator) * 4 - 2
    return x0, torch.randn(x0.shape, generator=generator)


def total(coupling: type[Coupling], x0: torch.Tensor, eps: torch.Tensor) -> float:
    """sum_i |x_i - eps_i|^p, of pairs as they stand."""
    return float((x0 - eps).double().flatten(1).norm(dim=1).pow(POWER[coupling]).sum())


@pytest.mark.parametrize("coupling", COUPLINGS)
def test_the_cost_is_the_least_of_all_permutations(coupling: type[Coupling]) -> None:
    for seed in range(20):
        x0, eps = batch(5, seed)
        costs = sorted(total(coupling, x0, eps[list(order)]) for order in permutations(range(5)))
        assert total(coupling, x0, eps[coupling().order(x0, eps)]) == pytest.approx(costs[0], rel=1e-5)
        assert costs[1] > costs[0] * (1 + 1e-4) or seed  # the control: the second best is another one


def test_the_distance_and_its_square_are_two_couplings() -> None:
    """In two dimensions; each is the best under its own cost alone."""
    pairs = [batch(5, seed) for seed in range(20)]
    unlike = [pair for pair in pairs if not torch.equal(Immiscible().order(*pair), MinibatchOT().order(*pair))]
    assert unlike
    for x0, eps in unlike:
        near, square = (eps[coupling.order(x0, eps)] for coupling in (Immiscible(), MinibatchOT()))
        assert total(Immiscible, x0, near) < total(Immiscible, x0, square)
        assert total(MinibatchOT, x0, square) < total(MinibatchOT, x0, near)


@pytest.mark.parametrize("coupling", COUPLINGS)
def test_the_noise_is_only_permuted_and_comes_nearer(coupling: type[Coupling]) -> None:
    x0, eps = batch(64)
    order = coupling().order(x0, eps)
    assert order.dtype == torch.int64 and sorted(order.tolist()) == list(range(64))
    assert total(coupling, x0, eps[order]) < 0.7 * total(coupling, x0, eps)


def test_the_scales_at_the_end_of_the_path_change_no_optimal_transport() -> None:
    x0, eps = batch(32)
    order = MinibatchOT().order(x0, eps)
    assert torch.equal(order, MinibatchOT().order(0.3 * x0, 80 * eps))
    assert not torch.equal(Immiscible().order(x0, eps), Immiscible().order(x0, 80 * eps))


def drawn(*numbers: torch.Tensor):
    """`normal` that gives these, and refuses other shapes."""
    left = list(numbers)

    def normal(shape: tuple[int, ...]) -> torch.Tensor:
        assert left[0].shape == shape
        return left.pop(0)

    return normal


def test_an_offset_is_one_number_for_each_channel_in_target_and_input() -> None:
    eps, z = torch.randn(3, 2, 4, 4), torch.randn(3, 2, 1, 1)
    noise = Offset(0.5).noise(None, eps, drawn(z))
    assert torch.equal(noise - eps, (eps + 0.5 * z) - eps) and torch.equal(Offset(0.0).noise(None, eps, drawn(z)), eps)
    torch.testing.assert_close(noise - eps, (0.5 * z).expand_as(eps), atol=1e-6, rtol=0)
    assert Offset(0.5).input(noise, drawn()) is noise


def test_the_mean_of_a_channel_varies_as_stated() -> None:
    generator = torch.Generator().manual_seed(0)

    def normal(shape: tuple[int, ...]) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    means = Offset(0.5).noise(None, normal((20_000, 1, 4, 4)), normal).mean((1, 2, 3))
    assert float(means.var()) == pytest.approx(0.5**2 + 1 / 16, rel=0.03)


def test_a_perturbed_input_has_noise_that_the_target_has_not() -> None:
    eps, z = torch.randn(3, 2, 4, 4), torch.randn(3, 2, 4, 4)
    both = InputPerturbation(0.1)
    assert both.noise(None, eps, drawn()) is eps
    torch.testing.assert_close(both.input(eps, drawn(z)), eps + 0.1 * z)


@pytest.mark.parametrize("noise", [Offset, InputPerturbation])
@pytest.mark.parametrize("strength", [-0.1, float("nan"), float("inf")])
def test_a_strength_that_is_none_is_refused(noise: type[TrainingNoise], strength: float) -> None:
    with pytest.raises(ValueError, match=f"^strength={strength}"):
        noise(strength)


@pytest.mark.parametrize("prediction", [Epsilon(), X0(), V()])
def test_the_loss_is_to_the_target_of_eps_at_the_image_of_the_input(prediction) -> None:
    """A network that returns its input, so the loss has a closed form."""

    class Echo(torch.nn.Module):
        def forward(self, x, time):
            return x

    denoiser = Denoiser(Echo(), cosine(10), prediction)
    x0, eps, at_input, t = torch.rand(4, 1, 2, 2), torch.randn(4, 1, 2, 2), torch.randn(4, 1, 2, 2), torch.arange(4) * 3
    x_t = denoiser.schedule.perturb(x0, at_input, t)
    expected = (x_t - denoiser.target(x0, eps, t)).square().flatten(1).mean(1)
    torch.testing.assert_close(denoiser.loss(x0, eps, t, at_input=at_input).native, expected)
    same, plain = denoiser.loss(x0, eps, t, at_input=eps), denoiser.loss(x0, eps, t)
    assert torch.equal(same.native, plain.native) and not torch.allclose(plain.native, expected)
