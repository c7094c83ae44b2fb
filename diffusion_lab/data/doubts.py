"""What is valid in a set of images and most likely a mistake."""

from __future__ import annotations

from diffusion_lab.data.pixels import is_unscaled, scaled
from diffusion_lab.data.source import ImageSource


def doubts(source: ImageSource) -> list[str]:
    """What is valid in the training images of a source and most likely a mistake, a sentence each."""
    images, bounds = source.train(), source.value_range
    equal = f"source={source.name}: all {len(images)} training images are equal; check the files"
    found = [equal] if images.all_equal() else []
    of = None if bounds is None else images.judged()
    if of is not None and bounds is not None and bounds[0] < 0 and is_unscaled(of):
        found.append(
            f"source={source.name}: the images lie in {of.low:g}..{of.high:g}, and the model's range is "
            f"{bounds[0]:g}..{bounds[1]:g}; {scaled(of).rstrip(',')}"
        )
    return found
