"""The shipped losses against closed forms, and over several processes against one."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from diffusion_lab.auxiliary import Auxiliary, Contrastive, Dispersive
from diffusion_lab.diffusion import Denoiser, Step, Velocity, rectified_flow
from diffusion_lab.diffusion import step as step_module
from diffusion_lab.streams import Position, Streams
from tests.auxiliary.small import Net, module, stepped

DENOISER = Denoiser(Net(), rectified_flow(20), Velocity())
TIMES = torch.arange(7)


# -- dispersive -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tau", [0.5, 1.0])
def test_two_rows_at_a_distance_have_the_closed_form(tau: float) -> None:
    z = torch.tensor([[1.0, 2.0, 3.0], [1.0, 4.0, 2.0]], dtype=torch.float64)  # |z_1 - z_2|^2 = 5
    value = Dispersive(["first"], temperature=tau).dispersion(z)
    assert float(value) == pytest.approx(math.log((2 + 2 * math.exp(-5 / (3 * tau))) / 4), rel=1e-12)


def test_all_pairs_count_and_the_bounds_are_reached() -> None:
    z = torch.randn(5, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    pairs = [math.exp(-float((a - b).square().sum()) / 7) for a in z for b in z]
    loss = Dispersive(["first"])
    assert float(loss.dispersion(z)) == pytest.approx(math.log(sum(pairs) / 25), rel=1e-12)
    assert float(loss.dispersion(z[:1].expand(5, 7))) == pytest.approx(0, abs=1e-12)
    assert float(loss.dispersion(1e3 * z)) == pytest.approx(-math.log(5), rel=1e-8)  # 1e6 times the rounding
    assert torch.autograd.gradcheck(loss.dispersion, z.requires_grad_())


def test_a_large_common_part_of_the_features_loses_nothing() -> None:
    z = torch.randn(6, 50, generator=torch.Generator().manual_seed(0))
    loss = Dispersive(["first"])
    assert float(loss.dispersion(z + 1000)) == pytest.approx(float(loss.dispersion(z)), rel=1e-3)


def test_descent_spreads_the_features() -> None:
    z = 0.1 * torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    z.requires_grad_()
    before = torch.pdist(z.detach()).mean()
    (gradient,) = torch.autograd.grad(Dispersive(["first"]).dispersion(z), z)
    assert torch.pdist(z.detach() - 0.5 * gradient).mean() > 1.02 * before


@pytest.mark.parametrize("layers", ["first", []])
def test_layers_must_be_a_list(layers: Any) -> None:
    with pytest.raises(ValueError, match="must be a list of names of layers"):
        Dispersive(layers)


# -- contrastive ------------------------------------------------------------------------------------------------------


def test_each_row_has_the_distance_to_the_target_of_another_at_its_own_time() -> None:
    x0, eps, out = (torch.randn(7, 1, 2, 2, generator=torch.Generator().manual_seed(k)) for k in range(3))
    partners = []
    for k in range(200):
        step = Step(DENOISER, x0, eps, TIMES, {}, x0, out, Position(k), Streams(0))
        rows = Contrastive().rows(step)
        distances = -(out[:, None] - (eps - x0)[None]).square().flatten(2).mean(2)  # (i,j)
        match = torch.isclose(distances, rows[:, None])
        assert (match.sum(1) == 1).all()
        partners.append(match.nonzero()[:, 1])
    drawn = torch.stack(partners)
    assert not (drawn == torch.arange(7)).any()
    counts = torch.stack([(drawn == j).sum(0) for j in range(7)], 1)[~torch.eye(7, dtype=torch.bool)].double()
    assert counts.min() > 10 and float(((counts - 200 / 6) ** 2 / (200 / 6)).sum()) < 75  # 35 degrees of freedom


def test_the_best_answer_is_the_one_of_the_docstring() -> None:
    weight, u, other = 0.05, torch.tensor([0.3, -1.0, 2.0]), torch.tensor([0.7, 0.2, -0.4])
    v = ((u - weight * other) / (1 - weight)).requires_grad_()
    ((v - u).square().mean() - weight * (v - other).square().mean()).backward()
    assert v.grad is not None and v.grad.abs().max() < 1e-7


def test_a_weight_without_a_minimum_is_refused() -> None:
    with pytest.raises(ValueError, match="weight=1.0 must be below 1"):
        Contrastive(weight=1.0)


# -- several processes ------------------------------------------------------------------------------------------------


def split(loss: Auxiliary, processes: int, monkeypatch: pytest.MonkeyPatch) -> tuple[Tensor, Tensor]:
    """(6,) rows and the gradient of their mean, as the average over the processes' gradients."""
    x0, eps, out = (torch.randn(6, 1, 4, 4, generator=torch.Generator().manual_seed(k)) for k in range(3))
    z = torch.randn(6, 3, generator=torch.Generator().manual_seed(3))
    wholes = [v.clone() for v in (x0, eps, z)]
    given, values = (out if isinstance(loss, Contrastive) else z).requires_grad_(), []
    for rank in range(processes):
        position = Position(3, rank, processes)
        own = position.rows(6 // processes)
        # The other processes' rows are those of the same tensor.
        shares = [(v[own], v) for v in wholes]
        gather = partial(lambda shares, rows: next(v.clone() for share, v in shares if share.equal(rows)), shares)
        monkeypatch.setattr(step_module, "gather_rows", gather)
        step = Step(DENOISER, x0[own], eps[own], TIMES[own], {}, x0[own], out[own], position, Streams(0), {"f": z[own]})
        values.append(loss.rows(step))
        (values[-1].mean() / processes).backward()
    assert given.grad is not None
    return torch.cat(values).detach(), given.grad


@pytest.mark.parametrize("loss", [Dispersive(["f"]), Contrastive()], ids=["dispersive", "contrastive"])
def test_the_average_over_processes_is_the_gradient_of_one(loss: Auxiliary, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, gradient = split(loss, 1, monkeypatch)
    for processes in (2, 3):
        same_rows, same_gradient = split(loss, processes, monkeypatch)
        assert torch.allclose(rows, same_rows, rtol=1e-6)
        assert torch.allclose(gradient, same_gradient, rtol=1e-5, atol=1e-8) and gradient.abs().max() > 1e-3


def test_a_step_with_both() -> None:
    result = stepped(module(auxiliary={"spread": Dispersive(["first"]), "away": Contrastive()}))
    plain = stepped(module())
    spread, away = (result["record"].auxiliary[name].mean() for name in ("spread", "away"))
    assert torch.allclose(result["loss"], plain["loss"] + 0.25 * spread + 0.05 * away, atol=1e-6)
    assert spread < 0 and away < 0
