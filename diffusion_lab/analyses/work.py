"""The context of an analysis: a device, random numbers, and stored pieces from which it continues after a kill."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from diffusion_lab.analyses.arrays import Arrays, is_arrays, pack, read
from diffusion_lab.failure import WrongResult, shown
from diffusion_lab.files import write_whole
from diffusion_lab.npz import unpack
from diffusion_lab.progress import progress
from diffusion_lab.streams import HostStreams, Streams

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class Work:
    """Given to `Analysis.run`.

    Args:
        folder: folder of the finished pieces of a computation with these models, settings and seed.
        streams: random numbers by name and position; drawn on the host, and so the same for every device.
        device: device of the models.
        show: whether to show the progress.
    """

    def __init__(self, folder: Path, streams: Streams, device: torch.device | str = "cpu", show: bool = False) -> None:
        self.folder, self.streams, self.device = folder, HostStreams(streams.seed), device
        self._show = show

    def normal(self, shape: tuple[int, ...], *position: int) -> Tensor:
        """Standard normal float32 numbers on the device, a function of the seed and the position alone."""
        return self.streams.normal(shape, "analysis", *position, device=self.device)

    def map(
        self, name: str, function: Callable[..., Arrays], tasks: Sequence[tuple[Any, ...]]
    ) -> list[dict[str, np.ndarray]]:
        """`[function(*task) for task in tasks]`, without computing finished tasks again.

        Args:
            name: name of this loop, made of letters and unique in the analysis.
            function: returns arrays, as a function of its arguments and of `streams` alone, in any order of the tasks.
            tasks: arguments of each call, which should take a few seconds: a kill loses the current one.

        Raises:
            WrongResult: the function returned something else.
        """
        pieces = []
        with progress(name, len(tasks), show=self._show) as bar:
            for number, task in enumerate(tasks):
                path = self.folder / f"{name}-{number:06d}.npz"
                piece = read(path)
                if piece is None:
                    arrays = function(*task)
                    if not is_arrays(arrays):
                        raise WrongResult(
                            f"the function of work.map({name!r}, ...) must return {{name: array}}, a dict of NumPy "
                            f"arrays, and returned {shown(arrays)}; correct it"
                        )
                    content = pack(arrays)
                    write_whole(path, content)
                    piece = unpack(content)
                    bar.advance()
                else:
                    bar.skip()
                pieces.append(piece)
        return pieces
