"""What `train` shows on a terminal, and prints into a file."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from diffusion_lab.cli.config import compose_train
from diffusion_lab.cli.main import main
from diffusion_lab.cli.outcome import overruled_words
from tests.harness import command_child
from tests.terminal import on_a_terminal

SMALL = [
    "base=ddpm",
    "network.base_channels=8",
    "network.channel_multipliers=[1,2]",
    "max_steps=6",
    "snapshot_every=3",
    "metrics_every=0",
    "checkpoint_every=3",
    "batch_size=16",
    "solver.steps=4",
    "metrics.num_samples=600",
    "metrics.names=[fid]",
    "threads=1",
    "trainer.accelerator=cpu",
    "logger=none",
]
TRAIN = ["train", *SMALL]


@pytest.mark.slow
def test_a_terminal_shows_the_run_the_phases_and_what_has_come_of_it(tmp_path: Path) -> None:
    seen = on_a_terminal([sys.executable, "-m", "diffusion_lab.cli.main", *TRAIN], columns=80, cwd=tmp_path)
    assert seen.code == 0
    assert seen.shown_at[0][1].startswith("starting")
    assert seen.shown_at[1][1].startswith("digits · unet_tiny")
    assert re.search(r"training .* \d/6 steps .*loss .*eta", seen.shown)
    assert re.search(r"sampling .* \d+/600 images", seen.shown)
    opening, done, *values, samples, following = seen.last
    (folder,) = tmp_path.glob("runs/*")
    assert opening == f"digits · unet_tiny · uniform · seed 0 -> runs/{folder.name}"
    assert done.startswith("done: step 6, ")
    result = json.loads((folder / "result.json").read_text())
    fd = result["metrics"]["metrics/fd600_digits"]
    assert any(re.match(rf"  fd600_digits +{fd:.4g}  \([+−][\d.e+]+ since step 3\)", line) for line in values)
    assert any(line.startswith("  val/loss") for line in values)
    assert samples == f"samples: runs/{folder.name}/samples/step-00000006.png" and (tmp_path / samples[9:]).is_file()
    assert following == f"next: diffusion-lab report runs/{folder.name}"
    again = on_a_terminal(lambda: main(TRAIN), columns=80, cwd=tmp_path)
    assert again.code == 0 and re.search(
        rf"nothing to do: runs/{folder.name} is done at step 6; ", " ".join(again.last)
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["experiment=demo", "method=flow"], "demo sets prediction=v schedule=cosine, where method=flow has"),
        (["experiment=demo", "method=flow"], "type prediction=velocity schedule=rectified_flow to train"),
        (["experiment=demo", "method=flow", "schedule=cosine"], "demo sets prediction=v, where method=flow has"),
        (["experiment=demo", "method=flow", "schedule=rectified_flow", "prediction=velocity"], ""),
        (["experiment=demo"], ""),
        (["method=flow"], ""),
        (["experiment=methods_digits", "method=iddpm"], ""),  # whose schedule is not of the experiment
    ],
)
def test_what_an_experiment_takes_from_a_method_is_said(words: list[str], said: str, tmp_path: Path) -> None:
    told = overruled_words(compose_train(words, tmp_path).hydra)
    assert (said in told) if said else told == ""


@pytest.mark.slow
def test_an_error_stands_alone_on_a_terminal(tmp_path: Path) -> None:
    seen = on_a_terminal(lambda: main([*TRAIN, "max_steps=0"]), columns=120, cwd=tmp_path)
    assert seen.code == 2 and "digits · unet_tiny" in seen.shown
    assert seen.last == ["config error: max_steps=0 must be an integer >= 1; use 2000"]


@pytest.mark.slow
def test_a_file_gets_the_same_as_lines(tmp_path: Path) -> None:
    command_child(TRAIN, tmp_path).succeed()
    said = (tmp_path / "log").read_text()
    first, *lines = said.splitlines()
    assert first.startswith("digits · unet_tiny · uniform · seed 0 -> runs/") and "\x1b" not in said
    assert any(line.startswith("step 6/6  images 0.1k  time ") for line in lines)
    assert lines[-1].startswith("next: diffusion-lab report runs/")
