"""Settings that change only the speed of a network, the rounding of its sums, and the masks of dropout.

    channels_last   memory order (B,H,W,C) of images and of convolutions' weights, in place of (B,C,H,W)
    compile         kernels made for this network by torch.compile, in place of one kernel per operation

Shapes, parameters, state dict and checkpoint do not depend on them, so a run may continue, and be evaluated, with other
values. Masks keep their distribution: they are drawn in the order of memory, and the compiler's dropout has random
numbers of its own.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from omegaconf import DictConfig

from diffusion_lab.cli.processes import on_cpu

if TYPE_CHECKING:
    from torch import nn

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
LARGEST = 32 * 2**20  # bytes, of glibc's own limit for the second


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


@contextmanager
def torch_threads(number: int | None) -> Iterator[None]:
    """Inside, PyTorch computes with so many threads of the CPU; None: with as many as before."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(number or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def keep_freed_memory() -> None:
    """Keep glibc from returning the memory of freed tensors below 32 MB to the operating system.

    A training step allocates the tensors that the step before has freed. Of these glibc returns what lies free at the
    end of its heap; the kernel then maps every page again and fills it with zeros, which takes 1 to 7 % of a step of
    small networks (benchmarks/lines/freed_memory.py). Larger tensors are returned one by one, as without this
    function, so that they leave no gaps. The peak is up to 8 % higher where a run also evaluates. No value changes.

    Forked processes inherit the setting. It does nothing on other C libraries than glibc.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(MMAP_THRESHOLD, LARGEST)  # this one first: the other alone would set it to 128 KB for good
        mallopt(TRIM_THRESHOLD, -1)  # never
