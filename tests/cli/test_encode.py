"""`diffusion-lab encode`, and what training and sampling make of its latents."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from diffusion_lab.cli.config import conf_dir
from diffusion_lab.cli.main import main
from diffusion_lab.data import Autoencoder, ImageFolder, Latents
from tests.data.latent.autoencoders import save_autoencoder, save_images
from tests.harness import Child

PHOTOS = ["dataset=image_folder", "dataset.source.root=images", "dataset.source.image_size=16"]
PHOTOS += ["dataset.source.cache_dir=cache"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """images/, kl/, vq/ and other/."""
    folder = tmp_path_factory.mktemp("made")
    save_images(folder / "images", 30)
    for name, kind, seed in (("kl", "kl", 0), ("vq", "vq", 0), ("other", "kl", 1)):
        save_autoencoder(folder / name, kind, seed)
    return folder


@pytest.fixture
def here(made: Path, in_folder: Path) -> Path:
    """A working folder with all of it."""
    shutil.copytree(made, in_folder, dirs_exist_ok=True)
    return in_folder


def encode(*more: str) -> int:
    return main(["encode", *PHOTOS, "autoencoder.weights=kl", "outdir=out", "device=cpu", *more])


def test_it_writes_what_training_reads_and_says_how_to_go_on(here: Path, capsys: pytest.CaptureFixture) -> None:
    assert encode("flips=true") == 0
    said = capsys.readouterr().out
    assert "54 training latents (4, 8, 8), half of them mirrored and 3 test latents in out" in said
    assert "next: diffusion-lab train dataset=latents dataset.source.root=out solver.clip=false" in said
    latents = Latents("out", images=ImageFolder("images", 16, cache_dir="cache"))
    latents.check()
    assert len(latents.train()) == 54 and latents.num_classes is None
    assert encode("flips=true") == 0  # finished: nothing is done again
    assert sorted(path.name for path in (here / "out").iterdir()) == ["latents.json", "test.npy", "train.npy"]


def test_a_vq_model_and_labels(here: Path) -> None:
    assert (
        encode("autoencoder=vq", "autoencoder.weights=vq", "dataset.conditional=true", "autoencoder.batch_size=7") == 0
    )
    latents = Latents("out")
    assert (latents.channels, latents.num_classes) == (3, 2)
    header = json.loads((here / "out" / "latents.json").read_text())
    assert header["autoencoder"]["place"] == str(here / "vq") == str(Path(Autoencoder("vq").place))


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "dataset=null must be the images to encode"),
        ([*PHOTOS, "dataset.source.root=no"], "dataset.source.root=no must be a folder of images"),
        ([*PHOTOS, "autoencoder.weights=no"], "autoencoder.weights=no must be an existing folder, or OWNER/NAME"),
        ([*PHOTOS, "autoencoder.batch_size=0"], "autoencoder.batch_size=0 must be an integer >= 1"),
        ([*PHOTOS, "dataset.source.image_size=15"], "dataset.source.image_size=15 must be a multiple of 2"),
        (["dataset=digits"], "dataset.source.channels=1 must be the autoencoder's 3"),
        (["dataset=gaussian"], r"dataset.source=gaussian must give images in \[-1, 1\]"),
        ([*PHOTOS, "posterior=mode"], "posterior=mode must be one of sample, mean"),
        ([*PHOTOS, "autoencoder=kll"], "autoencoder=kll must be one of kl, vq.*did you mean 'kl'"),
        ([*PHOTOS, "flip=true"], "flip=true: there is no setting flip .did you mean 'flips'"),
    ],
)
def test_a_fault_is_one_line_and_exit_code_2(
    arguments: list[str], line: str, here: Path, capsys: pytest.CaptureFixture
) -> None:
    assert main(["encode", "outdir=out", "device=cpu", "autoencoder.weights=kl", *arguments]) == 2
    error = capsys.readouterr().err.strip()
    assert error.count("\n") == 0 and re.match(f"config error: ({line})", error), error
    assert not (here / "out").exists()


def test_help_lists_groups_and_settings(capsys: pytest.CaptureFixture) -> None:
    assert main(["encode", "--help"]) == 0
    text = capsys.readouterr().out
    assert re.search(r"autoencoder +\[kl\] vq", text) and "image_folder" in text
    assert "outdir=data/latents" in text and "posterior=sample" in text
    for line in (conf_dir() / "encode.yaml").read_text().splitlines():
        if re.match(r"\w+: \S", line):
            assert "#" in line, line


@pytest.mark.parametrize("option", [path.stem for path in sorted((conf_dir() / "autoencoder").glob("*.yaml"))])
def test_every_autoencoder_option_fits_its_signature(option: str) -> None:
    from hydra.utils import instantiate
    from omegaconf import OmegaConf

    node = OmegaConf.load(conf_dir() / "autoencoder" / f"{option}.yaml")
    assert list(node) == ["_target_", "weights", "download", "batch_size"]
    assert isinstance(instantiate(node), Autoencoder)


TINY = ["network=unet_tiny", "network.base_channels=8", "trainer=cpu", "metrics=none", "callbacks.generation.grid=4"]
TINY += ["max_steps=4", "batch_size=8", "log_every=1", "snapshot_every=4", "checkpoint_every=2", "solver.steps=3"]
TRAIN = ["train", "dataset=latents", "dataset.source.root=out", *TINY, "schedule.num_timesteps=40"]


@pytest.mark.slow
def test_training_refuses_clipping_and_a_wrong_autoencoder_before_step_1(
    here: Path, capsys: pytest.CaptureFixture
) -> None:
    assert encode() == 0
    capsys.readouterr()
    for more, line in (
        ([], "solver.clip=true must be false with images_latent.*; use solver.clip=false"),
        (["solver.clip=false", "dataset.source.autoencoder=other"], "dataset.source.autoencoder=other must be the one"),
        (["solver.clip=false", "dataset.source.root=no"], "dataset.source.root=no must be a folder of latents"),
        (["solver.clip=false", "dataset.flip=true"], "dataset.flip=true must have images that can be mirrored"),
    ):
        assert main([*TRAIN, *more]) == 2
        error = capsys.readouterr().err.strip()
        assert error.count("\n") == 0 and re.match(f"config error: {line}", error), error
    assert not (here / "runs").exists() or not list((here / "runs").iterdir())


def picture(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        return np.asarray(image)


@pytest.mark.slow
def test_encode_train_grid_and_sample_end_to_end(here: Path) -> None:
    def work(*arguments: str):
        return lambda: (_ for _ in ()).throw(SystemExit(main(list(arguments))))

    log = here / "log"
    Child(work("encode", *PHOTOS, "autoencoder.weights=kl", "outdir=out", "device=cpu"), log).succeed()
    Child(work(*TRAIN, "solver.clip=false", "hydra.run.dir=run"), log).succeed()
    grid = picture(here / "run" / "samples" / "step-00000004.png")
    side = 2 + 2 * (16 * 3 + 2)  # 2 x 2 decoded images of 16 pixels, shown three times as large, 2 pixels apart
    assert grid.shape == (side, side, 3)
    assert grid[2:50, 2:50].std() > 1 and not np.array_equal(grid[2:50, 2:50], grid[52:100, 52:100])
    Child(work("sample", "run=run", "seeds=0-2", "device=cpu"), log).succeed()
    folder = here / "run" / "generated" / "step-00000004" / "images"
    assert [picture(folder / f"{i:06d}.png").shape for i in range(3)] == [(16, 16, 3)] * 3
    # The same folder name with other weights in it: sampling stops before it starts.
    shutil.rmtree(here / "kl")
    shutil.copytree(here / "other", here / "kl")
    assert Child(work("sample", "run=run", "seeds=0-2", "device=cpu"), log).wait() == 2
    assert "config error: dataset.source.autoencoder=" in log.read_text()
    assert Child(work("sample", "run=run", "solver=ddim", "device=cpu"), log).wait() == 2
