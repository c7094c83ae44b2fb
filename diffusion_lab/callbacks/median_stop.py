"""Pruning: a run of a sweep ends early when its curve is worse than that of most of its siblings."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from lightning.pytorch import Trainer

from diffusion_lab.arguments import ReadPath, check_integer
from diffusion_lab.callbacks.base import StepCallback
from diffusion_lab.callbacks.evaluation import evaluations
from diffusion_lab.runs.record import is_done, read_result, read_sweep
from diffusion_lab.runs.run import Run


class Pruned(Exception):  # not an error: the run can be continued
    """A run was ended early, because its siblings were better at the same step."""

    status = "pruned"


class MedianStop(StepCallback):
    """Ends a run whose best value so far is worse than the median of its siblings' best values up to the same step.

    Siblings are the finished runs of its sweep, the jobs in the sweep folder's sweep.json. The rule is asked after each
    step with an evaluation, but the last. It only decides whether a run goes on: the steps of a pruned run are, to the
    bit, those of the same run without this callback, so the callback is not in the run's hash, and the same command
    without it finishes the run.

    The median stopping rule is from Golovin et al., "Google Vizier: A Service for Black-Box Optimization", KDD 2017,
    section 3.2.2. Differs from it: the siblings' best values are compared in place of their running averages, because
    a loss falls by orders of magnitude.

    Args:
        directory: the run folder.
        objective: key of metrics.jsonl, e.g. val/loss. A metric says which direction is better, and one of which
            neither is ends no run; of other keys lower is.
        after: optimizer steps before which no run is ended, >= 0.
        siblings: finished runs of the sweep that are needed, >= 1.
    """

    def __init__(self, directory: ReadPath, objective: str | None, after: int = 0, siblings: int = 4) -> None:
        if not objective:
            raise ValueError(
                f"objective={objective or 'null'} must be a value that the run logs; use objective=val/loss"
            )
        self.directory, self.objective = Path(directory), objective
        self.after = check_integer("after", after, 0, "use 0 to prune from the first evaluation on")
        self.siblings = check_integer("siblings", siblings, 1, "use 4")

    def on_step_end(self, trainer: Trainer, module: Any, step: int, records: Any) -> None:
        if not self.after <= step < trainer.max_steps:
            return
        if not any(evaluation.due(trainer, step) for evaluation in evaluations(trainer)):
            return
        reason = self.reason(step) if trainer.is_global_zero else ""
        if reason := trainer.strategy.broadcast(reason):  # all processes end together
            raise Pruned(reason)

    def reason(self, step: int) -> str:
        """Why the run should end after `step`; "" if it should go on."""
        own = Run(self.directory, "running")
        name = self.objective.removeprefix("metrics/")
        better, ruler = own.better(name), own.protocol(name).get("extractor")
        if better == "neither":
            return ""
        lower = better != "higher"
        mine = _best(own, self.objective, step, lower)
        alike = [run for run in self._finished() if run.protocol(name).get("extractor") == ruler]
        values = [value for run in alike if (value := _best(run, self.objective, step, lower)) is not None]
        if mine is None or len(values) < self.siblings:
            return ""
        middle = median(values)
        if not (mine > middle if lower else mine < middle):
            return ""
        best = "lowest" if lower else "highest"
        return (
            f"its {best} {self.objective} up to step {step}, {mine:.4g}, is worse than {middle:.4g}, the median of the "
            f"{len(values)} finished runs of the sweep"
        )

    def _finished(self) -> list[Run]:
        """The finished runs of the sweep, without this one."""
        folder = self.directory.parent
        names = {Path(str(job["dir"])).name for job in read_sweep(folder)[1]}
        if self.directory.name not in names:  # no sweep, or a run that lies among the folders of another one
            return []
        others = [folder / name for name in sorted(names - {self.directory.name})]
        return [Run(place, "done") for place in others if is_done(read_result(place))]


def _best(run: Run, key: str, step: int, lower: bool) -> float | None:
    """The best finite value of a key up to a step; None if there is none."""
    curve = run.curve(key)
    if curve.values.ndim != 1:
        return None
    values = curve.values[(curve.steps <= step) & np.isfinite(curve.values)]
    return None if not len(values) else float(values.min() if lower else values.max())
