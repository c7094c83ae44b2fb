"""The order of the images as a part, and the images' numbers where they are used."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from diffusion_lab.auxiliary import Auxiliary
from diffusion_lab.cli.config import config_hash
from diffusion_lab.cli.main import main
from diffusion_lab.data import ArrayImages, Curriculum, ImageDataModule, ImageOrder, to_uint8
from diffusion_lab.data.image_order import Permutations, choose, roughness
from diffusion_lab.diffusion import Step, Unit
from diffusion_lab.failure import WrongResult
from diffusion_lab.streams import Streams
from diffusion_lab.timesteps import StepRecord
from tests.auxiliary.small import images as small_images
from tests.auxiliary.small import module
from tests.data.fakes import Memory, first_batches, numbered
from tests.harness import configuration

N, K = 40, 60


def indices(**more: Any) -> Any:
    """Of images whose roughness falls with their number; 8 in a step, so an epoch is 5 steps."""
    return Curriculum(steps=K, **more).over(ArrayImages(numbered(N)), 8, Streams(3))


def test_the_roughness_of_bytes_is_exact() -> None:
    x = torch.tensor([[[[0, 255], [3, 255]]]], dtype=torch.uint8)
    assert roughness(x).item() == (255**2 + 252**2 + 3**2) / 4
    assert roughness(torch.ones(2, 1, 1, 1)).tolist() == [0, 0]


@pytest.mark.parametrize(("start", "power"), [(0.1, 2.0), (0.3, 1.0), (1.0, 2.0)])
def test_a_step_has_the_easiest_images_and_from_step_k_on_the_usual_ones(start: float, power: float) -> None:
    chosen, usual = indices(start=start, power=power), Permutations(N, 8, Streams(3))
    for step in reversed(range(K)):  # no history
        share = (start**power + (1 - start**power) * step / K) ** (1 / power)
        pool = math.ceil(share * N)
        # The image with the number i has the number N - 1 - i by difficulty.
        assert torch.equal(chosen(step), N - 1 - (N - 1 - usual(step)) * pool // N)
        assert chosen(step).min() >= N - pool
    assert all(torch.equal(chosen(step), usual(step)) for step in range(K, K + 10))


def test_in_an_epoch_each_image_of_the_pool_comes_equally_often() -> None:
    class Quarter(Curriculum):
        def share(self, step: int) -> float:
            return 0.25

    chosen = Quarter().over(ArrayImages(numbered(N)), 8, Streams(0))
    seen = Counter(torch.cat([chosen(step) for step in range(5)]).tolist())
    assert seen == dict.fromkeys(range(30, 40), 4)


def test_a_difficulty_of_ones_own() -> None:
    class ByNumber(Curriculum):
        def difficulty(self, images: Any) -> Tensor:
            return torch.arange(len(images)) % 2

    chosen = ByNumber(steps=1, start=0.5).over(ArrayImages(numbered(N)), 8, Streams(0))
    assert chosen(0).remainder(2).eq(0).all() and chosen(1).remainder(2).any()

    class Short(Curriculum):
        def difficulty(self, images: Any) -> Tensor:
            return torch.zeros(3)

    with pytest.raises(WrongResult, match="Short.difficulty must return 40 finite numbers"):
        Short().over(ArrayImages(numbered(N)), 8, Streams(0))


@pytest.mark.parametrize("wrong", [torch.full((8,), N), torch.zeros(7, dtype=torch.int64), torch.zeros(8), None])
def test_wrong_numbers_are_named(wrong: Any) -> None:
    class Wrong(ImageOrder):
        def over(self, images: Any, rows: int, streams: Streams) -> Any:
            return lambda step: wrong

    with pytest.raises(WrongResult, match=r"Wrong.over must return a function to \(8,\) int64 in 0..39"):
        choose(Wrong(), ArrayImages(numbered(N)), 8, Streams(0))(0)


class Numbers(Auxiliary):
    """What the numbers of the images are."""

    def rows(self, step: Step) -> Tensor:
        assert step.index is not None
        return step.index.float()


class Seen(Unit):
    """Keeps the record of an update."""

    uses_record = True
    seen: StepRecord

    def observe(self, record: StepRecord, snr: Tensor) -> None:
        self.seen = record

    def forward(self, native_loss: Tensor, *args: Any, record: Any = None) -> Tensor:
        return native_loss.sum(1) * record.index


def test_the_numbers_reach_losses_weightings_and_records_and_not_the_network() -> None:
    of, index = module(weighting=Seen(), auxiliary={"numbers": Numbers(weight=1.0)}), torch.tensor([5, 0, 3, 3, 1, 2])
    record = of.training_step({"image": small_images(), "index": index}, 0)["record"]
    assert record.cond == {} and torch.equal(record.index, index)
    assert torch.equal(record.auxiliary["numbers"], index.float())
    assert torch.equal(record.objective, record.loss * index)
    joined = StepRecord.join([record, record])
    assert joined.index is not None and torch.equal(joined.index, torch.cat([index, index]))
    plain = module().training_step({"image": small_images()}, 0)["record"]
    assert plain.index is None and torch.equal(plain.loss, record.loss)


def test_each_batch_has_the_numbers_of_its_images() -> None:
    data = ImageDataModule(Memory(numbered(N), torch.arange(N) % 3, 3), 8, conditional=True, order=Curriculum(steps=4))
    for batch in first_batches(data, 6):
        assert torch.equal(to_uint8(batch["image"])[:, 0, 0, 0].long(), batch["index"])
        assert torch.equal(batch["label"], batch["index"] % 3)


def test_another_order_is_another_run_and_must_reach_the_data_set(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, ordered = configuration(tmp_path), configuration(tmp_path, "order=curriculum")
    assert config_hash(plain) != config_hash(ordered) and plain.order is plain.dataset.order is None
    monkeypatch.chdir(tmp_path)
    assert main(["train", "order=curriculum", "dataset.order=null", "trainer.accelerator=cpu"]) == 2
    said = capsys.readouterr().err
    assert "order=curriculum must be given to the data set; add `order: ${order}` to its yaml file" in said
