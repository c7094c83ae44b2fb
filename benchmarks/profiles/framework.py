"""A step of the tiny network, by package.

cProfile's own time of every function (without the functions that it calls) over 200 steps of the perceptron of `make
bench ONLY=framework`, in the bare loop, `diffusion-lab train` and stock Lightning, which take turns of 50 steps.
cProfile slows down a call of a Python function more than a call of an operator, so the times of Python code are too
large; the numbers of calls are exact.
"""

from __future__ import annotations

import cProfile
import pstats
from collections.abc import Iterator

from benchmarks.kinds import functions, package_of
from benchmarks.lines.framework import BATCH, Perceptron
from benchmarks.loops import bare, node, ours, stock, terminal
from benchmarks.relay import Loop, profiled, relay
from diffusion_lab.data import Digits, to_float

FIRST, STEPS, TURN = 51, 200, 50  # steps before the profile, in it, and of a turn


def rows() -> Iterator[tuple[str, ...]]:
    images = to_float(Digits().train().take(range(1437)))
    loops: dict[str, Loop] = {
        "bare loop": bare(Perceptron, images, BATCH),
        "diffusion-lab": ours(node("benchmarks.lines.framework.Perceptron"), [f"batch_size={BATCH}"]),
        "stock Lightning": stock(Perceptron, images, BATCH),
    }
    profiles = {name: cProfile.Profile() for name in loops}
    profiled_loops = {
        name: profiled(loop, profiles[name].enable, profiles[name].disable, FIRST) for name, loop in loops.items()
    }
    with terminal():
        relay(profiled_loops, TURN, rounds=(FIRST + STEPS - 1) // TURN, warmup=0)
    spent = {name: by_code(pstats.Stats(profile)) for name, profile in profiles.items()}
    yield "package", *(cell for name in loops for cell in (f"{name}, us a step", "calls a step"))
    codes = sorted({code for one in spent.values() for code in one})
    for code in [*codes, "all"]:
        cells = (one.get(code, (0.0, 0.0)) if code != "all" else _total(one) for one in spent.values())
        yield code, *(f"{value:.0f}" for cell in cells for value in cell)


def by_code(stats: pstats.Stats) -> dict[str, tuple[float, float]]:
    """Package -> microseconds and calls of a step."""
    spent: dict[str, tuple[float, float]] = {}
    for function in functions(stats):
        code = package_of(function.file, function.name)
        before = spent.get(code, (0.0, 0.0))
        spent[code] = (before[0] + 1e6 * function.own / STEPS, before[1] + function.calls / STEPS)
    return spent


def _total(spent: dict[str, tuple[float, float]]) -> tuple[float, float]:
    microseconds, calls = zip(*spent.values(), strict=True)
    return sum(microseconds), sum(calls)
