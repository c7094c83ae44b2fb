"""A network of diffusers on the command line: it trains, resumes to the bit, is sampled and evaluated."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch

from diffusion_lab.cli.config import compose_train
from diffusion_lab.cli.main import main
from tests.harness import TINY, Child, differences, trained

diffusers = pytest.importorskip("diffusers")

WORDS = [word for word in TINY if not word.startswith("network")]
WORDS += ["max_steps=8", "solver.steps=4", "variance=learned_range", "prediction=x0"]
LABELLED = ["dataset.conditional=true", "dataset.label_dropout=0.5"]


def command(folder: Path, *words: str) -> int:
    def work() -> None:
        os.chdir(folder)
        raise SystemExit(main([*words]))

    return Child(work, folder / "log").wait()


@pytest.mark.slow
@pytest.mark.parametrize("network", ["diffusers", "diffusers_dit"])
def test_it_resumes_to_the_bit_and_is_sampled_and_evaluated(network: str, tmp_path: Path) -> None:
    def run(name: str, *kills: int, seed: int = 0) -> dict[str, object]:
        return trained(compose_train([f"network={network}", *WORDS, *LABELLED, f"seed={seed}"], tmp_path / name), kills)

    straight = run("straight")
    assert differences(straight, run("killed", 4)) == []
    assert "weights" in differences(straight, run("other", seed=1))  # negative control
    few = ("metrics.num_samples=128", "metrics.names=[fid]")
    assert command(tmp_path, "sample", "run=straight", "seeds=0-3") == 0
    assert command(tmp_path, "evaluate", "run=straight", *few) == 0
    lines = [json.loads(line) for line in (tmp_path / "straight/evaluations.jsonl").read_text().splitlines()]
    assert [line["value"] > 0 for line in lines if line["name"] == "fd128_digits"] == [True]


@pytest.mark.slow
def test_a_folder_gives_architecture_and_weights_and_is_needed_no_more(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = diffusers.UNet2DModel(
        sample_size=8,
        in_channels=1,
        out_channels=1,
        block_out_channels=(8, 16),
        down_block_types=("DownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "UpBlock2D"),
        layers_per_block=1,
        norm_num_groups=4,
    )
    model.save_pretrained(tmp_path / "saved")
    words = [word for word in WORDS if not word.startswith(("max_steps", "variance"))]
    given = ["network=diffusers", "network.folder=saved"]
    train = ["train", *words, *given, "init_from=saved", "max_steps=0", "hydra.run.dir=run"]
    assert command(tmp_path, *train) == 0, (tmp_path / "log").read_text()
    state = torch.load(tmp_path / "run/checkpoints/last.ckpt", weights_only=True)["state_dict"]
    ours = {k.removeprefix("denoiser.network.model."): v for k, v in state.items() if ".network." in k}
    theirs = model.state_dict()
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[key], theirs[key]) for key in ours)
    network = json.loads((tmp_path / "run/run.json").read_text())["config"]["network"]
    assert network["found"]["arguments"]["block_out_channels"] == [8, 16]

    (tmp_path / "saved").rename(tmp_path / "moved")
    few = ("metrics.num_samples=128", "metrics.names=[fid]")
    assert command(tmp_path, "evaluate", "run=run", *few) == 0, (tmp_path / "log").read_text()
    assert command(tmp_path, *train) == 2
    assert (
        "network.folder=saved must be a folder that diffusers' save_pretrained wrote" in (tmp_path / "log").read_text()
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("network.architecture=AutoencoderKL", "network.architecture=AutoencoderKL must be a network of diffusers"),
        ("network.arguments.norm_num_groups=5", "network.architecture=UNet2DModel must take images of 1x8x8 and give"),
        ("+network.arguments.depth=3", "network.arguments.depth=3 must be an argument of diffusers' UNet2DModel"),
        ("network.folder=https://example.org/a", "network.folder=https://example.org/a must be a folder"),
        ("+network.arguments.a={_target_:os.system}", "network.arguments.a._target_=os.system must be"),
    ],
)
def test_mistakes_are_one_sentence_before_anything_else(word: str, message: str, tmp_path: Path) -> None:
    assert command(tmp_path, "train", *WORDS, "network=diffusers", word, "hydra.run.dir=run") == 2
    log = (tmp_path / "log").read_text()
    assert message in log and "Traceback" not in log
    assert not (tmp_path / "run" / "checkpoints").exists()
