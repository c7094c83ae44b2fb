"""Clip, Adam and the average of the weights, fused over one by one.

unet_ddpm's 304 tensors, 35,746,307 weights, with given gradients, one thread, interleaved. Ours: clip_grad_norm_,
conf/optimizer/adam.yaml's fused Adam, and one `torch._foreach_lerp_` as in callbacks/ema.py. One by one: the same clip,
torch's Adam with a loop over tensors, its default on a CPU, and an average that is updated tensor by tensor as by the
EMAModel of diffusers: average -= (1 - d) (average - weight).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import cast

import torch
from torch import Tensor, nn

from benchmarks.paired import Ratio, interleaved, ratio
from benchmarks.table import Line, at_most
from diffusion_lab.networks import UNet

DECAY, ROUNDS = 0.9999, 9


def lines() -> Iterator[Line]:
    seconds = interleaved({"ours": _tail(True, _fused), "one by one": _tail(False, _one_by_one)}, ROUNDS, warmup=2)
    yield Line("ours over one by one", ratio(seconds["ours"], seconds["one by one"]), at_most(0.55))
    yield Line("ours", Ratio.of([1e3 * value for value in seconds["ours"]]), unit="ms")


def _tail(fused: bool, average: Callable[[list[Tensor], list[Tensor]], None]) -> Callable[[], None]:
    weights = list(UNet(3, 3, 32).parameters())
    for weight in weights:
        weight.grad = torch.randn_like(weight)
    optimizer = torch.optim.Adam(weights, lr=1e-6, fused=fused)
    averages, values = [w.detach().clone() for w in weights], [cast(Tensor, w.detach()) for w in weights]

    def run() -> None:
        nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        average(averages, values)

    return run


def _fused(averages: list[Tensor], values: list[Tensor]) -> None:
    torch._foreach_lerp_(averages, values, 1 - DECAY)


def _one_by_one(averages: list[Tensor], values: list[Tensor]) -> None:
    for average, value in zip(averages, values, strict=True):
        average.sub_((1 - DECAY) * (average - value))
