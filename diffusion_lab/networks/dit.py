"""DiT: a transformer over patches whose layer norms are scaled and shifted by time and label (Peebles and Xie 2023).

    tokens    Linear(patches) + fixed positions
    c         SiLU(time + label),  time = Linear(SiLU(Linear(256 cosines and sines of t)))
    depth x   Block(tokens, c)
    LastLayer(tokens, c) gives the p x p x C numbers of each patch

Symbols: B images, L tokens, D features of a token, p pixels per side of a patch.
"""

from __future__ import annotations

import math

import torch.nn.functional as F
from torch import Tensor, nn

from diffusion_lab.arguments import check_flag, check_integer
from diffusion_lab.networks.adm_layers import cos_sin_embedding, zeroed
from diffusion_lab.networks.checks import check_classes, check_label
from diffusion_lab.networks.dit_layers import Block, LastLayer, sin_cos_positions
from diffusion_lab.networks.for_diffusers import ForDiffusers
from diffusion_lab.networks.full_precision import in_full_precision
from diffusion_lab.networks.patches import check_patches, from_patches
from diffusion_lab.networks.recompute import run

TIME_FEATURES = 256


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
        patch_size: p, pixels per side of a patch.
        dim: D, a multiple of 4 and of `num_heads`.
        depth: number of blocks.
        num_heads: attention heads.
        num_classes: number of class labels, the null label included; None: the network takes no label.
        checkpointing: whether the backward pass recomputes the inside of each block instead of storing it.

    Raises:
        ValueError: an argument outside its range, named with its value and the cure.
    """

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
        check_integer("in_channels", in_channels, 1, "use the channels of the images")
        check_integer("out_channels", out_channels, 1, "use the channels of the images")
        check_patches(image_size, patch_size)
        _check_blocks(dim, depth, num_heads)
        check_flag("checkpointing", checkpointing, "use true where the memory does not suffice")
        check_classes(num_classes)
        self.patch_size, self.checkpointing = patch_size, checkpointing

        self.patches = nn.Conv2d(in_channels, dim, patch_size, stride=patch_size)
        self.time = nn.Sequential(nn.Linear(TIME_FEATURES, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.num_classes = num_classes
        self.label = None if num_classes is None else nn.Embedding(num_classes, dim)
        self.register_buffer("position", sin_cos_positions(image_size // patch_size, dim), persistent=False)
        self.blocks = nn.ModuleList([Block(dim, num_heads) for _ in range(depth)])
        self.last = LastLayer(dim, patch_size**2 * out_channels)
        self._start()

    def forward(self, x: Tensor, t: Tensor, label: Tensor | None = None) -> Tensor:
        """x (B,in_channels,H,W), t (B,) integers or reals, label (B,) in 0..num_classes-1 -> (B,out_channels,H,W)."""
        c = self._condition(t, label)
        h = in_full_precision(self.patches, x).flatten(2).transpose(1, 2) + self.position
        for block in self.blocks:
            h = run(block, h, c, recompute=self.checkpointing)
        return from_patches(self.last(h, c), self.patch_size, x.shape[2] // self.patch_size)

    def for_diffusers(self) -> ForDiffusers:
        """The same network in the diffusers library, see `dit_for_diffusers`."""
        from diffusion_lab.networks.dit_for_diffusers import for_diffusers

        return for_diffusers(self)

    def _condition(self, t: Tensor, label: Tensor | None) -> Tensor:
        """c (B,D)."""
        check_label(label, self.label)
        features = cos_sin_embedding(t, TIME_FEATURES).to(self.patches.weight.dtype)
        c = self.time(features)
        return F.silu(c if self.label is None else c + self.label(label))

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
            if isinstance(module, Block):
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
