"""Errors that end a run with one sentence instead of a traceback."""

from __future__ import annotations


class Failure(RuntimeError):
    """The run cannot continue; the message says why and what to do. Exit code 1."""


class MissingData(FileNotFoundError):
    """The data are not where the configuration says. Bad input: exit code 2, no traceback."""


class OtherData(ValueError):
    """The data are not those that a run was trained with. Bad input: exit code 2, no traceback."""
