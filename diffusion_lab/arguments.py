"""Checks of constructor arguments: one sentence with name, value, what is allowed and what to use instead.

Message: `<name>=<value> must <allowed>; <cure>`. The name comes first, exactly as in the configuration file.
"""

from __future__ import annotations

import difflib
import math
import reprlib
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any

# Annotations of arguments that name a place. What a run folder from elsewhere may set them to depends on it
# (`cli.path_arguments`).
ReadPath = Annotated[str | Path, "read"]  # a file or folder that is only read
WrittenPath = Annotated[str | Path, "written"]  # a folder in which files are written
DownloadPath = Annotated[str | Path, "downloaded"]  # a folder that is read, and written with the argument download=True


def is_number(value: Any) -> bool:
    """Whether it is a finite number, and no truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def check_integer(name: str, value: Any, minimum: int, cure: str, maximum: int | None = None) -> int:
    """`value` if it is an integer >= minimum, and <= maximum where one is given, else ValueError."""
    integer = isinstance(value, int) and not isinstance(value, bool)
    if not integer or value < minimum or (maximum is not None and value > maximum):
        allowed = f">= {minimum}" if maximum is None else f"in [{minimum}, {maximum}]"
        raise ValueError(f"{name}={value!r} must be an integer {allowed}; {cure}")
    return value


def check_number(name: str, value: Any, interval: str, low: float, high: float, cure: str) -> float:
    """`value` as float if it is a number of the interval, else ValueError; NaN is in no interval.

    Args:
        name: argument name.
        value: the given value.
        interval: two brackets that say whether each end is included: "()", "[]", "[)" or "(]".
        low: lower end.
        high: upper end; infinity is also included with "]" only.
        cure: what to do, e.g. "use 0.02 for the published setting".
    """
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    inside = number and (low < value or (interval[0] == "[" and value == low))
    inside = inside and (value < high or (interval[1] == "]" and value == high))
    if not inside:
        raise ValueError(f"{name}={value!r} must lie in {interval[0]}{low:g}, {high:g}{interval[1]}; {cure}")
    return float(value)


def check_made(name: str, value: Any, kind: type, cure: str) -> Any:
    """`value` if it is an object of the class `kind`, else ValueError: a name, or the class itself, is none."""
    if not isinstance(value, kind):
        shown = f"the class {value.__name__}" if isinstance(value, type) else reprlib.repr(value)
        raise ValueError(f"{name}={shown} must be an object of a {kind.__name__}; {cure}")
    return value


def check_overrides(part: object, method: str, *readers: str) -> None:
    """ValueError if the class of `part` overrides `method` where nothing calls it: none of the `readers`, the methods
    that call it in the base class, is overridden with it, and those of the class in between do without it."""
    if fault := _override_fault(type(part), method, readers):
        raise ValueError(fault)


@cache  # parts of one class are made several times
def _override_fault(kind: type, method: str, readers: tuple[str, ...]) -> str:
    order = kind.__mro__
    definer = {name: one for one in reversed(order) for name in (method, *readers) if name in vars(one)}
    above = order[order.index(definer[method]) :]
    for reader in readers:
        if definer[reader] not in above[1:] or _calls(above, reader, method):
            return ""
    return (
        f"{kind.__name__} must override {readers[0]} with {method}, because {readers[0]} of "
        f"{definer[readers[0]].__name__} does not call it; define both, or choose another base class"
    )


def _calls(classes: Sequence[type], reader: str, method: str) -> bool:
    """Whether `reader` as the first of the classes defines it, or one that it calls by super(), calls `method`."""
    for one in classes:
        if reader in vars(one):
            code = getattr(vars(one)[reader], "__code__", None)
            if code is None or method in code.co_names:  # None: decorated
                return True
            if not {"super", reader} <= set(code.co_names):
                return False
    return False


def check_flag(name: str, value: Any, cure: str) -> bool:
    """`value` if it is true or false, else ValueError."""
    if not isinstance(value, bool):
        raise ValueError(f"{name}={value!r} must be true or false; {cure}")
    return value


def check_choice(name: str, value: Any, choices: Sequence[str], cure: str) -> str:
    """`value` if it is one of the words, else ValueError."""
    if value not in choices:
        raise ValueError(f"{name}={value} must be one of {', '.join(choices)}; {cure}")
    return value


def nearest(word: str, names: Iterable[str]) -> str:
    """` (did you mean 'uniform'?)` if a name is close to the word, else the empty string."""
    match = difflib.get_close_matches(word, [str(name) for name in names], n=1, cutoff=0.6)
    return f" (did you mean '{match[0]}'?)" if match else ""
