"""Errors that end a run with one sentence instead of a traceback."""

from __future__ import annotations

import reprlib


class Interruption(Exception):
    """Asks the run to stop, from a signal's handler, so that it may be raised in any line; it is no error, and the run
    can be continued. What catches every Exception lets it pass."""


class Failure(RuntimeError):
    """The run cannot continue; the message says why and what to do. Exit code 1."""


class WrongResult(Failure):
    """A method of a part returned what it must not; the message names its class.

    Attributes:
        kind: the class.
    """

    kind: type = object

    @classmethod
    def of(cls, part: object, method: str, wanted: str, returned: object) -> WrongResult:
        """The error of a part.

        Args:
            part: the part.
            method: its method.
            wanted: what it must return.
            returned: what it returned.
        """
        kind = type(part)
        name, given = f"{kind.__module__}.{kind.__qualname__}.{method}", short_value(returned)
        error = cls(f"{name} must return {wanted}, and returned {given}; correct it in {kind.__module__}")
        error.kind = kind
        return error


def short_value(value: object) -> str:
    """What a value is, in a few words: tensors and arrays by their shape, numbers as they are."""
    shape = getattr(value, "shape", None)
    if shape is not None:
        return f"{type(value).__name__} of shape {tuple(shape)}"
    plain = value is None or isinstance(value, bool | int | float)
    return str(value) if plain else f"{type(value).__name__} {reprlib.repr(value)}"


class MissingData(FileNotFoundError):
    """The data are not where the configuration says. Bad input: exit code 2, no traceback."""


class OtherData(ValueError):
    """The data are not those that a run was trained with. Bad input: exit code 2, no traceback."""
