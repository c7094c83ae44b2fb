"""`diffusion_lab.train` and `load_run`: the commands, from Python."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from diffusion_lab import load_run, train
from diffusion_lab.cli.errors import ConfigError, InvalidConfig
from diffusion_lab.solvers import DDIM

TINY = [
    "base=ddpm",
    "network.base_channels=8",
    "schedule.num_timesteps=40",
    "max_steps=6",
    "batch_size=16",
    "snapshot_every=0",
    "metrics=none",
    "threads=1",
    "solver.steps=4",
]


def test_a_run_is_trained_loaded_and_sampled(in_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = train(*TINY)
    assert run.step == 6 and run.folder.parent == in_folder / "runs" and run.decay == 0.9999
    again = train(*TINY)  # as the command: a finished run is not trained again
    assert "nothing to do" in capsys.readouterr().out
    loaded = load_run(run.folder)
    for one, other in zip(run.module.state_dict().values(), loaded.module.state_dict().values(), strict=True):
        assert torch.equal(one, other)
    images = loaded.samples(range(3))
    assert images.shape == (3, 1, 8, 8) and images.dtype == torch.uint8
    assert torch.equal(images, again.samples([0, 1, 2], seed=0, solver=DDIM(steps=4)))  # the run's own solver
    assert not torch.equal(images, loaded.samples(range(3), seed=1))
    raw = load_run(run.folder, weights="raw")
    assert raw.decay is None
    weights = zip(raw.module.parameters(), loaded.module.parameters(), strict=True)
    assert not any(torch.equal(one, other) for one, other in weights if one.requires_grad and one.ndim > 1)


def test_errors_are_raised_as_sentences_and_leave_no_folder(in_folder: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"max_steps=abc must be an integer >= 0; use 2000") as error:
        train("max_steps=abc")
    assert error.value.__cause__ is None
    with pytest.raises(InvalidConfig, match="sampler=spee"):
        train("sampler=spee")
    with pytest.raises(ConfigError, match="-m must be left out"):
        train("-m", "seed=0,1")
    with pytest.raises(ConfigError, match="must be the folder of a run"):
        load_run("nothing")
    assert not list(in_folder.glob("runs/*"))
