"""An exported model of latents says what decodes its samples: the autoencoder, and mean and std of each channel."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch

from diffusion_lab import load_run
from diffusion_lab.data import Autoencoder, Encoding, ImageFolder, Latents
from diffusion_lab.export.latents import DECODER, decoding_code, write_decoder
from diffusion_lab.training import TrainedDiffusion
from tests.cli.test_export import run
from tests.data.latent.autoencoders import save_autoencoder, save_images

TRAIN = """network.base_channels=8 max_steps=1 batch_size=16 snapshot_every=0 metrics=none solver.clip=false threads=1
    trainer.accelerator=cpu dataset=latents""".split()


@pytest.fixture(scope="module")
def latents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("latents")
    images = ImageFolder(save_images(folder / "images", 40), 16, cache_dir=folder / "cache")
    Encoding(images, Autoencoder(str(save_autoencoder(folder / "kl"))), folder / "out").run()
    return folder / "out"


def test_the_lines_of_the_card_decode_as_the_run_does(
    latents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Latents(latents)
    decoding = source.decoding()
    write_decoder(tmp_path, decoding)
    monkeypatch.chdir(tmp_path)
    x = torch.randn(3, *source.shape, generator=torch.Generator().manual_seed(0))
    names: dict = {"x": x}
    exec(decoding_code(decoding), names)
    own = source.to_pixels(x)
    assert names["images"].shape == (3, 3, 16, 16)
    assert ((names["images"].clamp(0, 1) * 255).round() - own).abs().max() <= 1
    assert own.float().std() > 1
    assert json.loads((tmp_path / DECODER).read_text())["autoencoder"] == {
        "class": "AutoencoderKL",
        "place": str(latents.parent / "kl"),
        "subfolder": "",
        "weights_sha256": source.header.autoencoder["weights_sha256"],
    }


def test_an_autoencoder_of_the_hub_is_named_as_the_library_takes_it() -> None:
    assert Autoencoder("owner/name").loaded_from == ("owner/name", "")
    assert Autoencoder("owner/name/first_stage/vae").loaded_from == ("owner/name", "first_stage/vae")
    assert Autoencoder("./kl").loaded_from[1] == ""


def test_latents_that_are_gone_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"root=.*gone must be a folder of latents with a latents.json"):
        Latents(tmp_path / "gone", shape=(4, 8, 8)).decoding()


@pytest.mark.slow
@pytest.mark.parametrize("form", ["safetensors", "torch", "diffusers"])
def test_each_format_has_what_decodes(
    form: str, latents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tmp_path / "run"
    out = made / "export" / form  # the name of the format, not of a class
    run(["train", *TRAIN, f"dataset.source.root={latents}", f"hydra.run.dir={made}"], tmp_path / "train.log")
    run(["export", f"run={made}", f"format={form}"], tmp_path / "export.log")
    card = (out / "README.md").read_text()
    use, pixels = re.findall(r"```python\n(.*?)```", card, re.S)
    trained = load_run(made)
    assert isinstance(trained, TrainedDiffusion) and isinstance(trained.data.source, Latents)
    monkeypatch.chdir(out)
    x = torch.randn(16, *trained.data.shape, generator=torch.Generator().manual_seed(0))
    names: dict = {"x": x}
    exec(use, names)
    assert "images" not in names  # latents are no pictures
    x = names["x"]
    exec(pixels, names)
    own = trained.data.source.to_pixels(x)
    assert ((names["images"].clamp(0, 1) * 255).round() - own).abs().max() <= 1
    header = trained.data.source.header
    for words in (
        f"| SHA-256 of its weights | `{header.autoencoder['weights_sha256']}` |",
        f"| mean of the latents | `{', '.join(f'{value:.6g}' for value in header.mean)}` |",
        "A diffusion model of latents, trained with",
    ):
        assert words in card
