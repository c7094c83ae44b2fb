"""Tasks: the conditions of the network besides x_t and t, and whether a sample has a true image.

ImageGeneration    images of the data set's kind, of a class where the data are conditional
SuperResolution    the image of which a small one is given (`super_resolution.py`)
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor


class Task(ABC):
    """Conditions made from the images. Labels belong to the data and are not part of a task.

    Attributes:
        names: keywords of the network in the result of `condition`.
        paired: whether a sample is conditioned on a test image, which is then its truth.
    """

    names: tuple[str, ...] = ()
    paired: bool = False

    def check(self, shape: tuple[int, int, int]) -> None:
        """Raise ValueError if the task cannot use images (C,H,W); by default it can use all."""
        return None

    @abstractmethod
    def condition(self, x0: Tensor) -> dict[str, Tensor]:
        """The network's keywords for clean images (B,C,H,W) in the model's range, one row each."""

    def shown(self, x0: Tensor) -> Tensor:
        """(B,C,H,W): in a paired task the condition, as an image of the size of x0 for display."""
        return x0


class ImageGeneration(Task):
    """Generates new images; the network is conditioned on no image."""

    def condition(self, x0: Tensor) -> dict[str, Tensor]:
        return {}
