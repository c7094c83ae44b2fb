"""Build the objects of a run from its parts."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from lightning.pytorch import Callback, Trainer
from omegaconf import DictConfig
from torch import nn

from diffusion_lab.callbacks import RunRecord
from diffusion_lab.cli.compute import lay_out
from diffusion_lab.cli.errors import config_errors
from diffusion_lab.cli.metric_files import with_metrics
from diffusion_lab.cli.processes import on_cpu, srun_tasks
from diffusion_lab.cli.run_parts import RunParts
from diffusion_lab.cli.run_parts import part as part
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


def build_network(
    cfg: DictConfig, data: ImageDataModule, prediction: Prediction, variance: Variance, parts: RunParts | None = None
) -> nn.Module:
    """The network for images of C channels: it has C (heads + variance channels) output channels, and `num_classes` if
    the batches have labels."""
    make = (parts or RunParts(cfg))["network"]
    with config_errors("network"):
        return make(**network_arguments(make, data, prediction, variance))


def network_arguments(
    make: Callable[..., nn.Module], data: ImageDataModule, prediction: Prediction, variance: Variance
) -> dict[str, int]:
    """The arguments of a network that the other parts define: `in_channels`, `out_channels`, `image_size`, and
    `num_classes` if the batches have labels."""
    with config_errors("dataset.source"):
        channels, image_size, _ = data.shape
    labels = data.conditions.num_labels
    if labels is not None and "num_classes" not in inspect.signature(make).parameters:
        raise ValueError(f"num_classes={labels} is unknown to this network; use dataset.conditional=false")
    out_channels = channels * (prediction.heads + variance.channels)
    given = {"in_channels": channels, "out_channels": out_channels, "image_size": image_size}
    return given if labels is None else given | {"num_classes": labels}


def build_denoiser(parts: RunParts) -> Denoiser:
    """Network, noise schedule, prediction, variance and preconditioning, with the initial weights of the run's seed."""
    cfg, data = parts.cfg, parts["dataset"]
    schedule, prediction, variance = parts["schedule"], parts["prediction"], parts["variance"]
    preconditioning = parts["preconditioning"]
    torch.manual_seed(Streams(cfg.seed).key("init"))
    network = build_network(cfg, data, prediction, variance, parts)
    lay_out(network, cfg.get("channels_last"), cfg.precision, on_cpu(cfg.trainer))
    null_label = data.conditions.null_label
    return Denoiser(network, schedule, prediction, variance, preconditioning=preconditioning, null_label=null_label)


def build_module(parts: RunParts) -> DiffusionModule:
    """The LightningModule on the CPU, without its sampler."""
    denoiser, cfg = build_denoiser(parts), parts.cfg
    if cfg.get("compile"):
        denoiser.network.compile()  # in place, which keeps the names of the parameters
    return DiffusionModule(denoiser, parts["weighting"], parts["optimizer"], Streams(cfg.seed))


def build_trainer(parts: RunParts, facts: dict[str, Any], more: Sequence[Callback] = ()) -> Trainer:
    """Lightning's Trainer: callbacks in the order of conf/callbacks, then `more`, and the loggers of conf/logger."""
    callbacks = parts.family("callbacks").values()
    record = RunRecord(parts.cfg.paths.run_dir, facts)
    trainer = parts.with_arguments(
        "trainer",
        callbacks=[record, *callbacks, *more],
        logger=list(parts.family("logger").values()),
        plugins=[VerifiedCheckpointIO(), *_cluster()],
    )
    finish_at_the_last_step(trainer)
    return trainer


def _cluster() -> list[SLURMEnvironment]:
    """Under srun Lightning reads its ranks from SLURM's variables. The submitter requeues the job: Lightning would
    write a checkpoint in the middle of a step."""
    return [SLURMEnvironment(auto_requeue=False)] if srun_tasks() else []


def build_run(
    cfg: DictConfig, facts: dict[str, Any], more: Sequence[Callback] = (), parts: RunParts | None = None
) -> TrainingRun:
    """Build data, module and trainer, in this order.

    Args:
        cfg: the configuration.
        facts: the content of run.json.
        more: further callbacks.
        parts: the parts that were built to check this configuration; by default they are built here.
    """
    parts = parts or RunParts(with_metrics(cfg))
    data = parts["dataset"]
    return TrainingRun(build_module(parts), data, build_trainer(parts, facts, more))
