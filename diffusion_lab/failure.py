"""What ends a run and is said in one sentence: a traceback would add nothing."""

from __future__ import annotations


class Failure(RuntimeError):
    """The work cannot go on, and the message says why and what to do. Exit code 1."""
