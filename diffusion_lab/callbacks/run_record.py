"""The run's own account of itself: run.json at the start, result.json at the end."""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lightning.pytorch import LightningModule, Trainer

from diffusion_lab.callbacks.base import RunCallback, data_of, diffusion, find
from diffusion_lab.callbacks.checkpoint import Interrupted
from diffusion_lab.callbacks.progress import Progress
from diffusion_lab.files import write_json
from diffusion_lab.loggers import RunLogger, cut_lines, log_config


class RunRecord(RunCallback):
    """Writes what the run is (configuration, its hash, versions, parameters) and what became of it.

    At the start of training it also cuts the run's line files back to the step that training starts from, so that
    after a kill each step stands in them once. The configuration is part of every checkpoint.

    Args:
        directory: the run folder.
        facts: plain values that run.json shall hold; "config" among them is the resolved configuration.
    """

    def __init__(self, directory: str, facts: dict[str, Any]) -> None:
        self.directory, self.facts = Path(directory), facts

    def state_dict(self) -> dict[str, Any]:
        return {"config": self.facts["config"], "config_hash": self.facts["config_hash"]}

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not trainer.is_global_zero:
            return
        (self.directory / "result.json").unlink(missing_ok=True)
        for logger in trainer.loggers:
            if isinstance(logger, RunLogger):
                logger.cut(trainer.global_step)
        for name in ("evaluations.jsonl", "timing.jsonl"):
            cut_lines(self.directory / name, trainer.global_step)
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


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The JSON objects of a line file; a half-written last line is passed over."""
    if path.exists():
        for line in path.read_text().splitlines():
            try:
                yield json.loads(line)
            except json.JSONDecodeError:
                continue
