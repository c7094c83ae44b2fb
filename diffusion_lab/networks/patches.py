"""Images as tokens: the square patches of the vision transformers, row by row.

Symbols: B images, C channels, H x W pixels, p pixels per side of a patch, L = (H/p) (W/p) tokens.
"""

from __future__ import annotations

from torch import Tensor

from diffusion_lab.arguments import check_integer


def from_patches(numbers: Tensor, patch_size: int, rows: int) -> Tensor:
    """(B,L,p p C) -> (B,C,H,W), `rows` patches high; a patch lists its pixels row by row, each with its C channels."""
    p = patch_size
    grid = numbers.unflatten(1, (rows, -1)).unflatten(3, (p, p, -1))
    columns, channels = grid.shape[2], grid.shape[5]
    # One reshape, hence a copy: FSDP warns of a network whose output is a view.
    return grid.permute(0, 5, 1, 3, 2, 4).reshape(len(grid), channels, rows * p, columns * p)


def check_patches(image_size: int, patch_size: int) -> None:
    """Raise ValueError unless patches of `patch_size` pixels fill images of `image_size` pixels."""
    check_integer("patch_size", patch_size, 1, "use 2 for images of 32 pixels")
    if image_size < 1 or image_size % patch_size:
        divisors = [p for p in range(1, image_size + 1) if image_size % p == 0]
        nearest = min(divisors, key=lambda p: abs(p - patch_size), default=1)
        raise ValueError(
            f"patch_size={patch_size} must divide image_size={image_size}; use patch_size={nearest}, or images of "
            f"{patch_size * max(1, round(image_size / patch_size))} pixels, or network=unet_any, which fits any size"
        )
