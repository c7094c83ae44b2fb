"""Networks from their yaml files, as the build step makes them."""

from pathlib import Path

import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch import nn

from diffusion_lab.cli.config import register_resolvers

CONF = Path(__file__).parents[2] / "conf" / "network"


def configured(name: str, in_channels: int, out_channels: int, image_size: int, device: str = "cpu", **changes):
    """The network of conf/network/<name>.yaml; `changes` stand in place of the file's values."""
    register_resolvers()
    make = instantiate(OmegaConf.load(CONF / f"{name}.yaml"), _convert_="all")
    with torch.device(device):
        return make(in_channels=in_channels, out_channels=out_channels, image_size=image_size, **changes)


def parameters(network: nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())
