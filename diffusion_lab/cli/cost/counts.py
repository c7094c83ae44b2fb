"""What can be counted without running anything: FLOPs, network calls of a solver, looks beside training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from omegaconf import DictConfig
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from diffusion_lab.callbacks.generation import measured as generation_is_measured
from diffusion_lab.cli.build import part
from diffusion_lab.cli.metric_files import with_metrics
from diffusion_lab.cli.processes import world_size
from diffusion_lab.data import Conditions
from diffusion_lab.diffusion import Denoiser
from diffusion_lab.timesteps import TimestepSampler


class Example(NamedTuple):
    """Arguments of the network: x (n,C,H,W), t (n,), and the conditions of the run."""

    x: Tensor
    t: Tensor
    cond: dict[str, Tensor]

    def ask(self, network: nn.Module) -> Tensor:
        """The network's answer."""
        return network(self.x, self.t, **self.cond)


def example(conditions: Conditions, rows: int = 1, device: torch.device | str = "meta") -> Example:
    """What the network is given for `rows` noisy images, in zeros."""
    x, cond = conditions.blank(rows, device)
    return Example(x, torch.zeros(rows, dtype=torch.int64, device=device), cond)


def flops(network: nn.Module, conditions: Conditions) -> tuple[int, int]:
    """FLOPs of one image: forward, and forward with backward. The network is on the meta device."""
    given = example(conditions)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        given.ask(network)
    forward = counter.get_total_flops()
    with FlopCounterMode(display=False) as counter:
        given.ask(network).sum().backward()
    return forward, counter.get_total_flops()


@dataclass(frozen=True)
class Looks:
    """What happens beside the training steps, over the whole run.

    Attributes:
        generations: times that samples are made and, if there are metrics, measured.
        samples: each time, over all processes.
        grids: further times, when samples are only made for a picture.
        grid: samples each of these times.
        calls: network calls per sample.
        measured: whether features of the samples are extracted, and once those of the reference images.
        rows: samples at a time on one process.
        validations: times that the validation loss is measured.
        images: network calls of one image each per validation, over all processes.
        validation_rows: images at a time.
        checkpoints: times that one is written.
        sampler_rows: forward passes of one image that the timestep sampler asks for, over all processes.
    """

    generations: int
    samples: int
    grids: int
    grid: int
    calls: int
    measured: bool
    rows: int
    validations: int
    images: int
    validation_rows: int
    checkpoints: int
    sampler_rows: int

    @property
    def all_samples(self) -> int:
        """Over the whole run and all processes."""
        return self.generations * self.samples + self.grids * self.grid

    @property
    def network_calls(self) -> int:
        """Of one image each, without gradients, over the whole run."""
        return self.all_samples * self.calls + self.validations * self.images + self.sampler_rows


def count_looks(cfg: DictConfig, data: Any) -> Looks:
    """Samples, validations and checkpoints of the whole run."""
    generations, samples, grids, grid, calls, measured, rows = _samples(cfg, data)
    validation = cfg.callbacks.get("validation")
    validations, images = 0, 0
    if validation is not None:
        validations = max(1, _times(cfg, validation))  # always at the end
        images = _validation_images(data) * validation.get("repeats", 1)
    saved = cfg.callbacks.get("checkpoint")
    return Looks(
        generations=generations,
        samples=samples,
        grids=grids,
        grid=grid,
        calls=calls,
        measured=measured,
        rows=rows,
        validations=validations,
        images=images,
        validation_rows=min(validation.get("batch_size", 128), images) if validation is not None else 0,
        checkpoints=max(1, _times(cfg, saved)) if saved is not None else 0,
        sampler_rows=_sampler_rows(cfg),
    )


def _times(cfg: DictConfig, node: DictConfig | None) -> int:
    """How often a callback acts: every so many steps and at the end; never with every = 0."""
    every = node.get("every", 0) if node is not None else 0
    return -(-cfg.max_steps // every) if every else 0


def _sampler_rows(cfg: DictConfig) -> int:
    """What the timestep sampler looks at in the whole run, and the one inside it if it wraps another."""
    samplers = [one for one in part(cfg, "sampler").modules() if isinstance(one, TimestepSampler)]
    return sum(sampler.look_rows(cfg.max_steps, cfg.batch_size) for sampler in samplers)


def _samples(cfg: DictConfig, data: Any) -> tuple[int, int, int, int, int, bool, int]:
    """Generations, samples of each, further grids, samples of each, network calls per sample, whether there are
    metrics, rows of one call."""
    generation = cfg.callbacks.get("generation")
    metrics = part(with_metrics(cfg), "metrics")
    measured = bool(metrics.measured(data))
    times = max(int(measured), _times(cfg, generation))  # measured always at the end
    if generation is None or not times:
        return 0, 0, 0, 0, 0, False, 0
    grid = generation.get("grid", 64)
    if not measured:
        return times, grid, 0, grid, solver_calls(cfg), False, min(metrics.batch_size, grid)
    every = generation.every or cfg.max_steps
    steps = (min(k * every, cfg.max_steps) for k in range(1, times + 1))
    metrics_every = generation.get("metrics_every", 0)
    generations = sum(generation_is_measured(step, generation.every, metrics_every, cfg.max_steps) for step in steps)
    rows = min(metrics.batch_size, -(-metrics.num_samples // world_size(cfg)))
    return generations, metrics.num_samples, times - generations, grid, solver_calls(cfg), True, rows


def _validation_images(data: Any) -> int:
    """Images of one validation; where the files are not here, the number that was asked for, else unknown: 0."""
    try:
        return data.num_val_images
    except (FileNotFoundError, ValueError):
        return data.val_images or 0


class _Counter(nn.Module):
    """Stands in for the network and counts the rows that it is asked for."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels, self.calls = channels, 0

    def forward(self, x: Tensor, t: Tensor, label: Tensor) -> Tensor:
        self.calls += len(x)
        return x.new_zeros(len(x), self.channels, *x.shape[2:])


def solver_calls(cfg: DictConfig) -> int:
    """Network calls of one row each that the solver makes for one sample."""
    schedule, prediction, variance, solver = (part(cfg, n) for n in ("schedule", "prediction", "variance", "solver"))
    counter = _Counter(prediction.heads + variance.channels)
    denoiser = Denoiser(counter, schedule, prediction, variance, null_label=1)
    label = torch.zeros(1, dtype=torch.int64)
    solver(denoiser, torch.zeros(1, 1, 1, 1), noise=lambda k, like: torch.zeros_like(like), label=label)
    return counter.calls


def rows_per_pass(cfg: DictConfig) -> int:
    """Images of one microbatch on one process."""
    return cfg.batch_size // (world_size(cfg) * cfg.accumulate)


def describe_batch(cfg: DictConfig) -> str:
    """How the global batch is split, e.g. `64 images = 2 processes x 2 microbatches x 16`."""
    return (
        f"{cfg.batch_size} images = {world_size(cfg)} processes x {cfg.accumulate} microbatches x {rows_per_pass(cfg)}"
    )
