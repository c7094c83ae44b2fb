"""Settings that change only the speed of a network, the rounding of its sums, and the masks of dropout.

    channels_last   memory order (B,H,W,C) of images and of convolutions' weights, in place of (B,C,H,W)
    compile         kernels made for this network by torch.compile, in place of one kernel per operation

Shapes, parameters, state dict and checkpoint do not depend on them, so a run may continue, and be evaluated, with other
values. Masks keep their distribution: they are drawn in the order of memory, and the compiler's dropout has random
numbers of its own.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from omegaconf import DictConfig

from diffusion_lab.cli.processes import on_cpu

if TYPE_CHECKING:
    from torch import nn


def lay_out(network: nn.Module, wanted: bool | None, precision: str, cpu: bool) -> nn.Module:
    """The network in the given layout; a convolution's output has the layout of its weights.

    Args:
        network: is changed in place.
        wanted: `channels_last`. None is channels last in float32 on a CPU, where a step of a U-Net takes 5 to 14 % less
            time and a call 0.8 to 0.9 of it (benchmarks/lines/sampling.py). Not in bfloat16, where a step of unet_ddpm
            and of ADM takes as long in either and that of unet_tiny 0.87 of its time in contiguous order (AMD EPYC
            without matrix units, 2026-11-24), and not on a GPU, where GroupNorm does not keep the layout.
        precision: 32-true, bf16-mixed or 16-mixed.
        cpu: whether it computes on a CPU.
    """
    import torch

    last = cpu and precision == "32-true" if wanted is None else wanted
    return network.to(memory_format=torch.channels_last if last else torch.contiguous_format)


def compiler_fault(cfg: DictConfig) -> str | None:
    """The message for `compile=true` on a machine without the compiler that it calls, else None."""
    cpu = on_cpu(cfg.trainer)
    variable, usual = ("CXX", ("g++", "clang++")) if cpu else ("CC", ("gcc", "clang"))
    names = [os.environ[variable]] if os.environ.get(variable) else usual
    if not cfg.compile or any(shutil.which(name) for name in names):
        return None
    kind = "C++" if cpu else "C"
    return f"compile=true must have a {kind} compiler ({' or '.join(names)}), and there is none; use compile=false"
