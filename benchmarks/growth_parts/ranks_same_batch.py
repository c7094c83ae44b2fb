"""A rank's step against the number of ranks that share 256 images: digits, the default network, gloo."""

from __future__ import annotations

from benchmarks.growth import Points, rank_times

X, Y, ORDER, GOAL = "ranks that share 256 images", "CPU ms of a rank's step", -1, None


def points() -> Points:
    return rank_times(lambda ranks: 256)
