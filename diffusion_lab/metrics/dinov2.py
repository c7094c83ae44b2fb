"""DINOv2 features, for the Fréchet distance FD-DINOv2 of Stein et al. (2023, arXiv:2306.04675).

    bytes (N,3,H,W) -> bicubic to 224x224, rounded to bytes -> (x/255 - mean)/std -> ViT -> norm(class token) (N,D)

The network is the vision transformer of Oquab et al. (2023, arXiv:2304.07193), from timm, with the user's copy of the
published weights. It has no classes, so there are no logits. Stein et al. use ViT-L/14, D = 1024.
"""

from __future__ import annotations

import math
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from diffusion_lab.arguments import ReadPath, check_integer
from diffusion_lab.metrics.features import FeatureExtractor, check_call

FILE = "dinov2_vitl14_pretrain.pth"
PATCH, SIZE = 14, 224  # pixels along a side of a patch and of the network's input
LARGE = (1024, 24, 16)  # width, depth and heads of ViT-L/14
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet's pixels


class DINOv2Features(FeatureExtractor):
    """The class token of a DINOv2 vision transformer, after its last norm.

    Metrics are called `fd50k_dinov2`, `kd50k_dinov2`; with another network than ViT-L/14 `fd50k_dinov2_384x12`.

    Args:
        weights: path of the weights: Meta's file, dinov2_vitl14_pretrain.pth for L, or timm's or the hub's for the same
            network (.safetensors).
        width: D, features of a token; 1024 for ViT-L/14, 768 for B, 384 for S.
        depth: number of blocks; 24 for L, 12 for B and S.
        heads: number of attention heads; 16 for L, 12 for B, 6 for S.
        batch_size: images of one network call; null: 16 on a CPU, up to 256 on a GPU by its free memory. It changes
            features by rounding alone.

    Raises:
        ValueError: an argument out of range.

    `check()` raises FileNotFoundError if there is no such file, and ValueError if timm is missing or the file holds
    other tensors than the network.
    """

    channels = 3
    has_classes = False
    preprocessing = "bicubic to 224x224 as Pillow, bytes, ImageNet mean and deviation; position table as dinov2"
    on_cpu = 16

    def __init__(
        self,
        weights: ReadPath | None = None,
        width: int = LARGE[0],
        depth: int = LARGE[1],
        heads: int = LARGE[2],
        batch_size: int | None = None,
    ) -> None:
        super().__init__()
        for name, value in (("width", width), ("depth", depth), ("heads", heads)):
            check_integer(name, value, 1, "leave it out for ViT-L/14")
        if width % heads:
            raise ValueError(f"heads={heads} must divide width={width}; DINOv2 has width / 64 heads")
        self.batch_size = check_call(batch_size)
        self.image_bytes = 16 * 1024 * width  # tensors of S/14 take 5.1 MiB of these 6
        self.path, self.feature_dim, self.depth, self.heads = weights, width, depth, heads
        self.name = "dinov2" if (width, depth, heads) == LARGE else f"dinov2_{width}x{depth}"
        self._checked: tuple[Path, int, int] | None = None

    def weights_file(self) -> Path:
        if self.path is None:
            raise FileNotFoundError(f"weights=null must be a file; give the path of Meta's {FILE}")
        path = Path(self.path).expanduser()
        if not path.is_file():
            raise FileNotFoundError(
                f"weights={self.path}: there is no file {path}; give the path of Meta's {FILE}, or of the same network "
                "in a .safetensors file of timm"
            )
        return path

    def check(self) -> None:
        path = self.weights_file()
        if find_spec("timm") is None:
            raise ValueError(
                "_target_=DINOv2Features must have timm, which is not installed; pip install 'diffusion-lab[dinov2]'"
            )
        # Reading 1.2 GB takes seconds and check() is called often; an unchanged file is read once.
        stamp = (path, path.stat().st_mtime_ns, path.stat().st_size)
        if self._checked != stamp:
            with torch.device("meta"):
                self._fill(self._transformer(), path, assign=False)
            self._checked = stamp

    def load(self) -> nn.Module:
        self.check()
        with torch.device("meta"):
            transformer = self._transformer()
        return _Network(self._fill(transformer, self.weights_file(), assign=True))

    def _transformer(self) -> nn.Module:
        from timm.models.vision_transformer import VisionTransformer

        return VisionTransformer(
            img_size=SIZE,
            patch_size=PATCH,
            embed_dim=self.feature_dim,
            depth=self.depth,
            num_heads=self.heads,
            init_values=1e-5,
            num_classes=0,
            global_pool="token",
            weight_init="skip",  # the weights are read from the file
            norm_layer=partial(nn.LayerNorm, eps=1e-6),
        )

    def _fill(self, transformer: Any, path: Path, assign: bool) -> nn.Module:
        """The transformer with the tensors of the file; on the meta device, without `assign`, only their names and
        shapes are checked."""
        from timm.models.vision_transformer import checkpoint_filter_fn

        try:
            tensors = _read(path)
            if not torch.is_tensor(table := tensors.get("pos_embed")) or table.ndim != 3:
                raise ValueError("it has no position table pos_embed (1, 1 + patches, width)")
            # timm finds a table of the right size and leaves it as it is.
            tensors["pos_embed"] = resized_positions(table.float(), SIZE // PATCH)
            filled: Any = checkpoint_filter_fn(tensors, transformer)
            device = "cpu" if assign else "meta"
            filled = {key: value.to(device, torch.float32, copy=True) for key, value in filled.items()}
            transformer.load_state_dict(filled, assign=assign)
        except Exception as error:  # whatever an unpickler or a converter raises about a foreign file
            cause = " ".join(str(error).split())
            raise ValueError(
                f"weights={self.path} must hold a DINOv2 transformer with width={self.feature_dim}, "
                f"depth={self.depth}, heads={self.heads} and patches of {PATCH} pixels, without registers; use Meta's "
                f"{FILE}, or set width, depth and heads ({cause if len(cause) < 200 else cause[:200] + '...'})"
            ) from None
        return transformer


class _Network(nn.Module):
    """uint8 (n,3,H,W) -> class token (n,D) and no logits (n,0)."""

    mean: Tensor
    std: Tensor

    def __init__(self, transformer: nn.Module) -> None:
        super().__init__()
        self.transformer = transformer
        self.register_buffer("mean", torch.tensor(MEAN).view(3, 1, 1))
        self.register_buffer("std", torch.tensor(STD).view(3, 1, 1))

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        features = self.transformer(self._scaled(images))
        return features, features.new_zeros(len(features), 0)

    def maps(self, images: Tensor) -> Tensor:
        """The patches' tokens after the last norm: (n,3,H,W) -> (n,D,16,16)."""
        transformer: Any = self.transformer
        tokens = transformer.forward_features(self._scaled(images))[:, 1:]
        return tokens.transpose(1, 2).unflatten(2, (SIZE // PATCH, SIZE // PATCH))

    def _scaled(self, images: Tensor) -> Tensor:
        return (as_pillow(images) / 255 - self.mean) / self.std


def as_pillow(images: Tensor) -> Tensor:
    """Bytes (n,C,H,W) resized to 224x224 with Pillow's bicubic filter and rounded to whole numbers; float32.

    dgm-eval, the code of Stein et al., resizes with Pillow: along the rows, to bytes, then along the columns. Differs
    from it: about one byte in a hundred differs, by 1 or 2, because Pillow rounds its filter's coefficients, and here
    all images of a batch are resized on their device.
    """
    pixels = images.float()
    for shape in ((images.shape[2], SIZE), (SIZE, SIZE)):
        pixels = interpolate(pixels, shape, mode="bicubic", antialias=True).round().clamp(0, 255)
    return pixels


def resized_positions(table: Tensor, side: int) -> Tensor:
    """A position table for side x side patches: (1, 1 + n^2, D) -> (1, 1 + side^2, D); the class token's row is kept.

    Bicubic with the factor (side + 0.1)/n, as in Meta's code for these weights. Differs from timm: it would smooth the
    table (antialias) and use the factor side/n, because published values are from Meta's code.

    Raises:
        ValueError: the number of patches in the table is no square.
    """
    n = math.isqrt(table.shape[1] - 1)
    if n * n != table.shape[1] - 1 or not n:
        raise ValueError(f"its position table has {table.shape[1]} rows, which are not 1 + a square")
    if n == side:
        return table
    grid = table[:, 1:].reshape(1, n, n, -1).permute(0, 3, 1, 2)
    grid = interpolate(grid, scale_factor=(side + 0.1) / n, mode="bicubic")
    return torch.cat([table[:, :1], grid.flatten(2).transpose(1, 2)], dim=1)


def _read(path: Path) -> dict[str, Tensor]:
    """The tensors of a file; nothing else in it is ever unpickled."""
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        return load_file(path)
    # Mapped, a check reads no more than the names and shapes.
    tensors = torch.load(path, map_location="cpu", weights_only=True, mmap=is_zipfile(path))
    if not isinstance(tensors, dict):
        raise ValueError("it holds no dictionary of tensors")
    return dict(tensors)
