"""Measurements on this machine: steps of the training loop and a network call, or the speed of a convolution."""

from __future__ import annotations

import copy
import tempfile
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from omegaconf import DictConfig, open_dict

from diffusion_lab.cli.build import build_run
from diffusion_lab.cli.commands.train import facts
from diffusion_lab.cli.compute import keep_freed_memory
from diffusion_lab.cli.cost.counts import HALF, call_on_zeros
from diffusion_lab.cli.processes import local_devices, on_cpu, world_size

WARM_UP = 2  # optimizer steps before the clock starts
APART = ("generation", "validation", "checkpoint", "progress")  # callbacks that are counted separately, or cost nothing


class Trial(NamedTuple):
    """Seconds, measured."""

    steps: int  # number of measured steps
    step: float  # one optimizer step of one process
    call: float  # one image in a network call without gradients


class _Clock(Callback):
    """Times the steps after the warm-up, and ends training when the budget is spent."""

    def __init__(self, budget_s: float) -> None:
        self.budget, self.steps, self.seconds = budget_s, 0, 0.0
        self._start: float | None = None
        self._last = -1  # the step of the last look at the clock

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        if trainer.global_step in (*range(WARM_UP), self._last):  # the latter within an update of several microbatches
            return
        self._last = trainer.global_step
        wait(pl_module.device)
        now = time.perf_counter()
        if self._start is None:
            self._start, self._first = now, trainer.global_step
        self.steps, self.seconds = trainer.global_step - self._first, now - self._start
        trainer.should_stop = self.seconds > self.budget and self.steps >= 2


def take_steps(cfg: DictConfig, budget_s: float, rows: int) -> Trial:
    """Build one process's share of the run, train for `budget_s`, and call its network with `rows` images."""
    small = copy.deepcopy(cfg)
    with tempfile.TemporaryDirectory() as folder, open_dict(small):
        small.paths.run_dir = folder
        small.batch_size = cfg.batch_size // world_size(cfg)
        small.max_steps = max(cfg.max_steps, WARM_UP + 2)  # so that there are steps to measure
        small.trainer.devices, small.trainer.num_nodes, small.trainer.strategy = 1, 1, "auto"
        small.callbacks = {name: node for name, node in cfg.callbacks.items() if name not in APART}
        small.logger = {}
        small.compile = False  # compilation would exceed the budget
        if on_cpu(small.trainer):
            keep_freed_memory()  # as the run does
        clock = _Clock(budget_s)
        run = build_run(small, facts(small), [clock])
        run.trainer.fit(run.module, datamodule=run.data)
        module, rows = run.module.to(run.trainer.strategy.root_device), max(1, rows)  # Lightning has moved it off
        network = module.network.eval()
        with run.trainer.strategy.precision_plugin.forward_context(), torch.no_grad():
            call = clocked(lambda: call_on_zeros(network, run.data.conditions, rows, module.device), module.device)
    return Trial(clock.steps, clock.seconds / clock.steps, call / rows)


def convolution_rate(device: torch.device, precision: str) -> float:
    """FLOP/s of forward and backward of a 3x3 convolution, 128 channels at 32x32: an upper bound."""
    rows, channels, side = (64 if device.type == "cuda" else 8), 128, 32
    layer = torch.nn.Conv2d(channels, channels, 3, padding=1, device=device)
    x = torch.randn(rows, channels, side, side, device=device, requires_grad=True)

    def step() -> None:
        with torch.autocast(device.type, HALF.get(precision), enabled=precision in HALF):
            loss = layer(x).float().square().mean()
        loss.backward()

    return 3 * 2 * 9 * channels**2 * side**2 * rows / min(clocked(step, device) for _ in range(3))


def clocked(work: Callable[[], Any], device: torch.device) -> float:
    """Seconds of `work`, the second time."""
    work()
    wait(device)
    start = time.perf_counter()
    work()
    wait(device)
    return time.perf_counter() - start


def threads(cfg: DictConfig) -> int:
    """The threads of one process of the run: those of the configuration, or its share of the cores."""
    shared = local_devices(cfg.trainer) if on_cpu(cfg.trainer) else 1
    return cfg.get("threads") or max(1, torch.get_num_threads() // shared)


def wait(device: torch.device) -> None:
    """Wait until the device is idle."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
