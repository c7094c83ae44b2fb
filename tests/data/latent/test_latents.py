"""Latents on the disk are the autoencoder's, come back normalised, decode to its images; all else is refused."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from diffusion_lab.data import Autoencoder, Digits, Encoding, ImageDataModule, ImageFolder, Latents, to_float, to_uint8
from diffusion_lab.data.latent import encoding as encoding_module
from diffusion_lab.streams import Streams
from tests.data.fakes import Memory, first_batches, trainer
from tests.data.latent.autoencoders import save_autoencoder, save_images


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with images/, kl/, vq/, other/, and the latents of the images in latents/ (kl, mirrored too)."""
    folder = tmp_path_factory.mktemp("latents")
    save_images(folder / "images")
    for name, kind, seed in (("kl", "kl", 0), ("vq", "vq", 0), ("other", "kl", 1)):
        save_autoencoder(folder / name, kind, seed)
    encoding(folder, folder / "latents", flips=True, seed=3).run()
    return folder


@pytest.fixture
def copied(place: Path, tmp_path: Path) -> Path:
    """A copy of the latents that a test may spoil."""
    return Path(shutil.copytree(place / "latents", tmp_path / "latents"))


def source(place: Path) -> ImageFolder:
    return ImageFolder(place / "images", 16, class_folders=True, cache_dir=place / "cache")


def encoding(place: Path, outdir: Path, autoencoder: str = "kl", batch_size: int = 4, **more) -> Encoding:
    return Encoding(source(place), Autoencoder(str(place / autoencoder), batch_size=batch_size), outdir, **more)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_stored_latents_are_the_encoders_with_keyed_draws_and_mirrored_copies(place: Path) -> None:
    images = source(place).train()
    x = to_float(images.take(range(len(images))))
    model = Autoencoder(str(place / "kl"))
    mean, std = (torch.cat(parts) for parts in zip(model.encode(x), model.encode(x.flip(-1)), strict=True))
    draws = [Streams(3).normal(tuple(mean.shape[1:]), "encode", 0, row) for row in range(len(mean))]
    stored = np.load(place / "latents" / "train.npy", mmap_mode="r")
    assert stored.dtype == np.float16 and stored.shape == (2 * len(images), 4, 8, 8)
    expected = mean + std * torch.stack(draws)
    assert np.abs(stored - expected.numpy()).max() < 2e-3  # float16 has 11 bits, and batches round differently
    assert np.abs(stored - mean.numpy()).max() > 0.1  # the draws are there
    labels = np.load(place / "latents" / "train_labels.npy")
    assert labels.tolist() == images.labels.tolist() * 2
    assert np.load(place / "latents" / "test.npy").shape[0] == len(source(place).test())  # no mirrored copies


def test_the_mean_and_vq_need_no_draw(place: Path, tmp_path: Path) -> None:
    images = source(place).test()
    x = to_float(images.take(range(len(images))))
    for name, posterior in (("kl", "mean"), ("vq", "sample")):
        encoding(place, tmp_path / name, name, posterior=posterior).run()
        stored = torch.from_numpy(np.load(tmp_path / name / "test.npy"))
        assert torch.allclose(stored.float(), Autoencoder(str(place / name)).encode(x).mean, atol=2e-3)


def test_the_header_has_numpys_statistics_and_says_what_was_encoded(place: Path) -> None:
    header = json.loads((place / "latents" / "latents.json").read_text())
    stored = np.load(place / "latents" / "train.npy").astype(np.float64)
    assert np.allclose(header["mean"], stored.mean((0, 2, 3)), rtol=1e-12)
    assert np.allclose(header["std"], stored.std((0, 2, 3)), rtol=1e-12)
    identity = Autoencoder(str(place / "kl")).identity()
    assert header["autoencoder"] == identity | {"place": str(place / "kl")}
    said = header["images"]
    assert (said["name"], said["channels"], said["image_size"], said["num_classes"]) == ("images", 3, 16, 2)
    assert said["train"] == {"images": 21, "fingerprint": source(place).train().fingerprint()}
    assert header["flips"] is True and header["posterior"] == "sample" and header["seed"] == 3
    assert {"torch", "diffusers", "diffusion-lab"} <= header["versions"].keys()


def test_statistics_are_summed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    from diffusion_lab.data.latent import stored

    array = np.random.RandomState(0).normal(3, 2, (37, 2, 4, 4)).astype(np.float16)
    monkeypatch.setattr(stored, "CHUNK", 5 * array[0].nbytes)
    mean, std = stored.moments(array)
    exact = array.astype(np.float64)
    assert np.allclose(mean, exact.mean((0, 2, 3)), rtol=1e-12) and np.allclose(std, exact.std((0, 2, 3)), rtol=1e-12)
    assert stored.first_not_finite(array) is None
    array[23, 1, 2, 3] = np.inf
    assert stored.first_not_finite(array) == 23


def test_what_training_reads_has_mean_0_and_variance_1_and_decodes_to_the_autoencoders_images(place: Path) -> None:
    latents = Latents(place / "latents")
    latents.check()
    assert (latents.channels, latents.image_size, latents.num_classes) == (4, 8, 2)
    assert latents.name == "images_latent" and latents.value_range is None and latents.train_size() == 42
    images = latents.train()
    x = images.take(range(len(images)))
    assert x.dtype == torch.float32 and x.mean((0, 2, 3)).abs().max() < 1e-5
    assert (x.var((0, 2, 3), correction=0) - 1).abs().max() < 1e-5
    stored = torch.from_numpy(np.load(place / "latents" / "train.npy")[:5]).float()
    expected = to_uint8(Autoencoder(str(place / "kl")).decode(stored))
    pixels = latents.to_pixels(x[:5])
    assert pixels.shape == (5, 3, 16, 16) and pixels.dtype == torch.uint8
    assert (pixels.int() - expected.int()).abs().max() <= 1  # normalising and back may round across a grey level
    assert (latents.to_pixels(x[5:10]).int() - expected.int()).abs().max() > 1


def test_batches_of_the_data_module_carry_labels_and_latents(place: Path) -> None:
    data = ImageDataModule(Latents(place / "latents"), 8, conditional=True)
    data.trainer = trainer()
    data.setup()
    (batch,) = first_batches(data, 1)
    assert batch["image"].shape == (8, 4, 8, 8) and batch["label"].max() < 2
    assert data.describe().train.fingerprint == data.fingerprint() != Latents(place / "latents").test().fingerprint()


def test_workers_are_sent_the_files_name_and_not_its_numbers(place: Path) -> None:
    images = Latents(place / "latents").train()
    x = images.take([4, 7])
    sent = pickle.dumps(images)
    assert torch.equal(pickle.loads(sent).take([4, 7]), x)
    assert b"_array" not in sent


def test_the_batch_size_changes_the_rounding_at_most(place: Path, tmp_path: Path) -> None:
    encoding(place, tmp_path / "a", batch_size=21, flips=True, seed=3, num_workers=1).run()
    difference = np.load(tmp_path / "a" / "train.npy") - np.load(place / "latents" / "train.npy")
    assert np.abs(difference).max() < 4e-3
    encoding(place, tmp_path / "b", flips=True, seed=4).run()
    assert np.abs(np.load(tmp_path / "b" / "train.npy") - np.load(place / "latents" / "train.npy")).max() > 0.1


class Stop(Exception):
    """Stands for whatever kills a process."""


def test_an_interrupted_encoding_trains_nothing_and_goes_on_to_the_same_bits(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoding_module, "SAVED_EVERY", 0)
    calls, latents_of = [], Encoding._latents

    def dies(limit: int):
        def function(self: Encoding, images: torch.Tensor, ids: range, *more) -> np.ndarray:
            calls.append(ids.start)
            if len(calls) == limit:
                raise Stop
            return latents_of(self, images, ids, *more)

        return function

    out = tmp_path / "out"
    for limit in (4, 9):  # among the images, then among the test images
        calls.clear()
        monkeypatch.setattr(Encoding, "_latents", dies(limit))
        with pytest.raises(Stop):
            encoding(place, out, flips=True, seed=3).run()
        assert not (out / "latents.json").exists() and not (out / "train.npy").exists()
        with pytest.raises(FileNotFoundError, match=r"an unfinished encoding is there; run its command again"):
            Latents(out).check()
    assert calls[0] == 12  # three batches of four were there
    with pytest.raises(ValueError, match="holds an unfinished encoding of something else"):
        encoding(place, out, flips=True, seed=4).run()
    monkeypatch.setattr(Encoding, "_latents", latents_of)
    monkeypatch.setattr("diffusion_lab.data.latent.stored.Header.write", lambda *a: (_ for _ in ()).throw(Stop()))
    with pytest.raises(Stop):  # between the arrays and the header
        encoding(place, out, flips=True, seed=3).run()
    monkeypatch.undo()
    encoding(place, out, flips=True, seed=3).run()
    assert contents(out) == contents(place / "latents")


@pytest.mark.parametrize("name", ["train.npy.partial", "test.npy", "train_labels.npy"])
def test_an_array_is_not_written_through_a_prepared_link(name: str, place: Path, tmp_path: Path) -> None:
    (tmp_path / "private").write_bytes(b"private")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).symlink_to(tmp_path / "private")
    encoding(place, tmp_path / "out").run()
    assert (tmp_path / "private").read_bytes() == b"private"
    assert not any(path.is_symlink() for path in (tmp_path / "out").iterdir())


def test_a_finished_folder_is_left_as_it_is_and_never_becomes_something_else(place: Path, copied: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in copied.iterdir()}
    encoding(place, copied, flips=True, seed=3).run()
    assert before == {path: path.stat().st_mtime_ns for path in copied.iterdir()}
    with pytest.raises(ValueError, match=r"^outdir=.* must be a new folder, .* and its flips differ"):
        encoding(place, copied, seed=3).run()
    with pytest.raises(ValueError, match=r"its autoencoder differ"):
        encoding(place, copied, "other", flips=True, seed=3).run()


def test_a_wrong_autoencoder_is_refused(place: Path) -> None:
    for name, said in (("other", "its weights have the SHA-256 "), ("vq", "it is a VQModel where that was a Auto")):
        with pytest.raises(ValueError, match=rf"^autoencoder=.*{name} must be the one that encoded .*{said}"):
            Latents(place / "latents", str(place / name)).check()
    with pytest.raises(FileNotFoundError, match="^autoencoder=nowhere must be an existing folder"):
        Latents(place / "latents", "nowhere").check()
    Latents(place / "latents", str(shutil.copytree(place / "kl", place / "moved"))).check()


def test_another_architecture_is_named(place: Path, tmp_path: Path) -> None:
    changed = Path(shutil.copytree(place / "kl", tmp_path / "changed"))
    config = json.loads((changed / "config.json").read_text())
    (changed / "config.json").write_text(json.dumps(config | {"act_fn": "gelu"}))
    with pytest.raises(ValueError, match="its act_fn is gelu where that one's was silu"):
        Latents(place / "latents", str(changed)).check()


def _edit(folder: Path, **values: object) -> None:
    path = folder / "latents.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def _truncate(folder: Path) -> None:
    path = folder / "train.npy"
    path.write_bytes(path.read_bytes()[:-10])


def _reshape(folder: Path) -> None:
    np.save(folder / "train.npy", np.load(folder / "train.npy")[:-1])


def _widen(folder: Path) -> None:
    np.save(folder / "test.npy", np.load(folder / "test.npy").astype(np.float32))


def _spoil(value: float):
    def spoil(folder: Path) -> None:
        array = np.load(folder / "train.npy")
        array[7, 1, 2, 3] = value
        np.save(folder / "train.npy", array)

    return spoil


def _relabel(folder: Path) -> None:
    labels = np.load(folder / "train_labels.npy")
    np.save(folder / "train_labels.npy", 1 - labels)


BEFORE_LOADING = {
    "truncated": (_truncate, r"must hold all of train.npy \("),
    "missing": (lambda folder: (folder / "test.npy").unlink(), r"must hold all of test.npy \("),
    "shorter": (_reshape, r"must hold train.npy as its header says, float16 \(42, 4, 8, 8\), and it is float16 \(41, "),
    "type": (_widen, "must hold test.npy as its header says, float16 .* and it is float32"),
    "format": (lambda folder: _edit(folder, format=9), "must hold latents of format 1, not 9"),
    "std": (lambda folder: _edit(folder, std=[1.0, 0.0, 1.0, 1.0]), "must have a finite mean and a std > 0"),
    "channels": (lambda folder: _edit(folder, std=[1.0]), "must have a finite mean and a std > 0"),
    "json": (
        lambda folder: (folder / "latents.json").write_text('{"format": 1'),
        "must have an undamaged latents.json",
    ),
    "keys": (lambda folder: (folder / "latents.json").write_text('{"format": 1}'), "must have an undamaged latents"),
}
ON_LOADING = {
    "nan": (_spoil(float("nan")), "must hold finite latents, and row 7 of train.npy is not"),
    "changed": (_spoil(0.5), "must hold train.npy as `diffusion-lab encode` wrote it, and it differs"),
    "labels": (_relabel, "must hold train_labels.npy as `diffusion-lab encode` wrote it"),
}


@pytest.mark.parametrize("fault", BEFORE_LOADING)
def test_damaged_files_are_refused_before_anything_is_loaded(fault: str, copied: Path) -> None:
    spoil, said = BEFORE_LOADING[fault]
    Latents(copied).check()
    spoil(copied)
    with pytest.raises(ValueError, match=f"^root={copied} {said}"):
        Latents(copied).check()


@pytest.mark.parametrize("fault", ON_LOADING)
def test_changed_numbers_are_refused_before_step_1(fault: str, copied: Path) -> None:
    spoil, said = ON_LOADING[fault]
    spoil(copied)
    data = ImageDataModule(Latents(copied), 8)
    data.check()
    with pytest.raises(ValueError, match=f"^source.root={copied} {said}"):
        data.setup()


def test_no_latents_say_how_to_make_them(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=rf"^root=.*; make one with: diffusion-lab encode .* outdir={tmp_path}"):
        Latents(tmp_path).check()


def test_metrics_compare_with_the_images_that_were_encoded(place: Path) -> None:
    images = source(place)
    latents = Latents(place / "latents", images=images)
    latents.check()
    assert latents.pixels() is images
    with pytest.raises(ValueError, match="^images=digits must be the images that were encoded"):
        Latents(place / "latents", images=Digits()).check()
    without = ImageDataModule(Latents(place / "latents"), 8, features=object())
    with pytest.raises(
        ValueError, match="^source.images=null must be the encoded image source.* dataset.features=null"
    ):
        without.check()


def test_latents_cannot_be_flipped(place: Path) -> None:
    with pytest.raises(ValueError, match="^flip=true must .* `diffusion-lab encode` flips=true"):
        ImageDataModule(Latents(place / "latents"), 8, flip=True).check()


def memory(value: float = 100, size: int = 16, channels: int = 3) -> Memory:
    images = torch.full((4, channels, size, size), value, dtype=torch.uint8)
    images[..., 0] = 200
    return Memory(images)


def test_images_that_do_not_fit_are_named(place: Path, tmp_path: Path) -> None:
    model = Autoencoder(str(place / "kl"))
    floats = Memory(torch.zeros(4, 3, 16, 16))
    floats.value_range = None
    for images, said in (
        (memory(channels=1), r"source.channels=1 must be the autoencoder's 3"),
        (memory(size=15), r"source.image_size=15 must be a multiple of 2.*use 14"),
        (floats, r"source=memory must give images in \[-1, 1\]"),
    ):
        with pytest.raises(ValueError, match=f"^{said}"):
            Encoding(images, model, tmp_path / "out").run()
    assert not (tmp_path / "out").exists()


def test_a_full_disk_is_seen_before_the_start(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda folder: shutil._ntuple_diskusage(1, 1, 1000))
    with pytest.raises(ValueError, match=r"^outdir=.* must have 0.05 GB free, and has 0.00 GB"):
        encoding(place, tmp_path / "out").run()
    assert list((tmp_path / "out").iterdir()) == []


def test_latents_beyond_float16_and_constant_ones_are_named(place: Path, tmp_path: Path, monkeypatch) -> None:
    encode = Autoencoder.encode

    def scaled(factor: float):
        def function(self, x):
            mean, std = encode(self, x)
            return type(encode(self, x))(mean * factor, std * 0)

        return function

    monkeypatch.setattr(Autoencoder, "encode", scaled(1e9))
    with pytest.raises(ValueError, match=r"^autoencoder=.*below 65504.* does not for train image 0"):
        encoding(place, tmp_path / "huge").run()
    monkeypatch.setattr(Autoencoder, "encode", scaled(0.0))
    with pytest.raises(ValueError, match=r"^autoencoder=.* must give latents that vary, and channel 0 is constant"):
        encoding(place, tmp_path / "flat").run()


@pytest.mark.parametrize(
    ("argument", "value"), [("posterior", "mode"), ("num_workers", -1), ("flips", "no"), ("seed", -1)]
)
def test_bad_arguments_are_named(argument: str, value: object, place: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"^{argument}="):
        encoding(place, tmp_path, **{argument: value})


def test_a_run_can_be_planned_before_the_latents_are_there(place: Path, tmp_path: Path) -> None:
    planned = Latents(tmp_path / "latents", shape=[4, 8, 8], num_classes=2)
    assert (planned.shape, planned.num_classes, planned.name) == ((4, 8, 8), 2, "latents")
    with pytest.raises(FileNotFoundError, match=r"^root=.*latents must be a folder of latents"):
        planned.check()
    there = Latents(place / "latents", str(place / "kl"), shape=[4, 8, 8])
    there.check()
    assert there.name == "images_latent" and there.num_classes == 2
    for words in ({"shape": [4, 16, 16]}, {"shape": [4, 8, 8], "num_classes": 1000}):
        with pytest.raises(ValueError, match=r"^shape=\[4, .*must be what is in .*\[4, 8, 8\] with 2; give that"):
            Latents(place / "latents", str(place / "kl"), **words).check()
