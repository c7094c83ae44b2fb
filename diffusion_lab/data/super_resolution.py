"""Super-resolution: the network is conditioned on a small image and generates the large one."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from diffusion_lab.arguments import check_integer
from diffusion_lab.data.task import Task


class SuperResolution(Task):
    """low_res (B,C,H/f,W/f): the mean of every f x f block of the image.

    No noise is added to it. The network upsamples it to the size of x_t.

    Reference: Dhariwal and Nichol, "Diffusion models beat GANs on image synthesis", 2021, guided-diffusion
    `scripts/super_res_train.py`: `F.interpolate(batch, small_size, mode="area")`, which is this mean.

    Args:
        factor: f, at least 2; 4 in the paper (64 to 256 pixels).

    Raises:
        ValueError: the factor is out of range, or does not divide the image size (from `check`).
    """

    names = ("low_res",)
    paired = True

    def __init__(self, factor: int = 4) -> None:
        self.factor = check_integer("factor", factor, 2, "use 4 for 64 to 256 pixels")

    def check(self, shape: tuple[int, int, int]) -> None:
        if shape[1] % self.factor:
            fitting = [f for f in range(2, shape[1] + 1) if shape[1] % f == 0]
            raise ValueError(f"factor={self.factor} must divide the {shape[1]} pixels of the images; use {fitting[0]}")

    def condition(self, x0: Tensor) -> dict[str, Tensor]:
        return {"low_res": F.avg_pool2d(x0, self.factor)}

    def shown(self, x0: Tensor) -> Tensor:
        return F.interpolate(self.condition(x0)["low_res"], scale_factor=self.factor, mode="nearest")
