"""Kinds of panels. A panel knows which keys it needs, and so what is missing of them in what runs have logged."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from diffusion_lab.dashboards.logged import Logged
from diffusion_lab.runs.mirror import VALUE


@dataclass(frozen=True)
class Panel(ABC):
    """A panel.

    Args:
        title: heading.
    """

    title: str

    @abstractmethod
    def missing(self, logged: Logged) -> list[str]:
        """The keys, and columns as `key: column`, that it needs and that were not logged."""


@dataclass(frozen=True)
class Lines(Panel):
    """Numbers over another number; the mean over seeds, and the range from the lowest to the highest.

    Args:
        x: key of the axis.
        y: keys of the lines.
        x_title: label of the axis.
        log_y: whether the other axis is logarithmic.
    """

    x: str
    y: tuple[str, ...]
    x_title: str
    log_y: bool = False

    def missing(self, logged: Logged) -> list[str]:
        return [key for key in (self.x, *self.y) if key not in logged.numbers]


@dataclass(frozen=True)
class Chart(Panel):
    """The newest value of a list over a coordinate of its entries, a line for each run.

    Args:
        key: key of the list.
        over: the coordinate, a column of its table.
    """

    key: str
    over: str

    def missing(self, logged: Logged) -> list[str]:
        columns = logged.lists.get(self.key)
        if columns is None:
            return [self.key]
        return [f"{self.key}: {column}" for column in (self.over, VALUE) if column not in columns]


@dataclass(frozen=True)
class Pictures(Panel):
    """A picture of each run, by step.

    Args:
        key: key of the picture.
    """

    key: str

    def missing(self, logged: Logged) -> list[str]:
        return [] if self.key in logged.pictures else [self.key]


@dataclass(frozen=True)
class Bars(Panel):
    """The newest value of a number, a bar for each run or the mean over seeds.

    Args:
        key: key of the number.
    """

    key: str

    def missing(self, logged: Logged) -> list[str]:
        return [] if self.key in logged.numbers else [self.key]
