"""Dispersive loss: the features of different images are driven apart."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from diffusion_lab.arguments import check_number
from diffusion_lab.auxiliary.base import Auxiliary
from diffusion_lab.diffusion.step import Step


class Dispersive(Auxiliary):
    """L = sum over the layers of ln mean_ij exp(-|z_i - z_j|^2/(D tau)), over all pairs of the batch, i = j included.

    z_i (D,) is what the layer returns for row i, flattened. It is InfoNCE without positive pairs, so it needs no second
    view of an image: the loss of the prediction keeps different images from changing places (Wang and He 2025, "Diffuse
    and Disperse", arXiv 2506.09027, the variant InfoNCE with the l2 distance). L is at most 0, where all rows are
    alike, and at least -ln B, where no two are near each other. Every row has the value L.

    Differs from the published code: the pairs are those of the whole batch over all processes, not of each process's
    own, so that their number changes nothing; and the features are in float32.

    Use: to regularise what the network represents without another network. The published code takes the block at a
    quarter of the depth or later, with weight 0.25.

    Args:
        layers: names of modules inside the network, such as `middle.0` of a U-Net or `blocks.3` of a DiT.
        weight: of the loss, a finite number.
        temperature: tau > 0; a smaller one only sees the nearest pairs.
        ramp: optimizer steps over which the weight rises, >= 0.
        stop: optimizer steps after which it ends, >= 1; null: it stays.
    """

    of_batch = True

    def __init__(
        self,
        layers: Sequence[str],
        weight: float = 0.25,
        temperature: float = 1.0,
        ramp: int = 0,
        stop: int | None = None,
    ) -> None:
        super().__init__(weight, ramp, stop)
        if isinstance(layers, str) or not layers:
            raise ValueError(f"layers={layers!r} must be a list of names of layers; use e.g. layers=[middle.0]")
        self.layers = tuple(layers)
        self.temperature = check_number("temperature", temperature, "()", 0, math.inf, "use 1.0 as published")

    def rows(self, step: Step) -> Tensor:
        losses = [self.dispersion(step.gather(step.features[name].flatten(1).float())) for name in self.layers]
        return step.of_all(torch.stack(losses).sum())

    def dispersion(self, z: Tensor) -> Tensor:
        """ln mean_ij exp(-|z_i - z_j|^2/(D tau)): (B,D) -> ()."""
        # From the differences to the mean, which lose nothing where the rows have much in common.
        z = z - z.mean(0)
        square = z.square().sum(1)
        with torch.autocast(z.device.type, enabled=False):
            distance = (square[:, None] + square - 2 * z @ z.T).clamp(min=0) / z.shape[1]
        return torch.logsumexp(-distance.flatten() / self.temperature, 0) - 2 * math.log(len(z))
