"""What an analysis is: numbers from trained models, a figure of them, and one sentence that says what they mean.

    run(trained, work) -> Result        everything that takes time; a function of the models and the seed alone
    figure(result) -> Figure            drawn from the numbers alone
    sentence(result) -> str             read off the numbers alone

An analysis is one Python file and one yaml file, `conf/analysis/NAME.yaml`, whose keys are the constructor's arguments.
`diffusion-lab analyze analysis=NAME run=DIR` calls it, and `diffusion_lab.testing.check_analysis` tests it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from diffusion_lab.analyses.arrays import Arrays
from diffusion_lab.analyses.work import Work

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from diffusion_lab.training import Trained


class Result(NamedTuple):
    """All that an analysis measured.

    Attributes:
        data: arrays by name, for `data.npz`.
        facts: plain values for `facts.json`: what the arrays are, and the numbers that the sentence needs.
    """

    data: Arrays
    facts: dict[str, Any]


class Analysis(ABC):
    """Measures something of one or several trained models."""

    def check(self, trained: Sequence[Trained]) -> None:
        """Called before anything is computed or written; by default any model will do.

        Raises:
            ValueError: these models cannot be analysed: `key=value must ...; use ...`, with the command line's key.
        """
        if not trained:
            raise ValueError("run=[] must name at least one model; use the folder of a run")

    @abstractmethod
    def run(self, trained: Sequence[Trained], work: Work) -> Result:
        """Compute.

        Args:
            trained: at least one model, on `work.device`, in eval mode, which it must be in again at the end.
            work: gives random numbers, and keeps the finished pieces of a computation that is stopped.
        """

    @abstractmethod
    def figure(self, result: Result) -> Figure:
        """A matplotlib figure, e.g. from `diffusion_lab.plotting.panels`; called with the project's style."""

    @abstractmethod
    def sentence(self, result: Result) -> str:
        """What the numbers mean, in one sentence."""
