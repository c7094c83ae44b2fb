"""`run.samples(ids, labels=...)`: classes by number or name, as `diffusion-lab sample labels=...` takes them."""

from __future__ import annotations

import pytest
import torch

from diffusion_lab.data import Conditions, Digits
from diffusion_lab.data.conditions import Task
from diffusion_lab.training import TrainedDiffusion
from tests.cli.test_export_classes import model


@pytest.fixture(scope="module")
def trained() -> TrainedDiffusion:
    trained = model()
    trained.data.conditions.recorded_classes = ["cats", "dogs", "birds"]
    return trained


def test_samples_are_of_the_classes_that_are_named(trained: TrainedDiffusion) -> None:
    ids = [7, 3, 4]
    by_name, by_number = (trained.samples(ids, labels=labels) for labels in ("Dogs", [1]))
    assert torch.equal(by_name, by_number)
    assert torch.equal(by_name[2], trained.samples([4])[0])  # 4 mod 3 is the class 1
    assert not torch.equal(by_name[:2], trained.samples([7, 3])[:2].flip(0)) and by_name.float().std() > 1
    in_turn = trained.samples(ids, labels=["dogs", "cats"], batch_size=2)
    assert torch.equal(in_turn[0], by_name[0]) and torch.equal(in_turn[2], by_name[2])
    assert torch.equal(in_turn[1], trained.samples([3])[0])  # 3 mod 3 is the class 0
    assert not torch.equal(in_turn[1], by_name[1])


def test_a_label_that_is_no_class_is_a_sentence(trained: TrainedDiffusion) -> None:
    with pytest.raises(ValueError, match=r"^labels=\[bird\] must be classes in 0..2 \(0 cats, 1 dogs, 2 birds\)"):
        trained.samples([0], labels=["bird"])


def test_labels_of_a_paired_task_stay_beside_its_images() -> None:
    class Pairs(Task):
        names, paired = ("low",), True

        def condition(self, x0: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"low": x0[:, :, ::2]}

    conditions = Conditions(Digits(), conditional=True, task=Pairs())
    own, asked = conditions.of_samples([5, 6]), conditions.of_samples_with([4, 5, 6], [8, 9])([5, 6])
    assert torch.equal(own["low"], asked["low"]) and asked["label"].tolist() == [9, 8]
