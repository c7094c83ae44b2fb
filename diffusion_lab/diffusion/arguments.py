"""Checks of constructor arguments: one sentence with name, value, what is allowed and the cure.

Message: `<name>=<value> must <allowed>; <cure>`. The name comes first, exactly as in the configuration file.
"""

from __future__ import annotations

from typing import Any


def check_integer(name: str, value: Any, minimum: int, cure: str) -> int:
    """`value` as int if it is an integer >= minimum, else ValueError."""
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise ValueError(f"{name}={value!r} must be an integer of at least {minimum}; {cure}")
    return value


def check_number(name: str, value: Any, interval: str, low: float, high: float, cure: str) -> float:
    """`value` as float if it is a number of the interval, else ValueError; NaN is in no interval.

    Args:
        name: argument name.
        value: what was given.
        interval: two brackets that say whether each end belongs: "()", "[]", "[)" or "(]".
        low: lower end.
        high: upper end; infinity itself never belongs.
        cure: what to do, e.g. "use 0.02 for the published setting".
    """
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    inside = number and (low < value or (interval[0] == "[" and value == low))
    inside = inside and (value < high or (interval[1] == "]" and value == high))
    if not inside:
        raise ValueError(f"{name}={value!r} must lie in {interval[0]}{low:g}, {high:g}{interval[1]}; {cure}")
    return float(value)


def check_flag(name: str, value: Any, cure: str) -> bool:
    """`value` if it is true or false, else ValueError."""
    if not isinstance(value, bool):
        raise ValueError(f"{name}={value!r} must be true or false; {cure}")
    return value
