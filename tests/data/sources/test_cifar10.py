from __future__ import annotations

import io
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest
from torchvision import datasets

from diffusion_lab.data import CIFAR10
from diffusion_lab.data.sources import cifar10
from diffusion_lab.data.sources.cifar10 import ARCHIVE, BATCHES, FOLDER, MD5, read_batch

NAMES = [name for names in BATCHES.values() for name in names]


def batch(name: str, n: int = 6) -> dict:
    rng = np.random.default_rng(NAMES.index(name))
    data = rng.integers(0, 256, (n, 3072), dtype=np.uint8)
    return {"data": data, "labels": rng.integers(0, 10, n).tolist(), "filenames": ["a.png"] * n, "batch_label": name}


def python2_pickle(content: dict) -> bytes:
    """As Python 2 wrote it, and the published archive has it: strings and the array's bytes are 8-bit strings."""

    def text(value: bytes) -> bytes:
        return b"T" + len(value).to_bytes(4, "little") + value  # BINSTRING

    data = content["data"]
    shape = b"".join(b"J" + side.to_bytes(4, "little") for side in data.shape) + b"\x86"
    kind = b"cnumpy\ndtype\n" + text(b"u1") + b"K\x00K\x01\x87R"
    kind += b"(K\x03" + text(b"|") + b"NNN" + b"J\xff\xff\xff\xff" * 2 + b"K\x00tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text(b"b") + b"\x87R"
    array += b"(K\x01" + shape + kind + b"\x89" + text(data.tobytes()) + b"tb"
    labels = b"](" + b"".join(b"K" + bytes([label]) for label in content["labels"]) + b"e"
    return b"\x80\x02}(" + text(b"data") + array + text(b"labels") + labels + b"u."


def write(root: Path, archive: bool, dump=python2_pickle) -> None:
    contents = {f"{FOLDER}/{name}": dump(batch(name)) for name in NAMES}
    root.mkdir(parents=True, exist_ok=True)
    if not archive:
        (root / FOLDER).mkdir()
        for name, content in contents.items():
            (root / name).write_bytes(content)
        return
    with tarfile.open(root / ARCHIVE, "w:gz") as tar:
        for name, content in {f"{FOLDER}/readme.html": b"hello", **contents}.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


def python3_pickle(content: dict) -> bytes:
    return pickle.dumps(content, protocol=2)


@pytest.mark.parametrize("archive", [False, True])
@pytest.mark.parametrize("dump", [python2_pickle, python3_pickle])
def test_archive_and_folder_give_the_images(tmp_path, archive, dump):
    write(tmp_path, archive, dump)
    source = CIFAR10(tmp_path)
    source.check()
    train = np.concatenate([batch(name)["data"] for name in BATCHES["train"]]).reshape(-1, 3, 32, 32)
    assert np.array_equal(source.train().images.numpy(), train)
    assert source.train().labels.tolist() == sum((batch(name)["labels"] for name in BATCHES["train"]), [])
    assert np.array_equal(source.test().images.numpy(), batch("test_batch")["data"].reshape(-1, 3, 32, 32))
    assert sorted(path.name for path in tmp_path.iterdir()) == [ARCHIVE if archive else FOLDER]  # nothing unpacked


def test_python2s_pickle_is_what_torchvision_reads():
    """The hand-written pickle is a fair copy of the published format: the usual reader understands it."""
    want = batch("test_batch")
    usual = pickle.loads(python2_pickle(want), encoding="latin1")
    assert np.array_equal(usual["data"], want["data"]) and usual["labels"] == want["labels"]


def test_names_and_checksum_are_torchvisions():
    assert (ARCHIVE, FOLDER, MD5) == (
        datasets.CIFAR10.filename,
        datasets.CIFAR10.base_folder,
        datasets.CIFAR10.tgz_md5,
    )
    assert [name for name, _ in datasets.CIFAR10.train_list + datasets.CIFAR10.test_list] == NAMES


class Payload:
    """Pickled, it is a call of any function that one likes."""

    def __init__(self, *call) -> None:
        self.call = call

    def __reduce__(self):
        return self.call[0], self.call[1:]


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_code_in_a_pickle_is_refused(tmp_path, protocol):
    marker = tmp_path / "marker"
    for call in [(Path.touch, marker), (eval, f"open({str(marker)!r}, 'w')"), (getattr, "a", "upper")]:
        with pytest.raises(pickle.UnpicklingError, match="is not plain data and was not loaded"):
            read_batch(pickle.dumps({"data": Payload(*call)}, protocol))
    assert not marker.exists()


def test_other_arrays_and_codecs_are_refused():
    for array in (np.zeros(3), np.array([None, "x"], dtype=object), np.zeros((2, 2), np.uint8, order="F")):
        with pytest.raises(pickle.UnpicklingError, match="must be unsigned bytes"):
            read_batch(pickle.dumps({"data": array}, protocol=2))
    with pytest.raises(pickle.UnpicklingError, match="encoding 'rot13'"):
        read_batch(b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x05\x00\x00\x00rot13\x86R.")


def test_a_malicious_batch_in_the_folder_is_named(tmp_path):
    write(tmp_path, archive=False)
    (tmp_path / FOLDER / "data_batch_2").write_bytes(pickle.dumps(Payload(print, "hello")))
    with pytest.raises(ValueError, match="data_batch_2: builtins.print is not plain data and was not loaded"):
        CIFAR10(tmp_path).train()


def test_nothing_there_teaches_both_ways(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        CIFAR10(tmp_path).check()
    message = str(caught.value)
    assert message.startswith(f"root={tmp_path} must hold {ARCHIVE} (md5 {MD5})") and "download=true" in message
    write(tmp_path, archive=False)
    (tmp_path / FOLDER / "data_batch_4").unlink()
    with pytest.raises(FileNotFoundError, match="lacks data_batch_4"):
        CIFAR10(tmp_path).check()


def test_download_only_when_asked_and_needed(tmp_path, monkeypatch):
    fetched = []
    monkeypatch.setattr(cifar10, "fetch", lambda name, root, _: fetched.append(name) or write(root, archive=True))
    CIFAR10(tmp_path, download=False).prepare()
    source = CIFAR10(tmp_path, download=True)
    source.check()
    assert not fetched and source.train_size() == 50_000
    source.prepare()
    source.prepare()
    assert fetched == ["CIFAR10"] and len(source.train()) == 30


@pytest.mark.parametrize("damage", ["cut", "flip"])
def test_a_damaged_archive_gives_both_checksums(tmp_path, damage):
    write(tmp_path, archive=True)
    path = tmp_path / ARCHIVE
    content = bytearray(path.read_bytes())
    if damage == "cut":
        content = content[: len(content) // 2]
    else:
        content[len(content) // 2] ^= 16
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"root=.* damaged \(.*md5 [0-9a-f]{{32}} where {MD5} belongs\); delete"):
        CIFAR10(tmp_path).train()
    with pytest.raises(ValueError, match="damaged"):
        CIFAR10(tmp_path).test()


@pytest.mark.parametrize(
    "content",
    [{"data": np.zeros((2, 3072), np.uint8), "labels": [1]}, {"data": np.zeros((1, 3072), np.uint8), "labels": [10]}],
)
def test_arrays_and_labels_must_fit_together(tmp_path, content):
    write(tmp_path, archive=False)
    (tmp_path / FOLDER / "test_batch").write_bytes(python3_pickle(content))
    with pytest.raises(ValueError, match="test_batch: data .* do not fit together"):
        CIFAR10(tmp_path).test()
