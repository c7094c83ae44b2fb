"""RunParts are built once, and the run takes those that were checked."""

from __future__ import annotations

import functools
from collections import Counter
from pathlib import Path

import pytest
import torch
from torch import nn

from diffusion_lab.annealing import Constant
from diffusion_lab.callbacks import EMA
from diffusion_lab.cli.build import build_run
from diffusion_lab.cli.checks.annotations import described
from diffusion_lab.cli.commands.train import facts
from diffusion_lab.cli.errors import ConfigError
from diffusion_lab.cli.metric_files import with_metrics
from diffusion_lab.cli.run_parts import RunParts
from diffusion_lab.cli.validate import examine
from diffusion_lab.data import ImageDataModule
from diffusion_lab.networks import UNet
from diffusion_lab.solvers import DDIM
from diffusion_lab.streams import Streams
from diffusion_lab.timesteps import CLTS, LogitNormal

SMALL = ("sampler=clts", "network.base_channels=8", "trainer.accelerator=cpu")
DRAWS = """
from torch import nn
from diffusion_lab.timesteps import Uniform

class Drawing(Uniform):
    def __init__(self, num_timesteps):
        super().__init__(num_timesteps)
        self.policy = nn.Linear(3, 3)
"""


def test_each_part_is_built_once_and_the_network_twice(
    composed, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    request.addfinalizer(described.cache_clear)  # it has signatures of the constructors below
    built: Counter[type] = Counter()
    kinds = (CLTS, Constant, DDIM, EMA, ImageDataModule, UNet)
    for kind in kinds:

        def counted(self, *args, _kind=kind, _real=kind.__init__, **kwargs) -> None:
            built[_kind] += 1
            _real(self, *args, **kwargs)

        monkeypatch.setattr(kind, "__init__", functools.wraps(kind.__init__)(counted))
    cfg = composed(*SMALL)
    faults, parts = examine(cfg)
    assert faults == [] and parts is not None
    run = build_run(cfg, facts(cfg), parts=parts)
    assert built == dict.fromkeys(kinds, 1) | {UNet: 2}  # the first one has no memory for its weights
    assert run.data is parts["dataset"] and parts["callbacks.timestep_sampling"].sampler is parts["sampler"]
    assert {parameter.device.type for parameter in run.module.parameters()} == {"cpu"}


def test_a_part_that_draws_global_random_numbers_has_those_that_follow_the_network(
    composed, in_folder: Path, monkeypatch
) -> None:
    monkeypatch.syspath_prepend(in_folder)
    (in_folder / "drawing_xyz.py").write_text(DRAWS)
    cfg = composed("sampler=uniform", "sampler._target_=drawing_xyz.Drawing", *SMALL[1:])
    torch.manual_seed(5)  # whatever was drawn before
    faults, parts = examine(cfg)
    assert faults == [] and parts is not None
    run = build_run(cfg, facts(cfg), parts=parts)
    torch.manual_seed(Streams(cfg.seed).key("init"))
    channels, size, _ = run.data.shape
    parts.fresh()["network"](in_channels=channels, out_channels=channels, image_size=size)
    expected = nn.Linear(3, 3).weight
    assert torch.equal(parts["sampler"].policy.weight, expected)
    assert not torch.equal(expected, nn.Linear(3, 3).weight)


def test_a_reference_is_the_part_that_it_refers_to_and_anew_is_another(composed) -> None:
    parts = RunParts(with_metrics(composed()))
    assert isinstance(parts["sampler"], LogitNormal)
    assert parts["callbacks.generation"].evaluation.metrics[0] is parts["metric.fid"]
    assert parts.fresh()["sampler"] is not parts["sampler"]
    assert list(parts.family("callbacks")) == list(parts.cfg.callbacks)


def test_what_may_not_be_named_is_not_built_either(composed) -> None:
    cfg = composed("sampler._target_=os.system")
    with pytest.raises(ConfigError, match=r"^sampler._target_=os.system must be a class of diffusion_lab"):
        RunParts(cfg)["sampler"]
