"""Where, in which layout and in which numbers a trained model is called."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from diffusion_lab.cli.errors import ConfigError
from diffusion_lab.cli.speed import lay_out

if TYPE_CHECKING:
    from diffusion_lab.diffusion import Denoiser

DTYPES = {"32-true": torch.float32, "bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}


@contextmanager
def ready(denoiser: Denoiser, device: str, precision: str = "32-true") -> Iterator[torch.device]:
    """The denoiser on its device; calls of it inside compute in `precision`, with weights that stay float32.

    Args:
        denoiser: is moved, and stays there.
        device: auto, cpu, cuda or cuda:1.
        precision: one of `DTYPES`, as in training.

    Raises:
        ConfigError: there is no such device or precision here.
    """
    where = pick_device(device)
    if precision not in DTYPES:
        raise ConfigError(f"precision={precision} must be one of {', '.join(DTYPES)}; use 32-true")
    if precision == "16-mixed" and where.type != "cuda":
        raise ConfigError("precision=16-mixed must be computed on a GPU, and device is none; use bf16-mixed")
    dtype = DTYPES[precision]
    lay_out(denoiser.to(where).network, None, precision, where.type == "cpu")
    with torch.autocast(where.type, dtype, enabled=dtype != torch.float32):
        yield where


def pick_device(name: str) -> torch.device:
    """ "auto" is the GPU where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(f"device={name} must be a device of this machine, which has no GPU; use device=cpu")
    return torch.device(name)
