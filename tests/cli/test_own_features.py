"""A folder of photographs is measured by features of its own, without a file from elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from diffusion_lab.cli.main import main
from diffusion_lab.data import Photos
from diffusion_lab.metrics import learn_features

pytestmark = pytest.mark.slow
SMALL = ("scale=smoke", "max_steps=2", "batch_size=8", "network.base_channels=8", "trainer.accelerator=cpu")


@pytest.fixture
def photographs(in_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """90 crops of five photographs in five folders; features are trained for three steps."""
    monkeypatch.setattr(learn_features, "STEPS", 3)
    monkeypatch.setenv("DIFFUSION_LAB_CACHE", str(in_folder / "cache"))
    crops = Photos(16, 90, 1).train()
    assert crops.labels is not None
    for i, (crop, label) in enumerate(zip(crops.take(range(90)), crops.labels, strict=True)):
        place = in_folder / "photos" / f"of-{label}" / f"{i}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(crop.permute(1, 2, 0).numpy()).save(place)
    return in_folder / "photos"


@pytest.mark.parametrize("conditional", [False, True])
def test_a_run_on_photographs_has_distances_in_its_report(conditional: bool, photographs: Path) -> None:
    folder = ["dataset=image_folder", f"dataset.source.root={photographs}", "dataset.source.image_size=16"]
    words = [*folder, f"dataset.conditional={str(conditional).lower()}", *SMALL, "metrics.num_samples=40"]
    assert main(["train", *words, "metrics.names=[fid,is]"]) == 0
    (run,) = Path("runs").iterdir()
    lines = [json.loads(line) for line in (run / "evaluations.jsonl").read_text().splitlines()]
    classes = {"is40_own", "agreement40_own"} if conditional else set()
    assert {line["name"] for line in lines} == {"fd40_own", "copying40"} | classes
    assert main(["report", "runs", "--table", "table.md"]) == 0
    assert "fd40_own" in Path("table.md").read_text()
    assert main(["evaluate", f"run={run}", "metrics.names=[kid]", "metrics.num_samples=40"]) == 0
    later = json.loads((run / "evaluations.jsonl").read_text().splitlines()[len(lines)])
    assert later["name"] == "kd40_own" and later["protocol"]["extractor"] == lines[0]["protocol"]["extractor"]
    assert len(list(Path("cache/features").glob("*.pt"))) == 1
