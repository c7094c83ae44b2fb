"""Loops that take turns: one at a time, and the first step and the first turns are not counted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.relay import Loop, profiled, relay


def _loop(name: str, seen: list[str]) -> Loop:
    def run(baton: Callable[[], None], steps: int) -> None:
        for _ in range(steps):
            seen.append(name)
            baton()
        seen.append(f"{name} ends")

    return run


@pytest.mark.parametrize("steps", [1, 3])
def test_turns_alternate_after_a_first_step_that_is_not_counted(steps: int) -> None:
    seen: list[str] = []
    seconds = relay({"a": _loop("a", seen), "b": _loop("b", seen)}, steps, rounds=4, warmup=1)
    assert {name: len(values) for name, values in seconds.items()} == {"a": 4, "b": 4}
    assert all(value >= 0 for values in seconds.values() for value in values)
    turn = steps * ["a"] + steps * ["b"]
    assert seen == ["a", "b", *5 * turn, "a ends", "b ends"]


def test_a_loop_that_fails_ends_the_relay() -> None:
    def fails(baton: Callable[[], None], steps: int) -> None:
        raise ValueError("no luck")

    with pytest.raises(ValueError, match="no luck"):
        relay({"good": _loop("good", []), "bad": fails}, 1, 2)


def test_a_watched_loop_is_profiled_in_its_turns_alone() -> None:
    seen: list[str] = []
    profiled_loop = profiled(_loop("a", seen), lambda: seen.append("on"), lambda: seen.append("off"), first=2)
    relay({"a": profiled_loop, "b": _loop("b", seen)}, 2, rounds=2, warmup=0)
    turn = ["on", "a", "off"]
    assert seen == ["a", "b", "a", *turn, "b", "b", *turn, *turn, "b", "b", "a ends", "b ends"]
