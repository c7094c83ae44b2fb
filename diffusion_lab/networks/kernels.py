"""How layers are computed: attention, dropout and GroupNorm by the fastest of PyTorch's operators, some in float32.

`as_on_gpu` chooses the operators as on a GPU; otherwise the device of the input decides.

The layers `in_full_precision` stay in float32 while autocast computes the others in bfloat16 or float16. The first
layer reads x_t, whose noise at small t is only a few times as large as bfloat16's steps (sigma_0 = 0.01 with the linear
schedule; numbers between 1/2 and 1 are 2^-8 = 0.004 apart); the last one writes the prediction. Both have few channels
on one side, so that they cost next to nothing. Without autocast nothing changes.

As in improved-diffusion's `UNetModel.convert_to_fp16` the last layer is left out. Differs from it: the first layer is
left out as well, because that lowers the error of the gradient as much (benchmarks/lines/rounding.py); and the last
norm and its SiLU are not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

_elsewhere = False  # read at every call of a layer; a plain name, which torch.compile can follow
MOST_TOKENS = 576  # of a sequence whose attention in bfloat16 on a CPU is two products
LEVELS = 1 << 16  # values of the 16 random bits of an element
MANY_PIXELS = 1024  # H W from which PyTorch's kernel for channels last is another one, which is fast


def bfloat16_on_cpu(x: Tensor) -> bool:
    """Whether x is computed in bfloat16 by PyTorch's kernels of a CPU, some of which are slower than those of float32.

    Not under torch.compile, which makes its own kernels, and whose graph would break at some of the replacements.
    """
    if torch.compiler.is_compiling():
        return False
    return x.dtype == torch.bfloat16 and x.device.type == "cpu" and not _elsewhere


@contextmanager
def as_on_gpu() -> Iterator[None]:
    """Choose kernels as on a GPU for tensors of the CPU: to estimate the memory of a GPU without one."""
    global _elsewhere
    before, _elsewhere = _elsewhere, True
    try:
        yield
    finally:
        _elsewhere = before


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """softmax(q k^T / sqrt(d)) v, each (B,N,L,d) with N heads and L tokens: -> (B,N,L,d).

    This is PyTorch's fused kernel, except in bfloat16 on a CPU up to `MOST_TOKENS` tokens: there two batched products
    and a softmax take 0.2 to 0.6 of its time, forward and backward, and 0.6 to 1.0 forward alone; with 784 tokens 0.9,
    with 1024 tokens 0.7 to 1.0 (1 or 8 heads, d of 32 to 256, one and two threads; AMD EPYC with AVX512-BF16, torch
    2.15, 2026-11-24). In float32 they are no faster.

    The products store q k^T / sqrt(d) in bfloat16, with a relative error of up to 2^-9, where the fused kernel keeps
    float32: of normal numbers the result's error is 0.50 % against 0.36 %, with 16 times larger scores 2.0 against 1.0.
    In a whole network that is lost in the other layers' rounding: the gradients of eight trained U-Nets, whose scores
    reach 4 to 14, have errors of 0.21 to 0.28 % with the products and of 0.21 to 0.29 % with the fused kernel.

    Fused kernels have no derivative in forward mode (`torch.func.jvp`): PyTorch's plain operations are used there.
    """
    if not bfloat16_on_cpu(q) or q.shape[2] > MOST_TOKENS:
        if _in_forward_mode():
            with sdpa_kernel(SDPBackend.MATH):
                return F.scaled_dot_product_attention(q, k, v)
        return F.scaled_dot_product_attention(q, k, v)
    queries, keys, values = (x.flatten(0, 1) for x in (q, k, v))
    scores = torch.baddbmm(q.new_empty(()), queries, keys.transpose(1, 2), beta=0, alpha=q.shape[3] ** -0.5)
    return torch.bmm(scores.softmax(2), values).unflatten(0, q.shape[:2])


def _in_forward_mode() -> bool:
    """Whether anything is differentiated in forward mode now, at any depth of `torch.func`; not under torch.compile."""
    return not torch.compiler.is_compiling() and forward_ad._current_level >= 0


class Dropout(nn.Dropout):
    """PyTorch's dropout, with a cheaper mask for bfloat16 on a CPU: any shape -> the same shape, type and layout.

        y = x m / (1 - p),   m = 0 with probability p, else 1;   y = x in eval mode

    In bfloat16 on a CPU, m compares 16 random bits with p, which is rounded to a multiple of 2^-16 (0.1 to 0.100006);
    1 / (1 - p) is rounded to bfloat16, as in PyTorch's own dropout. Both passes take 0.23 to 0.32 of the time of
    PyTorch's, which draws a number for each element (10^5 to 10^6 of them, AMD EPYC, torch 2.15, 2026-11-25).
    Everywhere else the masks are PyTorch's, so that a training in float32 keeps its bits; a run in bfloat16 has other
    masks than the same run in float32.
    """

    def forward(self, input: Tensor) -> Tensor:
        dropped = round(self.p * LEVELS)
        if not (self.training and bfloat16_on_cpu(input)) or dropped in (0, LEVELS):
            return super().forward(input)
        return input * _factors(input, dropped)


def _factors(x: Tensor, dropped: int) -> Tensor:
    """0 with probability dropped / LEVELS, else LEVELS / (LEVELS - dropped), in the shape, type and layout of x.

    The random bits become 0 or 1, and these, times the bit pattern of the factor, its bfloat16: a conversion of 0 or 1
    to bfloat16 would take twice as long as everything else.
    """
    factor = torch.tensor(LEVELS / (LEVELS - dropped), dtype=x.dtype).view(torch.int16)
    words = torch.empty(x.numel() // 4 + 1, dtype=torch.int64).random_(-(2**63), None)  # 64 random bits each
    kept = words.view(torch.int16)[: x.numel()].ge_(dropped - LEVELS // 2)
    factors = kept.mul_(factor).view(x.dtype)
    return factors.as_strided(x.shape, torch.empty_like(x, device="meta").stride())  # as `empty_like` lays them out


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


def in_full_precision(layer: nn.Conv2d | nn.Linear, x: Tensor) -> Tensor:
    """layer(x), under autocast in the type of the layer's weight, which is float32.

    Args:
        layer: a convolution, x (B,C,H,W), or an affine map, x (...,C).
        x: of any type under autocast, else of the weight's.
    """
    if not _is_lowered(x):
        return layer(x)
    with torch.autocast(x.device.type, enabled=False):
        return layer(x.to(layer.weight.dtype))


def to_autocast_type(x: Tensor) -> Tensor:
    """x of any shape, under autocast in the type that it computes in: what follows a layer in full precision."""
    return x.to(torch.get_autocast_dtype(x.device.type)) if _is_lowered(x) else x


def _is_lowered(x: Tensor) -> bool:
    """Whether autocast lowers what is computed from x; there is none on PyTorch's `meta` device.

    `torch.amp.is_autocast_available` would ask for that, but torch.compile breaks its graph there.
    """
    return not x.is_meta and torch.is_autocast_enabled(x.device.type)


def run(block: nn.Module, *inputs: Tensor, recompute: bool) -> Tensor:
    """block(*inputs); with `recompute` the backward pass recomputes the activations inside instead of storing them, for
    less memory and about a third more time.

    The second pass draws the same dropout masks, so the gradients are the same.
    """
    if recompute and torch.is_grad_enabled():
        return checkpoint(block, *inputs, use_reentrant=False)
    return block(*inputs)
