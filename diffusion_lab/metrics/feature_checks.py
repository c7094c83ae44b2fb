"""Checks of feature sets (N,D)."""

from __future__ import annotations

import torch
from torch import Tensor


def checked(name: str, x: Tensor) -> Tensor:
    """x on the CPU, if it is a floating, finite (N,D) tensor with N >= 2; else ValueError."""
    if x.ndim != 2 or not x.is_floating_point() or len(x) < 2:
        raise ValueError(
            f"{name} of shape {tuple(x.shape)} and {x.dtype} must be a floating (N,D) tensor with N >= 2; "
            "use the output of diffusion_lab.metrics.extract"
        )
    if not torch.isfinite(x).all():
        rows = (~torch.isfinite(x).all(1)).nonzero().flatten()
        raise ValueError(
            f"{name} must be finite, but {len(rows)} of {len(x)} rows are not, first {rows[:5].tolist()}; "
            "check those images: the model has probably diverged"
        )
    return x.detach().cpu()


def same_dim(a: Tensor, b: Tensor) -> None:
    """Raise ValueError unless a (N,D) and b (M,D) have one D."""
    if a.shape[-1] != b.shape[-1]:
        raise ValueError(f"a has {a.shape[-1]} dimensions and b {b.shape[-1]}; use one extractor for both")
