"""Trainings that take turns on one machine, and the time of each turn.

Every configuration trains in its own process, with one thread. Only one of them runs at any time: after `steps`
optimizer steps it waits for the others. A turn is measured in CPU seconds of the process; `paired.py` has the reason
and the ratio.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path

from lightning.pytorch import LightningModule, Trainer

from diffusion_lab.callbacks.base import StepCallback
from diffusion_lab.timesteps import StepRecord
from diffusion_lab.training import DiffusionModule


def turns(trainings: Mapping[str, Sequence[str]], steps: int, rounds: int) -> dict[str, list[float]]:
    """CPU seconds of each turn.

    Args:
        trainings: name -> overrides of `diffusion-lab train`.
        steps: optimizer steps of a turn.
        rounds: turns of each training, after one that is not measured.

    Returns:
        name -> one number per round.

    Raises:
        EOFError: a training ended early, with its error in the output above.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["diffusion_lab.cli.build", "diffusion_lab.loggers"])  # once, not in each training
    with ExitStack() as stack:
        lines: dict[str, Connection] = {}
        for name, overrides in trainings.items():
            ours, theirs = context.Pipe()
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            process = context.Process(target=_train, args=(theirs, list(overrides), steps, rounds + 1, folder))
            process.start()
            stack.callback(process.join)
            theirs.close()
            lines[name] = ours
        for line in lines.values():
            line.recv()  # ready
        seconds: dict[str, list[float]] = {name: [] for name in lines}
        for _ in range(rounds + 1):
            for name, line in lines.items():
                line.send(None)
                seconds[name].append(line.recv())
        return {name: values[1:] for name, values in seconds.items()}


class TakeTurns(StepCallback):
    """Waits for its turn before the first step and after every `steps`; sends the time of the last turn."""

    def __init__(self, line: Connection, steps: int) -> None:
        self.line, self.steps = line, steps

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        super().on_train_start(trainer, pl_module)
        if trainer.is_global_zero:
            self.line.send(None)
            self._wait()

    def on_step_end(self, trainer: Trainer, module: DiffusionModule, step: int, records: list[StepRecord]) -> None:
        if step % self.steps == 0 and trainer.is_global_zero:  # the other ranks wait for this one in the next step
            self.line.send(time.process_time() - self._start)
            if step < trainer.max_steps:
                self._wait()

    def _wait(self) -> None:
        self.line.recv()
        self._start = time.process_time()


def _train(line: Connection, overrides: list[str], steps: int, turns: int, folder: str) -> None:
    """In the child process: a training by `diffusion-lab train`, without samples and checkpoints."""
    import torch

    from diffusion_lab.cli.build import build_run
    from diffusion_lab.cli.commands.train import facts, quiet_libraries
    from diffusion_lab.cli.config import compose_train

    torch.set_num_threads(1)
    quiet_libraries()
    quiet = ["~callbacks.generation", "~callbacks.validation", "~callbacks.checkpoint", "~callbacks.progress"]
    words = ["base=ddpm", *overrides, *quiet, f"max_steps={steps * turns}", "trainer.accelerator=cpu"]
    cfg = compose_train(words, Path(folder) / "run")
    run = build_run(cfg, facts(cfg), [TakeTurns(line, steps)])
    run.trainer.fit(run.module, datamodule=run.data)
