"""The pairing of noise and images against all permutations of five, and the noise itself unchanged."""

from __future__ import annotations

from itertools import permutations

import pytest
import torch

from diffusion_lab.diffusion import Coupling, Immiscible, MinibatchOT

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
