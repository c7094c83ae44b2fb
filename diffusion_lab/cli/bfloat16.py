"""bfloat16 on this processor: whether it has it, and what a float32 run would gain by it.

A processor without instructions for bfloat16 emulates it, which is slower than float32; one with matrix units (AMX, or
NEON's BFMMLA) multiplies matrices several times as fast; with vector instructions alone a step is 1.5 to 1.8 times as
fast (AMD EPYC with AVX512-BF16, 2026-11-25, benchmarks/README.md).
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import DictConfig

from diffusion_lab.cli.compute import lay_out
from diffusion_lab.cli.processes import on_cpu, world_size

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from diffusion_lab.cli.run_parts import RunParts

CPUINFO = Path("/proc/cpuinfo")
INSTRUCTIONS, MATRIX_UNITS = ("avx512_bf16", "amx_bf16", "bf16"), ("amx_bf16", "bf16")
PASS_S = 0.1  # seconds of one timed pass of the probe, which has four
WORTH_A_LINE = 0.9  # of float32's time


def has_bfloat16() -> bool:
    """Whether this processor has bfloat16 instructions, according to /proc/cpuinfo; true without that file."""
    return _has(INSTRUCTIONS)


def has_matrix_units() -> bool:
    """Whether this processor multiplies matrices of bfloat16, according to /proc/cpuinfo; true without that file."""
    return _has(MATRIX_UNITS)


def _has(names: tuple[str, ...]) -> bool:
    lines = CPUINFO.read_text(encoding="utf-8").splitlines() if CPUINFO.exists() else []
    flags = next((line.split(":", 1)[1].split() for line in lines if line.startswith(("flags", "Features"))), None)
    return flags is None or any(name in flags for name in names)


def slow_bfloat16(cfg: DictConfig) -> str | None:
    """A warning if this run computes in bfloat16 on a CPU that emulates it, else None."""
    if cfg.precision != "bf16-mixed" or not on_cpu(cfg.trainer) or has_bfloat16():
        return None
    return "this processor has no bfloat16 instructions: precision=bf16-mixed trains slower than 32-true here"


def faster_bfloat16(parts: RunParts, network: nn.Module) -> str | None:
    """What a float32 run of one process would gain by bfloat16, if this CPU has matrix units; else None.

    Both passes of the network are timed in both precisions, in less than a second for all but the largest networks. The
    weights, their gradients and the random numbers stay as they are.
    """
    from diffusion_lab.cli.build_model import network_arguments

    cfg = parts.cfg
    asked = cfg.precision == "32-true" and "precision" not in parts["model"].fixed and not cfg.get("compile")
    if not asked or not on_cpu(cfg.trainer) or world_size(cfg) > 1 or not has_matrix_units():
        return None
    arguments = network_arguments(parts) | {"in_channels": parts["dataset"].shape[0]}  # of x_t
    ratio, images = probed(network, arguments, cfg.batch_size, cfg.get("channels_last"))
    if ratio > WORTH_A_LINE:
        return None
    return (
        f"this processor has bfloat16 matrix units: with precision=bf16-mixed, another run, the network takes "
        f"{ratio:.2f} times as long (both passes of {images} images, timed just now)"
    )


def probed(network: nn.Module, arguments: dict[str, int], most: int, layout: bool | None) -> tuple[float, int]:
    """bfloat16's time over float32's for both passes of a network, and the images of a pass.

    Args:
        network: in float32, in its layout.
        arguments: `in_channels`, `image_size`, and `num_classes` if it has classes.
        most: images of a pass at most.
        layout: `channels_last`; a copy of the network has bfloat16's layout.
    """
    import torch

    other = lay_out(copy.deepcopy(network), layout, "bf16-mixed", cpu=True)
    with torch.random.fork_rng(devices=[]):  # dropout draws
        first = _seconds(_both_passes(network, arguments, 1, torch.float32))
        images = max(1, min(most, int(PASS_S / first)))
        passes = [
            _both_passes(network, arguments, images, torch.float32),
            _both_passes(other, arguments, images, torch.bfloat16),
        ]
        cold = [_seconds(one) for one in passes]
        warm = [_seconds(one) for one in passes] if sum(cold) < 4 * PASS_S else cold
    return warm[1] / warm[0], images


def _both_passes(network: nn.Module, arguments: dict[str, int], images: int, dtype: torch.dtype) -> Callable[[], None]:
    import torch

    size = arguments["image_size"]
    x = torch.randn(images, arguments["in_channels"], size, size)
    t = torch.zeros(images, dtype=torch.int64)
    labels: dict[str, Tensor] = {"label": t} if "num_classes" in arguments else {}
    weights = [weight for weight in network.parameters() if weight.requires_grad]

    def both() -> None:
        with torch.autocast("cpu", dtype=dtype, enabled=dtype is not torch.float32):
            out = network(x, t, **labels)
        torch.autograd.grad(out.float().square().mean(), weights, allow_unused=True)

    return both


def _seconds(task: Callable[[], None]) -> float:
    start = time.perf_counter()
    task()
    return time.perf_counter() - start
