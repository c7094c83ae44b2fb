"""A soft minimum of losses in proportion to their sum: a part of the study of mixed predictions."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from diffusion_lab.arguments import check_number
from diffusion_lab.diffusion import Reduction


class RelativeSoftMin(Reduction):
    """g = softmax(-l/temperature),  l_h = L_h / sum_k L_k.

    Differs from `SoftMin`: the temperature is a share of the losses' sum, so it is equally soft in every space and at
    every noise level, where one in units of the loss is a hard minimum at one end and the mean at the other.

    Args:
        temperature: > 0; a head whose loss is a tenth of the sum less has a gate exp(0.1/temperature) times as large.
    """

    def __init__(self, temperature: float = 0.1) -> None:
        super().__init__()
        self.temperature = check_number("temperature", temperature, "()", 0, math.inf, "use 0.1")

    def forward(self, losses: Tensor, phi: Tensor, updates: Tensor) -> Tensor:
        return torch.softmax(-losses / losses.sum(1, keepdim=True) / self.temperature, dim=1)
