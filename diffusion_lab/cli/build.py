"""Build the objects of a run from its parts."""

from __future__ import annotations

from collections.abc import Sequence
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
from diffusion_lab.networks.checks import keywords
from diffusion_lab.runs.trained_run import TrainedRun
from diffusion_lab.streams import Streams
from diffusion_lab.training import RunModule, VerifiedCheckpointIO
from diffusion_lab.training.run_module import finish_at_the_last_step


@dataclass
class TrainingRun:
    """The three objects of a training run."""

    module: RunModule
    data: ImageDataModule
    trainer: Trainer


def build_network(parts: RunParts) -> nn.Module:
    """The network for the images of the run."""
    make = parts["network"]
    with config_errors("network"):
        return parts["model"].called(make(**network_arguments(parts)))


def network_arguments(parts: RunParts) -> dict[str, int]:
    """The arguments of a network that the other parts define: `in_channels`, `out_channels`, `image_size`, and
    `num_classes` if the batches have labels."""
    data = parts["dataset"]
    with config_errors("dataset.source"):
        channels, image_size, _ = data.shape
    labels = data.conditions.num_labels
    if labels is not None and not keywords(parts["network"]).takes("num_classes"):
        raise ValueError(f"num_classes={labels} is unknown to this network; use dataset.conditional=false")
    kind = parts["model"]
    in_channels, out_channels = kind.in_channels(channels), kind.out_channels(channels, parts)
    given = {"in_channels": in_channels, "out_channels": out_channels, "image_size": image_size}
    return given if labels is None else given | {"num_classes": labels}


def build_model(parts: RunParts) -> nn.Module:
    """What has all the weights, a denoiser or the networks of a GAN, with the initial weights of the run's seed."""
    cfg, kind = parts.cfg, parts["model"]
    for path in ("dataset", *kind.parts):
        parts[path]  # before the seed: a constructor may draw random numbers
    torch.manual_seed(Streams(cfg.seed).key("init"))
    network = build_network(parts)
    lay_out(network, cfg.get("channels_last"), cfg.precision, on_cpu(cfg.trainer))
    return kind.whole(network, parts)


def build_module(parts: RunParts) -> RunModule:
    """The LightningModule on the CPU, without its sampler."""
    module = parts["model"].module(build_model(parts), parts, Streams(parts.cfg.seed))
    if parts.cfg.get("compile"):
        module.network.compile()  # in place, which keeps the names of the parameters
    return module


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
    """Load the trained runs that parts use, and build data, module and trainer, in this order.

    Args:
        cfg: the configuration.
        facts: the content of run.json.
        more: further callbacks.
        parts: the parts that were built to check this configuration; by default they are built here.
    """
    from diffusion_lab.cli.load import open_runs, trusted  # which imports `build_model`

    parts = parts or RunParts(with_metrics(cfg))
    data = parts["dataset"]
    parts.build_all(TrainedRun)
    open_runs(parts, trusted(cfg))
    return TrainingRun(build_module(parts), data, build_trainer(parts, facts, more))
