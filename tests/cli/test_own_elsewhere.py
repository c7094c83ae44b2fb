"""Parts of one's own in and beside a --config-dir that is neither the working folder nor in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from diffusion_lab.cli.main import main
from diffusion_lab.cli.targets import own_folders
from tests.harness import command_child

SMALL = ("scale=smoke", "metrics=none", "max_steps=2", "network.base_channels=8", "trainer.accelerator=cpu")
FILES = {
    "late.py": """
import torch
from diffusion_lab.timesteps import FixedSampler

class Late(FixedSampler):
    def __init__(self, num_timesteps):
        super().__init__(torch.arange(1, num_timesteps + 1).double())
""",
    "conf/sampler/late.yaml": "_target_: late.Late\nnum_timesteps: ${schedule.num_timesteps}\n",
    "square.py": """
from diffusion_lab.diffusion import Weighting

class Square(Weighting):
    def x0_weight(self, snr, step):
        return snr.square()
""",
    "conf/weighting/square.yaml": "_target_: square.Square\n",
    "conf/contrast.py": """
from diffusion_lab.metrics import Metric

class Contrast(Metric):
    name, better, units = "contrast", "higher", "grey levels"
    needs = frozenset({"samples"})

    def __call__(self, given):
        return float(given.samples.double().flatten(1).std(1).mean())
""",
    "conf/metric/contrast.yaml": "_target_: contrast.Contrast\n",
    "conf/spread.py": """
import numpy as np
from diffusion_lab.analyses import Analysis, Result
from diffusion_lab.plotting import panels

class Spread(Analysis):
    def run(self, trained, work):
        return Result({"variance": np.ones(3)}, {})

    def figure(self, result):
        return panels(1)[0]

    def sentence(self, result):
        return "It is spread."
""",
    "conf/analysis/spread.yaml": "_target_: spread.Spread\n",
}


def write(mine: Path) -> Path:
    for name, text in FILES.items():
        (mine / name).parent.mkdir(parents=True, exist_ok=True)
        (mine / name).write_text(text)
    return mine


@pytest.fixture
def own(tmp_path_factory: pytest.TempPathFactory, in_folder: Path) -> list[str]:
    """The option that names the folder of the yaml files; the working folder is another."""
    return ["--config-dir", str(write(tmp_path_factory.mktemp("my own")) / "conf")]


def test_modules_are_looked_for_in_and_beside_it(own: list[str], in_folder: Path) -> None:
    conf = Path(own[1])
    assert own_folders([own[1]]) == (in_folder.resolve(), conf.parent, conf)


def test_show_imports_them(own: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", *own, "sampler=late", "weighting=square"]) == 0
    assert "late" in capsys.readouterr().out


def test_a_module_elsewhere_is_refused_and_the_sentence_says_where_it_may_be(
    own: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    conf = Path(own[1])
    (conf.parent / "late.py").rename(conf.parent.parent / "late.py")
    assert main(["show", *own, "sampler=late"]) == 2
    assert "in the working folder or beside a --config-dir" in capsys.readouterr().err


def test_commands_that_are_printed_for_own_parts_repeat_the_config_dir(
    in_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(in_folder / "my own")
    own, said = ["--config-dir", "my own/conf"], "--config-dir 'my own/conf'"
    printed = {
        "sampler=late": [f"diffusion-lab train {said} sampler=late", f"diffusion-lab show {said} sampler=late"],
        "metric=contrast": [f"diffusion-lab train {said} 'metrics.names=[contrast]'"],
        "analysis=spread": [f"diffusion-lab analyze {said} analysis=spread run=DIR"],
        "sampler": [f"diffusion-lab list {said} sampler="],
        "ddpm": [f"diffusion-lab train {said} "],
    }
    for word, commands in printed.items():
        assert main(["list", *own, word]) == 0
        text = " ".join(capsys.readouterr().out.split())
        assert all(command in text for command in commands), text
        assert "p_t" not in text or word != "sampler=late"
    assert main(["list", *own]) == 0
    assert f"diffusion-lab list {said} sampler" in " ".join(capsys.readouterr().out.split())


@pytest.mark.slow
def test_a_sweep_and_processes_of_a_run_import_them(own: list[str]) -> None:
    """Jobs are forked; ranks are commands of their own, which get the option again."""
    words = ["train", "-m", *own, "sampler=late,uniform", "weighting=square", *SMALL, "paths.root=swept"]
    command_child(words, Path()).succeed()
    two = ["trainer.devices=2", "trainer.strategy=ddp", "hydra.run.dir=run"]
    command_child(["train", *own, "sampler=late", *SMALL, *two], Path()).succeed()
    runs = [*Path("swept").glob("*/*/run.json"), Path("run/run.json")]
    assert sorted(json.loads(path.read_text())["world_size"] for path in runs) == [1, 1, 2]
    # the ranks know the run as their user's, too
    command_child(["train", "resume=run", "max_steps=3"], Path()).succeed()
