"""`stream_seeds`: one source of a run's randomness has another seed, and everything else stays as it was."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from omegaconf import DictConfig

from diffusion_lab import streams
from diffusion_lab.cli.build_model import build_module
from diffusion_lab.cli.checks.settings import SETTINGS
from diffusion_lab.cli.conf_folder import conf_dir, yaml_file
from diffusion_lab.cli.config import config_hash
from diffusion_lab.cli.main import main
from diffusion_lab.cli.run_parts import RunParts
from diffusion_lab.runs.identity import ADDED_LATER
from diffusion_lab.streams import Streams
from tests.harness import configuration

SMALL = ("base=ddpm", "dataset=digits", "network.base_channels=8")
DRAWN = ("timesteps", "noise", "dropout", "rewards", "auxiliary")
FURTHER = ("timesteps-1", "noise-1", "noise-2", "init-repa")  # of a source, for parts that draw more


def drawn(cfg: DictConfig) -> dict[str, list[float]]:
    """Source -> numbers of a run at step 3: the first weights, and draws of the streams of its module and its data."""
    parts = RunParts(cfg)
    module = build_module(parts)
    found = {"init": next(module.network.parameters()).flatten()[:8].tolist()}
    found |= {stream: module.streams.normal((8,), stream, 3).tolist() for stream in (*DRAWN, *FURTHER)}
    return found | {"order": parts["dataset"].streams.normal((8,), "order", 3).tolist()}


@pytest.fixture(scope="module")
def of_seeds(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, list[float]]]:
    folder = tmp_path_factory.mktemp("seeds")
    return {seed: drawn(configuration(folder, *SMALL, f"seed={seed}")) for seed in (0, 7)}


@pytest.mark.parametrize(
    ("word", "source"),
    [
        ("stream_seeds.init=7", "init"),
        ("stream_seeds.timesteps=7", "timesteps"),
        ("stream_seeds.noise=7", "noise"),
        ("stream_seeds.dropout=7", "dropout"),
        ("dataset.seed=7", "order"),
    ],
)
def test_one_source_is_that_of_another_seed_and_all_others_stay(
    word: str, source: str, of_seeds: dict[int, dict[str, list[float]]], tmp_path: Path
) -> None:
    own = drawn(configuration(tmp_path, *SMALL, "seed=0", word))
    numbers = {name for name in own if name.partition("-")[0] == source}
    assert {name for name in own if own[name] == of_seeds[7][name]} == numbers
    assert {name for name in own if own[name] == of_seeds[0][name]} == own.keys() - numbers


def test_only_a_seed_of_its_own_makes_another_run(tmp_path: Path) -> None:
    plain, same, other = (
        configuration(tmp_path, *SMALL, *words) for words in ([], ["stream_seeds.noise=null"], ["stream_seeds.noise=7"])
    )
    assert config_hash(plain) == config_hash(same) != config_hash(other)
    del plain.stream_seeds  # as a run of 0.1.0 has been saved
    assert config_hash(plain) == config_hash(same)
    assert drawn(plain)["noise"] == Streams(0).normal((8,), "noise", 3).tolist()


def test_the_three_places_that_name_the_streams_agree() -> None:
    shipped = yaml_file(conf_dir() / "train.yaml")["stream_seeds"]
    checked = {key.partition(".")[2] for key in SETTINGS if key.startswith("stream_seeds.")}
    assert shipped == ADDED_LATER[""]["stream_seeds"] and checked == shipped.keys()
    assert shipped.keys() <= set(re.findall(r'"(\w+)"', streams.__doc__ or ""))


@pytest.mark.parametrize(
    ("word", "message"),
    [
        (
            "stream_seeds.noise=-1",
            "stream_seeds.noise=-1 must be an integer >= 0 or null; use null for that of the run",
        ),
        ("stream_seeds.noise=1.5", "stream_seeds.noise=1.5 must be an integer"),
        ("+stream_seeds.nose=7", "stream_seeds.nose: there is no setting stream_seeds.nose (did you mean 'noise'?)"),
    ],
)
def test_bad_seeds_are_refused(word: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *SMALL, f"paths.root={tmp_path}", word]) == 2
    assert message in capsys.readouterr().err


def test_a_stream_of_its_own_is_checked_in_python() -> None:
    with pytest.raises(ValueError, match=r"stream_seeds\.noise=-1 must be an integer >= 0"):
        Streams(0, {"noise": -1})
    assert torch.equal(Streams(0, {"noise": None}).normal((4,), "noise"), Streams(0).normal((4,), "noise"))
