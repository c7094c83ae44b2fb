"""GroupNorm by the fastest of PyTorch's operators for a type, layout and device."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from diffusion_lab.networks.kernels import bfloat16_on_cpu

MANY_PIXELS = 1024  # H W from which PyTorch's kernel for channels last is another one, which is fast


class GroupNorm(nn.GroupNorm):
    """PyTorch's GroupNorm, but for two cases on a CPU: (B,C,H,W) -> the same type and layout.

        y = weight (x - mean) / sqrt(var + eps) + bias,   mean and variance over the pixels and channels of a group

    In bfloat16 and channels last PyTorch's kernel takes 2.3 to 4.5 times as long, forward and backward, as the one for
    float32 between two casts (images of 14 to 32 pixels, 16 to 256 channels; AMD EPYC with AVX512-BF16, torch 2.15,
    2026-11-24); in contiguous order it is the faster of the two, and on a GPU autocast computes in float32 by itself.

    In float32 and channels last, sums over the pixels take 0.3 to 0.9 of the kernel's time for fewer than 1024 pixels
    (4 x 4 to 28 x 28 pixels, 16 to 256 channels, same machine and day). They are used in inference mode alone, that is,
    for samples: elsewhere they would change the last bits of trainings.
    """

    def forward(self, input: Tensor) -> Tensor:
        if bfloat16_on_cpu(input) and not input.is_contiguous():
            return F.group_norm(input.float(), self.num_groups, self.weight, self.bias, self.eps).to(input.dtype)
        return self._by_sums(input) if _slow_to_sample(input) else super().forward(input)

    def _by_sums(self, x: Tensor) -> Tensor:
        """Mean and variance of each group from sums over the pixels of each channel."""
        batch, channels, height, width = x.shape
        pixels, per_group = x.permute(0, 2, 3, 1).reshape(batch, height * width, channels), channels // self.num_groups

        def mean_of_group(values: Tensor) -> Tensor:
            """(B,H W,C) -> (B,1,C)"""
            sums = values.sum(1).view(batch, self.num_groups, per_group).sum(2) / (height * width * per_group)
            return sums.repeat_interleave(per_group, 1)[:, None]

        centred = pixels - mean_of_group(pixels)
        scale = (mean_of_group(centred * centred) + self.eps).rsqrt() * self.weight
        return torch.addcmul(self.bias, centred, scale).view(batch, height, width, channels).permute(0, 3, 1, 2)


def _slow_to_sample(x: Tensor) -> bool:
    """Whether x is normalised for samples, by PyTorch's kernel for few pixels in channels last."""
    return (
        not torch.compiler.is_compiling()  # which makes its own kernel
        and torch.is_inference_mode_enabled()
        and x.dtype == torch.float32
        and x.device.type == "cpu"
        and x.dim() == 4
        and not x.is_contiguous()
        and x.is_contiguous(memory_format=torch.channels_last)
        and x.shape[2] * x.shape[3] < MANY_PIXELS
    )
