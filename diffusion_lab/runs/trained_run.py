"""A trained run as a part of another: a weak model, a teacher."""

from __future__ import annotations

from typing import Any

from diffusion_lab.arguments import ReadPath


class TrainedRun:
    """The weights of a trained run, by the place where they are and what identifies them.

    A command loads it before its first step (`cli.load.open_runs`), from a folder that is not trusted, and checks that
    the weights are those of `checksum`. In a run's hash the checksum counts, not the place.

    Args:
        run: a run folder, with a checkpoint and an average if they are not the last and the first:
            DIR[:step-00001000][:raw | :0.9999].
        checksum: of the files from which the weights are read; None if they do not exist.

    Raises:
        ValueError: there is no such run.
    """

    def __init__(self, run: ReadPath | None, checksum: str | None = None) -> None:
        if run is None or checksum is None:
            raise ValueError(
                f"run={'null' if run is None else run} must be the folder of a trained run with a checkpoint; use DIR, "
                "or DIR:step-00001000"
            )
        self.run, self.checksum = str(run), checksum
        self._model: Any = None

    def open(self, model: Any) -> None:
        """Give it the `TrainedModel` of these weights."""
        self._model = model

    @property
    def is_open(self) -> bool:
        """Whether its model is loaded."""
        return self._model is not None

    def opened(self) -> Any:
        """The `TrainedModel`; ValueError if it was not loaded."""
        if self._model is None:
            raise ValueError(f"run={self.run} must be loaded first; in Python give the part load_run(DIR).denoiser")
        return self._model
