"""What the README and the guides show works as it stands there."""

import csv
import importlib
import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

from diffusion_lab.networks import UNet
from diffusion_lab.testing import check_weighting
from diffusion_lab.verdicts import judge
from tests.auxiliary.small import at, images, module, stepped

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
OWN_PARTS = (ROOT / "docs" / "own-parts.md").read_text()
METRICS = (ROOT / "docs" / "metrics.md").read_text()
NUMBERS = (ROOT / "docs" / "numbers.md").read_text()
EXAMPLES = dict(re.findall(r"<!-- example: (\S+) -->\n```\w+\n(.*?)```", OWN_PARTS + METRICS, re.S))
YAML = sorted(name for name in EXAMPLES if name.startswith("my_conf/"))
SAMPLER = ("late.py", "my_conf/sampler/late.yaml")
SMALL = [
    "network.base_channels=8",
    "network.channel_multipliers=[1,2]",
    "max_steps=6",
    "snapshot_every=0",
    "checkpoint_every=3",
    "log_every=2",
    "metrics=none",
    "batch_size=16",
    "threads=1",
]


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    for name, text in EXAMPLES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_the_sampler_of_the_guide_is_20_lines_and_its_test_passes(workplace):
    assert sum(len(EXAMPLES[name].splitlines()) for name in SAMPLER) <= 20
    importlib.import_module("test_late").test_late()


@pytest.mark.parametrize("weighting", ["between.Between", "steady.Steady"])
def test_the_weightings_of_the_guide_keep_the_contract(weighting, workplace):
    module, _, name = weighting.partition(".")
    check_weighting(getattr(importlib.import_module(module), name))


def test_the_step_of_the_guide_with_times_of_positions(workplace):
    of = at(module(UNet(1, 1, 4, 8, [1, 2], 1, [], 0.0), importlib.import_module("lower").LowerStep), 0)
    t = of.pair(images(), {}).t
    assert (t[:, :, :2] == t[:, :, 2:] // 10).all() and t.unique().numel() > 3
    of._draws = None, 0  # the same draw again
    record = stepped(of)["record"]
    assert record.loss.shape == (6,) and torch.equal(record.t, t.flatten(1).double().mean(1).round().long())


def test_the_guides_have_parts_of_each_kind():
    kinds = {name.split("/")[1] for name in YAML}
    assert kinds == {"sampler", "weighting", "auxiliary", "order", "model", "network", "analysis", "metric"}


@pytest.mark.parametrize("file", YAML)
def test_a_guide_has_both_files_of_a_part_whole(file, workplace):
    """A class with a docstring, and a yaml file that has each of its arguments but those which other parts give."""
    kind = file.split("/")[1]
    settings = yaml.safe_load(EXAMPLES[file])
    settings = next(iter(settings.values())) if kind == "auxiliary" else settings  # a family
    module, _, name = settings["_target_"].partition(".")
    found = getattr(importlib.import_module(module), name)
    assert found.__doc__ and found.__doc__ != found.__mro__[1].__doc__
    given = {"in_channels", "out_channels", "image_size"} if kind == "network" else set()
    assert {*settings} - {"_target_", "_partial_"} == {*inspect.signature(found).parameters} - given


@pytest.mark.pages
def test_the_sampler_and_the_network_of_the_guide_train_from_the_command_line(workplace):
    command = [sys.executable, "-m", "diffusion_lab.cli.main", "train", "--config-dir", "./my_conf"]
    command += ["sampler=late", "network=pixels", "network.hidden=32"]
    done = subprocess.run(
        [*command, *SMALL[2:]], capture_output=True, text=True, timeout=300, env=os.environ | {"PYTHONPATH": ""}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = (workplace / "runs").glob("digits-late-v-min_snr-s0-*")
    assert json.loads((folder / "result.json").read_text())["status"] == "done"
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    p = next(line["sampler/p"] for line in lines if "sampler/p" in line)
    assert p == sorted(p) and p[-1] > 3 * p[0]


@pytest.mark.pages
def test_the_loss_the_step_and_the_weighting_of_the_guide_train_together(workplace):
    command = [sys.executable, "-m", "diffusion_lab.cli.main", "train", "--config-dir", "./my_conf", *SMALL]
    command += ["auxiliary=[quiet,dispersive]", "model=robust", "weighting=steady", "sampler=uniform"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=os.environ | {"PYTHONPATH": ""})
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = (workplace / "runs").glob("digits-uniform-robust-v-steady-quiet-dispersive-s0-*")
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert len([line for line in lines if line.get("train/aux_quiet", 0) > 0 > line["train/aux_dispersive"]]) == 3
    objectives = [line["sampler/objective"] for line in lines if "sampler/objective" in line]
    assert objectives[0] != objectives[-1]  # the weights have moved


@pytest.mark.parametrize(
    ("seeds", "page"), [(range(5), README), (range(4), NUMBERS), (range(4, 8), NUMBERS), (range(8), NUMBERS)]
)
def test_the_decisions_of_the_demo_are_those_of_its_seeds(seeds: range, page: str):
    """docs/demo.csv: the values of `make demo`, and of three seeds more; the page states every verdict of the seeds."""
    values: dict[str, dict[int, float]] = {}
    for row in csv.DictReader((ROOT / "docs" / "demo.csv").read_text().splitlines()):
        if int(row["seed"]) in seeds:
            values.setdefault(row["sampler"], {})[int(row["seed"])] = float(row["fd1k_digits"])
    cfg = yaml.safe_load((ROOT / "conf" / "experiment" / "demo.yaml").read_text())
    names = cfg["hydra"]["sweeper"]["params"]["sampler"].split(",")
    assert {*values} == {*names} and all({*own} == {*seeds} for own in values.values())
    text = " ".join(page.split())
    judged = dict(zip(names, judge([values[name] for name in names], "ratio", rising=False), strict=True))
    assert [one.word for one in judged.values() if one].count("better") >= 2
    for name, found in judged.items():
        if found is not None:
            interval = f"{found.size:.2f} [{found.low:.2f}, {found.high:.2f}]"
            better = found.word == "better"
            assert (f"`{name}` has {interval}" if better else f"`{name}` is {found.word} ({interval})") in text
