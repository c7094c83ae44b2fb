"""The average of the weights that `weights=` names: of a checkpoint, or reconstructed from the run's snapshots.

    weights=ema | raw | 0.9999 | std-0.05        the first average, none, or one that the checkpoint has
    weights=std-0.08                             a power-function average of any width, at the step of the checkpoint

The reconstruction uses the snapshots of earlier steps and the averages in the checkpoint itself.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diffusion_lab.cli.errors import ConfigError, nearest

if TYPE_CHECKING:
    from torch import Tensor

    from diffusion_lab.averaging import Name, Snapshot


def average_of(folder: Path, content: Mapping[str, Any], weights: str) -> tuple[Name | None, dict[str, Tensor]]:
    """The name and the tensors of an average; None and no tensors for the raw weights.

    Args:
        folder: the run folder.
        content: of a checkpoint.
        weights: "ema" for the first average, "raw", or a name.

    Raises:
        ConfigError: there is no such average, and none can be reconstructed.
    """
    from diffusion_lab.averaging import std_of

    averages = content.get("callbacks", {}).get("EMA", {})
    if weights == "raw" or (weights == "ema" and not averages):
        return None, {}
    name = next(iter(averages)) if weights == "ema" else weights
    if name in averages:
        return (name if std_of(name) is not None else _named(name)), averages[name]
    if (std := std_of(name)) is None:
        names = ["ema", "raw", *map(str, averages)]
        raise ConfigError(f"weights={weights} must be one of {', '.join(names)}{nearest(weights, names)}")
    try:
        return name, _reconstructed(folder, content["global_step"], averages, std)
    except ValueError as error:
        raise ConfigError(f"weights={weights}: {error}") from error


def _named(name: str) -> Name:
    """A decay as a number; any other name as it is."""
    try:
        return float(name)
    except ValueError:
        return name


def _reconstructed(folder: Path, step: int, averages: Mapping[str, Any], std: float) -> dict[str, Tensor]:
    import torch

    from diffusion_lab.averaging import coefficients, exponent, snapshots, std_of
    from diffusion_lab.training import not_finite

    exponent(std)  # raises if it is out of range, before any file is read
    tracked = {width: average for name, average in averages.items() if (width := std_of(name)) is not None}
    earlier = [one for one in snapshots(folder) if one.step < step and one.std in tracked]
    if not tracked or len(earlier) < 2:
        raise ValueError(
            f"{folder} must have at least two snapshots of its averages before step {step}, and has "
            f"{len(earlier)}; train with averaging=power_function and a smaller averaging.snapshot_every"
        )
    steps = [one.step for one in earlier] + [step] * len(tracked)
    found = coefficients(steps, [one.std for one in earlier] + list(tracked), step, std)
    if not min(tracked) <= std <= max(tracked):
        print(
            f"warning: weights=std-{std:g} lies outside the tracked {min(tracked):g} to {max(tracked):g}: the error of "
            f"its profile is {found.error:.2g} of its norm, see docs/averages.md",
            file=sys.stderr,
        )
    like = next(iter(tracked.values()))
    total = {name: torch.zeros(value.shape, dtype=torch.float64) for name, value in like.items()}
    for factor, source in zip(found.values, [*earlier, *tracked.values()], strict=True):
        values = source if isinstance(source, dict) else _tensors(source, like)
        for name, value in total.items():
            value.add_(values[name].cpu().double(), alpha=float(factor))
    if name := not_finite(total):
        raise ValueError(f"{name} must be finite in every snapshot; remove the damaged one in {folder}")
    return {name: value.float() for name, value in total.items()}


def _tensors(snapshot: Snapshot, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    tensors = snapshot.tensors()
    if {name: value.shape for name, value in tensors.items()} != {name: value.shape for name, value in like.items()}:
        raise ValueError(f"{snapshot.path} must hold the weights of the run's model, and holds others; remove it")
    return tensors
