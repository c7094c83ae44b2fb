from __future__ import annotations

import gzip
import struct
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch

from diffusion_lab.data import FashionMNIST
from diffusion_lab.data.sources import fashion_mnist, published_files
from diffusion_lab.data.sources.published_files import idx_shape, read_idx

RNG = np.random.default_rng(0)
ARRAYS = {
    "train-images-idx3-ubyte": RNG.integers(0, 256, (30, 28, 28), dtype=np.uint8),
    "train-labels-idx1-ubyte": RNG.integers(0, 10, 30, dtype=np.uint8),
    "t10k-images-idx3-ubyte": RNG.integers(0, 256, (20, 28, 28), dtype=np.uint8),
    "t10k-labels-idx1-ubyte": RNG.integers(0, 10, 20, dtype=np.uint8),
}


def idx_bytes(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write(folder: Path, zipped: bool, **changed: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in ARRAYS.items():
        content = changed.get(name.replace("-", "_"), idx_bytes(array))
        path = folder / (f"{name}.gz" if zipped else name)
        path.write_bytes(gzip.compress(content) if zipped else content)
    return folder


@pytest.fixture(autouse=True)
def no_debian(monkeypatch, tmp_path, request):
    if "debian" not in request.node.name:
        monkeypatch.setattr(fashion_mnist, "DEBIAN_FOLDER", tmp_path / "no-such-folder")


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("below", ["", "FashionMNIST/raw"])
def test_four_files_gzipped_or_not(tmp_path, zipped, below):
    write(tmp_path / below, zipped)
    source = FashionMNIST(tmp_path)
    source.check()
    assert source.train_size() == 30
    for split, name in ((source.train(), "train"), (source.test(), "t10k")):
        assert np.array_equal(split.images[:, 0].numpy(), ARRAYS[f"{name}-images-idx3-ubyte"])
        assert split.labels.tolist() == ARRAYS[f"{name}-labels-idx1-ubyte"].tolist()
    assert source.train() is source.train()


@pytest.mark.parametrize(("size", "name"), [(14, "fashion_mnist14"), (7, "fashion_mnist7"), (28, "fashion_mnist")])
def test_a_smaller_image_has_the_means_of_blocks(tmp_path, size, name):
    write(tmp_path, zipped=False)
    source, k = FashionMNIST(tmp_path, image_size=size), 28 // size
    assert source.name == name and source.shape == (1, size, size)
    for split, file in ((source.train(), "train"), (source.test(), "t10k")):
        stored = ARRAYS[f"{file}-images-idx3-ubyte"]
        assert split.images.dtype == torch.uint8 and split.images.shape == (len(stored), 1, size, size)
        assert split.labels.tolist() == ARRAYS[f"{file}-labels-idx1-ubyte"].tolist()
        for i, row, column in [(0, 0, 0), (7, 2, 5), (19, size - 1, size - 2)]:
            block = stored[i, k * row : k * (row + 1), k * column : k * (column + 1)]
            exact = Fraction(int(block.sum()), k * k)  # round() takes halves to the even neighbour
            assert split.images[i, 0, row, column] == round(exact)
    assert (source.train().fingerprint() == FashionMNIST(tmp_path).train().fingerprint()) == (size == 28)


def test_means_of_four_are_exact_for_every_sum(tmp_path):
    """All sums 0..1020, and many images, so that they are computed in parts."""
    sums = torch.arange(1021)
    four = torch.stack([(sums + j) // 4 for j in range(4)], 1)  # they add up to the sum
    assert torch.equal(four.sum(1), sums)
    images = four.to(torch.uint8).view(1021, 1, 2, 2).repeat(5, 1, 1, 1)
    wanted = [round(Fraction(total, 4)) for total in range(1021)] * 5
    assert fashion_mnist.block_means(images, 2).flatten().tolist() == wanted


@pytest.mark.parametrize(("size", "message"), [(0, "must be an integer >= 1"), (14.0, "must be"), (13, "must divide")])
def test_a_size_that_is_no_divisor_is_refused(tmp_path, size, message):
    with pytest.raises(ValueError, match=f"^image_size={size} {message}.*; use 28 or 14$"):
        FashionMNIST(tmp_path, image_size=size)


if fashion_mnist.DEBIAN_FOLDER.is_dir():  # the package is on no machine by default

    def test_the_debian_package_is_found_without_a_root(tmp_path):
        source = FashionMNIST(tmp_path / "nothing")
        source.check()
        assert source.train_size() == 60_000
        assert source.test().images.shape == (10_000, 1, 28, 28)
        assert torch.bincount(source.test().labels).tolist() == [1000] * 10


def test_nothing_there_teaches_all_ways(tmp_path):
    write(tmp_path, zipped=True)
    (tmp_path / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(FileNotFoundError) as caught:
        FashionMNIST(tmp_path).check()
    message = str(caught.value)
    assert message.startswith(f"root={tmp_path} must hold the files t10k-labels-idx1-ubyte (each may end in .gz)")
    assert "download=true" in message and "dataset-fashion-mnist" in message
    assert "train-images-idx3-ubyte" not in message  # only what is missing
    with pytest.raises(FileNotFoundError, match="train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images"):
        FashionMNIST(tmp_path / "elsewhere").check()


def test_download_only_when_asked_and_needed(tmp_path, monkeypatch):
    fetched = []
    monkeypatch.setattr(fashion_mnist, "fetch", lambda name, root, _: fetched.append(name) or write(root, zipped=True))
    FashionMNIST(tmp_path, download=False).prepare()
    assert not fetched
    source = FashionMNIST(tmp_path, download=True)
    source.check()
    assert source.train_size() == 60_000
    source.prepare()
    source.prepare()
    assert fetched == ["FashionMNIST"] and len(source.train()) == 30


def test_no_network_is_one_sentence(tmp_path, monkeypatch):
    from urllib.error import URLError

    from torchvision import datasets

    def unreachable(root, download):
        raise URLError("no route")

    monkeypatch.setattr(datasets, "FashionMNIST", unreachable)
    with pytest.raises(FileNotFoundError, match="FashionMNIST cannot be downloaded .*no route"):
        published_files.fetch("FashionMNIST", tmp_path, lambda: False)
    assert not list(tmp_path.iterdir())


def test_files_appear_when_they_are_whole_and_of_several_jobs_one_downloads(tmp_path, monkeypatch):
    """A second job found the file that the first was writing, called it damaged, and said to delete it."""
    from concurrent.futures import ThreadPoolExecutor

    from torchvision import datasets

    monkeypatch.setenv("DIFFUSION_LAB_CACHE", str(tmp_path / "cache"))
    root, seen = tmp_path / "data", []

    def download(place, download):
        seen.append([path.name for path in root.iterdir() if not path.name.startswith(".")])
        write(Path(place) / "FashionMNIST" / "raw", zipped=True)
        seen.append([path.name for path in root.iterdir() if not path.name.startswith(".")])
        time.sleep(0.2)

    monkeypatch.setattr(datasets, "FashionMNIST", download)
    jobs = [FashionMNIST(root, download=True) for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(FashionMNIST.prepare, jobs))
    assert seen == [[], []]  # one download, of which nothing was to be seen
    assert [path.name for path in root.iterdir()] == ["FashionMNIST"] and len(jobs[2].train()) == 30


@pytest.mark.parametrize("zipped", [False, True])
def test_a_cut_off_file_is_named(tmp_path, zipped):
    write(tmp_path, zipped)
    path = tmp_path / ("t10k-images-idx3-ubyte" + (".gz" if zipped else ""))
    path.write_bytes(path.read_bytes()[:-100])
    source = FashionMNIST(tmp_path)
    with pytest.raises(ValueError, match=rf"root=.* must hold intact files, but .*{path.name}.*delete that file"):
        source.test()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cut off or damaged"),
        (b"<html>not found</html>", "is not an IDX file"),
        (idx_bytes(np.zeros((20, 14, 14), np.uint8)), r"shape \(20, 14, 14\)"),
        (idx_bytes(np.zeros((19, 28, 28), np.uint8)), r"\(20,\) where \(N, 28, 28\) and \(N,\) belong"),
    ],
)
def test_a_wrong_file_is_found_without_reading_all(tmp_path, content, message):
    write(tmp_path, zipped=False, t10k_images_idx3_ubyte=content)
    with pytest.raises(ValueError, match=message):
        FashionMNIST(tmp_path).check()


def test_idx_keeps_shape_and_order(tmp_path):
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    (tmp_path / "a").write_bytes(idx_bytes(array))
    assert idx_shape(tmp_path / "a") == (2, 3, 4)
    assert np.array_equal(read_idx(tmp_path / "a"), array)
    (tmp_path / "a").write_bytes(bytes([0, 0, 13, 1]) + struct.pack(">I", 1) + b"\0\0\0\0")  # float32
    with pytest.raises(ValueError, match="not an IDX file of unsigned bytes"):
        read_idx(tmp_path / "a")
