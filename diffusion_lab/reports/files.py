"""Writing a file whole or not at all."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def replace(path: Path, content: bytes, option: str) -> None:
    """Write the content beside the place and move it there: a reader sees the old file or the new one.

    Args:
        path: the place; missing folders are made.
        content: all of it.
        option: the command's option that named the place, for the error.

    Raises:
        ValueError: the place cannot be written to.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(content)
        os.replace(temporary, path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise ValueError(
            f"{option}={path} must be a file that can be written ({error.strerror}); use another place for --{option}"
        ) from error
