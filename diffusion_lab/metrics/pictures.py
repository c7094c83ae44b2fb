"""Pictures of samples: the first of an evaluation, and a grid as one PNG, with no plotting library."""

from __future__ import annotations

import io
import math
from pathlib import Path

import torch
from torch import Tensor

from diffusion_lab.files import write_whole

TRIPLES = 3  # per row of a grid


def grid(images: Tensor, columns: int | None = None, scale: int | None = None, gap: int = 2) -> Tensor:
    """Images side by side, row after row, on white.

    Args:
        images: (N,C,H,W) uint8 with C = 1 or 3 and N >= 1.
        columns: images per row, or None for a square.
        scale: each pixel becomes scale x scale pixels, without smoothing; None makes every image at least 48 pixels
            high, so that 8x8 digits are visible.
        gap: white pixels between images and around the grid, after scaling.

    Returns:
        (C, rows (H scale + gap) + gap, columns (W scale + gap) + gap) uint8.

    Raises:
        ValueError: another dtype, shape or number of channels.
    """
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] not in (1, 3) or not len(images):
        raise ValueError(
            f"images of shape {tuple(images.shape)} and {images.dtype} must be uint8 (N,1,H,W) or (N,3,H,W) with "
            "N >= 1; decode latents first and use diffusion_lab.data.to_uint8"
        )
    images = images.cpu()
    columns = columns or math.ceil(math.sqrt(len(images)))
    scale = scale or math.ceil(48 / images.shape[2])
    images = images.repeat_interleave(scale, 2).repeat_interleave(scale, 3)
    count, channels, height, width = images.shape
    rows = math.ceil(count / columns)
    cells = torch.full((rows * columns, channels, height + gap, width + gap), 255, dtype=torch.uint8)
    cells[:count, :, gap:, gap:] = images
    page = cells.view(rows, columns, channels, height + gap, width + gap).permute(2, 0, 3, 1, 4)
    page = page.reshape(channels, rows * (height + gap), columns * (width + gap))
    return torch.nn.functional.pad(page, (0, gap, 0, gap), value=255)


def save_grid(
    images: Tensor, path: str | Path, columns: int | None = None, scale: int | None = None, gap: int = 2
) -> None:
    """Write `grid(images, columns, scale, gap)` atomically as a PNG; missing folders are made."""
    from PIL import Image

    page = grid(images, columns, scale, gap)
    buffer = io.BytesIO()
    pixels = page[0].numpy() if len(page) == 1 else page.permute(1, 2, 0).contiguous().numpy()
    Image.fromarray(pixels).save(buffer, format="PNG")
    write_whole(Path(path), buffer.getvalue())


class FirstSamples:
    """Samples, or in a paired task triples of condition, sample and truth.

    Args:
        keep: images in the picture.
        paired: whether there are truths.

    Attributes:
        missing: numbers of the samples that it does not have yet.
    """

    def __init__(self, keep: int, paired: bool) -> None:
        self.paired, self.missing = paired, range(math.ceil(keep / 3) if paired else keep)
        self._kept: list[Tensor] = []

    def update(self, samples: Tensor, given: Tensor | None = None, truths: Tensor | None = None) -> None:
        """Take as many images of a batch, each (b,C,H,W) uint8, as are still missing."""
        count = min(len(self.missing), len(samples))
        kept = samples[:count]
        if given is not None and truths is not None:
            kept = torch.stack([given, samples, truths], dim=1)[:count].flatten(0, 1)
        self._kept.append(kept)
        self.missing = self.missing[count:]

    @property
    def pictures(self) -> Tensor:
        """(n,C,H,W) uint8; empty if no sample was made."""
        return torch.cat(self._kept) if self._kept else torch.empty(0, 1, 1, 1, dtype=torch.uint8)

    @property
    def columns(self) -> int | None:
        """Images per row of a grid; None: chosen by the grid."""
        return 3 * TRIPLES if self.paired else None
