"""Where a learned timestep sampler's time goes: `python -m benchmarks.learned_beta_parts`.

CPU seconds of the parts of 40 steps with one lesson, beside those of forward and backward pass alone, at the settings
of `benchmarks.learned_beta`; the parts are measured in turn, on one thread. Every step has one forward pass of the
policy, a lesson has two looks.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.learned_beta import SETTINGS, STEPS
from diffusion_lab.cli.build import build_module, part
from diffusion_lab.cli.config import compose_train
from diffusion_lab.diffusion import Denoiser
from diffusion_lab.networks.policy import BetaPolicy
from diffusion_lab.streams import Streams
from diffusion_lab.training import DenoiserProbe

ROUNDS = 7


def main() -> None:
    torch.set_num_threads(1)
    print("| setting | part | rows | ms | of 40 steps |\n| --- | --- | ---: | ---: | ---: |")
    for title, setting in SETTINGS.items():
        with tempfile.TemporaryDirectory() as folder:
            cfg = compose_train(setting["training"], Path(folder) / "run")
            data = part(cfg, "dataset")
            denoiser = build_module(cfg, data).denoiser
        _measure(title, denoiser, torch.rand(cfg.batch_size, *data.shape) * 2 - 1, setting["stride"])


def _measure(title: str, denoiser: Denoiser, x0: Tensor, stride: int) -> None:
    batch, total = len(x0), denoiser.num_timesteps
    t, noise = torch.arange(batch) % total, torch.randn_like(x0)
    policy, probe = BetaPolicy(x0.shape[1]), DenoiserProbe(denoiser, Streams(0))

    def step() -> None:
        denoiser.zero_grad(set_to_none=True)
        denoiser.loss(x0, noise, t).native.mean().backward()

    def look(rows: int) -> Callable[[], object]:
        index = torch.arange(rows)
        return lambda: probe.pairs(x0[index % batch], index % total, index, rows, seed=0)

    @torch.no_grad()
    def act() -> None:
        policy(x0)

    some, every = len(range(0, total, stride)) + 3 * (batch // 4), total + 3 * batch
    parts: dict[str, tuple[Callable[[], object], int, int]] = {  # what, rows, times in 40 steps
        "forward and backward pass": (step, batch, STEPS),
        "the policy's forward pass": (act, batch, STEPS),
        "a look: every 10th timestep, a quarter of the rows": (look(some), some, 2),
        "a look: all timesteps, all rows": (look(every), every, 2),
    }
    seconds: dict[str, list[float]] = {name: [] for name in parts}
    for _ in range(ROUNDS + 1):
        for name, (run, _, _) in parts.items():
            start = time.process_time()
            run()
            seconds[name].append(time.process_time() - start)
    typical = {name: statistics.median(values[1:]) for name, values in seconds.items()}
    plain = STEPS * typical["forward and backward pass"]
    for name, (_, rows, times) in parts.items():
        print(
            f"| {title} | {name} | {rows} | {1000 * typical[name]:.1f} | {times * typical[name] / plain:.3f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
