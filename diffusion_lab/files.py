"""Files that a reader finds whole or not at all: written beside their place, then moved there."""

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


def write_json(path: Path, content: Any) -> None:
    """Put `content`, plain values alone, at `path` as JSON.

    Raises:
        OSError: as `write_whole`.
        TypeError: it holds something else.
    """
    write_whole(path, (json.dumps(content, indent=1) + "\n").encode())
