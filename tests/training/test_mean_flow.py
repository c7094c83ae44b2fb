"""MeanFlow: its target where the mean velocity is known, its derivative in every network, its pairs, and its errors.

Data N(M, V) on the straight path: x_s is N((1 - s) M, k_s^2), k_s^2 = (1 - s)^2 V + s^2, and the flow leads to

    x_r = (1 - r) M + (k_r/k_s) (x_s - (1 - s) M),     u = (x_s - x_r)/(s - r)
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from diffusion_lab.cli.main import main
from diffusion_lab.diffusion import Denoiser, PathPosition, Unit, Velocity, rectified_flow
from diffusion_lab.networks import ADMUNet, DiT, UNet, UViT
from diffusion_lab.networks.second_time import SecondTime, takes_interval, with_second_time
from diffusion_lab.solvers import AverageVelocity, Euler
from diffusion_lab.streams import Position, Streams
from diffusion_lab.timesteps import Context, Uniform
from diffusion_lab.training import DiffusionModule, Intervals, MeanFlowModule, Pairs
from diffusion_lab.training.mean_flow import forward_mode_fault
from tests.networks.filling import fill, numbers

M, V, T = 0.3, 0.25, 100


# PyTorch's own import at the first derivative in forward mode
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:FutureWarning")


def k(s: Tensor) -> Tensor:
    return ((1 - s) ** 2 * V + s**2).sqrt()


def column(value: Tensor) -> Tensor:
    return value[:, None, None, None]


class MeanVelocity(nn.Module):
    """The exact u, given 10 s as its time."""

    def forward(self, x: Tensor, t: Tensor, interval: Tensor) -> Tensor:
        s, d = column(t / 10), column(interval)
        centred, ratio = x - (1 - s) * M, k(s - d) / k(s)
        return ((1 - ratio) * centred - d * M) / d


def module(network: nn.Module, kind: type[DiffusionModule] = MeanFlowModule, scale: float = 10) -> Any:
    denoiser = Denoiser(network, rectified_flow(T), Velocity(), time=PathPosition(scale))
    made = kind(denoiser, Unit(), torch.optim.SGD, Streams(0))
    made._position = Position(0)
    return made


def best_pairs(rows: int = 8) -> Intervals:
    """Pairs whose x0 and eps are what is expected of x_t, so that their velocity is that of the flow; float64."""
    t, r = torch.arange(rows) * 9 + 30, torch.arange(rows) * 5 + 3
    s = column(rectified_flow(T).position[t])
    x = 3 * numbers((rows, 1, 4, 4), 3)
    gain = (x - (1 - s) * M) / k(s) ** 2
    x0, eps = M + (1 - s) * V * gain, s * gain
    assert torch.allclose((1 - s) * x0 + s * eps, x)
    return Intervals(x0, eps, t, torch.ones(rows), {}, r=r)


def test_the_target_of_the_exact_mean_velocity_is_itself() -> None:
    of, pairs = module(MeanVelocity()), best_pairs()
    assert of.losses(pairs).loss.max() < 1e-24
    shifted = replace(pairs, eps=pairs.eps + 0.1, at_input=pairs.eps)
    assert of.losses(shifted).loss.min() > 1e-3  # negative control: the velocity of another noise
    of.derivative = lambda pairs, interval: torch.zeros_like(pairs.x0)  # another one: without the derivative
    assert of.losses(pairs).loss.min() > 1e-5


@pytest.mark.parametrize("steps", [1, 3])
def test_any_number_of_steps_of_the_exact_mean_velocity_is_exact(steps: int) -> None:
    denoiser = Denoiser(MeanVelocity(), rectified_flow(T), Velocity(), time=PathPosition(10))
    x = numbers((3, 1, 4, 4), 7)
    s = denoiser.schedule.position[-1:]
    start = x * ((1 - s) ** 2 + s**2).sqrt()
    exact = M + (start - (1 - s) * M) * V**0.5 / k(s)
    solver = AverageVelocity(steps)
    torch.testing.assert_close(solver(denoiser, x, noise=lambda k, like: like), exact, rtol=0, atol=1e-13)


def small(name: str) -> tuple[nn.Module, str]:
    """A network with numbers, without an interval, and the layer of its time."""
    made, layer = {
        "unet": (lambda: UNet(1, 1, 8, 8, (1, 2), 1, (4,)), "time"),
        "adm": (lambda: ADMUNet(1, 1, 8, 8, (1, 2), 1, (4,)), "time"),
        "dit": (lambda: DiT(1, 1, 8, dim=16, depth=2, num_heads=2), "time"),
        "uvit": (lambda: UViT(1, 1, 8, 2, dim=16, depth=2, num_heads=2), "patches"),
    }[name]
    return fill(made()), layer


NETWORKS = pytest.mark.parametrize("name", ["unet", "adm", "dit", "uvit"])


@NETWORKS
def test_the_derivative_is_the_one_along_the_path(name: str) -> None:
    network, layer = small(name)
    of = module(fill(with_second_time(network, layer, 3.0)), scale=3.0)
    x0, eps = (2 * numbers((3, 1, 8, 8), seed).float() for seed in (1, 2))
    t = torch.tensor([30, 60, 90])
    pairs = Intervals(x0, eps, t, torch.ones(3), {}, r=t)
    x, s = of.denoiser.schedule.perturb(pairs.x0, pairs.eps, pairs.t), of.denoiser.schedule.position[pairs.t].float()
    interval = torch.tensor([0.1, 0.0, 0.7])

    def u(h: float) -> Tensor:
        moved = x + h * (pairs.eps - pairs.x0)
        return network(moved, 3 * (s + h), interval=interval + h).detach().double()

    h = 3e-3
    found = (8 * (u(h) - u(-h)) - u(2 * h) + u(-2 * h)) / (12 * h)
    slope = of.derivative(pairs, interval)
    assert slope.std() > 0.1
    torch.testing.assert_close(slope.double(), found, rtol=5e-3, atol=5e-3 * float(slope.std()))


def trained(network: Any) -> None:
    """Numbers in place of the zeros that the second time starts with."""
    nn.init.normal_(network.second_time.out.weight, generator=torch.Generator().manual_seed(0))


@NETWORKS
def test_without_an_interval_a_network_is_what_it_was(name: str) -> None:
    network, layer = small(name)
    x, t = 2 * numbers((3, 1, 8, 8), 4).float(), torch.tensor([3.0, 50.0, 700.0])
    before, names = network(x, t), set(network.state_dict())
    assert not takes_interval(network)
    with_second_time(network, layer, 1000.0)
    zero, half = torch.zeros(3), torch.full((3,), 0.5)
    assert torch.equal(network(x, t, interval=half), before)  # before training
    trained(network)
    assert torch.equal(network(x, t), before) and torch.equal(network(x, t, interval=zero), before)
    assert (network(x, t, interval=half) - before).abs().max() > 0.01
    assert names < set(network.state_dict()) and takes_interval(network)


@pytest.mark.parametrize("batch", [1, 2, 3, 8, 64])
def test_no_interval_adds_nothing_at_any_place_of_a_batch(batch: int) -> None:
    """To the bit: a product of one row and one of many rows differ in their last bits on some processors."""
    second = SecondTime(64, 1000.0, "time")
    nn.init.normal_(second.out.weight)
    for zero in range(batch):
        interval = torch.linspace(0.1, 0.9, batch)
        interval[zero] = 0
        e = second(interval)
        assert not e[zero].any() and bool(e.any()) == (batch > 1)


def test_at_r_equal_t_the_loss_is_that_of_flow_matching() -> None:
    network, layer = small("unet")
    of, plain = module(fill(with_second_time(network, layer, 10.0))), module(network, DiffusionModule)
    x0, eps = (2 * numbers((4, 1, 8, 8), seed).float() for seed in (5, 6))
    pairs = Pairs(x0, eps, torch.tensor([0, 20, 60, 99]), torch.ones(4), {})
    same, shorter = (Intervals(**vars(pairs), r=r) for r in (pairs.t, pairs.t // 2))
    torch.testing.assert_close(of.losses(same).objective, plain.losses(pairs).objective, rtol=1e-5, atol=0)
    assert (of.losses(shorter).loss[1:] - plain.losses(pairs).loss[1:]).abs().min() > 1e-3


def test_pairs_are_two_draws_of_the_sampler_and_do_not_depend_on_how_the_batch_is_split() -> None:
    x0 = torch.zeros(16, 1, 2, 2)
    first, second = (Uniform(T).draw(x0, Context(Position(5), Streams(0), draw=draw)).t for draw in (0, 1))

    def pairs(rows: int, position: Position) -> Intervals:
        of = module(nn.Identity())
        of.share, of._position = 0.25, position
        return of.pair(x0[:rows], {})

    whole = pairs(16, Position(5))
    assert torch.equal(whole.t, torch.maximum(first, second))
    apart = torch.arange(16) % 4 == 3
    assert torch.equal(whole.r, torch.where(apart, torch.minimum(first, second), whole.t)) and (whole.r < whole.t).any()
    halves = [pairs(8, Position(5, rank, 2)) for rank in (0, 1)]
    for key in ("t", "r", "eps"):
        assert torch.equal(torch.cat([getattr(half, key) for half in halves]), getattr(whole, key))


def test_every_weight_has_its_gradient_under_autocast() -> None:
    network, layer = small("unet")
    of = module(with_second_time(network, layer, 10.0))
    x0, eps = (2 * numbers((2, 1, 8, 8), seed).float() for seed in (5, 6))
    with torch.autocast("cpu", torch.bfloat16):
        loss = of.losses(Intervals(x0, eps, torch.tensor([60, 99]), torch.ones(2), {}, r=torch.tensor([3, 4]))).loss
    loss.sum().backward()
    lacking = [name for name, p in network.named_parameters() if p.grad is None]
    assert lacking == []


class NoForwardMode(nn.Module):
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return 2 * x

        @staticmethod
        def backward(ctx: Any, *gradient: Any) -> Any:
            return 2 * gradient[0]

    def forward(self, x: Tensor, t: Tensor) -> Any:
        return self.Doubled.apply(x)


class Zeros:
    """Conditions of a run without labels."""

    def blank(self, rows: int, device: str) -> tuple[Tensor, dict[str, Tensor]]:
        return torch.zeros(rows, 1, 8, 8, device=device), {}


def test_a_network_without_forward_mode_is_refused() -> None:
    data: Any = Zeros()
    fault = forward_mode_fault(NoForwardMode().to("meta"), data)
    assert fault and fault.startswith("network=NoForwardMode must have a derivative in forward mode")
    assert forward_mode_fault(small("dit")[0].to("meta"), data) is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("prediction=v", "prediction=v must be velocity with model=meanflow"),
        ("schedule=cosine", "schedule=NoiseSchedule must be rectified_flow with model=meanflow"),
        ("time=log_noise", "time=log_noise must be position with model=meanflow"),
        ("variance=learned_range", "variance=learned_range must be fixed_large with model=meanflow"),
        ("network=uvit_tiny", "model.layer=time must be a module inside UViT"),
        ("compile=true", "compile=true must be false, because"),
        ("model.share=2", "model.share=2 must lie in [0, 1]"),
        ("model=diffusion", "must have a model that was trained on intervals"),
    ],
)
def test_what_does_not_go_together_is_one_sentence(
    words: str, said: str, capsys: pytest.CaptureFixture[str], in_folder: Path
) -> None:
    text = [] if words != "model=diffusion" else ["~model.share", "~model.layer"]
    code = main(["train", "method=meanflow", words, *text, "max_steps=1", "trainer=cpu"])
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert code == 2 and said in line, line


def test_another_solver_takes_it_for_a_model_of_flow_matching() -> None:
    network, layer = small("unet")
    x = numbers((2, 1, 8, 8), 9).float()
    plain = Denoiser(network, rectified_flow(T), Velocity(), time=PathPosition(10))
    before = Euler(4, clip=False)(plain, x, noise=lambda k, like: like)
    trained(with_second_time(network, layer, 10.0))
    assert torch.equal(Euler(4, clip=False)(plain, x, noise=lambda k, like: like), before)
    assert not torch.equal(AverageVelocity(4)(plain, x, noise=lambda k, like: like), before)
    with pytest.raises(ValueError, match="trained on intervals"):
        AverageVelocity().check_model(Denoiser(nn.Identity(), rectified_flow(T), Velocity()))
