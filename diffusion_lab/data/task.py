"""What is generated: which conditions the network is given beside x_t and t, and whether a sample has a true image.

ImageGeneration    images of the data set's kind, of a class where the data are conditional
SuperResolution    the image of which a small one is given (`super_resolution.py`)
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor


class Task(ABC):
    """Conditions made from the images themselves. A label is the data's and is not part of a task.

    Attributes:
        names: keywords that `condition` gives to the network.
        paired: a sample is asked for by a test image's condition, so it has that image as its truth.
    """

    names: tuple[str, ...] = ()
    paired: bool = False

    def check(self, shape: tuple[int, int, int]) -> None:
        """Raise ValueError, with the cure, if images (C,H,W) cannot be conditioned on so; by default all can."""
        return None

    @abstractmethod
    def condition(self, x0: Tensor) -> dict[str, Tensor]:
        """The network's keywords for clean images (B,C,H,W) as the model sees them, one row each."""

    def shown(self, x0: Tensor) -> Tensor:
        """(B,C,H,W): in a paired task, what the network is given, as an image of the size of x0 to look at."""
        return x0


class ImageGeneration(Task):
    """New images; the network is given no image."""

    def condition(self, x0: Tensor) -> dict[str, Tensor]:
        return {}
