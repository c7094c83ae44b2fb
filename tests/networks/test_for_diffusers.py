"""Our networks and their models in the diffusers library answer alike."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from diffusion_lab.networks import Diffusers, DiT, UNet
from diffusion_lab.networks.for_diffusers import ForDiffusers, InDiffusers

SIZE = 8
NETWORKS = {
    "U-Net of 128 channels": lambda: UNet(1, 1, SIZE, 128, (1, 1), 1, (4,), dropout=0.1),
    "narrow U-Net": lambda: UNet(3, 3, SIZE, 16, (1, 2), 2, (8, 4), num_classes=4),
    "U-Net of three levels": lambda: UNet(1, 2, SIZE, 12, (1, 3, 2), 1, (2,)),
    "DiT": lambda: DiT(3, 3, SIZE, 2, dim=64, depth=3, num_heads=4, num_classes=4),
    "DiT without labels": lambda: DiT(1, 2, SIZE, 4, dim=48, depth=2, num_heads=3),
    "U-Net of the library": lambda: Diffusers(1, 1, SIZE, "UNet2DModel", SMALL, num_classes=4),
}
SMALL = {
    "block_out_channels": [8, 16],
    "layers_per_block": 1,
    "down_block_types": ["DownBlock2D", "AttnDownBlock2D"],
    "up_block_types": ["AttnUpBlock2D", "UpBlock2D"],
    "norm_num_groups": 4,
}


def in_library(found: ForDiffusers) -> nn.Module:
    """The library's model, as it is after loading."""
    import diffusers

    model = getattr(diffusers, found.architecture)(**found.arguments, sample_size=SIZE)
    model.load_state_dict(dict(found.tensors))  # strict: every tensor, and no other
    return model.eval()


@pytest.mark.parametrize("name", NETWORKS)
def test_the_librarys_model_gives_the_same_output(name: str) -> None:
    torch.manual_seed(0)
    network = NETWORKS[name]().eval()
    assert isinstance(network, InDiffusers)
    for parameter in network.parameters():  # they start at 0 where it matters
        nn.init.normal_(parameter, std=0.1)
    channels = 3 if "narrow" in name or name == "DiT" else 1
    x, t = torch.randn(6, channels, SIZE, SIZE), torch.tensor([0, 1, 10, 99, 500, 999])
    labelled = name in ("narrow U-Net", "DiT", "U-Net of the library")
    label = torch.tensor([0, 1, 2, 3, 0, 1]) if labelled else None
    found = network.for_diffusers()
    given = torch.zeros(6, dtype=torch.int64) if found.needs_label and label is None else label
    model = in_library(found)
    with torch.no_grad():
        ours = network(x, t) if label is None else network(x, t, label=label)
        before = model(x, t, class_labels=given).sample
        exec(found.adjustment, {"model": model, "torch": torch})
        theirs = model(x, t, class_labels=given).sample
    assert (theirs - ours).abs().max() < 1e-4 * ours.abs().max()
    if found.adjustment:
        assert (before - ours).abs().max() > 1e-2 * ours.abs().max()
    else:
        assert "128" in name or "library" in name


def test_a_first_level_of_another_width_is_refused() -> None:
    with pytest.raises(ValueError, match=r"network.channel_multipliers\[0\]=2 must be 1 for a UNet2DModel"):
        UNet(1, 1, SIZE, 16, (2, 2), attention_resolutions=()).for_diffusers()
