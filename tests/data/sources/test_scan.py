from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pytest
from PIL import Image

from diffusion_lab.data.sources import scan


def folder(root: Path, *names: str) -> Path:
    for i, name in enumerate(names):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4 + i, 4)).save(root / name)
    return root


def test_only_the_wanted_folders_are_searched(tmp_path):
    root = folder(tmp_path / "set", "train/a/1.png", "val/1.png", "test/1.png", "loose.png", "train/val/2.png")
    names = [seen.name for seen in scan.scan(root, tmp_path / "cache", ("train", "val"))]
    assert names == ["train/a/1.png", "train/val/2.png", "val/1.png"]


def test_names_are_sorted_folder_by_folder(tmp_path):
    """As paths are, not as strings: - and . sort before the slash."""
    names = ["a/b.png", "a/b/c.png", "a-b/c.png", "a.b/c.png", "ab.png"]
    root = folder(tmp_path / "set", *names)
    want = [path.relative_to(root).as_posix() for path in sorted(root.glob("**/*.png"))]
    assert [seen.name for seen in scan.scan(root, tmp_path / "cache")] == want
    assert want != sorted(names)


def test_a_scan_that_was_stopped_goes_on_where_it_was_saved(tmp_path, monkeypatch):
    root = folder(tmp_path / "set", *(f"{i}.png" for i in range(10)))
    monkeypatch.setattr(scan, "SAVE_EVERY", 3)
    monkeypatch.setattr(scan, "CHUNK", 2)
    decoded: list[str] = []
    decode = scan._decode

    def killed(seen: scan.Seen, read) -> scan.Seen:
        if seen.name == "7.png":
            raise KeyboardInterrupt
        decoded.append(seen.name)
        return decode(seen, read)

    monkeypatch.setattr(scan, "_decode", killed)
    with pytest.raises(KeyboardInterrupt):
        scan.scan(root, tmp_path / "cache")
    monkeypatch.setattr(scan, "_decode", lambda seen, read: decoded.append(seen.name) or decode(seen, read))
    done = len(decoded)
    found = scan.scan(root, tmp_path / "cache")
    assert sorted(decoded[done:]) == ["6.png", "7.png", "8.png", "9.png"]  # 6 were saved
    assert [seen.width for seen in found] == list(range(4, 14)) and all(seen.sha256 for seen in found)


def test_rows_of_a_table_are_decoded_once(tmp_path):
    root = folder(tmp_path / "set", "0.png", "1.png")
    (root / "2.png").write_text("text")
    reads: list[int] = []

    def read(i: int) -> bytes:
        reads.append(i)
        return (root / f"{i}.png").read_bytes()

    names = [f"train[{i}]" for i in range(3)]
    first = scan.scan_rows(names, read, tmp_path / "cache.json")
    assert [seen.fault(1) for seen in first] == ["", "", "not an image"] and sorted(reads) == [0, 1, 2]
    assert scan.scan_rows(names, read, tmp_path / "cache.json") == first and len(reads) == 3


def test_a_scan_that_a_release_saved_is_read(tmp_path):
    root = folder(tmp_path / "set", "0.png", "a/1.png")
    found = scan.scan(root, tmp_path / "cache")
    (saved,) = (tmp_path / "cache").glob("*.json")
    saved.write_text(json.dumps({"rows": [list(one) for one in found]}))  # as of 0.1.0
    for name, one in {"0.png": found[0], "a/1.png": found[1]}.items():  # which would be found out if it were decoded
        (root / name).write_bytes(bytes(one.size))
        os.utime(root / name, ns=(one.mtime_ns, one.mtime_ns))
    assert scan.scan(root, tmp_path / "cache") == found
    saved.write_text(json.dumps({"rows": [list(one)[:-1] for one in found]}))
    assert [one.error for one in scan.scan(root, tmp_path / "cache")] == ["not an image"] * 2


def png() -> bytes:
    buffer = io.BytesIO()
    Image.new("L", (4, 4)).save(buffer, "png")
    return buffer.getvalue()


def test_what_could_not_be_read_is_read_again(tmp_path):
    """A disk that was away, or missing rights, made a good image bad for ever: neither changes its size or its time."""
    content, away = png(), [True]

    def read(i: int) -> bytes:
        if i == 1 and away:
            raise OSError("[Errno 5] Input/output error")
        return content

    names, kept = [str(i) for i in range(3)], tmp_path / "cache.json"
    assert [one.error for one in scan.scan_rows(names, read, kept)] == [
        "",
        "cannot be read ([Errno 5] Input/output error)",
        "",
    ]
    away.clear()
    assert [one.error for one in scan.scan_rows(names, read, kept)] == [""] * 3


def test_what_another_pillow_could_not_decode_is_tried_again(tmp_path, monkeypatch):
    names, kept, reads = ["good", "bad"], tmp_path / "cache.json", []

    def read(i: int) -> bytes:
        reads.append(i)
        return b"what is it" if i else png()

    for _ in range(2):
        assert [one.error for one in scan.scan_rows(names, read, kept)] == ["", "not an image"]
    assert sorted(reads) == [0, 1]
    monkeypatch.setattr("PIL.__version__", "99")
    scan.scan_rows(names, read, kept)
    assert sorted(reads) == [0, 1, 1]
