"""What a run costs, measured on this machine by a few of its own steps, in a folder that is removed again.

    training time    = max_steps * batch_size / (images/s)
    evaluation time  = evaluations * (samples per evaluation) * (network calls per sample) * (seconds per call)

The images/s are those of the real loop: data, sampler, averages and annealing included, logging, validation and
checkpoints not.
"""

from __future__ import annotations

import copy
import tempfile
import time
from dataclasses import dataclass
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from omegaconf import DictConfig, open_dict
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from diffusion_lab.callbacks.progress import memory_mb
from diffusion_lab.cli.build import build_run, part
from diffusion_lab.cli.checks.machine import checkpoint_bytes, checkpoints_kept
from diffusion_lab.cli.checks.parts import meta_network
from diffusion_lab.cli.processes import world_size
from diffusion_lab.cli.train import facts, quiet_libraries
from diffusion_lab.diffusion import Denoiser

WARM_UP = 2  # optimizer steps before the clock starts
KEPT_CALLBACKS = ("annealing", "timestep_sampling", "ema", "guard")  # what acts at every step and writes nothing


@dataclass
class Cost:
    """What one run needs. Times in seconds, sizes in bytes, FLOPs per image (a multiplication and an addition are 2).

    `images_per_second` is that of all processes, taken to be as many times one's; `memory` is one process's peak.
    """

    parameters: int
    forward_flops: int
    training_flops: int
    images_per_second: float
    memory: float
    steps_measured: int
    training_seconds: float
    evaluation_seconds: float
    evaluations: int
    checkpoint: int
    checkpoints: int

    @property
    def seconds(self) -> float:
        """Training and evaluation."""
        return self.training_seconds + self.evaluation_seconds

    @property
    def disk(self) -> int:
        """Bytes of all checkpoints at the end."""
        return self.checkpoint * self.checkpoints


def measure(cfg: DictConfig, budget_s: float) -> Cost:
    """Build the run, take steps for about `budget_s` seconds, count and extrapolate."""
    quiet_libraries()
    data = part(cfg, "dataset")
    network = meta_network(cfg, data, part(cfg, "prediction"), part(cfg, "variance"))
    forward, both = flops(network, data.shape, data.num_classes)
    parameters = sum(p.numel() for p in network.parameters())
    steps, rate, memory, call = _take_steps(cfg, budget_s)
    evaluations, calls = evaluation_calls(cfg, data)
    return Cost(
        parameters=parameters,
        forward_flops=forward,
        training_flops=both,
        images_per_second=rate,
        memory=memory,
        steps_measured=steps,
        training_seconds=cfg.max_steps * cfg.batch_size / rate,
        evaluation_seconds=evaluations * calls * call / world_size(cfg),
        evaluations=evaluations,
        checkpoint=checkpoint_bytes(cfg, parameters),
        checkpoints=checkpoints_kept(cfg),
    )


def flops(network: nn.Module, shape: tuple[int, int, int], num_classes: int | None = None) -> tuple[int, int]:
    """FLOPs of one image (C,H,W): forward, and forward with backward. The network is on the meta device."""
    x = torch.empty(1, *shape, device="meta")
    t = torch.zeros(1, dtype=torch.int64, device="meta")
    cond = {} if num_classes is None else {"label": torch.zeros(1, dtype=torch.int64, device="meta")}
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network(x, t, **cond)
    forward = counter.get_total_flops()
    with FlopCounterMode(display=False) as counter:
        network(x, t, **cond).sum().backward()
    return forward, counter.get_total_flops()


class _Clock(Callback):
    """Times the steps after the warm-up, and ends training when the budget is spent."""

    def __init__(self, budget_s: float) -> None:
        self.budget, self.steps, self.seconds = budget_s, 0, 0.0
        self._start: float | None = None

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        if trainer.global_step < WARM_UP:
            return
        _wait(pl_module.device)
        now = time.perf_counter()
        if self._start is None:
            self._start, self._first = now, trainer.global_step
        self.steps, self.seconds = trainer.global_step - self._first, now - self._start
        trainer.should_stop = self.seconds > self.budget and self.steps >= 2


def _take_steps(cfg: DictConfig, budget_s: float) -> tuple[int, float, float, float]:
    """Steps taken, images/s of the whole run, peak memory in bytes, seconds of a network call per image."""
    processes = world_size(cfg)
    small = copy.deepcopy(cfg)
    with tempfile.TemporaryDirectory() as folder, open_dict(small):
        small.paths.run_dir = folder
        small.batch_size = cfg.batch_size // processes  # one process's share
        small.trainer.devices, small.trainer.num_nodes, small.trainer.strategy = 1, 1, "auto"
        small.callbacks = {name: node for name, node in cfg.callbacks.items() if name in KEPT_CALLBACKS}
        small.logger = {}
        clock = _Clock(budget_s)
        run = build_run(small, facts(small), [clock])
        run.trainer.fit(run.module, datamodule=run.data)
        call = _seconds_per_call(run.module, run.data.shape, run.data.num_classes)
    rate = clock.steps * cfg.batch_size / clock.seconds if clock.seconds else float("nan")
    return clock.steps, rate, memory_mb() * 1e6, call


def _seconds_per_call(module: Any, shape: tuple[int, int, int], num_classes: int | None, batch: int = 32) -> float:
    """Time of the network for one image, without gradients, in a batch."""
    device = module.device
    x = torch.zeros(batch, *shape, device=device)
    t = torch.zeros(batch, dtype=torch.int64, device=device)
    cond = {} if num_classes is None else {"label": t}
    module.eval()
    with torch.no_grad():
        module.denoiser.network(x, t, **cond)
        _wait(device)
        start = time.perf_counter()
        module.denoiser.network(x, t, **cond)
        _wait(device)
    return (time.perf_counter() - start) / batch


def evaluation_calls(cfg: DictConfig, data: Any) -> tuple[int, int]:
    """How often samples are made during the run, and network calls per time: samples times the solver's calls."""
    generation = cfg.callbacks.get("generation")
    if generation is None or not generation.get("every", 0):
        return 0, 0
    metrics = part(cfg, "metrics")
    samples = metrics.num_samples if metrics.names and data.features is not None else generation.get("grid", 64)
    return -(-cfg.max_steps // generation.every), samples * solver_calls(cfg)


class _Counter(nn.Module):
    """Stands in for the network and counts how often it is called."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels, self.calls = channels, 0

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x.new_zeros(len(x), self.channels, *x.shape[2:])


def solver_calls(cfg: DictConfig) -> int:
    """Network calls of the solver for one batch of samples."""
    schedule, prediction, variance, solver = (part(cfg, n) for n in ("schedule", "prediction", "variance", "solver"))
    counter = _Counter(prediction.heads + variance.channels)
    denoiser = Denoiser(counter, schedule, prediction, variance)
    solver(denoiser, torch.zeros(1, 1, 1, 1), noise=lambda k, like: torch.zeros_like(like))
    return counter.calls


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def describe_batch(cfg: DictConfig) -> str:
    """How the global batch is split, e.g. `64 images = 2 processes x 2 microbatches x 16`."""
    processes = world_size(cfg)
    rows = cfg.batch_size // (processes * cfg.accumulate)
    return f"{cfg.batch_size} images = {processes} processes x {cfg.accumulate} microbatches x {rows}"
