"""Runs of one configuration on other images are neither averaged nor paired."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from diffusion_lab.cli.compare import main
from diffusion_lab.reports import read_runs, sections_of
from diffusion_lab.reports.notes import version_warnings
from tests.reports.synthetic import write_run


def write(folder: Path, method: str, seed: int, images: int | None) -> None:
    write_run(folder / f"{method}-{seed}", method, seed, steps=250)
    if images is None:
        return
    path = folder / f"{method}-{seed}" / "run.json"
    split = {"images": images, "fingerprint": f"{images:012x}", "labels": None}
    data = {"name": "x", "shape": [1, 8, 8], "train": split, "test": split, "classes": None}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"data": data}))


@pytest.mark.parametrize("images", [[None] * 3, [40] * 3, [40, None, 40]])
def test_the_same_data_and_runs_of_before_are_one_row(tmp_path: Path, images) -> None:
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
