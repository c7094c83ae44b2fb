"""Memory that tensors on a CPU no longer use stays with the process, for the tensors of the next step."""

from __future__ import annotations

import ctypes
import sys

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
LARGEST = 32 * 2**20  # bytes, of glibc's own limit for the second


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
