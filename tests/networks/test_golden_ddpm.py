"""DDPM's U-Net against the same network written once more, as plain functions of a table of weights.

The numbers of `ANSWER` are those of the plain functions in float64: mean square over all outputs, channel 0 at row 2,
column 5 of both images, last channel at row 6, column 1 of both.
"""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from diffusion_lab.networks import UNet
from tests.networks.filling import fill, numbers

ANSWER = [0.2997322, 0.3259922, -0.04994, 0.8069858, 0.5570434]


class Plain:
    """Two levels of one block with attention at the second, by the description in Ho et al. 2020, appendix B."""

    def __init__(self, weights: dict[str, Tensor]) -> None:
        self.weights = {name: value.double() for name, value in weights.items()}

    def of(self, name: str) -> tuple[Tensor, Tensor]:
        return self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]

    def norm(self, name: str, x: Tensor) -> Tensor:
        weight, bias = self.of(name)
        groups = next(g for g in range(min(32, x.shape[1] // 4), 0, -1) if x.shape[1] % g == 0)
        grouped = x.reshape(len(x), groups, -1)
        mean, variance = grouped.mean(2, keepdim=True), grouped.var(2, unbiased=False, keepdim=True)
        scaled = ((grouped - mean) / (variance + 1e-6).sqrt()).reshape(x.shape)
        return scaled * weight[:, None, None] + bias[:, None, None]

    def block(self, name: str, x: Tensor, e: Tensor) -> Tensor:
        h = F.conv2d(self.swish(self.norm(f"{name}.res.norm1", x)), *self.of(f"{name}.res.conv1"), padding=1)
        h = h + F.linear(e, *self.of(f"{name}.res.shift"))[:, :, None, None]
        h = F.conv2d(self.swish(self.norm(f"{name}.res.norm2", h)), *self.of(f"{name}.res.conv2"), padding=1)
        skip = F.conv2d(x, *self.of(f"{name}.res.skip")) if f"{name}.res.skip.weight" in self.weights else x
        return self.attention(f"{name}.attention", skip + h)

    def attention(self, name: str, x: Tensor) -> Tensor:
        if f"{name}.qkv.weight" not in self.weights:
            return x
        q, k, v = F.conv2d(self.norm(f"{name}.norm", x), *self.of(f"{name}.qkv")).flatten(2).chunk(3, dim=1)
        share = (torch.einsum("bci,bcj->bij", q, k) / math.sqrt(q.shape[1])).softmax(2)
        return x + F.conv2d(torch.einsum("bij,bcj->bci", share, v).reshape(x.shape), *self.of(f"{name}.out"))

    @staticmethod
    def swish(x: Tensor) -> Tensor:
        return x / (1 + torch.exp(-x))

    def __call__(self, x: Tensor, t: Tensor) -> Tensor:
        base = self.weights["time.hidden.weight"].shape[1]
        angles = t.double()[:, None] * torch.exp(-math.log(1e4) * torch.arange(base // 2) / (base // 2 - 1))
        e = F.linear(torch.cat([angles.sin(), angles.cos()], 1), *self.of("time.hidden"))
        e = self.swish(F.linear(self.swish(e), *self.of("time.out")))
        first = F.conv2d(x.double(), *self.of("conv_in"), padding=1)
        fine = self.block("encoder.0.blocks.0", first, e)
        half = F.conv2d(F.pad(fine, (0, 1, 0, 1)), *self.of("encoder.0.resample.conv"), stride=2)
        coarse = self.block("encoder.1.blocks.0", half, e)
        h = self.block("middle.1", self.block("middle.0", coarse, e), e)
        for i, skip in enumerate((coarse, half)):
            h = self.block(f"decoder.0.blocks.{i}", torch.cat([h, skip], 1), e)
        large = h.repeat_interleave(2, 2).repeat_interleave(2, 3)
        h = F.conv2d(large, *self.of("decoder.0.resample.conv"), padding=1)
        for i, skip in enumerate((fine, first)):
            h = self.block(f"decoder.1.blocks.{i}", torch.cat([h, skip], 1), e)
        return F.conv2d(self.swish(self.norm("norm_out", h)), *self.of("conv_out"), padding=1)


def filled(**changes) -> UNet:
    arguments = {"base_channels": 32, "channel_multipliers": [1, 2], "num_res_blocks": 1, "attention_resolutions": [4]}
    return fill(UNet(3, 6, 8, **(arguments | changes)))


X, T = 2 * numbers((2, 3, 8, 8), 200).float(), torch.tensor([7, 640])


def test_it_is_the_network_written_once_more():
    network = filled()
    with torch.no_grad():
        torch.testing.assert_close(network(X, T).double(), Plain(network.state_dict())(X, T), rtol=0, atol=1e-5)


def test_its_answer_stays():
    with torch.no_grad():
        out = filled()(X, T)
    found = [out.square().mean().item(), *out[:, 0, 2, 5].tolist(), *out[:, -1, 6, 1].tolist()]
    assert found == pytest.approx(ANSWER, abs=1e-5)


def test_another_timestep_or_attention_elsewhere_changes_the_answer():
    with torch.no_grad():
        out, later, elsewhere = filled()(X, T), filled()(X, T + 1), filled(attention_resolutions=[8])(X, T)
    assert not torch.allclose(out, later, atol=1e-3) and not torch.allclose(out, elsewhere, atol=1e-3)
