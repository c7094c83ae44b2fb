"""Counts that need no run: FLOPs of the network, and its calls outside the training steps."""

from __future__ import annotations

from typing import NamedTuple

import torch
from omegaconf import DictConfig
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from diffusion_lab.callbacks.evaluation import measured as is_measured
from diffusion_lab.cli.build import part
from diffusion_lab.cli.metric_files import with_metrics
from diffusion_lab.cli.processes import world_size
from diffusion_lab.data import Conditions, ImageDataModule
from diffusion_lab.diffusion import Denoiser
from diffusion_lab.solvers import network_calls
from diffusion_lab.timesteps import TimestepSampler


class Beside(NamedTuple):
    """Work outside the training steps, over all processes."""

    calls: int  # network calls for one image, without gradients
    rows: int  # images of one such call on one process, at most
    checkpoints: int  # number of writes


def call_on_zeros(network: nn.Module, conditions: Conditions, rows: int, device: torch.device | str = "meta") -> Tensor:
    """The network's output for `rows` images of zeros with the conditions of the run."""
    x, cond = conditions.blank(rows, device)
    return network(x, torch.zeros(rows, dtype=torch.int64, device=device), **cond)


def flops(network: nn.Module, conditions: Conditions) -> tuple[int, int]:
    """FLOPs of one image: forward, and forward with backward. The network is on the meta device."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        call_on_zeros(network, conditions, 1)
    forward = counter.get_total_flops()
    with FlopCounterMode(display=False) as counter:
        call_on_zeros(network, conditions, 1).sum().backward()
    return forward, counter.get_total_flops()


def count_beside(cfg: DictConfig, data: ImageDataModule) -> Beside:
    """Calls for samples, validation and the timestep sampler (and the one inside it), and checkpoints."""
    samples, rows = _samples(cfg, data)
    calls = samples * solver_calls(cfg) if samples else 0
    validation, checkpoint = cfg.callbacks.get("validation"), cfg.callbacks.get("checkpoint")
    if validation is not None:
        images = _validation_images(data) * validation.get("repeats", 1)
        calls += max(1, len(_steps(cfg, validation))) * images  # always at the end
        rows = max(rows, min(validation.get("batch_size", 128), images))
    samplers = [one for one in part(cfg, "sampler").modules() if isinstance(one, TimestepSampler)]
    calls += sum(sampler.probe_rows(cfg.max_steps, cfg.batch_size) for sampler in samplers)
    return Beside(calls, rows, max(1, len(_steps(cfg, checkpoint))) if checkpoint is not None else 0)


def _steps(cfg: DictConfig, callback: DictConfig) -> list[int]:
    """The steps at which a callback acts: multiples of `every` and the end; none if it is 0."""
    every = callback.get("every", 0)
    return [*range(every, cfg.max_steps, every), cfg.max_steps] if every else []


def _samples(cfg: DictConfig, data: ImageDataModule) -> tuple[int, int]:
    """Samples of the whole run, for metrics and for grids, and the batch size of one process."""
    generation, metrics = cfg.callbacks.get("generation"), part(with_metrics(cfg), "metrics")
    if generation is None:
        return 0, 0
    grid, steps = generation.get("grid", 64), _steps(cfg, generation)
    if not metrics.measured(data):
        return grid * len(steps), min(metrics.batch_size, grid) if steps else 0
    settings = (generation.every, generation.get("metrics_every", 0), cfg.max_steps)
    measured = [is_measured(step, *settings) for step in steps or [cfg.max_steps]]  # always at the end
    rows = min(metrics.batch_size, -(-metrics.num_samples // world_size(cfg)))
    return sum(metrics.num_samples if one else grid for one in measured), rows


def _validation_images(data: ImageDataModule) -> int:
    """Images of one validation; if the files are not here, the number in the configuration, else 0."""
    try:
        return data.num_val_images
    except (FileNotFoundError, ValueError):
        return data.val_images or 0


def solver_calls(cfg: DictConfig) -> int:
    """Network calls of one row each that the solver makes for one sample."""
    schedule, prediction, variance, solver = (part(cfg, n) for n in ("schedule", "prediction", "variance", "solver"))
    return network_calls(solver, Denoiser(nn.Identity(), schedule, prediction, variance))


def rows_per_pass(cfg: DictConfig) -> int:
    """Images of one microbatch on one process."""
    return cfg.batch_size // (world_size(cfg) * cfg.accumulate)
