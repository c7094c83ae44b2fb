"""Maps of times: a constant one is one timestep for each image, and another one is each position on its own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from diffusion_lab.diffusion import (
    Denoiser,
    EDMPrediction,
    EDMScale,
    Epsilon,
    Guidance,
    LearnedRange,
    LogNoise,
    MinSNR,
    V,
    Velocity,
    cosine,
)
from diffusion_lab.diffusion.path import edm, rectified_flow
from diffusion_lab.networks import AnySizeUNet, DiT, UNet, UViT

T = 20
X0, EPS = torch.randn(2, 3, 2, 4, 4, generator=torch.Generator().manual_seed(0)).unbind(0)
MAP = torch.randint(0, T, (3, 1, 4, 4), generator=torch.Generator().manual_seed(1))
MODELS: dict[str, dict[str, Any]] = {
    "v": {"schedule": cosine(T), "prediction": V()},
    "eps": {"schedule": cosine(T), "prediction": Epsilon(), "variance": LearnedRange()},
    "velocity": {"schedule": rectified_flow(T), "prediction": Velocity()},
    "edm": {
        "schedule": edm(T),
        "prediction": EDMPrediction(),
        "preconditioning": EDMScale(),
        "time": LogNoise(),
    },
}


class PerPixel(nn.Module):
    """A network that looks at one position and its time alone, so that any of them can be asked on its own."""

    takes_time_map = True

    def __init__(self, channels: int = 4) -> None:
        super().__init__()
        self.channels = channels

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        time = t.double() if t.ndim > 1 else t.double().reshape(-1, 1, 1, 1)
        out = torch.cat([(x + time / T).sin(), (x * time.cos()).tanh()], dim=1)
        return out[:, : self.channels]


def denoiser(name: str) -> Denoiser:
    of = MODELS[name]
    return Denoiser(PerPixel(4 if "variance" in of else 2), **of)


def everything(of: Denoiser, x0: Tensor, eps: Tensor, t: Tensor) -> dict[str, Tensor]:
    """What a denoiser computes of images, and the weighted loss."""
    loss, x_t = of.loss(x0, eps, t), of.schedule.perturb(x0, eps, t)
    weighted = MinSNR()(loss.parts.loss, loss.snr, loss.parts.scale, 0)
    estimate, reverse = of.estimate(x_t, t), of.reverse(x_t, t)
    images = {"x_t": x_t, "target": of.target(x0, eps, t), "x0": estimate.x0, "eps": estimate.eps, "mean": reverse.mean}
    images["log_variance"] = reverse.log_variance.expand_as(x0)
    rows = {"native": loss.native, "vlb": loss.vlb, "weighted": weighted}
    return images | {key: value.unflatten(0, (len(x0), -1)) for key, value in rows.items()}


@pytest.mark.parametrize("name", MODELS)
def test_a_constant_map_is_a_timestep_of_each_image(name: str) -> None:
    of, t, images = denoiser(name), torch.tensor([0, 7, T - 1]), (X0.double(), EPS.double())
    usual = everything(of, *images, t)
    for constant in (t[:, None, None, None], t[:, None, None, None].expand(3, 1, 4, 4)):
        for key, value in everything(of, *images, constant).items():
            value = value if value.ndim > 2 else value.mean(1, keepdim=True)
            assert torch.allclose(value, usual[key], rtol=1e-6, atol=1e-9), key


@pytest.mark.parametrize("name", MODELS)
def test_each_position_is_what_it_is_alone(name: str) -> None:
    of, images = denoiser(name), (X0.double(), EPS.double())
    whole = everything(of, *images, MAP)
    for row, column in ((0, 0), (1, 3)):
        at = (..., slice(row, row + 1), slice(column, column + 1))
        alone = everything(of, images[0][at], images[1][at], MAP[:, 0, row, column])
        for key, value in whole.items():
            own = value[at] if value.ndim > 2 else value[:, [4 * row + column]]
            assert torch.allclose(own, alone[key], rtol=1e-6, atol=1e-9), key


def test_other_shapes_and_networks_without_maps_are_refused() -> None:
    of = denoiser("v")
    with pytest.raises(ValueError, match=r"t of shape \(3, 4, 4\) must be \(3,\), a timestep for each image, or"):
        of.estimate(X0, MAP[:, 0])
    network = UViT(2, 2, 4, dim=8, depth=2, num_heads=2)
    for other in (network, Guidance(network, 2.0, null_label=1)):
        with pytest.raises(ValueError, match="must have takes_time_map = True to be given a map of times"):
            of.with_network(other).estimate(X0, MAP)


@pytest.mark.parametrize(
    "network",
    [
        UNet(2, 2, 8, 8, [1, 2], 1, [], 0.0, num_classes=2),
        AnySizeUNet(2, 2, 18, 8, [1, 2], 1, 0, 0.0, num_classes=2),
        DiT(2, 2, 8, 2, 16, 2, 2, num_classes=2),
    ],
    ids=lambda network: type(network).__name__,
)
def test_networks_take_maps(network: nn.Module) -> None:
    """A constant map is the timestep; one that differs at the lower left changes the answer most there."""
    generator = torch.Generator().manual_seed(0)
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.2, generator=generator)
    size = 18 if isinstance(network, AnySizeUNet) else 8
    x, label = torch.randn(2, 2, size, size, generator=generator), torch.tensor([0, 1])
    t = torch.tensor([3, 11])
    constant = t[:, None, None, None].expand(2, 1, size, size).clone()
    usual = network.eval()(x, t, label)
    assert torch.allclose(network(x, constant, label), usual, rtol=1e-4, atol=1e-5)
    constant[1, :, -2:, :2] = 400
    change = (network(x, constant, label) - usual).abs().amax(1)
    row, column = divmod(int(change[1].argmax()), size)
    assert change[0].max() < 1e-5 and change[1].max() > 1e-3 and row >= size / 2 > column
