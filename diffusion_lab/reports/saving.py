"""Files at a place that an option of the command names."""

from __future__ import annotations

from pathlib import Path

from diffusion_lab.files import write_whole


def save(path: Path, content: bytes, option: str) -> None:
    """Write a file whole or not at all.

    Args:
        path: the place; missing folders are made.
        content: all of it.
        option: the command's option that named the place, for the error.

    Raises:
        ValueError: the place cannot be written to.
    """
    try:
        write_whole(path, content)
    except OSError as error:
        raise ValueError(
            f"{option}={path} must be a file that can be written ({error.strerror}); use another place for --{option}"
        ) from error
