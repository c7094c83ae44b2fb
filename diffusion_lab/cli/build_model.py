"""Build the network, the model and the module of a run from its parts."""

from __future__ import annotations

import torch
from omegaconf import DictConfig
from torch import nn

from diffusion_lab.cli.compute import lay_out
from diffusion_lab.cli.errors import config_errors
from diffusion_lab.cli.processes import on_cpu
from diffusion_lab.cli.run_parts import RunParts
from diffusion_lab.networks.checks import keywords
from diffusion_lab.streams import Streams
from diffusion_lab.training import RunModule


def build_network(parts: RunParts) -> nn.Module:
    """The network for the images of the run."""
    make = parts["network"]
    with config_errors("network"):
        return parts["model"].called(make(**network_arguments(parts)))


def network_arguments(parts: RunParts) -> dict[str, int]:
    """The arguments of a network that the other parts define: `in_channels`, `out_channels`, `image_size`, and
    `num_classes` if the batches have labels."""
    data = parts["dataset"]
    with config_errors("dataset.source"):
        channels, image_size, _ = data.shape
    labels = data.conditions.num_labels
    if labels is not None and not keywords(parts["network"]).takes("num_classes"):
        raise ValueError(f"num_classes={labels} is unknown to this network; use dataset.conditional=false")
    kind = parts["model"]
    in_channels, out_channels = kind.in_channels(channels), kind.out_channels(channels, parts)
    given = {"in_channels": in_channels, "out_channels": out_channels, "image_size": image_size}
    # 0 classes are those of data that cannot be opened, which the check of the data says.
    return given if labels is None else given | {"num_classes": labels or 1}


def build_model(parts: RunParts) -> nn.Module:
    """What has all the weights, a denoiser or the networks of a GAN, with the initial weights of the run's seed."""
    cfg, kind = parts.cfg, parts["model"]
    for path in ("dataset", *kind.parts):
        parts[path]  # before the seed: a constructor may draw random numbers
    torch.manual_seed(_streams(cfg).key("init"))
    network = build_network(parts)
    lay_out(network, cfg.get("channels_last"), cfg.precision, on_cpu(cfg.trainer))
    return kind.whole(network, parts)


def build_module(parts: RunParts) -> RunModule:
    """The LightningModule on the CPU, without its sampler."""
    module = parts["model"].module(build_model(parts), parts, _streams(parts.cfg))
    if parts.cfg.get("compile"):
        module.network.compile()  # in place, which keeps the names of the parameters
    return module


def _streams(cfg: DictConfig) -> Streams:
    return Streams(cfg.seed, cfg.get("stream_seeds"))  # which configurations saved by 0.1.0 lack
