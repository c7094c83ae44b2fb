"""Each real file once, and in one line what is left out."""

from __future__ import annotations

import logging
import zipfile
from pathlib import Path

import pytest
from PIL import Image

from diffusion_lab.data import ImageFolder, ZipFolder
from diffusion_lab.data.sources.walk import find_images, subfolders


def pictures(root: Path, *names: str) -> Path:
    for i, name in enumerate(names):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (i, 0, 200)).save(root / name, "PNG")
    return root


def source(root: Path, **options) -> ImageFolder:
    return ImageFolder(root, 8, cache_dir=root.parent / "cache", class_folders=True, **options)


def test_links_in_a_circle_are_left_out_and_named(tmp_path: Path) -> None:
    root = pictures(tmp_path / "F", "a.png", "b.png")
    for name, target in (("self", "self"), ("one", "two"), ("two", "one")):
        (root / name).symlink_to(target)
    found = find_images(root)
    assert found.names == ["a.png", "b.png"] and found.sentence() == "left out: 3 files: 3 without a suffix"
    assert subfolders(root) == []


def test_a_link_back_multiplies_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    root = pictures(tmp_path / "F", *[f"{'cats' if i % 2 else 'dogs'}/{i:02}.png" for i in range(40)])
    whole = source(root)
    whole.check()
    names = [file.name for file in whole._good]
    for name, target in (
        ("cats/back", ".."),
        ("cats/self", "."),
        ("up", "../.."),
        ("again", "cats"),
        ("dogs/c", "../cats"),
    ):
        (root / name).symlink_to(target)
    looped = source(root)
    looped.check()
    assert [file.name for file in looped._good] == names and len(names) == 40
    assert looped.class_names == ["cats", "dogs"] and looped.train().fingerprint() == whole.train().fingerprint()
    (line,) = [r.message for r in caplog.records if "left out" in r.message]
    assert line == f"{root}: left out: 5 links to folders searched already (again, cats/back, cats/self, ..)"


def test_links_to_other_places_are_followed_once(tmp_path: Path) -> None:
    pool = pictures(tmp_path / "pool", "cats/1.png", "dogs/2.png", "3.png")
    pictures(tmp_path / "F", "birds/4.png", ".store/fish/5.png")
    root = tmp_path / "F"
    (root / "cats").symlink_to(pool / "cats")
    (root / "kittens").symlink_to(pool / "cats")  # the same folder again
    (root / "fish").symlink_to(".store/fish")  # which is hidden under its own name
    (root / "birds" / "3.png").symlink_to(pool / "3.png")
    (root / "birds" / "three.png").symlink_to(pool / "3.png")
    (root / "birds" / "four.png").symlink_to("4.png")
    (root / "birds" / "lost.png").symlink_to("nowhere")  # which the scan reports
    found = find_images(root)
    assert found.names == ["birds/3.png", "birds/4.png", "birds/lost.png", "cats/1.png", "fish/5.png"]
    assert found.left_out == {"linked twice": 2, "hidden": 1} and found.links == ["kittens"]
    assert subfolders(root) == ["birds", "cats", "fish"]


def test_a_set_may_be_made_of_links_alone(tmp_path: Path) -> None:
    pool = pictures(tmp_path / "pool", *(f"{i}.png" for i in range(6)))
    (tmp_path / "F").mkdir()
    for i in range(6):
        (tmp_path / "F" / f"{i}.png").symlink_to(pool / f"{i}.png")
    assert len(find_images(tmp_path / "F").names) == 6 and not find_images(tmp_path / "F").sentence()
    (tmp_path / "link").symlink_to("F")
    assert len(find_images(tmp_path / "link").names) == 6


LEFT = [
    "a/@eaDir/1.png/thumb.png",
    "a/@eaDir/2.png",
    "__MACOSX/a/1.png",
    ".git/x.png",
    "a/.2.png",
    "a/x.txt",
    "b/y.TXT",
    "raw",
]


def test_what_is_left_out_is_said_in_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    root = pictures(tmp_path / "set", "a/1.png", "a/2.jfif", "b/3.JFIF", "b/4.png", *LEFT)
    images = source(root)
    assert images.train_size() + len(images.test()) == 4 and images.class_names == ["a", "b"]
    said = "left out: 8 files: 2 in @eaDir, 2 hidden, 2 .txt, 1 in __MACOSX, 1 without a suffix"
    (line,) = [r.message for r in caplog.records if "left out" in r.message]
    assert line.startswith(f"{root}: left out: 8 files: ") and sorted(line.split(": ")[3].split(", ")) == sorted(
        said.split(": ")[2].split(", ")
    )
    caplog.clear()
    with zipfile.ZipFile(tmp_path / "set.zip", "w") as file:
        for path in sorted(path for path in root.rglob("*") if path.is_file()):
            file.write(path, path.relative_to(root))
        file.writestr("dataset.json", "{}")
    zipped = ZipFolder(tmp_path / "set.zip", 8, cache_dir=tmp_path / "cache")
    assert zipped.train_size() + len(zipped.test()) == 4
    (line,) = [r.message for r in caplog.records if "left out" in r.message]
    assert "left out: 8 files: " in line and "2 in @eaDir" in line and "2 .txt" in line and "1 in __MACOSX" in line
