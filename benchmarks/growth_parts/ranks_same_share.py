"""A rank's step against the number of ranks, 32 images each: digits, the default network, gloo."""

from __future__ import annotations

from benchmarks.growth import Points, rank_times

X, Y, ORDER, GOAL = "ranks of 32 images each", "CPU ms of a rank's step", 0, None


def points() -> Points:
    return rank_times(lambda ranks: 32 * ranks)
