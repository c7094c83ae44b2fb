"""Whether W&B's server can be reached, without waiting for long."""

from __future__ import annotations

import os
import socket
from urllib.parse import urlsplit

_PROBE_SECONDS = 3.0


def check_reachable(url: str) -> None:
    """Open and close a connection to the server, because `wandb.init` takes 100 s to notice a missing network.

    Nothing is tried behind a proxy.

    Raises:
        OSError: the server cannot be reached.
    """
    if any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")):
        return
    parts = urlsplit(url)
    port = parts.port or (80 if parts.scheme == "http" else 443)
    socket.create_connection((parts.hostname or "", port), timeout=_PROBE_SECONDS).close()


def brief(error: Exception) -> str:
    """Class and message of an error in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
