"""Snapshots of averages, a file `averages/std-0.05/step-00001000.safetensors` per average and step, and from them the
average of any other width: the least-squares fit of its profile by theirs.

    minimise over c   int_0^inf (sum_i c_i p_i(tau) - p(tau))^2 dtau   <=>   A c = B
    A_ij = <p_i, p_j>,   B_i = <p_i, p>,   average = sum_i c_i a_i / sum_i c_i

with the power functions p_i of `rules.py`, cut off at the step of the snapshot (arXiv 2312.02696, Algorithm 3).

Differs from the paper: the equations are scaled to a unit diagonal and solved by least squares in float64, because
those of several hundred snapshots are singular to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diffusion_lab.averaging.rules import Name, exponent, short, std_of
from diffusion_lab.files import write_whole
from diffusion_lab.files_inside import NotInside, read_inside
from diffusion_lab.runs.names import AVERAGES, TENSORS, numbered, step_of

CUT = 1e-12  # singular values below this share of the largest are rounding


class Snapshot(NamedTuple):
    """The average of width `std` after `step` updates, in a file of tensors by name in a run folder."""

    step: int
    std: float
    path: Path
    folder: Path

    def tensors(self) -> dict[str, Tensor]:
        """The averaged parameters, float32 on the CPU.

        Raises:
            ValueError: the file is damaged.
        """
        from safetensors import SafetensorError
        from safetensors.torch import load

        try:
            return load(read_inside(self.path, self.folder, largest=None))
        except (SafetensorError, NotInside) as error:
            raise ValueError(f"{self.path} must be undamaged ({error}); remove it, or bring back a copy") from error


def write(folder: Path, name: Name, step: int, tensors: Mapping[str, Tensor]) -> None:
    """Write one average atomically.

    Args:
        folder: the run folder.
        name: of the average.
        step: number of updates.
        tensors: the averaged parameters by name, unsharded.
    """
    from safetensors.torch import save

    content = {key: value.detach().to("cpu", torch.float32).contiguous() for key, value in tensors.items()}
    write_whole(folder / AVERAGES / short(name) / numbered(step, f".{TENSORS}"), save(content))


def snapshots(folder: Path) -> list[Snapshot]:
    """The snapshots in a run folder of averages with a width, by step."""
    found = [
        Snapshot(step, std, path, folder)
        for path in (folder / AVERAGES).glob(f"*/*.{TENSORS}")
        if (std := std_of(path.parent.name)) is not None and (step := step_of(path.name, f".{TENSORS}")) is not None
    ]
    return sorted(found)


def drop_after(folder: Path, step: int) -> None:
    """Remove the snapshots of later steps than `step`, which a run that continues from there writes again."""
    for path in (folder / AVERAGES).glob(f"*/*.{TENSORS}"):
        if (step_of(path.name, f".{TENSORS}") or 0) > step:
            path.unlink(missing_ok=True)


class Coefficients(NamedTuple):
    """c (n,) float64 with sum 1, and the error of the profile, ||sum c_i p_i - p|| / ||p||, 0 if it is matched."""

    values: NDArray[np.float64]
    error: float


def coefficients(steps: Sequence[int], stds: Sequence[float], step: int, std: float) -> Coefficients:
    """How to combine snapshots into the average of width `std` at `step`.

    Args:
        steps: (n,) steps of the snapshots, 1 <= steps <= step; each pair of step and std once.
        stds: (n,) their widths.
        step: step of the average.
        std: its width, in (0, 1/sqrt(12)).

    Raises:
        ValueError: std out of range, fewer than two snapshots, or one of a later step.
    """
    wanted = exponent(std)
    if len(steps) < 2:
        raise ValueError(f"snapshots={len(steps)} must be at least 2; use a smaller averaging.snapshot_every")
    if min(steps) < 1 or max(steps) > step:
        raise ValueError(f"step={step} must not lie before the snapshot of step {max(steps)}; use a later one")
    t, g = np.array(steps, np.float64), np.array([exponent(one) for one in stds])
    overlaps = _overlap(t[:, None], g[:, None], t, g)
    with_target = _overlap(t, g, np.full(len(t), float(step)), np.full(len(t), wanted))
    scale = 1.0 / np.sqrt(np.diag(overlaps))
    found = scale * np.linalg.lstsq(scale[:, None] * overlaps * scale, scale * with_target, rcond=CUT)[0]
    values = found / found.sum()
    norm = (wanted + 1.0) ** 2 / ((2.0 * wanted + 1.0) * step)
    squared = values @ overlaps @ values - 2.0 * values @ with_target + norm
    return Coefficients(values, math.sqrt(max(float(squared) / norm, 0.0)))


def _overlap(
    ta: NDArray[np.float64], ga: NDArray[np.float64], tb: NDArray[np.float64], gb: NDArray[np.float64]
) -> NDArray[np.float64]:
    """<p_a, p_b> = (g_a + 1)(g_b + 1) r / ((g_a + g_b + 1) max(t_a, t_b)), with r = (t_a/t_b)^(g_b) for t_a < t_b and
    (t_b/t_a)^(g_a) otherwise. Shapes are broadcast."""
    earlier = np.minimum(ta, tb) / np.maximum(ta, tb)
    ratio = earlier ** np.where(ta < tb, gb, ga)
    return (ga + 1.0) * (gb + 1.0) * ratio / ((ga + gb + 1.0) * np.maximum(ta, tb))
