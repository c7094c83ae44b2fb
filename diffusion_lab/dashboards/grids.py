"""Jobs as products of settings, which is what a W&B sweep can try.

A job is a list of `key=value` words. Jobs with the same keys are a grid if every combination of their values is among
them; if not, they are divided by the value of the first key that varies, and so on. The grids therefore contain every
job once and no other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Grid(NamedTuple):
    """Every combination of some settings.

    Attributes:
        fixed: key -> value of all jobs; a word without `=` has the value None.
        varied: key -> its values, at least two.
    """

    fixed: dict[str, str | None]
    varied: dict[str, list[str | None]]

    @property
    def words(self) -> list[str]:
        """The fixed settings as words."""
        return [key if value is None else f"{key}={value}" for key, value in self.fixed.items()]


def grids(jobs: Sequence[Sequence[str]]) -> list[Grid]:
    """The grids of jobs, in the order of their first job; a job that occurs twice counts once."""
    same_keys: dict[frozenset[str], list[dict[str, str | None]]] = {}
    for words in jobs:
        job = {key: value if equals else None for key, equals, value in (word.partition("=") for word in words)}
        among = same_keys.setdefault(frozenset(job), [])
        among += [] if job in among else [job]
    return [grid for same in same_keys.values() for grid in _divided(same)]


def _divided(jobs: Sequence[Mapping[str, str | None]]) -> list[Grid]:
    values = {key: list(dict.fromkeys(job[key] for job in jobs)) for key in jobs[0]}
    varied = {key: several for key, several in values.items() if len(several) > 1}
    if math.prod(map(len, varied.values())) == len(jobs):
        return [Grid({key: one[0] for key, one in values.items() if key not in varied}, varied)]
    first = next(iter(varied))
    return [grid for value in varied[first] for grid in _divided([job for job in jobs if job[first] == value])]
