"""Files that a reader finds whole or not at all: written beside their place, then moved there. And reading them, since
a disk, an editor or an older program may have damaged them all the same."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any


def write_whole(path: Path, content: bytes) -> None:
    """Put `content` at `path`; missing folders are made.

    Raises:
        OSError: the place cannot be written to; what stood there stays, and nothing is left beside it.
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
    """The JSON object in a file; None if there is no such file, or something else in it."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):  # a UnicodeDecodeError is a ValueError
        return None
    return content if isinstance(content, dict) else None


def write_json(path: Path, content: Any) -> None:
    """Put `content`, plain values alone, at `path` as JSON.

    Raises:
        OSError: as `write_whole`.
        TypeError: it holds something else.
    """
    write_whole(path, (json.dumps(content, indent=1) + "\n").encode())
