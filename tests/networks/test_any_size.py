"""The U-Net that takes images of any size."""

from __future__ import annotations

import math

import pytest
import torch

from diffusion_lab.networks import AnySizeUNet, UNet
from diffusion_lab.networks.any_size import halvings_of

TINY = {"base_channels": 4, "channel_multipliers": [1], "num_res_blocks": 1, "dropout": 0.0, "attention_pixels": 8}


@pytest.mark.parametrize("size", [2, 3, 8, 9, 17, 28, 33, 40, 48, 64, 65, 100, 129, 256])
def test_every_size_fits(size: int) -> None:
    torch.manual_seed(0)
    network = AnySizeUNet(3, 6, size, num_classes=2, **TINY).eval()
    h = halvings_of(size)
    assert h == max(1, math.ceil(math.log2(size / 8))) and len(network.encoder) == h + 1
    with torch.no_grad():
        out = network(torch.randn(1, 3, size, size), torch.zeros(1), torch.tensor([1]))
    assert out.shape == (1, 6, size, size) and bool(out.isfinite().all())


NEAR_A_HALVING = sorted({8 * 2**k + more for k in range(6) for more in (-1, 0, 1)} & {*range(8, 257)})


@pytest.mark.parametrize(
    "sizes", [NEAR_A_HALVING, pytest.param(range(8, 257), marks=pytest.mark.exhaustive)], ids=["some", "all"]
)
def test_every_size_from_8_to_256_can_be_made(sizes: list[int]) -> None:
    with torch.device("meta"):
        for size in sizes:
            inside = size + sum(AnySizeUNet(1, 1, size, **TINY).padding)
            assert inside % 2 ** halvings_of(size) == 0 and inside - size < 2 ** halvings_of(size)


def test_a_size_that_divides_is_the_unet_itself() -> None:
    given = {"base_channels": 8, "num_res_blocks": 1, "dropout": 0.0}
    torch.manual_seed(0)
    one = AnySizeUNet(1, 1, 28, channel_multipliers=[1, 2, 3], attention_pixels=14, **given)
    torch.manual_seed(0)
    other = UNet(1, 1, 28, channel_multipliers=[1, 2, 3], attention_resolutions=[14, 7], **given)
    assert all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))
    x, t = torch.randn(2, 1, 28, 28), torch.tensor([3, 4])
    assert torch.equal(one(x, t), other(x, t)) and one.for_diffusers() is not None


def test_a_padded_network_learns_and_is_not_written_for_diffusers() -> None:
    network = AnySizeUNet(1, 1, 9, **TINY)
    network(torch.randn(1, 1, 9, 9), torch.zeros(1)).square().sum().backward()
    assert all(p.grad is not None for p in network.parameters())
    with pytest.raises(ValueError, match="^network=unet_any pads images of this size"):
        network.for_diffusers()


@pytest.mark.parametrize(
    ("argument", "value", "expected"),
    [
        ("image_size", 1, "^image_size=1 must be an integer >= 2"),
        ("attention_pixels", -1, "^attention_pixels=-1 must"),
        ("channel_multipliers", [], r"^channel_multipliers=\[\] must"),
        ("channel_multipliers", [0], r"^channel_multipliers=\[0, 0\] must"),
    ],
)
def test_bad_arguments_are_named(argument, value, expected) -> None:
    with pytest.raises(ValueError, match=expected):
        AnySizeUNet(**({"in_channels": 1, "out_channels": 1, "image_size": 8} | TINY | {argument: value}))


@pytest.mark.parametrize("make", [lambda: UNet(1, 1, 30), lambda: UNet(1, 1, 40, 32, (1, 2), 1, (16,))])
def test_the_error_of_a_network_that_does_not_fit_names_the_one_that_does(make) -> None:
    with pytest.raises(ValueError, match="network=unet_any, which fits any size"):
        make()
