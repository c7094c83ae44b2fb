"""Errors of the command line, each reported in one sentence.

A message has the form `<key>=<value> must <what is allowed>; <cure>`, where the key is the path to type on the command
line. Constructors raise it with the name of their argument; `at` adds the path of the config node.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from diffusion_lab.arguments import nearest as nearest
from diffusion_lab.failure import MissingData
from diffusion_lab.printable import one_line

EXIT_FAILED, EXIT_CONFIG, EXIT_LOCKED = 1, 2, 3
_NAMED = re.compile(r"[A-Za-z_][\w.]*(\[[^\]]*\])*=")


class ConfigError(ValueError):
    """One error in the configuration: a sentence that starts with the key. Exit code 2, no traceback."""


class MissingHere(ConfigError):
    """Something that this machine lacks: data, a GPU, disk space. `dry_run=true` reports it and continues."""


class InvalidConfig(Exception):
    """All errors in one configuration, one per value: an invalid value often fails several checks.

    Args:
        errors: at least one.
        of: the run whose configuration it is, as it was typed, such as `run=DIR`, which comes before each sentence; "":
            the configuration that is typed now.
    """

    def __init__(self, errors: list[ConfigError], of: str = "") -> None:
        self.errors = once(type(error)(f"{of}: {error}") for error in errors) if of else once(errors)
        super().__init__("\n".join(map(str, self.errors)))


class StoppedBySignal(Exception):
    """A signal stopped the command after it saved its progress. Exit code 128 + signal.

    Args:
        signal_number: 2 for SIGINT, 15 for SIGTERM.
    """

    def __init__(self, signal_number: int) -> None:
        super().__init__(f"stopped by signal {signal_number}")
        self.signal_number = signal_number


class JobsFailed(Exception):
    """A sweep ended with unfinished jobs, which the launcher has listed. Exit code 1."""


def once(errors: Iterable[ConfigError]) -> list[ConfigError]:
    """The first error for each `key=value`, in order; other messages without repetitions."""
    return list({str(error).partition(" must ")[0]: error for error in reversed(list(errors))}.values())[::-1]


def describe(error: BaseException) -> str:
    """An error in one line: its type and the first line of its message."""
    if isinstance(error, SystemExit):  # its message is only the code, and 0 would read as success
        return f"SystemExit: a part of the run called sys.exit({'' if error.code is None else repr(error.code)})"
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def is_named(message: str) -> bool:
    """Whether a message begins with a key, `lr=-1 must ...`."""
    return _NAMED.match(message) is not None


def at(path: str, error: Exception) -> ConfigError:
    """The error of a constructor, with the path of its config node before the argument's name."""
    message = " ".join(str(error).split()) or type(error).__name__
    kind = MissingHere if isinstance(error, FileNotFoundError) else ConfigError
    if isinstance(error, MissingData):  # whatever was done with the data when they were missed
        path = "dataset" if message.startswith("source") else "dataset.source"
    if not path:
        return kind(message)
    return kind(f"{path}.{message}" if is_named(message) else f"{path}: {message}")


def refuse(error: object) -> int:
    """Print the sentences of a configuration error, each on one line whatever a name or a file in it holds; returns the
    exit code."""
    for sentence in error.errors if isinstance(error, InvalidConfig) else [error]:
        print(f"config error: {one_line(str(sentence))}", file=sys.stderr, flush=True)
    return EXIT_CONFIG


@contextmanager
def config_errors(path: str) -> Iterator[None]:
    """Report a ValueError or a missing file as an error in the config node at `path`."""
    try:
        yield
    except ConfigError:
        raise
    except (ValueError, FileNotFoundError) as error:
        raise at(path, error) from error
