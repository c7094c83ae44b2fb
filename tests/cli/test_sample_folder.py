"""The folder of samples is one that programs for FID take: it holds the samples and nothing else."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
import torch
import torch_fidelity
from torch_fidelity.feature_extractor_base import FeatureExtractorBase

from diffusion_lab import train
from diffusion_lab.cli.main import main
from tests.cli.test_from_python import TINY


class Means(FeatureExtractorBase):
    """Mean and deviation of each channel, without weights to fetch."""

    def __init__(self, name: str, features_list: list[str], **_: object) -> None:
        super().__init__(name, features_list)

    @staticmethod
    def get_provided_features_list() -> tuple[str, ...]:
        return ("means",)

    @staticmethod
    def get_default_feature_layer_for_metric(metric: str) -> str:
        return "means"

    @staticmethod
    def can_be_compiled() -> bool:
        return False

    @staticmethod
    def get_dummy_input_for_compile() -> torch.Tensor:
        return torch.zeros(1, 3, 8, 8, dtype=torch.uint8)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x = x.double() / 255
        return (torch.cat([x.mean((2, 3)), x.std((2, 3))], 1),)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of torch-fidelity
def test_torch_fidelity_measures_the_folder(in_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = train(*TINY)
    out = in_folder / "it's mine"
    for _ in range(2):  # also where there are samples already
        assert main(["sample", f"run={run.folder}", "seeds=0-9", f'outdir="{out}"', "batch_size=8"]) == 0
    said = capsys.readouterr().out
    words = shlex.split(said[said.rindex("next: ") :].splitlines()[0].removeprefix("next: "))
    assert words == ["diffusion-lab", "evaluate", f"run={run.folder}"] and "other files" not in said
    images = out / "images"
    assert sorted(path.name for path in images.iterdir()) == [f"{i:06d}.png" for i in range(10)]
    assert (out / "grid.png").is_file()
    torch_fidelity.register_feature_extractor("means", Means)
    given = {"feature_extractor": "means", "fid": True, "cuda": False, "cache": False, "verbose": False}
    same = torch_fidelity.calculate_metrics(input1=str(images), input2=str(images), **given)
    assert same["frechet_inception_distance"] == pytest.approx(0, abs=1e-6)
    assert main(["sample", f"run={run.folder}", "seeds=0-3", f'outdir="{out}"', "batch_size=8"]) == 0
    assert "6 other files were there before" in capsys.readouterr().out


@pytest.mark.slow
def test_class_grids_are_those_of_the_last_command(in_folder: Path) -> None:
    run = train(*TINY, "dataset.conditional=true")
    for words, labels in (["seeds=0-2", "labels=[3,3,5]"], [3, 5]), (["seeds=1"], [1]):
        assert main(["sample", f"run={run.folder}", "outdir=out", *words]) == 0
        assert {path.name for path in (in_folder / "out").glob("class-*")} == {f"class-{one}.png" for one in labels}
