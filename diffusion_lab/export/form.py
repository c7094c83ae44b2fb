"""What a form of export is asked for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

from diffusion_lab.training import TrainedDiffusion


class Form(ABC):
    """A form in which other programs read a trained diffusion model; a subclass and one yaml make a new `format`."""

    def check(self, trained: TrainedDiffusion) -> None:  # noqa: B027 a form that can express every model has nothing to check
        """Before anything is written.

        Raises:
            ValueError: this form cannot express the model; the message has the key, its value and the cure.
            FileNotFoundError: a library that writes it is missing.
        """

    @abstractmethod
    def write(self, trained: TrainedDiffusion, folder: Path) -> None:
        """Write the model's files to an existing folder; the same model gives the same bytes."""

    @abstractmethod
    def usage(self, trained: TrainedDiffusion) -> str:
        """Python that reads the files from the folder in which it runs, for the model card."""
