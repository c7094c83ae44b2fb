"""Hardware and versions that a figure belongs to."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

from diffusion_lab.cli.compute import has_bfloat16

LIBRARIES = ("torch", "lightning", "hydra-core", "diffusers", "torchvision", "torch-fidelity")


def hardware() -> str:
    """Processor, cores, memory, and whether it multiplies in bfloat16; one line."""
    gigabytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    bf16 = "bfloat16 instructions" if has_bfloat16() else "no bfloat16 instructions"
    return f"{len(os.sched_getaffinity(0))} cores of {_processor()}, {gigabytes:.0f} GiB, {bf16}"


def versions() -> str:
    """Python and the libraries that are compared; one line."""
    parts = [f"Python {platform.python_version()}"]
    parts += [f"{name} {metadata.version(name)}" for name in LIBRARIES]
    return ", ".join(parts)


def _processor() -> str:
    return _cpuinfo("model name") or platform.processor() or platform.machine()


def _cpuinfo(key: str) -> str:
    """First value of a key of Linux's /proc/cpuinfo, "" elsewhere."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(key)), "")
