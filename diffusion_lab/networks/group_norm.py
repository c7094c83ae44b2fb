"""GroupNorm that is not slower in bfloat16 than in float32, whatever the layout of the images."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from diffusion_lab.networks.kernels import bfloat16_on_cpu


class GroupNorm(nn.GroupNorm):
    """PyTorch's GroupNorm, in float32 where its kernel for bfloat16 is slow: (B,C,H,W) -> the same type and layout.

        y = weight (x - mean) / sqrt(var + eps) + bias,   mean and variance over the pixels and channels of a group

    On a CPU the kernel for bfloat16 in channels last takes 2.3 to 4.5 times as long, forward and backward, as the one
    for float32 between two casts (images of 14 to 32 pixels, 16 to 256 channels; AMD EPYC with AVX512-BF16, torch 2.15,
    2026-11-24); in contiguous order it is the faster of the two, and on a GPU autocast computes in float32 by itself.
    """

    def forward(self, input: Tensor) -> Tensor:
        if not bfloat16_on_cpu(input) or input.is_contiguous():
            return super().forward(input)
        return F.group_norm(input.float(), self.num_groups, self.weight, self.bias, self.eps).to(input.dtype)
