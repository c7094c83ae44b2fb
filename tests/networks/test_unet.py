"""The U-Net: published size and cost, shapes, start, gradients, and its complaints."""

from pathlib import Path

import pytest
import torch
import yaml
from torch.utils.flop_counter import FlopCounterMode

from diffusion_lab.networks import UNet

CONF = Path(__file__).parents[2] / "conf" / "network"
TINY = {"base_channels": 8, "channel_multipliers": [1, 2], "num_res_blocks": 1, "attention_resolutions": [4]}


def configured(name, in_channels, out_channels, image_size):
    """The network of a yaml file, on the meta device."""
    node = yaml.safe_load((CONF / f"{name}.yaml").read_text())
    assert node.pop("_target_") == "diffusion_lab.networks.UNet" and node.pop("_partial_") is True
    with torch.device("meta"):
        return UNet(in_channels, out_channels, image_size, **node)


def parameters(network):
    return sum(p.numel() for p in network.parameters())


@pytest.mark.parametrize(("out_channels", "count"), [(3, 35_746_307), (9, 35_753_225)])
def test_ddpm_has_the_published_number_of_parameters(out_channels, count):
    assert parameters(configured("unet_ddpm", 3, out_channels, 32)) == count


@pytest.mark.parametrize(("base", "gflops"), [(128, 12.44), (64, 3.20)])
def test_ddpm_costs_what_the_original_costs(base, gflops):
    """Floating-point operations of one image, measured on the original code: equal only if every layer works at the
    right size. The convolutions of doubled images are to need 4/9 of the original's."""
    with torch.device("meta"):
        network = UNet(3, 3, 32, base_channels=base)
        with FlopCounterMode(display=False) as counter:
            network(torch.zeros(1, 3, 32, 32), torch.zeros(1, dtype=torch.int64))
    doubled = sum(2 * 9 * (2 * base) ** 2 * size**2 for size in (8, 16, 32))
    assert (counter.get_total_flops() + doubled * 5 / 9) / 1e9 == pytest.approx(gflops, abs=0.005)


@pytest.mark.parametrize(
    ("name", "channels", "image_size", "least", "most"),
    [("unet_tiny", 1, 8, 1e5, 7e5), ("unet_small", 1, 28, 1.5e6, 3e6), ("unet_small", 3, 32, 1.5e6, 3e6)],
)
def test_small_configurations(name, channels, image_size, least, most):
    network = configured(name, channels, 2 * channels, image_size)
    assert least <= parameters(network) <= most
    x = torch.zeros(2, channels, image_size, image_size, device="meta")
    assert network(x, torch.zeros(2, device="meta")).shape == (2, 2 * channels, image_size, image_size)


@pytest.mark.parametrize("multipliers", [[1], [1, 2], [2, 1, 3]])
@pytest.mark.parametrize("blocks", [1, 2])
def test_every_layout_runs(multipliers, blocks):
    network = UNet(2, 5, 8, 4, multipliers, blocks, [8], 0.1)
    assert network(torch.randn(3, 2, 8, 8), torch.tensor([0, 5, 999])).shape == (3, 5, 8, 8)


def test_output_at_the_start_is_near_zero():
    torch.manual_seed(0)
    out = UNet(1, 1, 8, **TINY)(torch.randn(16, 1, 8, 8), torch.arange(16) * 60)
    assert 0 < out.abs().max() < 1e-3


def test_same_global_seed_same_weights():
    def weights(seed):
        torch.manual_seed(seed)
        return torch.cat([p.flatten() for p in UNet(1, 1, 8, **TINY).parameters()])

    assert torch.equal(weights(1), weights(1)) and not torch.equal(weights(1), weights(2))


def test_every_parameter_gets_a_gradient():
    torch.manual_seed(0)
    network = UNet(1, 2, 8, **TINY, num_classes=3).double()
    x, label = torch.randn(6, 1, 8, 8).double(), torch.tensor([0, 1, 2, 0, 1, 2])
    (network(x, torch.arange(6) * 100, label=label) - 1).square().mean().backward()
    silent = [name for name, p in network.named_parameters() if p.grad is None or not p.grad.any()]
    assert silent == []


def trained_like(**arguments):
    """A network whose branches are all of ordinary size."""
    torch.manual_seed(0)
    network = UNet(1, 1, 8, **TINY, **arguments).eval()
    with torch.no_grad():
        for p in network.parameters():
            p.normal_(std=0.2)
    return network


def test_rows_do_not_mix_and_time_matters():
    network, x = trained_like(), torch.randn(4, 1, 8, 8)
    t = torch.tensor([3, 30, 300, 999])
    together = network(x, t)
    alone = torch.cat([network(x[i : i + 1], t[i : i + 1]) for i in range(4)])
    assert torch.allclose(together, alone, atol=1e-4, rtol=1e-4)
    assert not torch.allclose(together, network(x, t.flip(0)), atol=1e-2)


def test_labels_steer_the_output():
    network, x, t = trained_like(num_classes=10), torch.randn(4, 1, 8, 8), torch.full((4,), 7)
    a, b = network(x, t, label=torch.tensor([1, 2, 3, 4])), network(x, t, label=torch.tensor([1, 9, 3, 4]))
    assert torch.equal(a[0], b[0]) and not torch.allclose(a[1], b[1], atol=1e-2)


def test_dropout_acts_in_training_only():
    torch.manual_seed(0)
    network = UNet(1, 1, 8, **TINY, dropout=0.5)
    with torch.no_grad():
        for p in network.parameters():
            p.normal_(std=0.2)
    x, t = torch.randn(2, 1, 8, 8), torch.tensor([5, 6])
    assert not torch.equal(network(x, t), network(x, t))
    network.eval()
    assert torch.equal(network(x, t), network(x, t))


@pytest.mark.parametrize("label", [None, torch.tensor([0])])
def test_labels_and_classes_go_together(label):
    network = UNet(1, 1, 8, **TINY, num_classes=None if label is not None else 10)
    with pytest.raises(ValueError, match=r"^num_classes=(10|None) .*give the network"):
        network(torch.zeros(1, 1, 8, 8), torch.zeros(1), label=label)


@pytest.mark.parametrize(
    ("argument", "value", "expected"),
    [
        ("image_size", 30, r"^image_size=30 must be a positive multiple of 8.*of 24 or 32 pixels.*at most 2 levels"),
        ("image_size", 7, r"^image_size=7 .*=unet_any, .* 8 pixels, or channel_multipliers with at most 1 levels"),
        ("image_size", 0, r"^image_size=0 must"),
        ("base_channels", 30, r"^base_channels=30 must be a positive multiple of 4.*use 28 or 32$"),
        ("base_channels", 0, r"^base_channels=0 must.*use 4$"),
        ("channel_multipliers", [], r"^channel_multipliers=\[\] must"),
        ("channel_multipliers", [1, 0], r"^channel_multipliers=\[1, 0\] must"),
        ("channel_multipliers", [1, 1.5], r"^channel_multipliers=\[1, 1.5\] must"),
        ("num_res_blocks", 0, r"^num_res_blocks=0 must be an integer >= 1"),
        ("in_channels", 0, r"^in_channels=0 must"),
        ("out_channels", -1, r"^out_channels=-1 must"),
        ("attention_resolutions", [16, 5], r"^attention_resolutions=\[16, 5\] .*but 5 does not.*32, 16, 8, 4 pixels"),
        ("dropout", 1.0, r"^dropout=1.0 must lie in \[0, 1\)"),
        ("dropout", float("nan"), r"^dropout=nan must"),
        ("num_classes", 0, r"^num_classes=0 must be an integer >= 1; use null"),
    ],
)
def test_bad_arguments_are_named(argument, value, expected):
    with torch.device("meta"), pytest.raises(ValueError, match=expected):
        UNet(**{"in_channels": 3, "out_channels": 3, "image_size": 32, argument: value})
