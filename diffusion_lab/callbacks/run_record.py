"""The run's own account of itself: run.json at the start, result.json at the end."""

from __future__ import annotations

import json
import os
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lightning.pytorch import LightningModule, Trainer

from diffusion_lab.callbacks.base import RunCallback, data_of, diffusion, find
from diffusion_lab.callbacks.evaluations import EvaluationCallback, evaluations
from diffusion_lab.callbacks.progress import Progress
from diffusion_lab.callbacks.signals import Interrupted
from diffusion_lab.files import read_object, write_json
from diffusion_lab.loggers import RunLogger, cut_lines, log_config

# Functions of the configuration, byte by byte; a checkpoint knows how long they were.
LINE_FILES = ("metrics.jsonl", "evaluations.jsonl")
SETTLED = "evaluated.json"


class RunRecord(RunCallback):
    """Writes what the run is (configuration, its hash, versions, parameters) and what became of it.

    At the start of training it also cuts the run's line files back to where they were when the checkpoint was written,
    so that after a kill each step stands in them once. The configuration is part of every checkpoint, and so is which
    evaluations of its step are owed; those that were finished since stand in `evaluated.json`, with the length of the
    line files after each.

    Args:
        directory: the run folder.
        facts: plain values that run.json shall hold; "config" among them is the resolved configuration.
    """

    may_be_infinite = ("config",)

    def __init__(self, directory: str, facts: dict[str, Any]) -> None:
        self.directory, self.facts = Path(directory), facts
        self._saved: dict[str, Any] = {}
        self._trainer: Trainer | None = None
        self._settled: tuple[int, list[str]] = (-1, [])  # a step, and its evaluations that are done

    def state_dict(self) -> dict[str, Any]:
        facts = {"config": self.facts["config"], "config_hash": self.facts["config_hash"]}
        return facts | {"lines": self._lengths(), "owed": self._owed()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._saved = state_dict

    def settle(self, evaluation: EvaluationCallback, step: int) -> None:
        """An evaluation of `step`, which is saved, is done and logged."""
        done = self._settled[1] if self._settled[0] == step else []
        self._settled = (step, [*done, evaluation.state_key])
        if self._trainer is not None and self._trainer.is_global_zero:
            content = {"step": step, "done": self._settled[1], "lines": self._lengths()}
            write_json(self.directory / SETTLED, content)

    def _owed(self) -> list[str]:
        """The evaluations that the present step has and that are not done."""
        if self._trainer is None:
            return []
        step = self._trainer.global_step
        done = self._settled[1] if self._settled[0] == step else []
        due = [e.state_key for e in evaluations(self._trainer) if e.due(self._trainer, step)]
        return [key for key in due if key not in done]

    def _lengths(self) -> dict[str, int]:
        """Bytes of the line files."""
        paths = {name: self.directory / name for name in LINE_FILES}
        return {name: path.stat().st_size for name, path in paths.items() if path.exists()}

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._trainer = trainer
        lengths = self._saved.get("lines", {})
        owed, settled = list(self._saved.get("owed", [])), read_settled(self.directory, trainer.global_step)
        if self._saved and settled is not None:
            owed = [key for key in owed if key not in settled["done"]]
            self._settled, lengths = (trainer.global_step, settled["done"]), settled["lines"]
        owed = trainer.strategy.broadcast(owed)  # another process may read the file later
        for evaluation in evaluations(trainer):
            evaluation.owed = evaluation.state_key in owed
        if trainer.is_global_zero:
            self._start(trainer, pl_module, lengths)

    def _start(self, trainer: Trainer, pl_module: LightningModule, lengths: dict[str, int]) -> None:
        (self.directory / "result.json").unlink(missing_ok=True)
        for logger in trainer.loggers:
            if isinstance(logger, RunLogger):
                logger.cut(trainer.global_step)
        for name in ("evaluations.jsonl", "timing.jsonl"):
            cut_lines(self.directory / name, trainer.global_step)
        for name, length in lengths.items():
            path = self.directory / name
            if path.exists() and path.stat().st_size > length:  # what an evaluation of this step that is owed had said
                os.truncate(path, length)
        if self._settled[0] != trainer.global_step:
            (self.directory / SETTLED).unlink(missing_ok=True)
        log_config(trainer, self.facts["config"])
        network = diffusion(pl_module).denoiser.network
        facts = self.facts | {
            "parameters": sum(p.numel() for p in network.parameters()),
            "world_size": trainer.world_size,
            "global_batch": data_of(trainer).batch_size,
            "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        }
        write_json(self.directory / "run.json", facts)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.is_global_zero and trainer.global_step >= trainer.max_steps:
            self._finish(trainer, "done", None)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """A run that was killed between its last checkpoint and its result has no step left, and Lightning does not end
        a training that it did not begin."""
        done = (read_object(self.directory / "result.json") or {}).get("status") == "done"
        if trainer.is_global_zero and trainer.global_step >= trainer.max_steps and not done:
            self._finish(trainer, "done", None)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        if trainer.is_global_zero:
            self._finish(trainer, "interrupted" if isinstance(exception, Interrupted) else "failed", exception)

    def _finish(self, trainer: Trainer, status: str, exception: BaseException | None) -> None:
        progress = find(trainer, Progress)
        write_result(
            self.directory,
            status,
            step=trainer.global_step,
            exception=exception,
            seconds=round(progress.elapsed(), 3) if progress else None,
            images_per_second=round(progress.images_per_second(), 2) if progress else None,
        )


def write_result(
    directory: Path, status: str, step: int, exception: BaseException | None = None, **cost: float | None
) -> None:
    """result.json: status done, failed or interrupted; the newest value of each scalar; how it ended and its cost."""
    newest: dict[str, float] = {}
    for line in read_lines(directory / "metrics.jsonl"):
        newest |= {k: v for k, v in line.items() if isinstance(v, float) and k.startswith(("metrics/", "val/"))}
    evaluations = list(read_lines(directory / "evaluations.jsonl"))
    last = max((line["step"] for line in evaluations), default=0)
    error = None
    if exception is not None:
        lines = traceback.format_exception(exception)
        error = {"type": type(exception).__name__, "message": str(exception), "traceback": "".join(lines)}
    write_json(
        directory / "result.json",
        {
            "status": status,
            "step": step,
            "metrics": newest,
            "evaluations": [line for line in evaluations if line["step"] == last],
            "error": error,
            **cost,
        },
    )


def read_settled(directory: Path, step: int) -> dict[str, Any] | None:
    """Which evaluations of `step` are done, and the lengths of the line files after them; None if none is known."""
    try:
        content = json.loads((directory / SETTLED).read_text())
        fine = content["step"] == step and isinstance(content["done"], list) and isinstance(content["lines"], dict)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return content if fine else None


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The JSON objects of a line file; a half-written last line is passed over."""
    if path.exists():
        for line in path.read_text().splitlines():
            try:
                yield json.loads(line)
            except json.JSONDecodeError:
                continue
