"""Runs on other images are neither averaged nor paired; the same images in another folder are no other images."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from diffusion_lab.cli.commands.compare import main
from diffusion_lab.reports import read_runs, sections_of, unnamed_differences
from diffusion_lab.reports.pages.notes import version_warnings
from tests.reports.synthetic import write_run


def write(folder: Path, method: str, seed: int, images: int | None) -> None:
    write_run(folder / f"{method}-{seed}", method, seed, steps=250)
    if images is None:
        return
    path = folder / f"{method}-{seed}" / "run.json"
    split = {"images": images, "fingerprint": f"{images:012x}", "labels": None}
    data = {"name": "x", "shape": [1, 8, 8], "train": split, "test": split, "classes": None}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"data": data}))


@pytest.mark.parametrize("images", [[None] * 3, [40] * 3])
def test_the_same_data_are_one_row(tmp_path: Path, images) -> None:
    for seed, n in enumerate(images):
        write(tmp_path, "uniform", seed, n)
    (section,) = sections_of(read_runs(tmp_path).runs)
    (group,) = section.groups
    assert len(group.done) == 3 and group.label == "uniform" and not group.data
    assert not any("neither averaged" in note for note in version_warnings(read_runs(tmp_path)))


def test_other_data_are_another_row_in_another_table_and_a_sentence_says_so(tmp_path: Path) -> None:
    for seed, n in enumerate([40, 40, 41]):
        for method in ("uniform", "logit_normal"):
            write(tmp_path, method, seed, n)
    first, second = sections_of(read_runs(tmp_path).runs)
    assert [len(group.done) for group in first.groups] == [2, 2] and [len(g.done) for g in second.groups] == [1, 1]
    assert first.title != second.title and "40+40 images" in first.title and "41+41 images" in second.title
    (note,) = [note for note in version_warnings(read_runs(tmp_path)) if "neither averaged nor paired" in note]
    assert "4 runs 40+40 images" in note and "2 runs 41+41 images" in note


def test_compare_does_not_pair_runs_on_other_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for method, n in (("uniform", 40), ("logit_normal", 41)):
        write(tmp_path / method, method, 0, n)
    assert main([str(tmp_path / "uniform"), str(tmp_path / "logit_normal"), "--out", str(tmp_path / "page")]) == 2
    said = capsys.readouterr().err
    assert "B must have the data of A to be compared" in said and "40+40 images" in said and "41+41 images" in said
    for n in (40, 41):
        write(tmp_path / "mixed", "uniform", n, n)
    assert main([str(tmp_path / "mixed"), str(tmp_path / "logit_normal")]) == 2
    said = capsys.readouterr().err
    assert "'" in said and "mixed:uniform (40+40 images" in said and "mixed:uniform (41+41 images" in said


def write_from(folder: Path, root: str, method: str, seed: int, images: int | None, **changed) -> None:
    """A run on the images of a folder."""
    source = {"_target_": "diffusion_lab.data.ImageFolder", "root": root, "image_size": 8}
    name = f"{method}-{seed}-{root}-{len(changed)}"
    dataset = {"_target_": "diffusion_lab.data.ImageDataModule", "source": source}
    write_run(folder / name, method, seed, steps=250, dataset=dataset, **changed)
    path = folder / name / "run.json"
    record = json.loads(path.read_text())
    record |= {"dataset": source, "group_hash": record["group_hash"] + root}
    record["overrides"].append(f"dataset.source.root={root}")
    if images is not None:
        split = {"images": images, "fingerprint": f"{images:012x}", "labels": None}
        record["data"] = {"name": "x", "shape": [1, 8, 8], "train": split, "test": split, "classes": None}
    path.write_text(json.dumps(record))


def test_the_same_images_in_two_folders_are_one_table_and_the_folder_is_no_difference(tmp_path: Path) -> None:
    write_from(tmp_path, "pets", "uniform", 0, 40)
    write_from(tmp_path, "photos", "uniform", 1, 40)
    write_from(tmp_path, "photos", "logit_normal", 0, 40)
    write_from(tmp_path, "photos", "uniform", 0, 40, batch_size=16)
    (section,) = sections_of(read_runs(tmp_path).runs)
    assert section.title == "image_folder: fd1k_digits"
    assert {group.label: len(group.done) for group in section.groups} == {
        "uniform batch_size=64": 2,
        "logit_normal": 1,
        "uniform batch_size=16": 1,
    }
    base = section.groups[0]
    assert not [one for group in section.groups for one in unnamed_differences(group, base) if "source" in one.key]


@pytest.mark.parametrize(
    ("images", "titles"),
    [
        ((40, 41), ["image_folder root=pets: fd1k_digits", "image_folder root=photos: fd1k_digits"]),
        ((None, None), ["image_folder root=pets: fd1k_digits", "image_folder root=photos: fd1k_digits"]),
    ],
)
def test_other_or_unknown_images_in_two_folders_are_two_tables_named_by_the_folder(
    tmp_path: Path, images: tuple, titles: list[str]
) -> None:
    for root, n in zip(("pets", "photos"), images, strict=True):
        write_from(tmp_path, root, "uniform", 0, n)
    assert [section.title for section in sections_of(read_runs(tmp_path).runs)] == titles


def test_compare_pairs_runs_on_the_same_images_in_two_folders(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_from(tmp_path / "a", "pets", "uniform", 0, 40)
    write_from(tmp_path / "b", "photos", "logit_normal", 0, 40)
    write_from(tmp_path / "c", "photos", "uniform", 1, 40)
    assert main([*(str(tmp_path / name) for name in "ab"), "--out", str(tmp_path / "page")]) == 0
    said = capsys.readouterr().out
    assert "logit_normal compared with uniform" in said and "photos" not in said
    assert main([*(str(tmp_path / name) for name in "ac"), "--out", str(tmp_path / "page")]) == 2
    assert "B must be another configuration than A" in capsys.readouterr().err
