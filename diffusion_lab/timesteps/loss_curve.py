"""A loss curve over timesteps, as a sampler is given one: numbers, or a file with them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from diffusion_lab.files import parse
from diffusion_lab.inside import read_inside
from diffusion_lab.npz import unpack
from diffusion_lab.runs.analyses import DATA
from diffusion_lab.runs.lines import read_lines
from diffusion_lab.runs.names import METRICS
from diffusion_lab.timesteps.base import check_masses

UNREADABLE = (OSError, ValueError, TypeError, KeyError, IndexError, OverflowError)


def read_curve(loss_curve: Sequence[float] | str | Path, num_timesteps: int) -> Tensor:
    """The loss of each timestep, (T,) float64.

    Args:
        loss_curve: losses of L equal ranges of timesteps, L <= T; or a file: a JSON list of them; a run's
            metrics.jsonl, whose last val/loss_t is taken; or the data.npz of `analysis=per_timestep` or `slots` of one
            model, which has the loss of every single timestep. Nothing in a file is executed.
        num_timesteps: T.

    Raises:
        ValueError: an unreadable file, losses of other timesteps, or numbers that are no losses.
    """
    if isinstance(loss_curve, str | Path) and Path(loss_curve).suffix == Path(DATA).suffix:
        return check_losses(_of_analysis(loss_curve, num_timesteps))
    curve = _of_ranges(loss_curve)
    if not 1 <= len(curve) <= num_timesteps:
        raise ValueError(
            f"loss_curve of {len(curve)} numbers must have between 1 and {num_timesteps}, the number of timesteps; "
            "average neighbours"
        )
    return check_losses(curve)[torch.arange(num_timesteps) * len(curve) // num_timesteps]


def check_losses(curve: Tensor) -> Tensor:
    """The curve if its numbers are finite, >= 0 and not all zero, else a ValueError that names the first bad one."""
    return check_masses("loss_curve", curve, "measure the curve again")


def _of_ranges(loss_curve: Sequence[float] | str | Path) -> Tensor:
    """The numbers themselves, or those of a JSON list, or the last val/loss_t of a run's metrics.jsonl."""
    if not isinstance(loss_curve, str | Path):
        return torch.tensor([float(value) for value in loss_curve], dtype=torch.float64)
    path = Path(loss_curve)
    try:
        if path.suffix == Path(METRICS).suffix:
            values = [row for row in read_lines(path.resolve()) if "val/loss_t" in row][-1]["val/loss_t"]
            values = [math.nan if value is None else value for value in values]
        else:
            values = parse(read_inside(path.resolve()).decode("utf-8-sig"))  # the user may have named a link
        return torch.tensor([float(value) for value in values], dtype=torch.float64)
    except UNREADABLE as error:
        raise ValueError(
            f"loss_curve={loss_curve} must be a JSON list of losses, the {METRICS} of a run with val/loss_t, or the "
            f"{DATA} of analysis=per_timestep; it is not ({type(error).__name__})"
        ) from None


def _of_analysis(path: str | Path, num_timesteps: int) -> Tensor:
    """The mean native loss of the one model and head in a file of `per_timestep`."""
    try:
        arrays = unpack(read_inside(Path(path).resolve()))
        t, mean = arrays["timesteps"], arrays["mean"].astype(np.float64)
    except UNREADABLE as error:
        raise ValueError(
            f"loss_curve={path} must be the {DATA} of analysis=per_timestep; it is not ({type(error).__name__})"
        ) from None
    if mean.shape != (1, len(t), 1):
        raise ValueError(
            f"loss_curve={path} must hold one curve, and has the shape {mean.shape}; use an analysis of one checkpoint "
            "of a run whose prediction has one head"
        )
    if not np.array_equal(t, np.arange(num_timesteps)):
        raise ValueError(
            f"loss_curve={path} must hold the loss at each of the {num_timesteps} timesteps, and has {len(t)}; analyse "
            "a run with this schedule, with analysis.every=1"
        )
    return torch.from_numpy(mean[0, :, 0])
