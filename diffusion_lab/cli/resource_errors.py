"""Errors of a machine that has run out of something, a full disk, a limit on files, no memory left, or forbids it."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# What libraries say that report the system's error as text: safetensors, NumPy, PyTorch's file writer.
FULL_WORDS = re.compile(r"\(os error (28|122|27)\)|\d+ requested and \d+ written|PytorchStreamWriter failed writing")
NO_MEMORY = re.compile(r"can't allocate memory|Cannot allocate memory|Storage size calculation overflowed")


def full_disk(error: BaseException) -> str | None:
    """Why a file could not be written, with its path if it is known; None if the disk is not why."""
    for one in _chain(error):
        if isinstance(one, OSError) and one.errno in FULL:
            place = "" if one.filename is None else f": {one.filename}"
            return f"{one.strerror}{place}"
        if isinstance(one, Exception) and FULL_WORDS.search(str(one)):
            return _first_line(one)
    return None


def no_memory(error: BaseException) -> str | None:
    """What could not be allocated; None if memory is not why."""
    for one in _chain(error):
        if isinstance(one, MemoryError) or type(one).__name__ == "OutOfMemoryError":  # torch's as well
            return _first_line(one) or "an allocation failed"
        if isinstance(one, OSError) and one.errno == errno.ENOMEM:
            return _first_line(one)
        if isinstance(one, RuntimeError) and NO_MEMORY.search(str(one)):
            return _first_line(one)
    return None


def no_access(error: BaseException) -> str | None:
    """The file or folder that this user may not read or write; None if there is none."""
    if isinstance(error, PermissionError) and error.filename is not None:
        return f"{error.filename} must be readable, and writable where it is written ({error.strerror})"
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and what it was raised from."""
    seen: list[BaseException] = []
    one: BaseException | None = error
    while one is not None and one not in seen:
        seen.append(one)
        yield one
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0]
