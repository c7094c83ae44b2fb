"""What is said of a fault in a part of the user's own: which part, what it must be, and where it is."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from diffusion_lab.cli import own_yaml
from diffusion_lab.cli.checks.recorded_config import _together
from diffusion_lab.cli.errors import ConfigError
from diffusion_lab.cli.main import main
from diffusion_lab.cli.targets import Trust, _allowed
from diffusion_lab.runs import signature
from tests.harness import Child

PARTS = '''
import torch
from diffusion_lab.diffusion import Weighting
from diffusion_lab.metrics import Metric
from diffusion_lab.timesteps import FixedSampler


class Good(FixedSampler):
    def __init__(self, num_timesteps):
        super().__init__(torch.ones(num_timesteps).double())


class Ten(FixedSampler):
    def __init__(self, num_timesteps):
        super().__init__(torch.ones(10).double())


class Draws(Good):
    def draw(self, *arguments):
        raise KeyError("my own bug")


class NoMethod(Weighting):
    """Neither weight."""


class Fewer(Weighting):
    def x0_weight(self, snr):
        return snr


class Three(Weighting):
    def x0_weight(self, snr, step):
        return snr[:3]


class NoCall(Metric):
    name, better, needs = "nocall", "lower", frozenset({"samples"})


class Each(NoCall):
    name = "each"

    def __call__(self, given):
        return given.samples.double().flatten(1).mean(1)
'''
STEPS = "num_timesteps: ${schedule.num_timesteps}\n"
FILES = {
    "sampler/good": f"_target_: parts.Good\n{STEPS}",
    "sampler/ten": f"_target_: parts.Ten\n{STEPS}",
    "sampler/draws": f"_target_: parts.Draws\n{STEPS}",
    "sampler/notarget": STEPS,
    "samplers/plural": f"_target_: parts.Good\n{STEPS}",
    "top": f"_target_: parts.Good\n{STEPS}",
    "weighting/nomethod": "_target_: parts.NoMethod\n",
    "weighting/fewer": "_target_: parts.Fewer\n",
    "weighting/three": "_target_: parts.Three\n",
    "metric/nocall": "_target_: parts.NoCall\n",
    "metric/each": "_target_: parts.Each\n",
    "metric/notarget": "a: 1\n",
}
SMALL = ("base=ddpm", "metrics=default", "metrics.num_samples=4", "solver.steps=2", "max_steps=1", "batch_size=8")
SMALL += ("network.base_channels=8", "network.channel_multipliers=[1,2]", "trainer.accelerator=cpu", "logger=none")
NONE = "metrics.names=[]"
OWN = (("sampler", "ramp.Bump"), ("weighting", "soft.Soft"))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("own")
    (home / "mine").mkdir()
    (home / "mine" / "parts.py").write_text(PARTS)
    for name, text in FILES.items():
        (home / "mine" / f"{name}.yaml").parent.mkdir(exist_ok=True)
        (home / "mine" / f"{name}.yaml").write_text(text)
    (home / "mine" / "sampler" / "ending.yml").write_text("")
    return home


def said(home: Path, *words: str) -> tuple[int, str]:
    """Exit code and output of `diffusion-lab WORDS` in a folder."""
    log = home / "log"
    log.unlink(missing_ok=True)

    def work() -> None:
        os.chdir(home)
        raise SystemExit(main(list(words)))

    return Child(work, log).wait(), log.read_text()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["sampler=ten", NONE], "sampler=ten must have num_timesteps=1000, as it is given, and has 10, the number of"),
        (["sampler=notarget", NONE], "_target_ is missing; add `_target_: file.Class` to {mine}/sampler/notarget.yaml"),
        (["metrics.names=[notarget]"], "missing; add `_target_: file.Class` to {mine}/metric/notarget.yaml"),
        (["weighting=nomethod", NONE], "NoMethod must define x0_weight(snr, step)"),
        (["weighting=fewer", NONE], "Fewer must define x0_weight(snr, step), and defines x0_weight(snr)"),
        (
            ["weighting=three", NONE],
            "weighting=three: parts.Three.x0_weight must return a tensor of the shape of snr, (1000,)",
        ),
        (["metrics.names=[nocall]"], "must be a concrete Metric, and lacks __call__; define them in NoCall"),
    ],
)
def test_a_fault_of_ones_own_part_is_named_before_the_run(home: Path, words: list[str], sentence: str) -> None:
    code, output = said(home, "train", "--config-dir", "mine", *SMALL, *words)
    assert code == 2 and output.count("config error: ") == 1, output
    assert sentence.format(mine=home / "mine") in output
    assert not list(home.glob("runs/*"))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["sampler=top"],
            "sampler=top: top.yaml lies in mine, but a sampler's must lie in mine/sampler; move it there",
        ),
        (["sampler=plural"], "sampler=plural: plural.yaml lies in mine/samplers, but a sampler's must lie in mine/sam"),
        (["weighting=good"], "weighting=good: good.yaml lies in mine/sampler, but a weighting's must lie in mine/wei"),
        (["sampler=ending"], "sampler=ending: mine/sampler/ending.yml must end in .yaml; rename it"),
        (
            ["metrics.names=[top]"],
            "metrics.names=[top]: top.yaml lies in {mine}, but a metric's must lie in {mine}/metric",
        ),
    ],
)
def test_a_yaml_file_in_the_wrong_place_is_named(home: Path, words: list[str], sentence: str) -> None:
    code, output = said(home, "train", "--config-dir", "mine", *words)
    assert code == 2 and sentence.format(mine=home / "mine") in output, output


def test_an_option_of_ones_own_needs_its_folder(home: Path) -> None:
    code, output = said(home, "train", "sampler=plural")
    assert code == 2 and output.endswith("; your own ones are found with --config-dir DIR\n"), output


@pytest.mark.parametrize(
    ("words", "config_dirs", "own", "sentence"),
    [
        (["run=R", "metrics.names=[a]"], ["gone"], True, "; its --config-dir was gone, which is not there; give"),
        (["resume=R", "sampler=a"], ["gone"], False, "; if it is your own, repeat --config-dir"),
        (["run=R", "sampler=a", "--config-dir", "there"], ["gone"], True, ""),
        (["run=other"], ["gone"], True, "; your own ones are found with --config-dir DIR"),
    ],
)
def test_where_the_options_of_a_run_were_is_said(
    words: list[str], config_dirs: list[str], own: bool, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for module in (own_yaml, signature):
        monkeypatch.setattr(module, "is_own", lambda record: own)
    Path("R").mkdir()
    Path("R/run.json").write_text(json.dumps({"own_parts": {"config_dirs": config_dirs, "modules": {}}}))
    said = own_yaml.own_ones(words)
    assert said.startswith(sentence) and bool(said) == bool(sentence)


def test_classes_that_are_not_allowed_are_one_sentence() -> None:
    texts = [f"{key}._target_={name} must be {_allowed(Trust(of_record=True), name)}" for key, name in OWN]
    (one, rest) = _together([*map(ConfigError, texts), ConfigError("seed is missing")], Trust(of_record=True))
    assert str(rest) == "seed is missing"
    assert str(one).startswith("sampler._target_=ramp.Bump, weighting._target_=soft.Soft must be a class of diffusion_")
    assert str(one).endswith("; if the classes are your own, repeat --config-dir or add 'allow=[ramp.Bump,soft.Soft]'")


def test_a_metric_of_several_numbers_is_named_with_what_it_must_return(home: Path) -> None:
    code, output = said(home, "train", "--config-dir", "mine", *SMALL, "metrics.names=[each]", "paths.root=each")
    last = output.splitlines()[-1]
    assert code == 1 and last.startswith(
        "failed: metrics.names=[each] (parts.Each): parts.Each.__call__ must return one number, or None if it is not "
        "defined, and returned Tensor of shape (4,); correct it in parts; folder "
    ), output


def test_an_error_in_ones_own_code_names_the_part_the_line_and_the_step(home: Path) -> None:
    code, output = said(home, "train", "--config-dir", "mine", *SMALL, NONE, "sampler=draws", "paths.root=draws")
    line = PARTS.splitlines().index('        raise KeyError("my own bug")') + 1
    assert code == 1 and (
        f"failed: KeyError: 'my own bug'; in sampler=draws (parts.Draws), {home}/mine/parts.py line {line} "
        "after step 0; folder " in output.splitlines()[-1]
    ), output
    (record,) = home.glob("draws/*/result.json")
    assert json.loads(record.read_text())["error"]["type"] == "KeyError"
