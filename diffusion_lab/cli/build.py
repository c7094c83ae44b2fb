"""Build the objects of a training run from its parts: the module with its model, the data and the trainer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from lightning.pytorch import Callback, Trainer
from omegaconf import DictConfig

from diffusion_lab.callbacks import RunRecord
from diffusion_lab.cli.build_model import build_module
from diffusion_lab.cli.load import open_runs, trusted
from diffusion_lab.cli.metric_files import with_metrics
from diffusion_lab.cli.processes import srun_tasks
from diffusion_lab.cli.run_parts import RunParts
from diffusion_lab.data import ImageDataModule
from diffusion_lab.runs.trained_run import TrainedRun
from diffusion_lab.training import RunModule, VerifiedCheckpointIO
from diffusion_lab.training.run_module import finish_at_the_last_step


@dataclass
class TrainingRun:
    """The three objects of a training run."""

    module: RunModule
    data: ImageDataModule
    trainer: Trainer


def build_trainer(parts: RunParts, facts: dict[str, Any], more: Sequence[Callback] = ()) -> Trainer:
    """Lightning's Trainer: callbacks in the order of conf/callbacks, then `more`, and the loggers of conf/logger."""
    callbacks = parts.family("callbacks").values()
    record = RunRecord(parts.cfg.paths.run_dir, facts)
    trainer = parts.with_arguments(
        "trainer",
        callbacks=[record, *callbacks, *more],
        logger=list(parts.family("logger").values()),
        # Under srun Lightning reads its ranks from SLURM's variables. The submitter requeues the job: Lightning would
        # write a checkpoint in the middle of a step.
        plugins=[VerifiedCheckpointIO(), *([SLURMEnvironment(auto_requeue=False)] if srun_tasks() else [])],
    )
    finish_at_the_last_step(trainer)
    return trainer


def build_run(
    cfg: DictConfig, facts: dict[str, Any], more: Sequence[Callback] = (), parts: RunParts | None = None
) -> TrainingRun:
    """Load the trained runs that parts use, and build data, module and trainer, in this order; `facts` is the content
    of run.json. Parts that were built to check the configuration are used again."""
    parts = parts or RunParts(with_metrics(cfg))
    data = parts["dataset"]
    parts.build_all(TrainedRun)
    open_runs(parts, trusted(cfg))
    return TrainingRun(build_module(parts), data, build_trainer(parts, facts, more))
