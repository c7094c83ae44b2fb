"""Snapshots of averages in a run folder: `averages/std-0.05/step-00001000.safetensors`, a file per average and step."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from diffusion_lab.averaging.base import Name, short
from diffusion_lab.averaging.power_function import std_of
from diffusion_lab.files import write_whole
from diffusion_lab.inside import NotInside, read_inside
from diffusion_lab.runs.names import AVERAGES, TENSORS, numbered, step_of


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
    write_whole(_place(folder, name) / numbered(step, f".{TENSORS}"), save(content))


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


def _place(folder: Path, name: Name) -> Path:
    return folder / AVERAGES / short(name)
