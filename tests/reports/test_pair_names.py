"""Which row of a folder FOLDER:NAME is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from diffusion_lab.reports.pair.pair import group_of, side
from tests.reports.curves import STEPS, power_law, write_curves

ROWS = {  # label: option whose part the runs have
    "uniform-v-min_snr": "uniform",
    "uniform-x0-min_snr": "logit_normal",
    "logit_normal-v-min_snr": "stratified",
    "uniform-v": "loss_second_moment",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("runs")
    for label, part in ROWS.items():
        write_curves(place / label, part, 0, power_law(STEPS))
        info = json.loads((place / label / "run.json").read_text())
        (place / label / "run.json").write_text(json.dumps(info | {"method": label}))
    return place


@pytest.mark.parametrize(
    ("name", "label"),
    [
        *((label, label) for label in ROWS),  # a whole label, also where another one has all of its words
        ("logit_normal", "logit_normal-v-min_snr"),
        ("x0", "uniform-x0-min_snr"),
    ],
)
def test_a_label_or_words_of_it_that_no_other_row_has(folder: Path, name: str, label: str) -> None:
    assert group_of(side("A", f"{folder}:{name}")).label == label


@pytest.mark.parametrize("name", ["uniform", "min_snr", "normal", "logit_normal-x0"])
def test_words_of_several_rows_or_of_none_are_refused(folder: Path, name: str) -> None:
    with pytest.raises(ValueError, match=f":{name} must end in the name of one of its 4 rows"):
        group_of(side("A", f"{folder}:{name}"))
