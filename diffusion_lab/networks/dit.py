"""DiT: a transformer over patches whose layer norms are scaled and shifted by time and label (Peebles and Xie 2023).

    tokens    Linear(patches) + fixed positions
    c         SiLU(time + label),  time = Linear(SiLU(Linear(256 cosines and sines of t)))
    depth x   DiTBlock(tokens, c)
    LastLayer(tokens, c) gives the p x p x C numbers of each patch

Symbols: B images, L tokens, D features of a token, c (B,D) what a block is conditioned on, p pixels per side of a
patch.

`for_diffusers` gives it as a DiTTransformer2DModel of the diffusers library. Differs from the library: it embeds t at
the frequencies 10000^(-i/127), the published code and ours at 10000^(-i/128). The library's layer has an attribute for
that, which is set again after loading; it changes no weight. The library's blocks each embed time and label on their
own, so its copies of those weights are as many as the blocks.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from diffusion_lab.arguments import check_flag, check_integer
from diffusion_lab.networks.adm_layers import cos_sin_embedding, zeroed
from diffusion_lab.networks.checks import check_classes, check_label
from diffusion_lab.networks.for_diffusers import ForDiffusers, renamed, thirds
from diffusion_lab.networks.kernels import in_full_precision, run
from diffusion_lab.networks.uvit import UViTAttention, check_patches, from_patches

ADJUSTMENT = """for part in model.modules():  # the published frequencies of t
    if hasattr(part, "downscale_freq_shift"):
        part.downscale_freq_shift = 0"""
TIME_FEATURES = 256


def sin_cos_positions(side: int, dim: int) -> Tensor:
    """Positions of a square of `side` x `side` tokens, row by row, from sines and cosines.

        w_k = 10000^(-k / (D/4)),   k = 0 .. D/4 - 1
        position(row, column) = [sin(column w), cos(column w), sin(row w), cos(row w)]

    Reference: Peebles and Xie 2023, section 3.2; the order is that of their code, the column first.

    Args:
        side: tokens per side.
        dim: D, a multiple of 4.

    Returns:
        (side^2, D) float32, computed in float64.
    """
    frequency = 10_000.0 ** (-torch.arange(dim // 4, dtype=torch.float64) / (dim // 4))
    angle = torch.arange(side, dtype=torch.float64)[:, None] * frequency
    axis = torch.cat([angle.sin(), angle.cos()], dim=1)  # (side, D/2)
    return torch.cat([axis.repeat(side, 1), axis.repeat_interleave(side, dim=0)], dim=1).float()


def norm(x: Tensor) -> Tensor:
    """LayerNorm over the features of a token, without weights, eps = 1e-6."""
    return F.layer_norm(x, x.shape[-1:], eps=1e-6)


def modulate(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """norm(x) (1 + scale) + shift: (B,L,D), and (B,1,D) or (B,L,D) each -> (B,L,D)."""
    return norm(x) * (1 + scale) + shift


def of_tokens(c: Tensor) -> Tensor:
    """(B,n) of all tokens -> (B,1,n); (B,L,n), of each token, stays."""
    return c if c.ndim == 3 else c[:, None]


class DiTBlock(nn.Module):
    """Transformer block with adaptive layer norm: (B,L,D), (B,D) or with a map of times (B,L,D) -> (B,L,D).

        (shift_1, scale_1, gate_1, shift_2, scale_2, gate_2) = Linear(c)
        h = x + gate_1 attention(norm(x) (1 + scale_1) + shift_1)
        out = h + gate_2 Linear(GELU(Linear(norm(h) (1 + scale_2) + shift_2)))      4 D features inside

    GELU is the approximation by tanh. c is SiLU(time + label), which the network computes once for all blocks.

    Args:
        dim: D.
        num_heads: attention heads, a divisor of D.
    """

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.attention = UViTAttention(dim, num_heads, qkv_bias=True)
        self.hidden = nn.Linear(dim, 4 * dim)
        self.out = nn.Linear(4 * dim, dim)
        self.modulation = nn.Linear(dim, 6 * dim)

    def forward(self, x: Tensor, c: Tensor) -> Tensor:
        shift_1, scale_1, gate_1, shift_2, scale_2, gate_2 = of_tokens(self.modulation(c)).chunk(6, dim=-1)
        h = x + gate_1 * self.attention(modulate(x, shift_1, scale_1))
        inner = F.gelu(self.hidden(modulate(h, shift_2, scale_2)), approximate="tanh")
        return h + gate_2 * self.out(inner)


class LastLayer(nn.Module):
    """Linear(norm(x) (1 + scale) + shift), (shift, scale) = Linear(c): (B,L,D), c of `DiTBlock` -> (B,L,features)."""

    def __init__(self, dim: int, features: int) -> None:
        super().__init__()
        self.out = nn.Linear(dim, features)
        self.modulation = nn.Linear(dim, 2 * dim)

    def forward(self, x: Tensor, c: Tensor) -> Tensor:
        shift, scale = of_tokens(self.modulation(c)).chunk(2, dim=-1)
        return in_full_precision(self.out, modulate(x, shift, scale))


class DiT(nn.Module):
    """(x_t, t, label) -> (B, out_channels, image_size, image_size).

    The defaults are DiT-XL/2. On latents of 4 x 32 x 32 with a learned variance, 1000 classes and the null label it has
    674,834,720 parameters; the published 675,129,632 include the table of positions, which is not trained.

    It starts as adaLN-Zero: every gate is 0, so each block is the identity, and the last Linear is 0, so the output is
    exactly 0. Other Linears, that of the patches included, are Xavier uniform with bias 0; the labels and the weights
    of the time embedding are normal with standard deviation 0.02.

    SiT (Ma et al. 2024) is the same network. Its published code keeps DiT's channels of the variance and discards them;
    `variance=learned_range variance.vlb_weight=0` does so here: these channels then have gradient 0, and the number of
    parameters is the published one. A fixed variance has p^2 C (D + 1) parameters fewer; the others train the same.

    Differs from the published code: the table of positions is a buffer that no checkpoint contains, because it is a
    function of the arguments.

    Reference: Peebles and Xie, "Scalable diffusion models with transformers", 2023, section 3.2 and table 1.

    Args:
        in_channels: channels of x_t.
        out_channels: channels of the output: image channels x (heads of the prediction + variance channels).
        image_size: pixels per side, of images or of latents, a multiple of `patch_size`.
        patch_size: p, pixels per side of a patch; divides `image_size`.
        dim: D, features of a token, a multiple of 4 and of `num_heads`.
        depth: number of blocks.
        num_heads: attention heads.
        num_classes: number of class labels, the null label included; None: the network takes no label.
        checkpointing: whether training recomputes the activations of each block instead of storing them: less memory,
            about a third more time per step.

    Raises:
        ValueError: an argument outside its range, named with its value and the cure.
    """

    takes_time_map = True
    position: Tensor

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        image_size: int,
        patch_size: int = 2,
        dim: int = 1152,
        depth: int = 28,
        num_heads: int = 16,
        num_classes: int | None = None,
        checkpointing: bool = False,
    ) -> None:
        super().__init__()
        check_patches(in_channels, out_channels, image_size, patch_size)
        _check_blocks(dim, depth, num_heads)
        check_flag("checkpointing", checkpointing, "use true where the memory does not suffice")
        check_classes(num_classes)
        self.patch_size, self.checkpointing = patch_size, checkpointing

        self.patches = nn.Conv2d(in_channels, dim, patch_size, stride=patch_size)
        self.time = nn.Sequential(nn.Linear(TIME_FEATURES, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.num_classes = num_classes
        self.label = None if num_classes is None else nn.Embedding(num_classes, dim)
        self.register_buffer("position", sin_cos_positions(image_size // patch_size, dim), persistent=False)
        self.blocks = nn.ModuleList([DiTBlock(dim, num_heads) for _ in range(depth)])
        self.last = LastLayer(dim, patch_size**2 * out_channels)
        self._start()

    def forward(self, x: Tensor, t: Tensor, label: Tensor | None = None) -> Tensor:
        """x (B,in_channels,H,W), t (B,) integers or reals, label (B,) in 0..num_classes-1 -> (B,out_channels,H,W).

        t may be a map (B,1,H,W): each token has the mean time of its patch."""
        c = self._condition(t, label)
        h = in_full_precision(self.patches, x).flatten(2).transpose(1, 2) + self.position
        for block in self.blocks:
            h = run(block, h, c, recompute=self.checkpointing)
        return from_patches(self.last(h, c), self.patch_size, x.shape[2] // self.patch_size)

    def for_diffusers(self) -> ForDiffusers:
        """The same network as the library's model."""
        blocks: Any = self.blocks
        last, time = self.last, self.time
        dim, heads = self.patches.out_channels, blocks[0].attention.num_heads
        embedding = [("timestep_embedder.linear_1", time[0]), ("timestep_embedder.linear_2", time[2])]
        label = torch.zeros(1, dim) if self.label is None else self.label.weight
        pairs = [("pos_embed.proj", self.patches), ("proj_out_1", last.modulation), ("proj_out_2", last.out)]
        tensors = {}
        for k, block in enumerate(blocks):
            place = f"transformer_blocks.{k}"
            pairs += [(f"{place}.norm1.emb.{name}", layer) for name, layer in embedding]
            pairs += [
                (f"{place}.norm1.linear", block.modulation),
                (f"{place}.attn1.to_out.0", block.attention.out),
                (f"{place}.ff.net.0.proj", block.hidden),
                (f"{place}.ff.net.2", block.out),
            ]
            tensors[f"{place}.norm1.emb.class_embedder.embedding_table.weight"] = label.detach().clone()
            to = f"{place}.attn1.to_"
            tensors |= thirds((f"{to}q", f"{to}k", f"{to}v"), block.attention.qkv)
        arguments = {
            "num_attention_heads": heads,
            "attention_head_dim": dim // heads,
            "in_channels": self.patches.in_channels,
            "out_channels": last.out.out_features // self.patch_size**2,
            "num_layers": len(blocks),
            "patch_size": self.patch_size,
            "num_embeds_ada_norm": len(label) - 1,  # the library adds the null label
            "norm_eps": 1e-6,
        }
        return ForDiffusers("DiTTransformer2DModel", arguments, renamed(pairs) | tensors, ADJUSTMENT, needs_label=True)

    def _condition(self, t: Tensor, label: Tensor | None) -> Tensor:
        """c (B,D), or (B,L,D) of a map."""
        check_label(label, self.num_classes)
        tokens = t if t.ndim == 1 else F.avg_pool2d(t.float(), self.patch_size).flatten(1)
        features = cos_sin_embedding(tokens.flatten(), TIME_FEATURES).to(self.patches.weight.dtype)
        c = self.time(features).unflatten(0, tokens.shape)
        e = None if self.label is None else self.label(label)
        return F.silu(c if e is None else c + (e if t.ndim == 1 else e[:, None]))

    def _start(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Conv2d):
                nn.init.xavier_uniform_(module.weight.flatten(1))  # a view, in which a patch is one row of inputs
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        small = [layer.weight for layer in self.time if isinstance(layer, nn.Linear)]
        for weight in [*small, *([] if self.label is None else [self.label.weight])]:
            nn.init.normal_(weight, std=0.02)
        for module in self.modules():
            if isinstance(module, DiTBlock):
                zeroed(module.modulation)
        zeroed(self.last)


def _check_blocks(dim: int, depth: int, num_heads: int) -> None:
    check_integer("num_heads", num_heads, 1, "use 16 for DiT-XL")
    check_integer("dim", dim, 4, "use 1152 for DiT-XL")
    check_integer("depth", depth, 1, "use 28 for DiT-XL")
    if dim % num_heads or dim % 4:
        unit = math.lcm(4, num_heads)
        raise ValueError(
            f"dim={dim} must be a multiple of 4 and of num_heads={num_heads}; use {max(1, round(dim / unit)) * unit}"
        )
