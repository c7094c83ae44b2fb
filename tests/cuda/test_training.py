"""Every option of every group that takes part in a training, on the paper GPU: one device, and no wait in a step.

The options are those that lie in conf/: a new yaml is tested without an edit here.
"""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
import torch

from diffusion_lab.diffusion import ConstantX0
from diffusion_lab.timesteps import Uniform
from tests.cuda.training import CONF, configured, gan, options, train
from tests.cuda.waits import STEP, not_allowed
from tests.ddp.test_methods import options as options_of_method

# Group: why its options are not trained with here.
ELSEWHERE = {
    "analysis": "tests/cuda/test_analyses.py",
    "autoencoder": "AutoencoderKL and VQModel are diffusers'",
    "base": "parts that are trained with one by one",
    "callbacks": "tests/cuda/test_callbacks.py",
    "dataset": "images are read and cut on the host",
    "debug": "a preset of settings",
    "experiment": "presets of parts that are tested one by one",
    "features": "tests/metrics/test_dinov2.py",
    "format": "an export is written on the host",
    "hydra": "starts processes",
    "logger": "writes on the host",
    "metric": "tests/cuda/test_callbacks.py",
    "metrics": "tests/cuda/test_callbacks.py",
    "model": "a GAN is trained below, the others by methods",
    "network": "tests/cuda/test_networks.py",
    "scale": "a preset of settings",
    "solver": "tests/cuda/test_sampling.py",
    "table": "tests/conf/test_tables.py",
    "table_scale": "tests/tables/test_table_scale.py",
    "trainer": "Lightning's own devices, in place of the paper one",
}
TRAINED = {group: names for group, names in options().items() if group.split("/")[0] not in ELSEWHERE}
OF_A_GAN = ("task=gan", "method=biggan", "optimizer=adam_dcgan")
ON_THE_HOST = ("coupling=immiscible", "coupling=minibatch_ot")  # an assignment is solved there
NO_FORWARD_MODE = ("method=meanflow",)  # tensors of paper have no derivative in forward mode
CHOICES = [f"{group}={name}" for group, names in TRAINED.items() for name in names if group != "method"]
# Groups that have nothing to do with one another: a training takes an option of each.
TOGETHER = [
    ("sampler", "annealing", "optimizer", "order", "averaging", "weighting", "coupling", "schedule", "time"),
    ("auxiliary", "preconditioning", "variance", "sampler/distribution"),
]


def shared() -> list[str]:
    """`CHOICES` that can be trained with on paper, those of groups that go together in one word each."""
    single = [choice for choice in CHOICES if choice not in OF_A_GAN + ON_THE_HOST]
    words = []
    alone = TRAINED.keys() - {group for groups in TOGETHER for group in groups}
    for groups in (*TOGETHER, *((group,) for group in sorted(alone))):
        of_each = [[choice for choice in single if choice.split("=")[0] == group] for group in groups]
        words += [" ".join(filter(None, choices)) for choices in zip_longest(*of_each)]
    return words


def check(choices: str | None, folder: Path, *overrides: str) -> None:
    watched = train(configured(folder, choices, *overrides))
    assert not_allowed(watched.steps, STEP) == {}
    assert not_allowed(watched.all) == {}
    assert {p.device.type for p in watched.run.module.parameters()} == {"cuda"}


@pytest.mark.parametrize("choices", shared())
def test_a_training_stays_on_the_device_and_never_waits_in_a_step(choices: str, tmp_path: Path) -> None:
    check(choices, tmp_path)


def test_every_choice_is_trained_with_once() -> None:
    words = " ".join(shared()).split()
    assert sorted(words) == sorted(set(CHOICES) - {*OF_A_GAN, *ON_THE_HOST})


def test_what_is_tested_elsewhere_is_there() -> None:
    assert set(ELSEWHERE) <= {group.split("/")[0] for group in options()}
    assert all((CONF.parent / words).is_file() for words in ELSEWHERE.values() if words.endswith(".py"))
    assert {"sampler", "weighting", "prediction", "prediction/space", "variance", "schedule"} <= set(TRAINED)


@pytest.mark.parametrize("choices", [("task=gan",), ("task=gan", "method=biggan")], ids=["dcgan", "biggan"])
def test_a_gan_stays_on_the_device_and_never_waits_in_a_step(choices: tuple[str, ...], tmp_path: Path) -> None:
    watched = train(gan(tmp_path, *choices))
    assert not_allowed(watched.steps, STEP) == {} and not_allowed(watched.all) == {}
    assert {p.device.type for p in watched.run.module.parameters()} == {"cuda"}


def methods() -> list[Any]:
    """One with a model of its own; the others put together what is trained with above, and are second cases."""
    names = [name for name in TRAINED["method"] if f"method={name}" not in OF_A_GAN + NO_FORWARD_MODE]
    models = [name for name in names if any(option.startswith("/model=") for option in options_of_method(name))]
    return [pytest.param(name, marks=[pytest.mark.exhaustive] * (name not in models)) for name in names]


@pytest.mark.slow
@pytest.mark.parametrize("method", methods())
def test_every_method(method: str, tmp_path: Path) -> None:
    check(f"method={method}", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "overrides",
    [
        ["accumulate=2"],
        ["dataset.conditional=true", "dataset.label_dropout=0.5"],
        ["precision=bf16-mixed"],
        ["precision=16-mixed", "optimizer.fused=false"],
        ["optimizer.fused=false"],
        ["channels_last=true"],
        ["gradient_clip=null"],
        ["weighting.normalize=mean1_sampler", "sampler=speed"],
        ["sampler=learned_beta", "dataset.conditional=true", "accumulate=2"],
        ["sampler=gradient_variance", "precision=bf16-mixed"],
        ["callbacks.ema.decays=[0.9,0.99]"],
    ],
    ids="+".join,
)
def test_settings_that_change_how_a_step_is_computed(overrides: list[str], tmp_path: Path) -> None:
    check(None, tmp_path, *overrides)


class TableOnTheHost(Uniform):
    """Draws from a table that does not follow the sampler to the device."""

    def __init__(self, num_timesteps: int) -> None:
        super().__init__(num_timesteps)
        self.table = torch.arange(num_timesteps).flip(0)

    def quantile(self, u: torch.Tensor, step: int) -> torch.Tensor:
        return torch.maximum(super().quantile(u, step), self.table[: len(u)])


class CountsOnTheHost(Uniform):
    """Asks in each step how often every timestep was drawn."""

    def observe(self, record: object, context: object) -> None:
        torch.bincount(record.t, minlength=self.num_timesteps)


class LooksAtItsWeight(ConstantX0):
    """Reads a number of the batch in each step."""

    def x0_weight(self, snr: torch.Tensor, step: int) -> torch.Tensor:
        return torch.ones_like(snr) * float(snr.mean().clamp(max=1.0))


def wrong(part: str, name: str, folder: Path):
    cfg = configured(folder)
    cfg[part]["_target_"] = f"tests.cuda.test_training.{name}"
    return cfg


def test_a_sampler_with_a_table_on_the_host_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="two devices, cuda:0 and cpu"):
        train(wrong("sampler", "TableOnTheHost", tmp_path))


@pytest.mark.parametrize(
    ("part", "name"), [("sampler", "CountsOnTheHost"), ("weighting", "LooksAtItsWeight")], ids=["sampler", "weighting"]
)
def test_a_part_that_waits_in_a_step_is_noticed(part: str, name: str, tmp_path: Path) -> None:
    found = not_allowed(train(wrong(part, name, tmp_path)).steps, STEP)
    assert sum(found.values()) == 1
