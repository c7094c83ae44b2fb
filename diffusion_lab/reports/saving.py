"""Writing of files whose path is an option of the command."""

from __future__ import annotations

from pathlib import Path

from diffusion_lab.files import write_whole


def save(path: Path, content: bytes, option: str) -> None:
    """Write a file atomically.

    Args:
        path: the path; missing folders are made.
        content: the whole content.
        option: the command's option with the path, for the error.

    Raises:
        ValueError: the path cannot be written to.
    """
    try:
        write_whole(path, content)
    except OSError as error:
        reason = error.strerror or error
        raise ValueError(
            f"{option}={path} must be a file that can be written ({reason}); use another path for --{option}"
        ) from error
