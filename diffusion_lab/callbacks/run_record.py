"""The record of a run: run.json at the start, result.json at the end."""

from __future__ import annotations

import time
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, cast

import torch
from lightning.pytorch import LightningModule, Trainer

from diffusion_lab.callbacks.base import RunCallback, data_of, find, last_step
from diffusion_lab.callbacks.evaluation import EvaluationCallback, evaluations
from diffusion_lab.callbacks.median_stop import Pruned
from diffusion_lab.callbacks.progress import Progress
from diffusion_lab.callbacks.signals import Interrupted
from diffusion_lab.held_folder import FolderMoved, current
from diffusion_lab.loggers import RunLogger, log_config
from diffusion_lab.runs.lines import cut_back, lengths, read_evaluated, write_evaluated
from diffusion_lab.runs.names import EVALUATED, RECORD, RESULT
from diffusion_lab.runs.record import is_done, read_result, write_record, write_result
from diffusion_lab.training import RunModule


def named(trainer: Trainer) -> list[tuple[str, EvaluationCallback]]:
    """The trainer's evaluations by name: their key, the class, and from the second of one key on a number."""
    found: dict[str, EvaluationCallback] = {}
    for one in evaluations(trainer):
        number = [other.state_key for other in found.values()].count(one.state_key)
        found[one.state_key if not number else f"{one.state_key}-{number + 1}"] = one
    return [*found.items()]


class RunRecord(RunCallback):
    """Writes what the run is (configuration, its hash, versions, parameters) and how it ended.

    At the start of training it also cuts the run's line files back to their state at the checkpoint, so that after a
    kill each step is in them once. Every checkpoint contains the configuration and the list of evaluations of its step
    that are still due; those finished since are listed in `evaluated.json`, with the lengths of the line files.

    Args:
        directory: the run folder.
        facts: plain values for run.json; "config" among them is the resolved configuration. The loggers get it with
            "labels", what runs are grouped by, and "tags", what they are selected by, if there are any. With
            "own_parts", where the user's own classes are, the record is signed: the user has typed all of it.
    """

    may_be_infinite = ("config",)

    def __init__(self, directory: str, facts: dict[str, Any]) -> None:
        self.directory, self.facts = Path(directory), facts
        self._saved: dict[str, Any] = {}
        self._written: dict[str, Any] | None = None  # the content of run.json
        self._trainer: Trainer | None = None
        self._settled: tuple[int, list[str]] = (-1, [])  # a step, and its finished evaluations

    def state_dict(self) -> dict[str, Any]:
        facts = {"config": self.facts["config"], "config_hash": self.facts["config_hash"]}
        return facts | {"lines": lengths(self.directory), "owed": self._owed()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._saved = state_dict

    def settle(self, evaluation: EvaluationCallback, step: int) -> None:
        """Record that an evaluation of the saved step `step` is finished and logged."""
        if self._trainer is None:
            return
        done = self._settled[1] if self._settled[0] == step else []
        self._settled = (step, [*done, *(key for key, one in named(self._trainer) if one is evaluation)])
        if self._trainer.is_global_zero:
            write_evaluated(self.directory, step, self._settled[1])

    def _owed(self) -> list[str]:
        """The evaluations of the current step that are not finished."""
        if self._trainer is None:
            return []
        step = self._trainer.global_step
        done = self._settled[1] if self._settled[0] == step else []
        return [key for key, one in named(self._trainer) if one.due(self._trainer, step) and key not in done]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._trainer = trainer
        sizes, owed = self._saved.get("lines"), list(self._saved.get("owed", []))
        evaluated = read_evaluated(self.directory, trainer.global_step)
        if self._saved and evaluated is not None:
            done, sizes = evaluated
            owed, self._settled = [key for key in owed if key not in done], (trainer.global_step, done)
        owed = trainer.strategy.broadcast(owed)  # other processes may read the file after it has changed
        for key, evaluation in named(trainer):
            evaluation.owed = key in owed
        if trainer.is_global_zero:
            self._start(trainer, pl_module, sizes, bool(owed))

    def _start(self, trainer: Trainer, pl_module: LightningModule, sizes: dict[str, int] | None, owed: bool) -> None:
        (self.directory / RESULT).unlink(missing_ok=True)
        for logger in trainer.loggers:
            if isinstance(logger, RunLogger):
                logger.cut(trainer.global_step)
        cut_back(self.directory, trainer.global_step, sizes, owed)
        if self._settled[0] != trainer.global_step:
            (self.directory / EVALUATED).unlink(missing_ok=True)
        log_config(trainer, self.facts["config"] | self.facts.get("labels", {}), self.facts.get("tags", ()))
        module, device = cast(RunModule, pl_module), trainer.strategy.root_device
        facts = self.facts | module.facts()
        facts |= {
            "parameters": sum([p.numel() for p in module.network.parameters()]),
            "world_size": trainer.world_size,
            "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
            "global_batch": data_of(trainer).batch_size,
            "data": data_of(trainer).describe().plain(),
            "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        }
        self._written = facts
        self._write_record(facts)

    def _write_record(self, facts: dict[str, Any]) -> None:
        write_record(self.directory, facts, own="own_parts" in facts)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.is_global_zero and trainer.global_step >= last_step(trainer):
            self._finish(trainer, "done", None)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Also write the result of a run that was killed between its last checkpoint and its result: it has no step
        left, so Lightning does not call `on_train_end`."""
        if not is_done(read_result(self.directory), last_step(trainer)):
            self.on_train_end(trainer, pl_module)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        if trainer.is_global_zero:
            ended = exception.status if isinstance(exception, Interrupted | FolderMoved | Pruned) else "failed"
            if isinstance(exception, KeyboardInterrupt):  # before this process listens to signals
                ended = Interrupted.status
            self._finish(trainer, ended, exception)

    def _finish(self, trainer: Trainer, status: str, exception: BaseException | None) -> None:
        progress = find(trainer, Progress)
        cost = {}
        if progress is not None:
            rate = round(progress.images_per_second(), 2)
            cost = {"seconds": round(progress.elapsed(), 3), "images_per_second": rate}
        with suppress(FolderMoved) if exception else nullcontext():  # the folder is gone, which is being reported
            if self._written is not None and not (current(self.directory) / RECORD).exists():
                self._write_record(self._written)  # somebody removed it; without it, this is no run
            write_result(self.directory, status, trainer.global_step, exception, **cost)
