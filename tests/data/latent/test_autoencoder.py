"""The wrapper gives diffusers' own numbers, and its identity tells maps apart, not files."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from diffusion_lab.data import Autoencoder
from tests.data.latent.autoencoders import save_autoencoder


@pytest.fixture(scope="module")
def kl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_autoencoder(tmp_path_factory.mktemp("models") / "kl", "kl")


@pytest.fixture(scope="module")
def vq(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_autoencoder(tmp_path_factory.mktemp("models") / "vq", "vq")


@pytest.fixture
def copy(kl: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(kl, tmp_path / "copy"))


def change_config(folder: Path, **values: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def images(n: int = 5) -> torch.Tensor:
    return torch.rand(n, 3, 16, 16, generator=torch.Generator().manual_seed(1)) * 2 - 1


def test_kl_gives_the_posterior_and_the_decoder_of_diffusers(kl: Path) -> None:
    from diffusers import AutoencoderKL

    theirs, ours, x = AutoencoderKL.from_pretrained(kl, low_cpu_mem_usage=False).eval(), Autoencoder(str(kl)), images()
    with torch.no_grad():
        law = theirs.encode(x).latent_dist
        decoded = theirs.decode(law.mean).sample
    mean, std = ours.encode(x)
    assert mean.shape == (5, 4, 8, 8) and not mean.requires_grad
    assert torch.equal(mean, law.mean) and torch.equal(std, law.std) and (std > 0).all()
    assert torch.equal(ours.decode(mean), decoded)
    assert (ours.image_channels, ours.channels, ours.factor) == (3, 4, 2)


def test_vq_gives_what_stands_before_the_codebook_and_decodes_codes(vq: Path) -> None:
    from diffusers import VQModel

    theirs, ours, x = VQModel.from_pretrained(vq, low_cpu_mem_usage=False).eval(), Autoencoder(str(vq)), images()
    with torch.no_grad():
        latents = theirs.encode(x).latents
        decoded = theirs.decode(latents).sample
        codes = theirs.quantize(latents)[0]
    mean, std = ours.encode(x)
    assert torch.equal(mean, latents) and (std == 0).all() and mean.shape == (5, 3, 8, 8)
    assert torch.equal(ours.decode(mean), decoded)
    assert torch.allclose(ours.decode(codes), decoded, atol=1e-4) and not torch.equal(codes, latents)


def test_batches_bound_the_memory_and_change_nothing_but_rounding(kl: Path) -> None:
    whole, parts = (Autoencoder(str(kl), batch_size=size) for size in (16, 2))
    z = whole.encode(images()).mean
    assert torch.allclose(z, parts.encode(images()).mean, atol=1e-5)
    assert torch.allclose(whole.decode(z), parts.decode(z), atol=1e-5)


def test_it_computes_in_float32_inside_autocast_and_leaves_the_global_generator_alone(kl: Path) -> None:
    expected = Autoencoder(str(kl)).encode(images()).mean
    state = torch.random.get_rng_state()
    with torch.autocast("cpu", torch.bfloat16):
        found = Autoencoder(str(kl)).encode(images()).mean
    assert torch.equal(found, expected) and found.dtype == torch.float32
    assert torch.equal(torch.random.get_rng_state(), state)


def test_the_identity_is_of_the_map(kl: Path, copy: Path, tmp_path: Path) -> None:
    from diffusers import AutoencoderKL

    wanted = Autoencoder(str(kl)).identity()
    assert wanted["class"] == "AutoencoderKL" and len(wanted["weights_sha256"]) == 64
    assert wanted["latent_channels"] == 4 and wanted["factor"] == 2
    change_config(copy, scaling_factor=1.0, _name_or_path="elsewhere")  # neither is part of the map
    assert Autoencoder(str(copy)).identity() == wanted
    model = AutoencoderKL.from_pretrained(kl, low_cpu_mem_usage=False)
    model.save_pretrained(tmp_path / "bin", safe_serialization=False)  # another format, the same tensors
    assert Autoencoder(str(tmp_path / "bin")).identity() == wanted
    with torch.no_grad():
        model.decoder.conv_out.bias[0] += 1e-6
    model.save_pretrained(tmp_path / "moved")
    moved = Autoencoder(str(tmp_path / "moved")).identity()
    assert moved["weights_sha256"] != wanted["weights_sha256"] and moved["config"] == wanted["config"]


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ("nowhere", "weights=nowhere must be an existing folder, or OWNER/NAME.*there is no folder /"),
        ("./no/such", "weights=./no/such must be an existing folder"),
        ("/no/such", "weights=/no/such must be an existing folder"),
        ("nobody/nothing", "weights=nobody/nothing must be an existing folder or lie in .* set download=true"),
    ],
)
def test_a_missing_autoencoder_is_one_sentence_without_the_network(
    weights: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object, **more: object) -> None:
        raise AssertionError("a connection was tried")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    with pytest.raises(FileNotFoundError, match=f"^{said}"):
        Autoencoder(weights).identity()


def test_a_failed_download_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    def fail(*arguments: object, **more: object) -> None:
        raise OSError("no route to host\nand more")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(FileNotFoundError, match=r"^weights=a/b/c must be fetched .*\(no route to host\); copy"):
        Autoencoder("a/b/c", download=True).identity()


def test_what_the_hub_has_fetched_is_found_with_its_subfolder(
    kl: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub

    asked = []

    def cached(name: str, allow_patterns: list[str], local_files_only: bool = False, **more: object) -> str:
        asked.append((name, allow_patterns[0], local_files_only))
        return str(tmp_path)

    shutil.copytree(kl, tmp_path / "vae")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", cached)
    assert Autoencoder("owner/name/vae").identity() == Autoencoder(str(kl)).identity()
    assert asked == [("owner/name", "vae/config.json", True)]


def test_a_cache_with_other_files_of_a_repository_is_not_its_autoencoder(
    kl: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub's library returns the folder whatever is in it: nothing was downloaded, and config.json was missed."""
    import huggingface_hub

    asked = []

    def snapshot(name: str, allow_patterns: list[str], local_files_only: bool = False, **more: object) -> str:
        asked.append(local_files_only)
        if not local_files_only:
            shutil.copytree(kl, tmp_path, dirs_exist_ok=True)
        return str(tmp_path)

    (tmp_path / "README.md").touch()
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    with pytest.raises(FileNotFoundError, match="weights=owner/name must be .* set download=true"):
        Autoencoder("owner/name").identity()
    assert Autoencoder("owner/name", download=True).identity() == Autoencoder(str(kl)).identity()
    assert asked == [True, True, False]


def test_missing_packages_are_named(kl: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(FileNotFoundError, match=r"with diffusers, which is missing; run: python -m pip install"):
        Autoencoder(str(kl)).identity()


def test_bad_files_are_named(copy: Path) -> None:
    change_config(copy, _class_name="UNet2DModel")
    with pytest.raises(ValueError, match="must be one of AutoencoderKL, VQModel, and is UNet2DModel"):
        Autoencoder(str(copy)).identity()
    change_config(copy, _class_name="AutoencoderKL")
    weights = copy / "diffusion_pytorch_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(ValueError, match="must hold an undamaged diffusion_pytorch_model.safetensors"):
        Autoencoder(str(copy)).identity()
    weights.unlink()
    with pytest.raises(FileNotFoundError, match="has neither$"):
        Autoencoder(str(copy)).identity()
    (copy / "config.json").write_text("{")
    with pytest.raises(ValueError, match="must have a readable config.json"):
        Autoencoder(str(copy)).identity()
    (copy / "config.json").unlink()
    with pytest.raises(FileNotFoundError, match="must be a folder with config.json"):
        Autoencoder(str(copy)).identity()


@pytest.mark.parametrize(("argument", "value"), [("batch_size", 0), ("download", 1)])
def test_bad_arguments_are_named(argument: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"^{argument}={value!r} must be"):
        Autoencoder("x", **{argument: value})


@pytest.mark.slow
def test_no_optional_library_is_imported_before_it_is_needed(kl: Path) -> None:
    code = (
        "import sys, diffusion_lab.data as data\n"
        "data.Photos(16, 5, 5).train(), data.HuggingFace('x', 8), data.CelebA('x')\n"
        "optional = {'diffusers', 'safetensors', 'huggingface_hub', 'skimage', 'datasets', 'pyarrow'}\n"
        "assert not optional & set(sys.modules), optional & set(sys.modules)\n"
        f"data.Autoencoder({str(kl)!r}).identity()\n"
        "assert 'diffusers' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
