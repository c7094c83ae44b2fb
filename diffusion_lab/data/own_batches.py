"""Batches of a DataLoader that is not ours, as a network is given them."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from diffusion_lab.data.pixels import Extremes, doubts, to_float
from diffusion_lab.networks.checks import keywords

KNOWN = "use (B,C,H,W) images, a pair (images, labels), or a dict with the key image"


class OwnBatches:
    """Reads the batches that PyTorch's users have: images alone, (images, labels), or a dict.

    Bytes 0..255 become float32 in [-1, 1], and floats are taken as they are. The network is given the entries that its
    `forward` has a keyword for, and no labels if its attribute `num_classes` is None, so that an unconditional model
    can be trained on a data set of torchvision, whose batches always have them.

    Args:
        network: forward(x, t, **cond).
    """

    def __init__(self, network: nn.Module) -> None:
        self._taken = keywords(network.forward, behind=2)
        self._unlabelled = getattr(network, "num_classes", 0) is None
        self._checked = self._fits = False

    @contextmanager
    def fit(self, x0: Tensor) -> Iterator[None]:
        """Around the calls of the network for a batch: of the first one, an error of its shape is one sentence.

        Raises:
            ValueError: the images have other channels or another size than the network.
        """
        try:
            yield
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            if self._fits or not re.search("size|shape", str(error), re.IGNORECASE):
                raise
            why = " ".join(str(error).split())
            raise ValueError(
                f"batch has images of shape {tuple(x0.shape)}, which must be (B,C,H,W) with the channels and the size "
                f"of the network ({why}); {KNOWN}"
            ) from error
        self._fits = True

    def read(self, batch: Any) -> dict[str, Tensor]:
        """{"image": (B,C,H,W) float32} with the conditions, on the batch's device.

        Raises:
            ValueError: the batch has no images, or another shape.
        """
        image, entries = _parts(batch)
        if image.ndim != 4:
            raise ValueError(f"batch has images of shape {tuple(image.shape)}, which must be (B,C,H,W); {KNOWN}")
        x0 = to_float(image).to(torch.float32)
        if not self._checked:
            self._checked = True
            _warn_of_values(image)
        taken = [key for key in entries if self._taken.takes(key) and not (self._unlabelled and key == "label")]
        cond = {key: entries[key] for key in taken if isinstance(entries[key], Tensor)}
        return {"image": x0} | cond


def _parts(batch: Any) -> tuple[Tensor, dict[str, Any]]:
    """The images, and what else is in the batch by keyword."""
    if isinstance(batch, Tensor):
        return batch, {}
    if isinstance(batch, Mapping):
        images = [key for key in ("image", *batch) if isinstance(batch.get(key), Tensor) and batch[key].ndim == 4]
        if images:
            return batch[images[0]], {key: value for key, value in batch.items() if key != images[0]}
        raise ValueError(f"batch with the keys {', '.join(map(str, batch))} must have images; {KNOWN}")
    if isinstance(batch, Sequence) and 1 <= len(batch) <= 2 and isinstance(batch[0], Tensor):
        return batch[0], {} if len(batch) == 1 else {"label": batch[1]}
    raise ValueError(f"batch of type {type(batch).__name__} must be images, or images and labels; {KNOWN}")


def _warn_of_values(image: Tensor) -> None:
    """Of floats in 0..1 or 0..255 and of images that are all equal; reads three numbers from the device, once."""
    low, high = (float(value) for value in image.aminmax())
    equal = len(image) > 1 and bool((image == image[:1]).all())
    of = Extremes(low, high, image.is_floating_point())
    for doubt in doubts("images of the first batch", len(image), equal, of):
        warnings.warn(doubt, stacklevel=2)
