"""Base class of analyses: arrays from trained models, a figure of them, and one sentence that interprets them.

    run(trained, work) -> Result        the whole computation; a function of the models and the seed alone
    figure(result) -> Figure            a function of the result alone
    sentence(result) -> str             a function of the result alone

An analysis is one Python file and one yaml file, `conf/analysis/NAME.yaml`, whose keys are the constructor's arguments.
`diffusion-lab analyze analysis=NAME run=DIR` runs it, and `diffusion_lab.testing.check_analysis` tests it. Arrays are
stored as .npz files: equal arrays give equal bytes, and reading never executes code.
"""

from __future__ import annotations

import io
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from diffusion_lab.failure import WrongResult, short_value
from diffusion_lab.files import write_whole
from diffusion_lab.files_inside import read_inside
from diffusion_lab.npz import unpack
from diffusion_lab.progress import progress
from diffusion_lab.streams import HostStreams, Streams
from diffusion_lab.training import TrainedDiffusion, TrainedModel

if TYPE_CHECKING:
    import torch
    from matplotlib.figure import Figure
    from torch import Tensor

Arrays = Mapping[str, np.ndarray]


class Result(NamedTuple):
    """The result of an analysis.

    Attributes:
        data: arrays by name, for `data.npz`.
        facts: plain values for `facts.json`: descriptions of the arrays, and the numbers for the sentence.
    """

    data: Arrays
    facts: dict[str, Any]


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
        self.show = show

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
        with progress(name, len(tasks), show=self.show) as bar:
            for number, task in enumerate(tasks):
                path = self.folder / f"{name}-{number:06d}.npz"
                piece = read_arrays(path)
                if piece is None:
                    arrays = function(*task)
                    if not is_arrays(arrays):
                        raise WrongResult(
                            f"the function of work.map({name!r}, ...) must return {{name: array}}, a dict of NumPy "
                            f"arrays, and returned {short_value(arrays)}; correct it"
                        )
                    content = pack(arrays)
                    write_whole(path, content)
                    piece = unpack(content)
                    bar.advance()
                else:
                    bar.skip()
                pieces.append(piece)
        return pieces

    def nested(
        self, name: str, function: Callable[[int, int], Arrays], outer: int, inner: int
    ) -> list[list[dict[str, np.ndarray]]]:
        """The arrays of `map` over all function(i, j) with i < outer, j < inner, as pieces[i][j]."""
        pieces = self.map(name, function, [*product(range(outer), range(inner))])
        return [pieces[i * inner : (i + 1) * inner] for i in range(outer)]

    def stacked(self, name: str, function: Callable[..., Arrays], *counts: int) -> dict[str, np.ndarray]:
        """The arrays of `map` over all function(i, j, ..) with i < counts[0], j < counts[1], ..: (*counts,...)."""
        pieces = self.map(name, function, [*product(*map(range, counts))])
        return {key: np.stack([p[key] for p in pieces]).reshape(*counts, *pieces[0][key].shape) for key in pieces[0]}


class Analysis(ABC):
    """A measurement of one or several trained models.

    Attributes:
        models: class of the models that it accepts; `TrainedModel` for an analysis of any kind of model.
    """

    models: ClassVar[type[TrainedModel]] = TrainedDiffusion

    def check(self, trained: Sequence[TrainedDiffusion]) -> None:  # noqa: B027 by default nothing is wrong
        """Called before anything is computed or written; by default all models are accepted.

        Raises:
            ValueError: these models cannot be analysed: `key=value must ...; use ...`, with the command line's key.
        """

    def check_kind(self, trained: Sequence[TrainedModel]) -> None:
        """Called before `check`.

        Raises:
            ValueError: there is no model, or one of another kind than `models`.
        """
        if not trained:
            raise ValueError("run=[] must name at least one model; use the folder of a run")
        for model in trained:
            if not isinstance(model, self.models):
                raise ValueError(
                    f"run={model.name} must be left out: this analysis takes {self.models.kind}, and it is one of the "
                    f"{model.kind}"
                )

    @abstractmethod
    def run(self, trained: Sequence[TrainedDiffusion], work: Work) -> Result:
        """Compute the result.

        Args:
            trained: at least one model, on `work.device`, in eval mode; they must be in eval mode at the end.
            work: provides random numbers, and stores finished pieces so that a stopped analysis can continue.
        """

    @abstractmethod
    def figure(self, result: Result) -> Figure:
        """A Matplotlib figure, e.g. from `diffusion_lab.plotting.panels`; called inside the project's style."""

    @abstractmethod
    def sentence(self, result: Result) -> str:
        """One sentence that interprets the numbers."""


def is_arrays(value: Any) -> bool:
    """Whether a value is {name: array}, of numbers, texts or truth values."""
    if not isinstance(value, Mapping):
        return False
    try:
        kinds = [np.asarray(array).dtype for array in value.values()]
    except (TypeError, ValueError):  # a tensor on a GPU, a list of lists of several lengths
        return False
    return all(isinstance(name, str) for name in value) and not any(kind.hasobject for kind in kinds)


def pack(arrays: Arrays) -> bytes:
    """The bytes of an .npz file without timestamps.

    Raises:
        ValueError: an array holds Python objects.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, array in arrays.items():
            content = io.BytesIO()
            np.lib.format.write_array(content, np.asarray(array), allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), content.getvalue())
    return buffer.getvalue()


def read_arrays(path: Path) -> dict[str, np.ndarray] | None:
    """The arrays in a regular file; None if the file does not exist or contains anything else."""
    try:
        return unpack(read_inside(path, largest=None))
    except (OSError, ValueError):
        return None
