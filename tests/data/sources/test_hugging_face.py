from __future__ import annotations

import builtins
import io
import os
import shutil
import time
from pathlib import Path
from unittest.mock import Mock

import datasets
import numpy as np
import pyarrow
import pyarrow.parquet as parquet_files
import pytest
import torch
from PIL import Image

from diffusion_lab.data import HuggingFace, ImageDataModule, Photos
from diffusion_lab.data.sources import hub, scan
from diffusion_lab.data.sources.bundled import PHOTOGRAPHS

CROPS = Photos(16, 40, 10).train()


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    """No test waits for a hub: it is switched off where the library reads the switch."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


def png(i: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(CROPS.images[i].permute(1, 2, 0).numpy()).save(file, "PNG")
    return file.getvalue()


def table(ids, **columns):
    """A table of the library: crops of photographs, and of which photograph they are."""
    features = {"image": datasets.Image(), "label": datasets.ClassLabel(names=list(PHOTOGRAPHS))}
    rows = {"image": [{"bytes": png(i), "path": None} for i in ids], "label": CROPS.labels[list(ids)].tolist()}
    return (
        datasets.Dataset.from_dict(rows, features=datasets.Features(features))
        if not columns
        else (datasets.Dataset.from_dict({"image": rows["image"]} | columns).cast_column("image", datasets.Image()))
    )


def parquet(path: Path, ids=range(40), **columns) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    table(ids, **columns).to_parquet(path)
    return path


def source(path: Path | str, image_size: int = 16, **kwargs) -> HuggingFace:
    cache = kwargs.pop("cache_dir", None) or Path(path).parent.parent / "cache"
    return HuggingFace(str(path), image_size, cache_dir=cache, **kwargs)


def test_a_parquet_file_gives_its_images_and_labels(tmp_path):
    images = source(parquet(tmp_path / "set" / "crops.parquet"), label_column="label")
    assert images.num_classes == 5 and images.train_size() == 36 and images.name == "crops"
    train, test = images.train(), images.test()
    held_out = sorted(np.random.RandomState(0).permutation(40)[:4].tolist())
    kept = [i for i in range(40) if i not in held_out]
    assert torch.equal(train.images, CROPS.images[kept]) and torch.equal(test.images, CROPS.images[held_out])
    assert torch.equal(train.labels, CROPS.labels[kept]) and torch.equal(test.labels, CROPS.labels[held_out])


def test_a_folder_has_the_splits_that_its_files_name(tmp_path):
    root = tmp_path / "set"
    parquet(root / "train-00000-of-00001.parquet", range(30))
    parquet(root / "test-00000-of-00001.parquet", range(30, 40))
    images = source(root, test_split="test", cache_dir=tmp_path / "cache")
    assert torch.equal(images.train().images, CROPS.images[:30]) and images.train().labels is None
    assert torch.equal(images.test().images, CROPS.images[30:]) and images.num_classes is None
    with pytest.raises(
        ValueError, match="test_split=val must be a split of .*/set; use train or test, or null to hold"
    ):
        source(root, test_split="val", cache_dir=tmp_path / "cache").check()
    with pytest.raises(ValueError, match="train_split=all must be a split of .*/set; use train or test$"):
        source(root, train_split="all", cache_dir=tmp_path / "cache").check()


def test_a_pattern_of_files_is_one_split(tmp_path):
    for k in range(2):
        parquet(tmp_path / "set" / f"part-{k}.parquet", range(20 * k, 20 * k + 20))
    images = source(tmp_path / "set" / "part-*.parquet", memory_mb=0)
    assert images.train_size() == 36 and images.name == "part"
    train = images.train()
    assert torch.equal(train.take([0, 35]), CROPS.images[[train.keys[0], train.keys[35]]])


def test_what_the_library_saved_itself_and_a_folder_of_images(tmp_path):
    table(range(10)).save_to_disk(tmp_path / "saved")
    assert source(tmp_path / "saved", cache_dir=tmp_path / "cache").train_size() == 9
    for k in range(10):
        path = tmp_path / "files" / "train" / "ab"[k % 2] / f"{k}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(k))
    images = source(tmp_path / "files", label_column="label", cache_dir=tmp_path / "cache")
    assert images.num_classes == 2 and len(images.train().labels) == 9


def test_images_beyond_the_budget_are_decoded_when_taken(tmp_path):
    path = parquet(tmp_path / "set" / "crops.parquet")
    held, read = source(path).train(), source(path, memory_mb=0).train()
    assert hasattr(held, "images") and not hasattr(read, "images")
    assert torch.equal(held.take([5, 3]), read.take(torch.tensor([5, 3])))
    assert held.fingerprint() == read.fingerprint()


def test_the_fingerprint_is_that_of_the_images(tmp_path):
    """The library's own changes with the file's place and time, and would call equal images different."""
    first = source(parquet(tmp_path / "a" / "crops.parquet"))
    copy = source(parquet(tmp_path / "b" / "other.parquet"), label_column="label")
    assert first.train().fingerprint() == copy.train().fingerprint()
    assert first._tables["train"]._fingerprint != copy._tables["train"]._fingerprint
    assert source(tmp_path / "a" / "crops.parquet", 8).train().fingerprint() != first.train().fingerprint()
    ids = list(range(40))
    ids[7] = 8
    changed = source(parquet(tmp_path / "a" / "crops.parquet", ids))  # the same place
    assert changed.train().fingerprint() != first.train().fingerprint()


def test_every_image_is_decoded_once(tmp_path, monkeypatch):
    path = parquet(tmp_path / "set" / "crops.parquet")
    decode = Mock(wraps=scan._decode)
    monkeypatch.setattr(scan, "_decode", decode)
    source(path).check()
    assert sorted(call.args[0].name for call in decode.call_args_list) == sorted(f"train[{i}]" for i in range(40))
    source(path).check()
    assert len(decode.call_args_list) == 40


def test_a_row_without_bytes_reads_no_file_that_it_names(tmp_path):
    """A table may come from anybody, and would train on any image of this machine."""
    private = tmp_path / "private.png"
    private.write_bytes(png(0))
    (tmp_path / "set").mkdir()
    for name in (str(private), str(tmp_path / "set" / ".." / "private.png"), "private.png", ""):
        rows = [{"bytes": png(i), "path": str(private)} for i in range(7)] + [{"bytes": None, "path": name}]
        path = tmp_path / "set" / "crops.parquet"  # written by hand: the library would put the file's bytes there
        kind = pyarrow.struct({"bytes": pyarrow.binary(), "path": pyarrow.string()})
        parquet_files.write_table(pyarrow.table({"image": pyarrow.array(rows, kind)}), path)
        for place in (path, path.parent):  # beside images of the folder none is meant but those inside it
            with pytest.raises(ValueError, match=r"1 of 8 files are bad: train.7.: .*holds no bytes"):
                source(place, cache_dir=tmp_path / "cache").check()
        shutil.rmtree(tmp_path / "cache")


@pytest.mark.parametrize("argument", ["subset", "revision"])
def test_what_files_of_this_machine_have_no_use_for_is_refused(argument, tmp_path):
    path = tmp_path / "crops.parquet"
    features = datasets.Features({"image": datasets.Image()})
    rows = [{"bytes": png(i), "path": None} for i in range(8)]
    datasets.Dataset.from_dict({"image": rows}, features=features).to_parquet(path)
    with pytest.raises(ValueError, match=f"^{argument}=other must be null, because .*crops.parquet"):
        source(path, **{argument: "other"}).check()


def test_a_folder_of_images_below_a_link_is_read(tmp_path):
    """The library follows links: its rows named files outside the folder as it was typed, and all were refused."""
    real = tmp_path / "disk" / "photos"
    real.mkdir(parents=True)
    for i in range(6):
        (real / f"{i}.png").write_bytes(png(i))
    (tmp_path / "home").symlink_to(tmp_path / "disk")
    for place in (tmp_path / "home" / "photos", real):
        assert len(source(place, cache_dir=tmp_path / "cache").train()) == 5


def test_bad_images_are_in_one_report(tmp_path):
    rows = [{"bytes": png(i), "path": None} for i in range(8)]
    rows[2]["bytes"] = rows[2]["bytes"][:100]
    rows[5] = None
    features = datasets.Features({"image": datasets.Image()})
    (tmp_path / "set").mkdir()
    path = tmp_path / "set" / "crops.parquet"
    datasets.Dataset.from_dict({"image": rows}, features=features).to_parquet(path)
    with pytest.raises(ValueError) as caught:
        ImageDataModule(source(path), 4).check()
    message = str(caught.value)
    assert message.startswith(f"source.path={path} must hold only usable images; 2 of 8 files are bad: train[2]: ")
    assert "train[5]: cannot be decoded (missing)" in message and "\n" not in message
    skipping = source(path, on_bad="skip")
    assert len(skipping.train()) == 5 and len(skipping.test()) == 1
    with pytest.raises(ValueError, match="train.0.: 16 x 16 pixels, the shorter side must have 32"):
        source(path, 32).check()
    assert source(path, 32, min_size=16, on_bad="skip").train().images.shape == (5, 3, 32, 32)


def test_labels_may_be_integers_and_nothing_else(tmp_path):
    numbers = parquet(tmp_path / "set" / "numbers.parquet", range(4), kind=[0, 3, 1, 0])
    images = source(numbers, label_column="kind")
    assert images.num_classes == 4 and sorted(images.train().labels.tolist() + images.test().labels.tolist()) == [
        0,
        0,
        1,
        3,
    ]
    for values, message in (
        (["a", "b", "c", "d"], "label_column=kind must hold class labels or integers, not .*string.*; turn it into"),
        ([0, None, 1, None], "label_column=kind must have a label in every row, and 2 have none; use null"),
    ):
        path = parquet(tmp_path / "set" / f"{values[1]}.parquet", range(4), kind=values)
        with pytest.raises(ValueError, match=message):
            source(path, label_column="kind").check()
        assert source(path, label_column="kind").num_classes == 0


def test_columns_that_are_not_there(tmp_path):
    path = parquet(tmp_path / "set" / "crops.parquet", range(4))
    for arguments, message in (
        (dict(image_column="img"), "image_column=img must be a column of the data set; use image or label"),
        (dict(image_column="label"), "image_column=label must hold encoded images; use image"),
        (dict(label_column="class"), "label_column=class must be a column of the data set; use image or label"),
    ):
        with pytest.raises(ValueError, match=message):
            source(path, **arguments).check()


def test_plain_bytes_in_a_parquet_file_of_another_writer(tmp_path):
    import pyarrow
    from pyarrow import parquet as writer

    columns = {"image": pyarrow.array([png(i) for i in range(6)]), "label": pyarrow.array([0, 1, 2, 0, 1, 2])}
    (tmp_path / "set").mkdir()
    writer.write_table(pyarrow.table(columns), tmp_path / "set" / "plain.parquet")
    images = source(tmp_path / "set" / "plain.parquet", label_column="label")
    assert images.num_classes == 3 and images.train().images.shape == (5, 3, 16, 16)


def test_a_name_without_network_is_one_sentence_at_once(tmp_path):
    module = ImageDataModule(source("somebody/nothing", cache_dir=tmp_path), 4)
    began = time.perf_counter()
    with pytest.raises(FileNotFoundError) as caught:
        module.check()
    assert time.perf_counter() - began < 5
    message = str(caught.value)
    assert message.startswith("source.path=somebody/nothing must be a folder or parquet files, or a data set that the ")
    assert "fetch it on a machine with network and give the folder of its parquet files" in message
    assert "\n" not in message


def test_a_copy_of_the_library_is_used_without_network(tmp_path, caplog):
    """What an earlier download leaves: OWNER___NAME/configuration/version/hash below the library's folder."""
    made = tmp_path / "made"
    parquet(tmp_path / "name" / "train-0.parquet", range(10))
    datasets.load_dataset(str(tmp_path / "name"), cache_dir=str(made))
    (kept,) = made.glob("name/*/*/*/")
    place = tmp_path / "cache" / "datasets" / "owner___name" / "default" / "0.0.0" / kept.name
    shutil.copytree(kept, place)
    info = place / "dataset_info.json"
    info.write_text(info.read_text().replace(kept.parent.parent.name, "default"))
    images = source("owner/name", cache_dir=tmp_path / "cache")
    with caplog.at_level("WARNING"):
        assert images.train_size() == 9
    assert "owner/name: the hub does not answer" in caplog.text and images.name == "name"
    assert not datasets.config.HF_HUB_OFFLINE or os.environ.get("HF_HUB_OFFLINE")  # switched back


def test_a_hub_that_answers_no(tmp_path, monkeypatch):
    from huggingface_hub.errors import RepositoryNotFoundError

    class No:
        def dataset_info(self, name: str, **_: object) -> None:
            import httpx

            request = httpx.Request("GET", "https://hub")
            raise RepositoryNotFoundError("401 Client Error", response=httpx.Response(401, request=request))

    monkeypatch.setattr("huggingface_hub.HfApi", No)
    with pytest.raises(
        FileNotFoundError, match=r"the hub does not give a/b at revision x \(401 .*\); correct the name"
    ):
        source("a/b", revision="x", cache_dir=tmp_path).check()


@pytest.mark.parametrize("path", ["nowhere/*.parquet", "./nowhere", "a/b/c", "nowhere.parquet", "/nowhere"])
def test_a_place_where_nothing_is(tmp_path, path):
    with pytest.raises(
        FileNotFoundError, match=r"^source.path=.* must be a folder, a parquet file, .*there is none at /"
    ):
        ImageDataModule(source(path, cache_dir=tmp_path), 4).check()


def test_files_that_are_no_data_set(tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "broken.parquet").write_text("no parquet")
    (tmp_path / "set" / "words.txt").write_text("words")
    for name, message in (
        (
            "broken.parquet",
            "must be a data set that the datasets library can read, but it raised: .*; use another path",
        ),
        ("words.txt", "must be one folder or parquet files, not .*words.txt; give their folder"),
    ):
        with pytest.raises(ValueError, match=f"^source.path=.*{name} {message}"):
            ImageDataModule(source(tmp_path / "set" / name), 4).check()


def test_without_the_library(tmp_path, monkeypatch):
    path = parquet(tmp_path / "set" / "crops.parquet", range(4))
    real = builtins.__import__

    def missing(name: str, *args, **kwargs):
        if name == "datasets":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(FileNotFoundError, match=r"^source.path=.* run: python -m pip install 'datasets>=5.2'$"):
        ImageDataModule(source(path), 4).check()


def test_the_hub_is_asked_once(monkeypatch):
    """The library alone would ask six times, 23 s in all."""
    asked: list[str] = []

    class Unreachable:
        def dataset_info(self, name: str, **_: object) -> None:
            asked.append(name)
            raise OSError("Name or service not known")

    monkeypatch.setattr("huggingface_hub.HfApi", Unreachable)
    assert hub._ask("a/b", None) == "Name or service not known" and asked == ["a/b"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(image_size=0), "image_size=0 must be an integer >= 1"),
        (dict(test_share=1), r"test_share=1 must lie in \(0, 1\)"),
        (dict(min_size=0), "min_size=0 must be an integer >= 1"),
        (dict(on_bad="no"), "on_bad=no must be error or skip"),
        (dict(test_split="train"), "test_split=train must not be train_split"),
    ],
)
def test_bad_arguments(tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        source(tmp_path, **arguments)


@pytest.mark.slow
def test_the_command_line_trains_on_a_parquet_file(tmp_path):
    from diffusion_lab.cli.main import main
    from tests.harness import Child

    path = parquet(tmp_path / "set" / "crops.parquet")
    settings = ["dataset=hugging_face", f"dataset.source.path={path}", "dataset.source.image_size=16", "metrics=none"]
    settings += [f"dataset.source.cache_dir={tmp_path}/cache", "scale=smoke", "max_steps=2", "batch_size=8"]

    def work() -> None:
        raise SystemExit(main(["train", *settings, "trainer.accelerator=cpu", f"hydra.run.dir={tmp_path}/run"]))

    Child(work, tmp_path / "log").succeed()
    assert (tmp_path / "run" / "result.json").is_file()
