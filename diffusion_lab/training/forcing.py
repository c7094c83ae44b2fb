"""Diffusion forcing: each patch of an image has a noise level of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from torch import Tensor, nn

from diffusion_lab.arguments import check_integer
from diffusion_lab.diffusion import Denoiser
from diffusion_lab.streams import Streams
from diffusion_lab.training.model_kind import DiffusionModel, Parts
from diffusion_lab.training.module import DiffusionModule, Pairs


class ForcingStep(DiffusionModule):
    """t_j, w_j ~ sampler, independent for each patch j of p x p pixels;  loss = mean_ij  w_j weighting(l_ij)

    with i the image, l_ij the mean square error of a pixel over its channels, and x_t noised by the map of times.
    """

    patch_size: int = 1

    def pair(self, x0: Tensor, cond: dict[str, Tensor]) -> Pairs:
        """The patches are the rows of the draw, so that a stratified sampler stratifies over all of them."""
        patches = patches_of(x0, self.patch_size)
        number = len(patches) // len(x0)
        of_patches = {key: value.repeat_interleave(number, 0) for key, value in cond.items()}
        t, weight = (self._map(drawn, x0) for drawn in self.draw_timesteps(patches, of_patches))
        eps, at_input = self.noises(x0)
        return Pairs(x0, eps, t, weight.flatten(), cond, at_input=at_input)

    def _map(self, drawn: Tensor, x0: Tensor) -> Tensor:
        """(b L,) -> (b,1,H,W), each number on the pixels of its patch."""
        (height, width), p = x0.shape[2:], self.patch_size
        grid = drawn.view(len(x0), 1, height // p, 1, width // p, 1)
        return grid.expand(-1, -1, -1, p, -1, p).reshape(len(x0), 1, height, width)


def patches_of(x: Tensor, patch_size: int) -> Tensor:
    """The patches of each image, row by row: (b,C,H,W) -> (b L,C,p,p), L = H W/p^2."""
    p = patch_size
    grid = x.unflatten(3, (-1, p)).unflatten(2, (-1, p))  # (b,C,H/p,p,W/p,p)
    return grid.permute(0, 2, 4, 1, 3, 5).flatten(0, 2)


class Forcing(DiffusionModel):
    """A denoiser of images whose patches are noised independently (Chen et al. 2024, "Diffusion Forcing: Next-token
    Prediction Meets Full-Sequence Diffusion", arXiv 2407.01392, algorithm 1; its tokens are here the patches).

    In what is logged by timestep (train/loss_t, sampler/drawn) an image counts by the means of its patches' timesteps
    and losses, so that most images are in the middle of the schedule. val/loss_t is measured with one timestep for the
    whole image, as in sampling, and means what it means for other methods.

    One model then samples all patches together, with any solver, one after the other, or some that are given.

    Differs from the paper: the network sees all patches, not the past alone, as in the transformers that followed (Song
    et al. 2025, "History-Guided Video Diffusion"), because an image has no order; and the SNR is not fused over tokens.

    Args:
        patch_size: p, pixels per side of a patch, which divides the size of the images; their size for one timestep of
            each image.

    Raises:
        ValueError: a patch without pixels.
    """

    trains = ForcingStep
    time_maps: ClassVar[bool] = True

    def __init__(self, patch_size: int = 4) -> None:
        self.patch_size = check_integer("patch_size", patch_size, 1, "use 4")

    def faults(self, network: nn.Module, parts: Parts) -> Iterator[str]:
        yield from super().faults(network, parts)
        data = parts["dataset"]
        size = data.shape[1]
        if size % self.patch_size:
            fitting = [p for p in range(1, size + 1) if size % p == 0]
            nearest = min(fitting, key=lambda p: abs(p - self.patch_size))
            yield f"model.patch_size={self.patch_size} must divide image_size={size}; use model.patch_size={nearest}"

    def module(self, whole: Denoiser, parts: Parts, streams: Streams) -> DiffusionModule:
        made = super().module(whole, parts, streams)
        assert isinstance(made, ForcingStep)
        made.patch_size = self.patch_size
        return made
