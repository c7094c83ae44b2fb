"""What an analysis computes with: a device, random numbers, and pieces that outlive a kill."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from diffusion_lab.analyses.arrays import Arrays, pack, read, unpack
from diffusion_lab.analyses.task_progress import Progress, silent
from diffusion_lab.files import write_whole
from diffusion_lab.streams import Streams

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class Work:
    """Given to `Analysis.run`.

    Args:
        folder: keeps the finished pieces of this very computation: same models, settings and seed.
        streams: random numbers by name and position.
        device: where the models are.
        progress: shows how far it is.
    """

    def __init__(
        self, folder: Path, streams: Streams, device: torch.device | str = "cpu", progress: Progress = silent
    ) -> None:
        self.folder, self.streams, self.device = folder, streams, device
        self._progress = progress

    def normal(self, shape: tuple[int, ...], *position: int) -> Tensor:
        """Standard normal float32 numbers, a function of the seed and the position alone, on the device."""
        return self.streams.normal(shape, "analysis", *position).to(self.device)

    def map(
        self, name: str, function: Callable[..., Arrays], tasks: Sequence[tuple[Any, ...]]
    ) -> list[dict[str, np.ndarray]]:
        """`[function(*task) for task in tasks]`, in which a finished task is never computed again.

        Args:
            name: of this loop, a word of letters; each loop of an analysis has its own.
            function: gives arrays, as a function of its arguments and of `streams` alone, whichever tasks ran before.
            tasks: of a few seconds each: what a kill loses is the one that runs.
        """
        found = []
        with self._progress(name, len(tasks)) as step:
            for number, task in enumerate(tasks):
                path = self.folder / f"{name}-{number:06d}.npz"
                piece = read(path)
                finished = piece is not None
                if piece is None:
                    content = pack(function(*task))
                    write_whole(path, content)
                    piece = unpack(content)
                step(not finished)
                found.append(piece)
        return found
