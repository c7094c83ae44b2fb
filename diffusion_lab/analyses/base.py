"""Base class of analyses: arrays from trained models, a figure of them, and one sentence that interprets them.

    run(trained, work) -> Result        the whole computation; a function of the models and the seed alone
    figure(result) -> Figure            a function of the result alone
    sentence(result) -> str             a function of the result alone

An analysis is one Python file and one yaml file, `conf/analysis/NAME.yaml`, whose keys are the constructor's arguments.
`diffusion-lab analyze analysis=NAME run=DIR` runs it, and `diffusion_lab.testing.check_analysis` tests it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from diffusion_lab.analyses.arrays import Arrays
from diffusion_lab.analyses.work import Work
from diffusion_lab.training import Trained, TrainedModel

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Result(NamedTuple):
    """The result of an analysis.

    Attributes:
        data: arrays by name, for `data.npz`.
        facts: plain values for `facts.json`: descriptions of the arrays, and the numbers for the sentence.
    """

    data: Arrays
    facts: dict[str, Any]


class Analysis(ABC):
    """A measurement of one or several trained models.

    Attributes:
        models: class of the models that it accepts; `TrainedModel` for an analysis of any kind of model.
    """

    models: ClassVar[type[TrainedModel]] = Trained

    def check(self, trained: Sequence[Trained]) -> None:
        """Called before anything is computed or written; by default all models are accepted.

        Raises:
            ValueError: these models cannot be analysed: `key=value must ...; use ...`, with the command line's key.
        """
        return None

    def check_kind(self, trained: Sequence[TrainedModel]) -> None:
        """Called before `check`.

        Raises:
            ValueError: there is no model, or one of another kind than `models`.
        """
        if not trained:
            raise ValueError("run=[] must name at least one model; use the folder of a run")
        for model in trained:
            if not isinstance(model, self.models):
                raise ValueError(
                    f"run={model.name} must be left out: this analysis takes {self.models.kind}, and it is one of the "
                    f"{model.kind}"
                )

    @abstractmethod
    def run(self, trained: Sequence[Trained], work: Work) -> Result:
        """Compute the result.

        Args:
            trained: at least one model, on `work.device`, in eval mode; they must be in eval mode at the end.
            work: provides random numbers, and stores finished pieces so that a stopped analysis can continue.
        """

    @abstractmethod
    def figure(self, result: Result) -> Figure:
        """A Matplotlib figure, e.g. from `diffusion_lab.plotting.panels`; called inside the project's style."""

    @abstractmethod
    def sentence(self, result: Result) -> str:
        """One sentence that interprets the numbers."""
