"""A timestep sampler that fails in a given way until it is repaired."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import torch
from torch import Tensor

from diffusion_lab.timesteps import Context, Draw, Uniform

STEP = 3
WAYS = ("exception", "exit 0", "exit 1", "killed", "not finite", "hangs")
CURED = "DIFFUSION_LAB_FAULTS_CURED"  # a file whose existence repairs them all


class Failing(Uniform):
    """Uniform timesteps, with a failure in step 3 for some seeds.

    Args:
        num_timesteps: T.
        seed: of the run.
        fails: the seeds that fail, in the order of `WAYS`.
    """

    def __init__(self, num_timesteps: int, seed: int, fails: list[int]) -> None:
        super().__init__(num_timesteps)
        self.way = WAYS[fails.index(seed)] if seed in fails else ""

    def draw(self, x0: Tensor, context: Context) -> Draw:
        """(b,) timesteps and weights, or a failure."""
        draw = super().draw(x0, context)
        if context.step == STEP and self.way and not Path(os.environ.get(CURED, "/nowhere")).exists():
            if self.way == "not finite":
                return Draw(draw.t, torch.full_like(draw.weight, torch.nan))
            fail(self.way)
        return draw


def fail(way: str) -> None:
    """Fail, or sleep for an hour."""
    if way == "exception":
        raise RuntimeError("this sampler fails on purpose")
    if way.startswith("exit"):
        sys.exit(int(way.split()[1]))
    if way == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(3600)
