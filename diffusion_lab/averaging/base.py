"""Averaging rules: how much of the new weights enters each average of the weights, as a function of the step.

    a_0 = theta_0,   a_k = (1 - s_k) a_{k-1} + s_k theta_k,   s_k in [0, 1]

k counts optimizer steps from 1. A rule is a pure function of the step, so a resumed run continues exactly.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

Name = float | str  # a decay, or a word such as "std-0.05"


def short(name: Name) -> str:
    """The name of an average as it is printed."""
    return name if isinstance(name, str) else f"{name:g}"


class AveragingRule(ABC):
    """step -> the share of the new weights in each average.

    Attributes:
        names: of the averages, each once; evaluations use the first. `weights=` selects one by its name.
        argument: the constructor's argument that determines the names, for messages.
        snapshot_every: optimizer steps between two snapshots of the averages; 0 writes none.
    """

    names: tuple[Name, ...]
    argument: ClassVar[str] = "names"
    snapshot_every: int = 0

    @abstractmethod
    def shares(self, step: int) -> Sequence[float]:
        """s_k in [0, 1] of each average in `names`, for the update number `step`, counted from 1."""
