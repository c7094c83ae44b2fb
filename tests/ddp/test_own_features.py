"""Features of the data set's own with two processes of two machines: one trains, and both measure by its network."""

import json
import os
from pathlib import Path

import pytest
import torch.distributed as dist

from diffusion_lab.data import Digits, ImageDataModule
from diffusion_lab.data.source import ArrayImages
from diffusion_lab.diffusion import Denoiser, Epsilon, FixedLarge, linear
from diffusion_lab.metrics import Evaluation, OwnFeatures, learn_features
from diffusion_lab.solvers import DDIM
from tests.harness import Child
from tests.metrics.conftest import Shrink
from tests.metrics.named import named

pytestmark = pytest.mark.slow


class Large(Digits):
    """Digits of 56 pixels: nearest images of so many are looked for in features."""

    image_size = 56

    def load(self, split: str) -> ArrayImages:
        found = super().load(split)
        chosen = slice(0, 320 if split == "train" else 80)
        return ArrayImages(found.images[chosen].repeat_interleave(7, 2).repeat_interleave(7, 3), found.labels[chosen])


def measure(folder: Path, rank: int, world_size: int, name: str = "fid") -> None:
    """Write value and extractor of a metric, with a folder of caches of the process's own."""
    os.environ["DIFFUSION_LAB_CACHE"] = str(folder / f"cache-{rank}")
    learn_features.STEPS = 3
    place = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=place, rank=rank, world_size=world_size)
    data = ImageDataModule(Digits() if name == "fid" else Large(), 16, features=OwnFeatures())
    denoiser = Denoiser(Shrink(), linear(50), Epsilon(), FixedLarge())
    evaluation = Evaluation(num_samples=140, metrics=named(name))
    result, *_ = evaluation(denoiser, DDIM(steps=2), data, keep=0).results
    (folder / f"{rank}.json").write_text(json.dumps([result.value, result.protocol["extractor"]]))
    dist.destroy_process_group()


def measured(folder: Path, world_size: int, name: str = "fid") -> list[tuple[float, dict[str, str]]]:
    folder.mkdir()
    children = [Child(lambda r=r: measure(folder, r, world_size, name), folder / f"log-{r}") for r in range(world_size)]
    assert [child.wait(120) for child in children] == [0] * world_size, (folder / "log-0").read_text()
    return [json.loads((folder / f"{r}.json").read_text()) for r in range(world_size)]


@pytest.mark.parametrize("name", ["fid", "copying"])
def test_all_processes_use_the_network_of_the_first(name: str, tmp_path: Path) -> None:
    """For `copying` alone it was not sent: the second process measured with an untrained one."""
    ((alone, network),) = measured(tmp_path / "one", 1, name)
    for value, used in measured(tmp_path / "two", 2, name):
        assert used == network and value == pytest.approx(alone, rel=1e-5)
    assert [path.parent.parent.name for path in (tmp_path / "two").glob("*/features/*.pt")] == ["cache-0"]
