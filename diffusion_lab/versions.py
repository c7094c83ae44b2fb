"""Versions of libraries."""

from __future__ import annotations

from contextlib import suppress
from importlib import metadata


def versions(*libraries: str) -> dict[str, str]:
    """Library -> its version, of those that are installed, by the names that pip knows."""
    found = {}
    for name in libraries:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found
