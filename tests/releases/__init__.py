"""A small run of each release, as its `train` wrote it, without `.hydra` and `previous.ckpt`.

`python -m tests.releases` writes that of the present version, before it is released; those of releases are never
written again. They keep the promise of docs/install.md: a change that cannot read one of them needs a default in
`diffusion_lab.runs.identity.ADDED_LATER`, or code that reads both.
"""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent
# Every part that keeps a state of its own: a sampler that learns, labels, two averages, the moments of the optimizer.
WORDS = [
    *("scale=smoke", "sampler=loss_second_moment", "sampler.history_per_timestep=1", "schedule.num_timesteps=40"),
    *("network.base_channels=8", "network.channel_multipliers=[1,1]", "callbacks.ema.decays=[0.9,0.99]"),
    *("dataset.conditional=true", "dataset.label_dropout=0.1", "metrics.names=[fid]", "metrics.num_samples=128"),
    *("callbacks.generation.grid=16", "callbacks.validation.bins=4", "callbacks.timestep_log.bins=4"),
    *("trainer.accelerator=cpu", "threads=1"),
]
