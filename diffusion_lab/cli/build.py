"""From a configuration to finished parts. Only `cli/` knows Hydra; every class is given finished objects."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from hydra.utils import instantiate
from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from lightning.pytorch import Callback, Trainer
from omegaconf import DictConfig
from torch import nn

from diffusion_lab.callbacks import RunRecord
from diffusion_lab.cli.compute import lay_out
from diffusion_lab.cli.errors import config_errors
from diffusion_lab.cli.metric_files import with_metrics
from diffusion_lab.cli.processes import on_cpu, srun_tasks
from diffusion_lab.data import ImageDataModule
from diffusion_lab.diffusion import Denoiser, Prediction, Variance
from diffusion_lab.streams import Streams
from diffusion_lab.training import DiffusionModule, VerifiedCheckpointIO
from diffusion_lab.training.loop import finish_at_the_last_step


@dataclass
class TrainingRun:
    """The three objects of a training run."""

    module: DiffusionModule
    data: ImageDataModule
    trainer: Trainer


def part(cfg: DictConfig, name: str) -> Any:
    """The object of one top-level node; its constructor's complaint names the node."""
    with config_errors(name):
        return instantiate(cfg[name], _convert_="all")


def build_network(cfg: DictConfig, data: ImageDataModule, prediction: Prediction, variance: Variance) -> nn.Module:
    """The network for images of C channels: it emits C (heads + variance channels) channels, and is told how many
    values a label has when the batches carry labels."""
    with config_errors("dataset.source"):
        channels, image_size, _ = data.shape
    labels = data.conditions.num_labels
    told = {} if labels is None else {"num_classes": labels}
    make = part(cfg, "network")
    with config_errors("network"):
        if told and "num_classes" not in inspect.signature(make).parameters:
            raise ValueError(f"num_classes={labels} is unknown to this network; use dataset.conditional=false")
        return make(
            in_channels=channels,
            out_channels=channels * (prediction.heads + variance.channels),
            image_size=image_size,
            **told,
        )


def build_denoiser(cfg: DictConfig, data: ImageDataModule) -> Denoiser:
    """Network, noise schedule, prediction, variance and preconditioning, with the initial weights of the run's seed."""
    names = ("schedule", "prediction", "variance", "preconditioning")
    schedule, prediction, variance, preconditioning = (part(cfg, name) for name in names)
    torch.manual_seed(Streams(cfg.seed).key("init"))
    network = build_network(cfg, data, prediction, variance)
    lay_out(network, cfg.get("channels_last"), cfg.precision, on_cpu(cfg.trainer))
    null_label = data.conditions.null_label
    return Denoiser(network, schedule, prediction, variance, preconditioning=preconditioning, null_label=null_label)


def build_module(cfg: DictConfig, data: ImageDataModule) -> DiffusionModule:
    """The LightningModule on the CPU, not yet with its sampler."""
    denoiser = build_denoiser(cfg, data)
    if cfg.get("compile"):
        denoiser.network.compile()  # in place: the names of the parameters stay
    return DiffusionModule(denoiser, part(cfg, "weighting"), part(cfg, "optimizer"), Streams(cfg.seed))


def build_trainer(cfg: DictConfig, facts: dict[str, Any], more: Sequence[Callback] = ()) -> Trainer:
    """Lightning's Trainer: callbacks in the order of conf/callbacks, then `more`, and the loggers of conf/logger."""
    callbacks = [part(cfg.callbacks, name) for name in cfg.callbacks if cfg.callbacks[name] is not None]
    record = RunRecord(cfg.paths.run_dir, facts)
    loggers = [part(cfg.logger, name) for name in cfg.logger if cfg.logger[name] is not None]
    with config_errors("trainer"):
        trainer = instantiate(
            cfg.trainer,
            _convert_="all",
            callbacks=[record, *callbacks, *more],
            logger=loggers,
            plugins=[VerifiedCheckpointIO(), *_cluster()],
        )
    finish_at_the_last_step(trainer)
    return trainer


def _cluster() -> list[SLURMEnvironment]:
    """Under srun Lightning finds its ranks in SLURM's variables; but putting the job back into the queue is the work of
    who submitted it, and Lightning's own way of doing so writes a checkpoint in the middle of a step."""
    return [SLURMEnvironment(auto_requeue=False)] if srun_tasks() else []


def build_run(cfg: DictConfig, facts: dict[str, Any], more: Sequence[Callback] = ()) -> TrainingRun:
    """All of it, in the order data, module, trainer."""
    data = part(cfg, "dataset")
    return TrainingRun(build_module(cfg, data), data, build_trainer(with_metrics(cfg), facts, more))
