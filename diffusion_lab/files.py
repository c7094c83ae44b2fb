"""Atomic writing of files: a reader finds the old file or the complete new one. And reading that tolerates damage."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any


def write_whole(path: Path, content: bytes) -> None:
    """Write `content` to `path` atomically; missing folders are made.

    Raises:
        OSError: `path` cannot be written to; the old file is unchanged and no temporary file is left.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(content)
        os.replace(temporary, path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise


def read_object(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file; None if the file does not exist or holds anything else."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):  # a UnicodeDecodeError is a ValueError
        return None
    return content if isinstance(content, dict) else None


def write_json(path: Path, content: Any) -> None:
    """Write `content`, plain values only, to `path` as JSON.

    Raises:
        OSError: as `write_whole`.
        TypeError: a value is not plain.
    """
    write_whole(path, (json.dumps(content, indent=1) + "\n").encode())
