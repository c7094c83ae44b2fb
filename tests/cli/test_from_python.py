"""`diffusion_lab.train` and `load_run`: the commands, from Python."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from diffusion_lab import Denoiser, DiffusionModule, Streams, TimestepSampling, load_run, train
from diffusion_lab.cli.errors import ConfigError, InvalidConfig
from diffusion_lab.diffusion import MinSNR, V, cosine
from diffusion_lab.networks import UNet
from diffusion_lab.networks.checks import check_label
from diffusion_lab.runs.record import write_record
from diffusion_lab.solvers import DDIM
from diffusion_lab.timesteps import Uniform

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
    with pytest.raises(
        InvalidConfig, match=r"max_steps=abc must be an integer >= 0; use a number such as 2000"
    ) as error:
        train("max_steps=abc")
    assert error.value.__cause__ is None
    with pytest.raises(InvalidConfig, match="sampler=spee"):
        train("sampler=spee")
    with pytest.raises(ConfigError, match="-m must be left out"):
        train("-m", "seed=0,1")
    with pytest.raises(ConfigError, match="must be the folder of a run"):
        load_run("nothing")
    assert not list(in_folder.glob("runs/*"))


def test_errors_name_the_arguments_of_the_function_that_was_called(in_folder: Path) -> None:
    with pytest.raises(ConfigError, match="^folder=nothing must be the folder of a run"):
        load_run("nothing")
    Path("run").mkdir()
    config = {"dataset": {"_target_": "late.Late"}, "network": {}}
    there = dict.fromkeys(("model", "optimizer", "trainer", "precision", "seed"), {"x": 1})
    for more, says in (({}, "model is missing in run.json"), (there, "add allow='late.Late'")):
        write_record(Path("run"), {"config": config | more}, own=False)
        with pytest.raises(InvalidConfig, match=says) as error:
            load_run("run")
        assert "--config-dir" not in str(error.value) and str(error.value).startswith("folder=run: ")
    modules = {"own_parts": {"config_dirs": [], "modules": {"nowhere_late": str(in_folder)}}}
    write_record(Path("run"), {"config": config} | modules, own=True)
    with pytest.raises(ConfigError, match=r"put nowhere_late.py on Python's path and give allow='nowhere_late.CLASS'$"):
        load_run("run")


def test_parts_that_are_called_from_python_speak_of_their_arguments() -> None:
    with pytest.raises(ValueError, match="give the network the data's number of classes and the data conditional=True"):
        check_label(None, 10)
    with pytest.raises(ValueError, match="num_res_blocks=0 must be an integer >= 1; give a positive number$"):
        UNet(1, 1, 8, num_res_blocks=0)
    denoiser = Denoiser(torch.nn.Conv2d(1, 1, 1), schedule=cosine(10), prediction=V())
    with pytest.raises(ValueError, match="train on data with conditional=True and label_dropout=0.1$"):
        denoiser.guided(2.0)
    module = DiffusionModule(denoiser, MinSNR(5.0), lambda p: torch.optim.SGD(p, 0.1), Streams(seed=0))
    with pytest.raises(ValueError, match="give the sampler num_timesteps=10, in a yaml file"):
        TimestepSampling(Uniform(20)).on_fit_start(Mock(), module)
